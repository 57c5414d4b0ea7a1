//! What a flow half does and what its flow has been through, in one word.

use bytemuck::{Pod, Zeroable};

use super::flow::Kind;

/// What a flow has been through, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct State(pub u8);

impl State {
    /// Nothing yet.
    pub const NEW: Self = Self(0);
    /// The endpoint has answered.
    pub const REPLIED: Self = Self(1);
    /// The client has sent FIN.
    pub const FIN_CLIENT: Self = Self(2);
    /// The endpoint has sent FIN.
    pub const FIN_ENDPOINT: Self = Self(4);
    /// The client has sent RST, and nothing else since.
    pub const RST_CLIENT: Self = Self(8);
    /// The endpoint has sent RST, and nothing else since.
    pub const RST_ENDPOINT: Self = Self(16);

    /// Both sets of bits.
    #[must_use]
    #[inline(always)]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `bits` is set.
    #[inline(always)]
    pub const fn any(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    /// Whether the connection has come to its end: FIN both ways, or a RST that stands.
    #[inline(always)]
    pub const fn is_closed(self) -> bool {
        self.is_finished() || self.0 & (Self::RST_CLIENT.0 | Self::RST_ENDPOINT.0) != 0
    }

    /// Whether both sides have said FIN.
    #[inline(always)]
    pub const fn is_finished(self) -> bool {
        let fins = Self::FIN_CLIENT.0 | Self::FIN_ENDPOINT.0;
        self.0 & fins == fins
    }

    /// Whether the end has begun.
    #[inline(always)]
    pub const fn is_closing(self) -> bool {
        self.0 & !Self::REPLIED.0 != 0
    }
}

/// What was decided of a flow when it was opened, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct FlowFlags(pub u32);

impl FlowFlags {
    /// A plain flow: two halves, and the endpoint sees its client's address.
    pub const NONE: Self = Self(0);
    /// The flow has four halves, its endpoint is its client.
    pub const HAIRPIN: Self = Self(1);
    /// Netfilter is asked to masquerade the client's packets.
    pub const MASQUERADE: Self = Self(2);

    /// Whether all of `bits` are set.
    #[inline(always)]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }
}

/// Kind, state and flags in one word, so that state bits can be changed by one atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Marks(u32);

impl Marks {
    const FLAGS: u32 = 16;

    /// A half of this kind and state.
    #[inline(always)]
    pub const fn new(kind: Kind, state: State) -> Self {
        Self(kind.0 as u32 | (state.0 as u32) << 8)
    }

    /// The same with these flags, in place of none.
    #[must_use]
    #[inline(always)]
    pub const fn with(self, flags: FlowFlags) -> Self {
        Self(self.0 | flags.0 << Self::FLAGS)
    }

    /// What the half does.
    #[inline(always)]
    pub const fn kind(self) -> Kind {
        Kind(self.0 as u8)
    }

    /// What the flow has been through.
    #[inline(always)]
    pub const fn state(self) -> State {
        State((self.0 >> 8) as u8)
    }

    /// What was decided of the flow.
    #[inline(always)]
    pub const fn flags(self) -> FlowFlags {
        FlowFlags(self.0 >> Self::FLAGS)
    }

    /// The word to OR into a half to set `bits`.
    #[inline(always)]
    pub const fn word(bits: State) -> u32 {
        (bits.0 as u32) << 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_keep_kind_state_and_flags_apart() {
        let marks = Marks::new(Kind::DNAT, State::REPLIED).with(FlowFlags::HAIRPIN);
        assert_eq!(Kind::DNAT, marks.kind());
        assert_eq!(State::REPLIED, marks.state());
        assert_eq!(FlowFlags::HAIRPIN, marks.flags());
        let more = Marks(marks.0 | Marks::word(State::FIN_CLIENT));
        assert_eq!(State::REPLIED.with(State::FIN_CLIENT), more.state());
        assert_eq!(Kind::DNAT, more.kind());
    }

    #[test]
    fn one_fin_is_closing_and_two_are_closed() {
        assert!(State::FIN_CLIENT.is_closing());
        assert!(!State::FIN_CLIENT.is_closed());
        assert!(State::FIN_CLIENT.with(State::FIN_ENDPOINT).is_closed());
        assert!(State::RST_ENDPOINT.is_closed());
        assert!(!State::REPLIED.is_closing());
    }
}
