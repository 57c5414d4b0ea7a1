//! Keeps programs in their places among those of others.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Instant;

use tracing::{info, warn};

use super::foreign::agent;
use super::hidden::{Finding, Witnesses};
use super::instances::loaded;
use super::names::{Program, programs};
use super::tcx::Standing;
use super::{AttachError, Failed, Mode, Programs};
use crate::dataplane::syscall::link::Direction;
use crate::node::Device;

/// From so many times on that a place was taken back, an operator is told.
const QUARREL: u32 = 3;

impl Programs {
    /// Looks whether a device is still attached to as it should be, and puts right what is not;
    /// what is wrong with it all the same.
    pub fn look(&mut self, device: &Device) -> Result<Vec<String>, AttachError> {
        let mut warnings = Vec::new();
        let filters = self.filters(device.index);
        if let Some((agent, program)) = self.agent_among(device.index, &filters) {
            self.hidden.end(&mut self.ebpf, device.index);
            for direction in [Direction::Ingress, Direction::Egress] {
                self.require(device, direction)?;
            }
            warnings.push(format!(
                "{agent} handles its packets too ({program}), which translates Services itself; \
                 nothing is moved there"
            ));
            return Ok(warnings);
        }
        let (ingress, egress) = programs(device);
        match self.mode {
            Mode::Tcx => {
                self.keep(device, egress, Direction::Egress, &mut warnings)?;
                self.keep(device, ingress, Direction::Ingress, &mut warnings)?;
                self.look_behind(device, ingress, &mut warnings)?;
            }
            Mode::Clsact => {
                self.keep_filter(device, egress, Direction::Egress, &mut warnings)?;
                self.keep_filter(device, ingress, Direction::Ingress, &mut warnings)?;
            }
        }
        if !filters.is_empty() {
            warnings.push(format!(
                "filters of clsact see endpoints on the way in and Services on the way out: {}",
                filters.join(", ")
            ));
        }
        Ok(warnings)
    }

    /// An agent that translates Services itself at this device, and one of its programs.
    pub(super) fn agent(&mut self, device: u32) -> Option<(&'static str, String)> {
        let filters = self.filters(device);
        self.agent_among(device, &filters)
    }

    fn agent_among(&mut self, device: u32, filters: &[String]) -> Option<(&'static str, String)> {
        let mut names = filters.to_vec();
        if self.mode == Mode::Tcx {
            let mut others = self.tcx.others(device, Direction::Ingress);
            others.extend(self.tcx.others(device, Direction::Egress));
            names.extend(others.iter().map(|one| self.names.of(one.program)));
        }
        names
            .into_iter()
            .find_map(|name| Some((agent(&name)?, name)))
    }

