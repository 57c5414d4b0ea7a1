//! Two programs that count the packets that may be for a Service: one before all others of a device
//! and one right before ours. What the first counts and the second does not is kept from us by
//! another program. Attached only while that is looked into.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::{TC_ACT_UNSPEC, bpf_hdr_start_off};
use aya_ebpf::helpers::generated::bpf_skb_load_bytes_relative;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use bytemuck::Pod;
use proxy_common::abi::{Seen, V4, V6};
use proxy_common::datapath::Tables;
use proxy_common::net::{Ip4, Ip6, eth};

use crate::atomic;
use crate::maps::SEEN;
use crate::tables::Maps;

/// Where the destination stands in the network header.
const DESTINATION4: u32 = 16;
const DESTINATION6: u32 = 24;

/// Before all others.
#[classifier]
fn see_first(ctx: TcContext) -> i32 {
    see(&ctx, |seen| &raw mut seen.first)
}

/// Right before ours.
#[classifier]
fn see_last(ctx: TcContext) -> i32 {
    see(&ctx, |seen| &raw mut seen.last)
}

#[inline(always)]
fn see(ctx: &TcContext, count: impl FnOnce(&mut Seen) -> *mut u64) -> i32 {
    let skb = ctx.skb.skb;
    // SAFETY: the context of a running program.
    let (protocol, device) = unsafe { ((*skb).protocol, (*skb).ifindex) };
    let is_for_service = match u16::from_be(protocol as u16) {
        eth::IPV4 => load::<Ip4>(ctx, DESTINATION4)
            .is_some_and(|dst| Tables::<V4>::may_be_frontend(&Maps, dst)),
        eth::IPV6 => load::<Ip6>(ctx, DESTINATION6)
            .is_some_and(|dst| Tables::<V6>::may_be_frontend(&Maps, dst)),
        _ => false,
    };
    if is_for_service && let Some(seen) = SEEN.get_ptr_mut(&device) {
        // SAFETY: a live map value, to which everything else adds as well.
        unsafe { atomic::add(count(&mut *seen), 1) };
    }
    TC_ACT_UNSPEC
}

/// Reads from the network header, whatever comes before it.
#[inline(always)]
fn load<T: Pod>(ctx: &TcContext, offset: u32) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: `value` has as many bytes as are asked for, and the helper writes all or fails.
    unsafe {
        let result = bpf_skb_load_bytes_relative(
            ctx.skb.skb.cast(),
            offset,
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            bpf_hdr_start_off::BPF_HDR_START_NET,
        );
        (result == 0).then(|| value.assume_init())
    }
}
