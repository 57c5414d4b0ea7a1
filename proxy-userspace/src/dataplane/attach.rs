//! Attaches the programs to devices: last at ingress, first at egress, as netfilter's own
//! translation would stand to other agents on the device.

mod foreign;
mod hidden;
mod instances;
mod names;
mod order;
mod patience;
mod tcx;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;

use aya::Ebpf;
use aya::programs::{ProgramError, SchedClassifier};
use rustix::io::Errno;
use thiserror::Error;

use super::pins::{PinError, Place};
use super::syscall::link::Direction;
use crate::node::Device;
use foreign::Names;
use instances::{Instances, classifier};
use names::{Program, programs};
use patience::Patience;
use tcx::Tcx;

/// The loaded programs and where they are attached.
#[derive(Debug)]
pub struct Programs {
    ebpf: Ebpf,
    tcx: Tcx,
    instances: Instances,
    names: Names,
    hidden: hidden::Watch,
    patience: Patience<(u32, Direction)>,
}

/// By what a program is attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A link to TCX (Linux 6.6).
    Tcx,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
        })
    }
}

/// Why a device cannot be attached to.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The device is gone.
    #[error("device {0} is not there any more")]
    Gone(String),
    /// Somebody has taken a program off.
    #[error("the program at {0} was taken off the device")]
    Lost(Direction),
    /// Another agent does there what ours would do.
    #[error(
        "{agent} handles the packets of this device ({program}), which translates Services itself"
    )]
    Agent {
        /// Whose program.
        agent: &'static str,
        /// Its name.
        program: String,
    },
    /// The object lacks a program.
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
    /// A program was not loaded.
    #[error("program {program} cannot be attached")]
    Program {
        /// The program.
        program: &'static str,
        /// Why.
        source: ProgramError,
    },
    /// The kernel refuses.
    #[error("cannot attach {program} to {device}")]
    Refused {
        /// The program.
        program: &'static str,
        /// The device.
        device: String,
        /// Why.
        source: io::Error,
    },
    /// A pin is in the way.
    #[error(transparent)]
    Pin(#[from] PinError),
}

impl AttachError {
    /// Whether the device is not attached to by choice.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Agent { .. })
    }
}

impl Programs {
    pub(super) fn new(ebpf: Ebpf, place: Option<Place>) -> Self {
        Self {
            ebpf,
            tcx: Tcx::new(place),
            instances: Instances::default(),
            names: Names::default(),
            hidden: hidden::Watch::default(),
            patience: Patience::default(),
        }
    }

    /// A program, for what is not done here: tests run programs without any device.
    pub fn program_mut(&mut self, name: &str) -> Option<&mut SchedClassifier> {
        self.ebpf.program_mut(name)?.try_into().ok()
    }

    /// Attaches to both directions of a device, or takes over what a former run has attached. Where
    /// it is attached already, programs for another class or framing take the place of the old ones.
    pub fn attach(&mut self, device: &Device) -> Result<Mode, AttachError> {
        if !self.tcx.is_taken(device.index)
            && let Some((agent, program)) = self.agent(device.index)
        {
            return Err(AttachError::Agent { agent, program });
        }
        let (ingress, egress) = programs(device);
        // Egress first: a reply must never meet a device that translates requests only.
        self.attach_one(device, egress, Direction::Egress)?;
        self.attach_one(device, ingress, Direction::Ingress)?;
        Ok(Mode::Tcx)
    }

    fn attach_one(
        &mut self,
        device: &Device,
        program: Program,
        direction: Direction,
    ) -> Result<(), AttachError> {
        let name = program.name;
        let classifier = classifier(&mut self.ebpf, name)?;
        let program = classifier.fd().map_err(|source| AttachError::Program {
            program: name,
            source,
        })?;
        self.tcx
            .attach(device.index, direction, program.as_fd())
            .map_err(|error| error.at(device, name))
    }

    /// Detaches from a device; nothing happens where nothing is attached. It works as well where
    /// the device has been moved to another network namespace and the program along with it.
    pub fn detach(&mut self, index: u32) {
        self.hidden.forget(&mut self.ebpf, index);
        self.patience.forget(|(device, _)| *device == index);
        self.tcx.detach(index);
    }

    /// How many devices are attached to.
    pub fn device_count(&self) -> usize {
        self.tcx.device_count()
    }

    /// Ends what former runs have left at devices that are not in `wanted`, and what other
    /// layouts have left altogether.
    pub fn settle(&self, wanted: &BTreeSet<u32>) {
        self.tcx.settle(wanted);
    }
}

/// What went wrong with one program, without the names that its caller knows.
#[derive(Debug)]
enum Failed {
    Kernel(io::Error),
    Pin(PinError),
}

impl Failed {
    fn at(self, device: &Device, program: &'static str) -> AttachError {
        match self {
            Self::Pin(error) => error.into(),
            Self::Kernel(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => {
                AttachError::Gone(device.name.clone())
            }
            Self::Kernel(source) => AttachError::Refused {
                program,
                device: device.name.clone(),
                source,
            },
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}

impl From<PinError> for Failed {
    fn from(error: PinError) -> Self {
        Self::Pin(error)
    }
}
