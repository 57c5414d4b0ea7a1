//! The classifiers. They always hand the packet on to the next program, or drop it.

use aya_ebpf::bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC};
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use aya_log_ebpf::{debug, trace};
use proxy_common::datapath::egress::egress;
use proxy_common::datapath::ingress::{ingress, port_ingress};
use proxy_common::datapath::{Verdict, sweep};

use crate::aside::{self, Place};
use crate::once::{Hook, once};
use crate::packet::SkbPacket;
use crate::scratch::{PerCpu, Spare};
use crate::tables::Maps;

/// Ingress of a device with an Ethernet header.
#[classifier]
fn tc_in(ctx: TcContext) -> i32 {
    action(&ctx, device(&ctx, Place::In))
}

/// Ingress of a bridge port that leads to a pod.
#[classifier]
fn tc_in_port(ctx: TcContext) -> i32 {
    action(&ctx, port(&ctx, Place::PodPort))
}

/// Ingress of a bridge port that leads to other machines.
#[classifier]
fn tc_in_uplink_port(ctx: TcContext) -> i32 {
    action(&ctx, port(&ctx, Place::UplinkPort))
}

/// Egress of a device with an Ethernet header, bridge port or not.
#[classifier]
fn tc_eg(ctx: TcContext) -> i32 {
    action(&ctx, out(&ctx, Place::Out))
}

/// Ingress of a device without a MAC header, such as a tunnel.
#[classifier]
fn tc_in_l3(ctx: TcContext) -> i32 {
    action(&ctx, device(&ctx, Place::BareIn))
}

/// Egress of a device without a MAC header.
#[classifier]
fn tc_eg_l3(ctx: TcContext) -> i32 {
    action(&ctx, out(&ctx, Place::BareOut))
}

/// Removes flows that are over, see [`sweep`]; returns how many. Run by the controller with keys in
/// the place of a packet, never attached.
#[classifier]
fn sweeper(ctx: TcContext) -> i32 {
    sweep(&SkbPacket::new(&ctx), &mut Maps, &mut Spare) as i32
}

/// The same while the program moves.
#[classifier]
fn tc_in_once(ctx: TcContext) -> i32 {
    once(&ctx, Hook::Ingress, || device(&ctx, Place::In))
}

/// The same while the program moves.
#[classifier]
fn tc_in_port_once(ctx: TcContext) -> i32 {
    once(&ctx, Hook::Ingress, || port(&ctx, Place::PodPort))
}

/// The same while the program moves.
#[classifier]
fn tc_in_uplink_port_once(ctx: TcContext) -> i32 {
    once(&ctx, Hook::Ingress, || port(&ctx, Place::UplinkPort))
}

/// The same while the program moves.
#[classifier]
fn tc_eg_once(ctx: TcContext) -> i32 {
    once(&ctx, Hook::Egress, || out(&ctx, Place::Out))
}

/// The same while the program moves.
#[classifier]
fn tc_in_l3_once(ctx: TcContext) -> i32 {
    once(&ctx, Hook::Ingress, || device(&ctx, Place::BareIn))
}

/// The same while the program moves.
#[classifier]
fn tc_eg_l3_once(ctx: TcContext) -> i32 {
    once(&ctx, Hook::Egress, || out(&ctx, Place::BareOut))
}

#[inline(always)]
fn device(ctx: &TcContext, place: Place) -> Verdict {
    let packet = &mut SkbPacket::new(ctx);
    let said = ingress(packet, &mut Maps, &mut PerCpu, place.at().network);
    aside::came_in(ctx, place, said)
}

#[inline(always)]
fn port(ctx: &TcContext, place: Place) -> Verdict {
    let packet = &mut SkbPacket::new(ctx);
    let said = port_ingress(packet, &mut Maps, &mut PerCpu, place.at().seat);
    aside::came_in(ctx, place, said)
}

#[inline(always)]
fn out(ctx: &TcContext, place: Place) -> Verdict {
    let packet = &mut SkbPacket::new(ctx);
    let said = egress(packet, &mut Maps, &mut PerCpu, place.at().network);
    aside::leaves(ctx, place, said)
}

#[inline(always)]
pub(crate) fn action(ctx: &TcContext, verdict: Verdict) -> i32 {
    match verdict {
        Verdict::Pass => TC_ACT_UNSPEC,
        Verdict::Rewritten => {
            trace!(ctx, "rewritten, {} bytes", ctx.len());
            TC_ACT_UNSPEC
        }
        Verdict::Rejected => {
            debug!(ctx, "marked to be rejected");
            TC_ACT_UNSPEC
        }
        Verdict::Drop(reason) => {
            debug!(ctx, "dropped, reason {}", reason as u32);
            TC_ACT_SHOT
        }
    }
}
