//! Atomic operations on map values (`core` has none for this target).
//!
//! Addition is as old as BPF, the others came with kernel 5.12. One without them refuses them
//! wherever they stand, so that a test there takes them out of the object as well.

use core::arch::asm;

use crate::global;

/// Adds to a counter.
///
/// # Safety
///
/// `p` points into a live map value and is aligned to 8 bytes.
#[inline(always)]
pub(crate) unsafe fn add(p: *mut u64, n: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("lock *(u64 *)({p} + 0) += {n}", p = in(reg) p, n = in(reg) n, options(nostack)) }
}

/// Sets bits.
///
/// # Safety
///
/// `p` points into a live map value and is aligned to 4 bytes.
#[inline(always)]
pub(crate) unsafe fn or(p: *mut u32, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        if global::has_atomics() == 0 {
            p.write_volatile(p.read_volatile() | bits);
            return;
        }
        asm!("lock *(u32 *)({p} + 0) |= {n}", p = in(reg) p, n = in(wreg) bits, options(nostack));
    }
}

/// Keeps only `bits`.
///
/// # Safety
///
/// `p` points into a live map value and is aligned to 4 bytes.
#[inline(always)]
pub(crate) unsafe fn and(p: *mut u32, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        if global::has_atomics() == 0 {
            p.write_volatile(p.read_volatile() & bits);
            return;
        }
        asm!("lock *(u32 *)({p} + 0) &= {n}", p = in(reg) p, n = in(wreg) bits, options(nostack));
    }
}
