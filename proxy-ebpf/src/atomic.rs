//! Atomic operations on map values (kernel 5.12; `core` has none for this target).

use core::arch::asm;

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
        asm!("lock *(u32 *)({p} + 0) &= {n}", p = in(reg) p, n = in(wreg) bits, options(nostack));
    }
}
