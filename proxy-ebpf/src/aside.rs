//! Packets that are rare, as global functions: see [`proxy_common::datapath::aside`].
//!
//! One for each family and hook: both families together would take more of the stack.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use proxy_common::abi::{V4, V6};
use proxy_common::datapath::aside::{self, At};
use proxy_common::datapath::verdict::Step;
use proxy_common::datapath::{Seat, Verdict};
use proxy_common::net::eth;

use crate::packet::SkbPacket;
use crate::parts;
use crate::scratch::PerCpu;
use crate::tables::Maps;

/// Where a program looks at packets, as a word.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Place {
    /// Ingress of a device without Ethernet header.
    BareIn,
    /// Ingress of one with it.
    In,
    /// Ingress of a bridge port that leads to a pod.
    PodPort,
    /// Ingress of a bridge port that leads to other machines.
    UplinkPort,
    /// Egress of a device without Ethernet header.
    BareOut,
    /// Egress of one with it, bridge port or not.
    Out,
}

impl Place {
    /// Where that is.
    #[inline(always)]
    pub(crate) const fn at(self) -> At {
        at(self as u32)
    }
}

const BARE_IN: u32 = Place::BareIn as u32;
const POD_PORT: u32 = Place::PodPort as u32;
const UPLINK_PORT: u32 = Place::UplinkPort as u32;
const BARE_OUT: u32 = Place::BareOut as u32;
const OUT: u32 = Place::Out as u32;

#[inline(always)]
const fn at(place: u32) -> At {
    match place {
        BARE_IN => At::ingress(0, Seat::Device),
        POD_PORT => At::ingress(eth::LEN, Seat::PodPort),
        UPLINK_PORT => At::ingress(eth::LEN, Seat::UplinkPort),
        BARE_OUT => At::egress(0),
        OUT => At::egress(eth::LEN),
        _ => At::ingress(eth::LEN, Seat::Device),
    }
}

/// Said by a function that has nothing to say.
const NOTHING: u32 = u32::MAX;

#[inline(always)]
fn word(said: Option<Verdict>) -> u32 {
    said.map_or(NOTHING, Verdict::word)
}

macro_rules! aside {
    ($module:ident, $family:ty, $came_in:literal, $leaves:literal, $error:literal,
     $translate:literal) => {
        mod $module {
            use super::*;

            #[unsafe(export_name = $came_in)]
            #[inline(never)]
            pub(super) extern "C" fn came_in(skb: *mut __sk_buff, place: u32) -> u32 {
                let packet = &mut SkbPacket::new(&TcContext::new(skb));
                let (tables, room) = (&mut Maps, &mut PerCpu);
                word(aside::came_in_of::<$family, _, _, _>(
                    packet,
                    tables,
                    room,
                    at(place),
                ))
            }

            #[unsafe(export_name = $leaves)]
            #[inline(never)]
            pub(super) extern "C" fn leaves(skb: *mut __sk_buff, place: u32) -> u32 {
                let packet = &mut SkbPacket::new(&TcContext::new(skb));
                let (tables, room) = (&mut Maps, &mut PerCpu);
                word(aside::leaves_of::<$family, _, _, _>(
                    packet,
                    tables,
                    room,
                    at(place),
                ))
            }

            #[unsafe(export_name = $error)]
            #[inline(never)]
            extern "C" fn error(skb: *mut __sk_buff, place: u32) -> u32 {
                let packet = &mut SkbPacket::new(&TcContext::new(skb));
                let (tables, room) = (&mut Maps, &mut PerCpu);
                word(aside::error_of::<$family, _, _, _>(
                    packet,
                    tables,
                    room,
                    at(place),
                ))
            }

            #[unsafe(export_name = $translate)]
            #[inline(never)]
            extern "C" fn translate(skb: *mut __sk_buff, place: u32) -> u32 {
                let packet = &mut SkbPacket::new(&TcContext::new(skb));
                let (tables, room) = (&mut Maps, &mut PerCpu);
                aside::translate_of::<$family, _, _, _>(packet, tables, room, at(place)).word()
            }

            /// An ICMP error: the functions are called one after the other.
            #[inline(always)]
            pub(super) fn translated(skb: *mut __sk_buff, place: u32) -> u32 {
                let said = error(skb, place);
                if said != NOTHING {
                    return said;
                }
                if Step::of_word(parts::$module::quote()) == Step::REWRITE {
                    translate(skb, place)
                } else {
                    Verdict::Pass.word()
                }
            }
        }
    };
}

aside!(v4, V4, "came_in4", "rare_leaves4", "error4", "translate4");
aside!(v6, V6, "came_in6", "rare_leaves6", "error6", "translate6");

/// What becomes of a packet that came in, if the common way has not said it.
#[inline(always)]
pub(crate) fn came_in(ctx: &TcContext, place: Place, said: Option<Verdict>) -> Verdict {
    let Some(verdict) = said else {
        let (skb, place) = (ctx.skb.skb, place as u32);
        return Verdict::of_word(if is_v4(ctx) {
            match v4::came_in(skb, place) {
                NOTHING => v4::translated(skb, place),
                word => word,
            }
        } else {
            match v6::came_in(skb, place) {
                NOTHING => v6::translated(skb, place),
                word => word,
            }
        });
    };
    verdict
}

/// What becomes of a packet that is about to leave, if the common way has not said it.
#[inline(always)]
pub(crate) fn leaves(ctx: &TcContext, place: Place, said: Option<Verdict>) -> Verdict {
    let Some(verdict) = said else {
        let (skb, place) = (ctx.skb.skb, place as u32);
        return Verdict::of_word(if is_v4(ctx) {
            match v4::leaves(skb, place) {
                NOTHING => v4::translated(skb, place),
                word => word,
            }
        } else {
            match v6::leaves(skb, place) {
                NOTHING => v6::translated(skb, place),
                word => word,
            }
        });
    };
    verdict
}

#[inline(always)]
fn is_v4(ctx: &TcContext) -> bool {
    // SAFETY: the context of a running program. Volatile, so that it stays an access of its own,
    // which is all that the verifier admits.
    let protocol = unsafe { (&raw const (*ctx.skb.skb).protocol).read_volatile() };
    u16::from_be(protocol as u16) == eth::IPV4
}
