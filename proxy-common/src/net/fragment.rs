//! Pieces of datagrams.

/// Which piece of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Piece {
    /// All of it.
    Whole = 0,
    /// The first one, in which the transport header stands.
    First = 1,
    /// Any other one.
    Later = 2,
}

impl Piece {
    /// The piece that begins at `offset`, in any unit, and may have others behind it.
    #[inline(always)]
    pub const fn at(offset: u16, has_more: bool) -> Self {
        match (offset, has_more) {
            (0, false) => Self::Whole,
            (0, true) => Self::First,
            _ => Self::Later,
        }
    }
}