    /// Names of the programs that others have hung on a device by filters.
    fn filters(&self, device: u32) -> Vec<String> {
        if !self.clsact.has_hooks(device) {
            return Vec::new();
        }
        let mut names = self.clsact.found(device, Direction::Ingress).others;
        names.extend(self.clsact.found(device, Direction::Egress).others);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Fails where the program is not at the device any more.
    fn require(&self, device: &Device, direction: Direction) -> Result<(), AttachError> {
        let is_there = match self.mode {
            Mode::Tcx => self.standing(device, direction).is_ok(),
            Mode::Clsact => self.clsact.found(device.index, direction).is_attached,
        };
        is_there.then_some(()).ok_or(AttachError::Lost(direction))
    }

    /// Comes before the filters of others again.
    fn keep_filter(
        &mut self,
        device: &Device,
        program: Program,
        direction: Direction,
        warnings: &mut Vec<String>,
    ) -> Result<(), AttachError> {
        self.require(device, direction)?;
        if self.clsact.found(device.index, direction).is_first {
            return Ok(());
        }
        let place = (device.index, direction);
        if self.patience.may(place, Instant::now()) {
            match self.come_first(device, program, direction) {
                Ok(()) => info!(device = %device.name, %direction, "took its place back"),
                Err(error) => warnings.push(in_vain(direction, &error)),
            }
        }
        if self.patience.times(&place) > QUARREL {
            warnings.push(format!("another filter wants to be first at {direction}"));
        }
        Ok(())
    }

    fn come_first(
        &mut self,
        device: &Device,
        program: Program,
        direction: Direction,
    ) -> Result<(), AttachError> {
        let once = self.instances.of::<2>(&mut self.ebpf, program.once)?;
        let name = program.name;
        let program = loaded(&mut self.ebpf, name)?;
        self.clsact
            .come_first(device.index, direction, program, once)
            .map_err(|error| AttachError::refused(device, name, error))
    }

    fn standing(&self, device: &Device, direction: Direction) -> Result<Standing, AttachError> {
        let witnesses = self.hidden.witnesses(device.index);
        self.tcx
            .standing(device.index, direction, &witnesses)
            .ok_or(AttachError::Lost(direction))
    }

    /// Takes a place back that others have taken.
    fn keep(
        &mut self,
        device: &Device,
        program: Program,
        direction: Direction,
        warnings: &mut Vec<String>,
    ) -> Result<(), AttachError> {
        let standing = self.standing(device, direction)?;
        let others: Vec<_> = standing.others.iter().map(|one| one.program).collect();
        let is_reversed = standing.is_reversed && self.hidden.is_hiding(device.index, &others);
        if !standing.is_in_place || is_reversed != standing.is_reversed {
            let place = (device.index, direction);
            if self.patience.may(place, Instant::now()) {
                match self.change_places(device, program, direction, is_reversed) {
                    Ok(()) => info!(device = %device.name, %direction, "took its place back"),
                    Err(error) => warnings.push(in_vain(direction, &error)),
                }
            }
            if self.patience.times(&place) > QUARREL {
                let others = self.name_all(&others);
                warnings.push(format!(
                    "another program wants the same place at {direction}: {others}"
                ));
            }
        }
        Ok(())
    }

    fn change_places(
        &mut self,
        device: &Device,
        program: Program,
        direction: Direction,
        is_reversed: bool,
    ) -> Result<(), AttachError> {
        self.hidden.end(&mut self.ebpf, device.index);
        let once = self.instances.of::<2>(&mut self.ebpf, program.once)?;
        let name = program.name;
        let program = loaded(&mut self.ebpf, name)?;
        self.tcx
            .change_places(device.index, direction, is_reversed, program, once)
            .map_err(|error| error.at(device, name))
    }

    /// Looks whether the programs before ours let packets through, and goes before them if not.
    fn look_behind(
        &mut self,
        device: &Device,
        program: Program,
        warnings: &mut Vec<String>,
    ) -> Result<(), AttachError> {
        let standing = self.standing(device, Direction::Ingress)?;
        let others: Vec<_> = standing.others.iter().map(|one| one.program).collect();
        if standing.is_reversed {
            let others = self.name_all(&others);
            warnings.push(format!(
                "a program keeps packets from those after it, so ours came before it, and it sees \
                 endpoints in the place of Services: {others}"
            ));
            return Ok(());
        }
        let index = device.index;
        let before = others.get(..standing.before).unwrap_or_default();
        if before.is_empty() {
            self.hidden.end(&mut self.ebpf, index);
            return Ok(());
        }
        let now = Instant::now();
        if self.hidden.concerns(index, before, now) {
            self.hidden.end(&mut self.ebpf, index);
            if !self.hidden.has_room(&mut self.ebpf, now) {
                return Ok(());
            }
            let begun = self.begin_to_look(index, before.to_vec());
            if let Err(error) = begun.map_err(|error| error.at(device, "see_first")) {
                warnings.push(format!(
                    "whether packets come through is not known: {error}"
                ));
            }
            return Ok(());
        }
        if self.hidden.ask(&mut self.ebpf, index, now) == Finding::Hidden {
            let others = self.name_all(before);
            warn!(device = %device.name, %others, "no packet comes through, going before it");
            self.hidden.found(index, before.to_vec());
            if let Err(error) = self.change_places(device, program, Direction::Ingress, true) {
                warnings.push(in_vain(Direction::Ingress, &error));
            }
        }
        Ok(())
    }

    fn begin_to_look(&mut self, device: u32, others: Vec<u32>) -> Result<(), Failed> {
        let refused = |error: AttachError| Failed::Kernel(io::Error::other(error));
        let first = self.instances.of::<1>(&mut self.ebpf, "see_first");
        let [first] = first.map_err(refused)?;
        let first = first.try_clone_to_owned()?;
        let last = self.instances.of::<1>(&mut self.ebpf, "see_last");
        let [last] = last.map_err(refused)?;
        let own = self.tcx.link(device, Direction::Ingress);
        let own = own.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let programs = Witnesses {
            first: first.as_fd(),
            last,
            own,
        };
        Ok(self
            .hidden
            .begin(&mut self.ebpf, device, others, &programs)?)
    }

    fn name_all(&mut self, programs: &[u32]) -> String {
        let names: Vec<_> = programs.iter().map(|id| self.names.of(*id)).collect();
        names.join(", ")
    }
}

fn in_vain(direction: Direction, error: &AttachError) -> String {
    format!("its place at {direction} cannot be taken back: {error}")
}
