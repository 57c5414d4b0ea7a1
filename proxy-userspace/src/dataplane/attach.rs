//! Attaches the programs to devices by TCX: last at ingress, first at egress, as netfilter's own
//! translation would stand to other agents on the device.

use std::collections::HashMap;

use aya::Ebpf;
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use thiserror::Error;

use crate::node::{Device, Framing};

/// The loaded programs and where they are attached.
#[derive(Debug)]
pub struct Programs {
    ebpf: Ebpf,
    /// By the index of the device.
    links: HashMap<u32, Links>,
}

/// Both ends of one device. Dropping a link detaches it, also where the device has been moved to
/// another network namespace and the program along with it.
#[derive(Debug)]
struct Links {
    ingress: SchedClassifierLink,
    egress: SchedClassifierLink,
}

/// Why a device cannot be attached to.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The device is gone, or has another name by now.
    #[error("device {0} is not there any more")]
    Gone(String),
    /// The object lacks a program.
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
    /// The kernel refuses.
    #[error("cannot attach {program} to {device}")]
    Refused {
        /// The program.
        program: &'static str,
        /// The device.
        device: String,
        /// Why.
        source: ProgramError,
    },
}

impl Programs {
    pub(super) fn new(ebpf: Ebpf) -> Self {
        Self {
            ebpf,
            links: HashMap::new(),
        }
    }

    /// A program, for what is not done here: tests run programs without any device.
    pub fn program_mut(&mut self, name: &str) -> Option<&mut SchedClassifier> {
        self.ebpf.program_mut(name)?.try_into().ok()
    }

    /// Attaches to both directions of a device.
    pub fn attach(&mut self, device: &Device) -> Result<(), AttachError> {
        let (ingress, egress) = match device.framing {
            Framing::Ethernet => ("tc_in", "tc_eg"),
            Framing::None => ("tc_in_l3", "tc_eg_l3"),
        };
        // Egress first: a reply must never meet a device that translates requests only.
        let egress = self.link(device, egress, TcAttachType::Egress, LinkOrder::first())?;
        let ingress = self.link(device, ingress, TcAttachType::Ingress, LinkOrder::last())?;
        // aya takes a name; a device that was renamed meanwhile may have left it to another.
        if index_of(&device.name) != Some(device.index) {
            return Err(AttachError::Gone(device.name.clone()));
        }
        self.links.insert(device.index, Links { ingress, egress });
        Ok(())
    }

    /// Detaches from a device; nothing happens where nothing is attached.
    pub fn detach(&mut self, index: u32) {
        if let Some(Links { ingress, egress }) = self.links.remove(&index) {
            drop(ingress);
            drop(egress);
        }
    }

    /// How many devices are attached to.
    pub fn device_count(&self) -> usize {
        self.links.len()
    }

    fn link(
        &mut self,
        device: &Device,
        program: &'static str,
        direction: TcAttachType,
        order: LinkOrder,
    ) -> Result<SchedClassifierLink, AttachError> {
        let classifier = self
            .program_mut(program)
            .ok_or(AttachError::NoProgram(program))?;
        classifier
            .attach_with_options(&device.name, direction, TcAttachOptions::TcxOrder(order))
            .and_then(|link| classifier.take_link(link))
            .map_err(|source| match index_of(&device.name) {
                Some(_) => AttachError::Refused {
                    program,
                    device: device.name.clone(),
                    source,
                },
                None => AttachError::Gone(device.name.clone()),
            })
    }
}

/// The index of the device of this name.
fn index_of(name: &str) -> Option<u32> {
    let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(any, name).ok()
}
