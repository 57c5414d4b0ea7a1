//! The walk over IPv6 extension headers, as a global function: verified once, and beside the way
//! of the packets that have none.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use proxy_common::datapath::extension;
use proxy_common::net::Proto;

/// See [`extension::pass_over`].
///
/// The headers are copied out one by one: to make them readable in place would move the packet's
/// data, and the callers' pointers with them.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn pass_over(skb: *mut __sk_buff, from: u32, next: u32) -> u32 {
    let load = |offset: usize| {
        let mut header = [0_u8; 8];
        let (at, to, len) = (offset as u32, header.as_mut_ptr().cast(), 8);
        // SAFETY: `header` is `len` bytes long, and a program's context is what the callers pass.
        let result = unsafe { bpf_skb_load_bytes(skb.cast(), at, to, len) };
        (result == 0).then_some(header)
    };
    extension::pass_over(load, from as usize, Proto(next as u8)).word()
}
