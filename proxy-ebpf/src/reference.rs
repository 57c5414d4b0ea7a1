//! Fixed work that the classifiers are measured against, so that what is left of a figure says
//! something about them and little about the machine. Never attached, and not even loaded by the
//! controller.

use aya_ebpf::bindings::TC_ACT_UNSPEC;
use aya_ebpf::helpers::generated::{bpf_l4_csum_replace, bpf_skb_store_bytes};
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use bytemuck::Zeroable as _;
use proxy_common::abi::reference::{FRONTENDS, frontend_key};
use proxy_common::abi::{Flow4, FlowKey4};
use proxy_common::net::Port;

use crate::maps;

const NO_EXIST: u64 = 1;
/// In a frame with an IPv4 and a TCP header.
const DESTINATION: u32 = 14 + 16;
const CHECKSUM: u32 = 14 + 20 + 16;

/// Nothing: what remains is the harness.
#[classifier]
fn noop(_ctx: TcContext) -> i32 {
    TC_ACT_UNSPEC
}

/// What a packet of a known flow asks of a machine: hash lookups, changes of the packet and its
/// checksum.
#[classifier]
fn reference_known(ctx: TcContext) -> i32 {
    let mut found: u32 = 0;
    let mut n = 0;
    while n < FRONTENDS {
        let key = frontend_key(n);
        // SAFETY: copied out before anything else happens to the map.
        if let Some(frontend) = unsafe { maps::FRONTENDS4.get(&key) } {
            found = found.wrapping_add(frontend.service);
        }
        n += 1;
    }
    let skb = ctx.skb.skb;
    let mut round = 0;
    while round < 2 {
        let mut value = found.wrapping_add(round);
        // SAFETY: `value` is four bytes long; the helpers check the offsets themselves.
        unsafe {
            bpf_l4_csum_replace(skb, CHECKSUM, round.into(), value.into(), 4);
            bpf_skb_store_bytes(skb, DESTINATION, (&raw mut value).cast(), 4, 0);
        }
        round += 1;
    }
    TC_ACT_UNSPEC
}

/// What a new flow asks of a machine on top of that: entries made, and removed again, since the
/// table would otherwise fill.
#[classifier]
fn reference_new(_ctx: TcContext) -> i32 {
    let flow = Flow4::zeroed();
    let mut n = 0;
    while n < 4 {
        let mut key = FlowKey4::zeroed();
        key.sport = Port::new(n);
        // A refusal would show in the figures.
        let _made = maps::HALF4.insert(&key, &flow, NO_EXIST);
        let _gone = maps::HALF4.remove(&key);
        n += 1;
    }
    TC_ACT_UNSPEC
}
