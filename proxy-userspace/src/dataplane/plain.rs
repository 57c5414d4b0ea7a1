//! Plain data of the shared layout as aya wants to see it.
#![expect(unsafe_code, reason = "aya marks plain data by an unsafe trait")]

/// A type of the shared layout, as key or value of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Plain<T>(pub T);

// SAFETY: `bytemuck::Pod` promises that T has no padding and no invalid bit patterns.
unsafe impl<T: bytemuck::Pod> aya::Pod for Plain<T> {}
