//! The data path of kube-lottery and the layout of its maps.
//!
//! Everything here is `no_std`, free of `unsafe` and free of I/O: the kernel programs run it over
//! BPF maps and socket buffers, the controller and the tests run the very same code over plain
//! memory.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "host"))]
extern crate std;

pub mod abi;
pub mod datapath;
pub mod lottery;
pub mod net;
