//! Attaches the programs to devices: last at ingress, first at egress, as netfilter's own
//! translation would stand to other agents on the device.

pub(super) mod clsact;
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

use aya::Ebpf;
use aya::maps::MapError;
use aya::programs::{ProgramError, SchedClassifier};
use rustix::io::Errno;
use thiserror::Error;
use tracing::info;

use super::devices::Devices;
use super::pins::{PinError, Place};
use super::syscall::link::{self, Direction};
use crate::node::Device;
use clsact::Clsact;
use foreign::Names;
use instances::{Instances, loaded};
use names::{Program, programs};
use patience::Patience;
use tcx::Tcx;

/// The loaded programs and where they are attached.
#[derive(Debug)]
pub struct Programs {
    ebpf: Ebpf,
    devices: Devices,
    mode: Mode,
    tcx: Tcx,
    clsact: Clsact,
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
    /// A filter of a `clsact` queueing discipline.
    Clsact,
}

/// Which of them is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// The first that the kernel has.
    #[default]
    Auto,
    /// This one.
    Only(Mode),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
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
    /// There is no place for the program at egress.
    #[error(
        "it has an ingress queueing discipline, as the bandwidth plugin of CNI makes it, which \
        before Linux 6.6 leaves no place for programs at egress"
    )]
    IngressQdisc,
    /// What is in front may let packets pass for good.
    #[error("a {kind} filter at {direction} comes first, which may hide packets from ours")]
    FilterInFront {
        /// Kind of the filter.
        kind: String,
        /// Which hook.
        direction: Direction,
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
    /// The programs cannot be told of the device.
    #[error("cannot enter {device} in map DEVICES")]
    Unknown {
        /// The device.
        device: String,
        /// Why.
        source: MapError,
    },
    /// A pin is in the way.
    #[error(transparent)]
    Pin(#[from] PinError),
}

impl AttachError {
    /// Whether the device is not attached to by choice.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Agent { .. } | Self::IngressQdisc | Self::FilterInFront { .. }
        )
    }

    /// The kernel refuses.
    fn refused(device: &Device, program: &'static str, source: io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::NODEV) => Self::Gone(device.name.clone()),
            _ => Self::Refused {
                program,
                device: device.name.clone(),
                source,
            },
        }
    }
}

impl Programs {
    /// The object that they are in.
    pub(super) const fn ebpf(&self) -> &Ebpf {
        &self.ebpf
    }

    pub(super) fn new(
        ebpf: Ebpf,
        devices: Devices,
        place: Option<Place>,
        attach: AttachMode,
    ) -> io::Result<Self> {
        let mode = match attach {
            AttachMode::Only(mode) => mode,
            AttachMode::Auto if link::is_supported() => Mode::Tcx,
            AttachMode::Auto => {
                info!("this kernel has no TCX: programs are attached by filters of clsact");
                Mode::Clsact
            }
        };
        Ok(Self {
            ebpf,
            devices,
            mode,
            tcx: Tcx::new(place.clone()),
            clsact: Clsact::new(place)?,
            instances: Instances::default(),
            names: Names::default(),
            hidden: hidden::Watch::default(),
            patience: Patience::default(),
        })
    }

    /// A program, for what is not done here: tests run programs without any device.
    pub fn program_mut(&mut self, name: &str) -> Option<&mut SchedClassifier> {
        self.ebpf.program_mut(name)?.try_into().ok()
    }

    /// Attaches to both directions of a device, or takes over what a former run has attached. Where
    /// it is attached already, programs for another class or framing take the place of the old ones.
    pub fn attach(&mut self, device: &Device) -> Result<Mode, AttachError> {
        let is_taken = self.is_taken(device.index);
        if !is_taken && let Some((agent, program)) = self.agent(device.index) {
            return Err(AttachError::Agent { agent, program });
        }
        let (ingress, egress) = programs(device);
        self.devices
            .set(device)
            .map_err(|source| AttachError::Unknown {
                device: device.name.clone(),
                source,
            })?;
        // Egress first: a reply must never meet a device that translates requests only.
        let attached = self
            .attach_one(device, egress, Direction::Egress)
            .and_then(|()| self.attach_one(device, ingress, Direction::Ingress));
        if attached.is_err() && !is_taken {
            self.detach(device.index);
        }
        attached.map(|()| self.mode)
    }

    /// Whether a device is attached to, be it by a former run.
    fn is_taken(&self, device: u32) -> bool {
        match self.mode {
            Mode::Tcx => self.tcx.is_taken(device),
            Mode::Clsact => self.clsact.found(device, Direction::Ingress).is_attached,
        }
    }

    fn attach_one(
        &mut self,
        device: &Device,
        program: Program,
        direction: Direction,
    ) -> Result<(), AttachError> {
        let name = program.name;
        let program = loaded(&mut self.ebpf, name)?;
        match self.mode {
            Mode::Tcx => self
                .tcx
                .attach(device.index, direction, program)
                .map_err(|error| error.at(device, name)),
            Mode::Clsact => self.clsact.attach(device, direction, name, program),
        }
    }

    /// Detaches from a device; nothing happens where nothing is attached. It works as well where
    /// the device has been moved to another network namespace and the program along with it.
    pub fn detach(&mut self, index: u32) {
        self.devices.remove(index);
        self.hidden.forget(&mut self.ebpf, index);
        self.patience.forget(|(device, _)| *device == index);
        self.tcx.detach(index);
        self.clsact.detach(index);
    }

    /// How many devices are attached to.
    pub fn device_count(&self) -> usize {
        match self.mode {
            Mode::Tcx => self.tcx.device_count(),
            Mode::Clsact => self.clsact.device_count(),
        }
    }

    /// Ends what former runs have left at devices that are not in `wanted`, and what other
    /// layouts have left altogether.
    pub fn settle(&mut self, wanted: &BTreeSet<u32>) {
        // What a run of the other mode has left is not wanted anywhere.
        let none = BTreeSet::new();
        let (tcx, clsact) = match self.mode {
            Mode::Tcx => (wanted, &none),
            Mode::Clsact => (&none, wanted),
        };
        self.tcx.settle(tcx);
        self.clsact.settle(clsact);
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
            Self::Kernel(error) => AttachError::refused(device, program, error),
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
