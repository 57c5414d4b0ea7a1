//! Who is inside, as the tables were told.

use proxy_common::abi::Detector;

use super::op::Op;

/// What tells the inside from the outside.
#[derive(Debug, Default)]
pub(super) struct Detection {
    /// What it should be, if that was said.
    wanted: Option<Detector>,
    /// What the tables hold once the operations so far are carried out.
    told: Option<Detector>,
}

impl Detection {
    /// Begins with what the tables hold.
    pub(super) const fn adopt(&mut self, value: Option<Detector>) {
        self.told = value;
    }

    pub(super) const fn set(&mut self, value: Detector) {
        self.wanted = Some(value);
    }

    /// The operation for a change since the last call.
    pub(super) fn drain(&mut self) -> Option<Op> {
        let value = self.wanted.filter(|wanted| self.told != Some(*wanted))?;
        self.told = Some(value);
        Some(Op::Detector { value })
    }

    /// What it should be.
    pub(super) fn op(&self) -> Option<Op> {
        self.told.map(|value| Op::Detector { value })
    }
}
