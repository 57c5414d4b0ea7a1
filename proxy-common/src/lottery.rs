//! The lottery: which endpoint a new flow goes to.
//!
//! # The cascade
//!
//! kube-proxy's iptables mode puts one rule per endpoint in a row. Of `n` rules, rule `i` (from 0)
//! fires with probability `1/(n-i)`, and the last one always. Rule `i` is reached only if no rule
//! before it fired, so endpoint `i` is chosen with probability
//!
//! ```text
//! (1 - 1/n) (1 - 1/(n-1)) ... (1 - 1/(n-i+1)) · 1/(n-i)
//!   = (n-1)/n · (n-2)/(n-1) · ... · (n-i)/(n-i+1) · 1/(n-i)
//!   = 1/n
//! ```
//!
//! because the product telescopes. The same telescoping is why one draw below `n` has the same
//! distribution as the whole cascade: [`pick`] runs the rules one by one up to a limit and takes
//! the single draw above it.
//!
//! # One draw
//!
//! A draw `r` is uniform over 2^32 values. The widening product `r * k` has its high word `h`
//! uniform over `0..k` as soon as the draws whose low word is below `2^32 mod k` are thrown away:
//! then exactly `floor(2^32 / k)` draws remain for every `h` (D. Lemire, "Fast Random Integer
//! Generation in an Interval", 2019). A rule of probability `1/k` fires when `h` is 0. A draw that
//! must be thrown away is replaced at most [`REDRAWS`] times, then taken as it is: only then is
//! there a bias, and that happens with probability below `(k / 2^32)^(REDRAWS + 1)`.

/// How often a draw that would bias the result is replaced before it is taken all the same.
pub const REDRAWS: u32 = 4;

/// A source of uniform 32-bit draws.
pub trait Random {
    /// The next draw.
    fn draw(&mut self) -> u32;
}

/// Whether a rule of probability `1/k` fires.
#[inline(always)]
pub fn fires<R: Random>(random: &mut R, k: u32) -> bool {
    below(random, k) == 0
}

/// A number below `k`, each with probability `1/k`; 0 if `k` is 0.
#[inline(always)]
pub fn below<R: Random>(random: &mut R, k: u32) -> u32 {
    let mut product = widen(random.draw(), k);
    // The threshold costs a division, and is below k: most draws need not ask for it.
    if (product as u32) < k {
        let Some(threshold) = k.wrapping_neg().checked_rem(k) else {
            return 0;
        };
        let mut redraws = 0;
        while (product as u32) < threshold && redraws < REDRAWS {
            product = widen(random.draw(), k);
            redraws += 1;
        }
    }
    (product >> 32) as u32
}

/// The endpoint that a new flow goes to, of `n`; 0 if there are none.
///
/// Up to `limit` endpoints, and [`MOST_RULES`], the cascade runs rule by rule, one draw for each;
/// above, one draw decides.
#[inline(always)]
pub fn pick<R: Random>(random: &mut R, n: u32, limit: u32) -> u32 {
    if n > limit || n > MOST_RULES {
        return below(random, n);
    }
    cascade(n, |k| fires(random, k))
}

/// The index of the first of `n` rules, [`MOST_RULES`] at most, that fires; the last one does
/// unconditionally.
///
/// `fires` is asked with `n`, `n-1`, ... 2: the reciprocal of each rule's probability.
#[inline(always)]
pub fn cascade(n: u32, mut fires: impl FnMut(u32) -> bool) -> u32 {
    by_stretches(n, |left| stretch(left, &mut fires))
}

/// How many rules a cascade has at most.
pub const MOST_RULES: u32 = 4096;
/// How many rules make a stretch.
pub const STRETCH: u32 = 64;

/// The same, cut into stretches of [`STRETCH`] rules; `stretch` is asked with how many rules are
/// left, and answers as [`stretch`] does. Of more than [`MOST_RULES`] it asks no more than those.
///
/// A kernel that verifies a loop takes every turn of it, and keeps what each turn has left open: of
/// one long loop too much for 6.12 and older, of two short ones little. And 6.1 does not see that
/// `n` ends a loop, so a constant does.
#[inline(always)]
pub fn by_stretches(n: u32, mut stretch: impl FnMut(u32) -> u32) -> u32 {
    let mut passed = 0;
    while passed < MOST_RULES {
        let here = stretch(n.wrapping_sub(passed));
        // The last rule fires, so the last stretch is cut short, even a full one.
        if here < STRETCH {
            return passed + here;
        }
        // Not by `here`, which the verifier does not know: its count of turns must be certain.
        passed += STRETCH;
    }
    passed
}

/// How many of the rules that are left do not fire before the first that does; [`STRETCH`] if none
/// of so many fires.
#[inline(always)]
pub fn stretch(left: u32, mut fires: impl FnMut(u32) -> bool) -> u32 {
    let mut passed = 0;
    while passed < STRETCH {
        let k = left.saturating_sub(passed);
        if k <= 1 || fires(k) {
            break;
        }
        passed += 1;
    }
    passed
}

#[inline(always)]
const fn widen(draw: u32, k: u32) -> u64 {
    draw as u64 * k as u64
}

/// A small generator (G. Marsaglia, "Xorshift RNGs", 2003) for tests and simulations; the kernel
/// programs use the kernel's own.
#[derive(Clone, Copy, Debug)]
pub struct XorShift(pub u64);

impl XorShift {
    /// The state after this one.
    #[inline(always)]
    pub const fn step(state: u64) -> u64 {
        let a = state ^ (state << 13);
        let b = a ^ (a >> 7);
        b ^ (b << 17)
    }
}

impl Random for XorShift {
    #[inline(always)]
    fn draw(&mut self) -> u32 {
        self.0 = Self::step(self.0);
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests;
