//! The lottery as the verifier likes it: global functions, each verified once and on its own,
//! whatever the state of the program that calls them. In one piece, the cascade could not go far
//! beyond two thousand rules (8,192 pending branches are the verifier's limit).

use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use proxy_common::lottery::{self, Random, XorShift};

use crate::{global, maps};

/// The kernel's generator, or the test's.
struct Kernel;

impl Random for Kernel {
    #[inline(always)]
    fn draw(&mut self) -> u32 {
        if global::test_sources() != 0 {
            return test_draw();
        }
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_get_prandom_u32() }
    }
}

/// The next draw of the generator that a test has seeded. Not atomic: such tests use one CPU.
#[inline(always)]
fn test_draw() -> u32 {
    let index = 0;
    let Some(sources) = maps::TEST_SOURCES.get_ptr_mut(index) else {
        return 0;
    };
    // SAFETY: a live element of the array.
    unsafe {
        let state = XorShift::step((*sources).random);
        (*sources).random = state;
        (state >> 32) as u32
    }
}

/// Whether a rule of probability 1/k fires.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fires(k: u32) -> u32 {
    lottery::fires(&mut Kernel, k).into()
}

/// How many rules do not fire, of a stretch that begins with this many left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn stretch(left: u32) -> u32 {
    lottery::stretch(left, |k| fires(k) != 0)
}

/// A number below `n`, each with the same probability.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn below(n: u32) -> u32 {
    lottery::below(&mut Kernel, n)
}

/// The index of the endpoint that a new flow goes to, of `n`.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn pick(n: u32) -> u32 {
    if n > global::cascade_limit() {
        return below(n);
    }
    lottery::by_stretches(n, |left| stretch(left))
}
