//! The Internet checksum (RFC 1071), and what a changed word changes it by (RFC 1624).

/// What some changed words change the one's complement sum over them by.
///
/// Words are as they lie in memory, of 16 or 32 bits: the sum does not mind its byte order, as long
/// as it is the same everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference(u32);

impl Difference {
    /// Nothing has changed.
    pub const NONE: Self = Self(0);

    /// One more word has changed.
    #[must_use]
    #[inline(always)]
    pub const fn replace(self, from: u32, to: u32) -> Self {
        Self(add(add(self.0, !from), to))
    }

    /// What the other one says has changed as well.
    #[must_use]
    #[inline(always)]
    pub const fn and(self, other: Self) -> Self {
        Self(add(self.0, other.0))
    }

    /// The checksum over what has changed, which was `check` before.
    #[inline(always)]
    pub const fn apply(self, check: u16) -> u16 {
        !fold(add(self.0, !(check as u32)))
    }

    /// The sum itself, as the kernel's helpers take it.
    #[inline(always)]
    pub const fn sum(self) -> u32 {
        self.0
    }
}

/// One's complement sum.
#[inline(always)]
const fn add(a: u32, b: u32) -> u32 {
    let sum = a.wrapping_add(b);
    sum.wrapping_add((sum < a) as u32)
}

/// Folds a one's complement sum into 16 bits.
#[inline(always)]
const fn fold(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum of some words, from scratch.
    fn checksum(words: &[u16]) -> u16 {
        let mut sum: u32 = words.iter().map(|word| u32::from(*word)).sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }

    #[test]
    fn a_changed_word_changes_the_checksum_as_computed_anew() {
        let words = [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff, 0x1234];
        for from in words {
            for to in words {
                for rest in words {
                    let before = checksum(&[rest, 0x0a00, from]);
                    let difference = Difference::NONE.replace(from.into(), to.into());
                    let after = difference.apply(before);
                    assert_eq!(
                        0,
                        checksum(&[rest, 0x0a00, to, after]),
                        "{from} {to} {rest}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_word_of_32_bits_is_two_of_16() {
        let (from, to) = (0xffff_0001, 0x8000_ffff);
        let halves = Difference::NONE
            .replace(0xffff, 0x8000)
            .replace(0x0001, 0xffff);
        for check in [0x1234, 0xfffe, 0x0001] {
            let whole = Difference::NONE.replace(from, to);
            assert_eq!(halves.apply(check), whole.apply(check));
        }
    }

    #[test]
    fn a_change_and_its_checksum_cancel_out() {
        let changed = Difference::NONE.replace(0x0a60_0001, 0x0af4_0203);
        let after = changed.apply(0x4321);
        let both = changed.and(Difference::NONE.replace(0x4321, after.into()));
        for check in [0x0001, 0x1234, 0xfffe] {
            assert_eq!(check, both.apply(check));
        }
    }
}
