//! A work area beside the 512 bytes of stack, one per CPU.
//!
//! Keys and values of the IPv6 flow maps do not fit the stack together. Programs at tc hooks run
//! with softirqs off, so no other one of ours can come between writing an area and using it. What
//! is returned counts until the next call.

use core::arch::asm;

use aya_ebpf::bindings::bpf_fib_lookup;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use proxy_common::abi::{Family, Kind, Tier, V4, V6};
use proxy_common::datapath::flow::Path;
use proxy_common::datapath::tables::Past;
use proxy_common::datapath::work::{Room, Work};

/// Room for the largest key and the largest value of a flow map, and a question about routes.
#[repr(C, align(8))]
struct Area {
    key: [u8; 40],
    flow: [u8; 72],
    fib: bpf_fib_lookup,
}

#[map]
static SCRATCH: PerCpuArray<Area> = PerCpuArray::with_max_entries(1, 0);

#[inline(always)]
fn area() -> Option<*mut Area> {
    let index = 0;
    SCRATCH.get_ptr_mut(index)
}

/// Room for the work of either family; one program works on one packet of one family.
#[repr(C, align(8))]
union AnyWork {
    v4: Work<V4>,
    v6: Work<V6>,
}

#[map]
static WORK: PerCpuArray<AnyWork> = PerCpuArray::with_max_entries(2, 0);

/// The work that the parts of this program share. Whoever asks first fills it; the functions that
/// it calls find it by asking again.
#[inline(always)]
pub(crate) fn work<'a, F: Family>() -> Option<&'a mut Work<F>> {
    at(0)
}

/// The same for the sweeper. It does not run at a hook, and on older kernels packets may come in
/// between.
#[inline(always)]
pub(crate) fn spare<'a, F: Family>() -> Option<&'a mut Work<F>> {
    at(1)
}

#[inline(always)]
fn at<'a, F: Family>(index: u32) -> Option<&'a mut Work<F>> {
    const { assert!(size_of::<Work<F>>() <= size_of::<AnyWork>()) };
    let any = WORK.get_ptr_mut(index)?;
    // SAFETY: there is room for either family, and no other program of this CPU runs in between.
    // Nested parts look at it one at a time: see `escape`.
    unsafe { Some(&mut *any.cast()) }
}

/// The room of this program: the work above.
pub(crate) struct PerCpu;

impl<F: Family> Room<F> for PerCpu {
    #[inline(always)]
    fn work(&mut self) -> Option<&mut Work<F>> {
        work::<F>()
    }
}

/// The room of the sweeper.
pub(crate) struct Spare;

impl<F: Family> Room<F> for Spare {
    #[inline(always)]
    fn work(&mut self) -> Option<&mut Work<F>> {
        spare::<F>()
    }
}

/// Tells the compiler that the function called next will find and change this work, although it
/// gets no pointer to it (the verifier would not let one pass into a global function).
#[inline(always)]
pub(crate) fn escape<F: Family>(work: &mut Work<F>) {
    // A move of the register to itself: with no instruction at all, two source lines would claim the
    // next one, and the kernel refuses such debug information.
    // SAFETY: nothing is changed, but the compiler cannot know.
    unsafe { asm!("{p} = {p}", p = inout(reg) &raw mut *work => _, options(nostack)) }
}

/// The key of one half of a flow in a tier.
#[inline(always)]
pub(crate) fn key<'a, F: Family>(tier: Tier, path: &Path<F>, kind: Kind) -> Option<&'a F::FlowKey> {
    const { assert!(size_of::<F::FlowKey>() <= 40) };
    // SAFETY: the field has room for every key, is aligned to 8 bytes and is written before it is
    // read; no other program of this CPU runs in between.
    unsafe {
        let key = &mut *(&raw mut (*area()?).key).cast::<F::FlowKey>();
        path.fill_key(tier, kind, key);
        Some(key)
    }
}

/// Key and value of one half of a flow.
#[inline(always)]
pub(crate) fn half<'a, F: Family>(
    tier: Tier,
    path: &Path<F>,
    kind: Kind,
    past: Past,
) -> Option<(&'a F::FlowKey, &'a F::Flow)> {
    const { assert!(size_of::<F::Flow>() <= 72) };
    // SAFETY: as in `key`.
    unsafe {
        let area = area()?;
        let key = &mut *(&raw mut (*area).key).cast::<F::FlowKey>();
        let flow = &mut *(&raw mut (*area).flow).cast::<F::Flow>();
        path.fill_key(tier, kind, key);
        path.fill_half(kind, past, flow);
        Some((key, flow))
    }
}

/// A question about routes; what is in it is of an earlier one.
#[inline(always)]
pub(crate) fn fib<'a>() -> Option<&'a mut bpf_fib_lookup> {
    // SAFETY: plain integers, for which every value is valid; no other program of this CPU runs in
    // between.
    unsafe { Some(&mut (*area()?).fib) }
}
