//! The kernel programs of kube-lottery: adapters between aya and the shared data path.
//!
//! Every decision is taken in `proxy_common::datapath`; here are only the maps, the socket buffer
//! and the hooks.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[cfg(target_arch = "bpf")]
mod aside;
#[cfg(target_arch = "bpf")]
mod atomic;
#[cfg(target_arch = "bpf")]
mod crc;
#[cfg(target_arch = "bpf")]
mod draw;
#[cfg(target_arch = "bpf")]
mod extension;
#[cfg(target_arch = "bpf")]
mod global;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod once;
#[cfg(target_arch = "bpf")]
mod packet;
#[cfg(target_arch = "bpf")]
mod parts;
#[cfg(target_arch = "bpf")]
mod reference;
#[cfg(target_arch = "bpf")]
mod scratch;
#[cfg(target_arch = "bpf")]
mod tables;
#[cfg(target_arch = "bpf")]
mod tc;
#[cfg(target_arch = "bpf")]
mod witness;

/// The data path has no way to panic, and the build proves it by the symbols of the object.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Checked on the host as part of the workspace, but runs in the kernel only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
