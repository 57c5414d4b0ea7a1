//! The verdict on single packets that open a flow: what the data path does with the frontends and
//! endpoints that the policy asks for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proxy_common::abi::{Empty, FrontendFlags, Origin};
use proxy_common::net::Proto;

use crate::config::Mode;
use crate::plan::op::Socket;
use crate::plan::policy::Policy;
use crate::plan::wanted::{List, Wanted, WantedFrontend};

/// A packet that opens a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Whether a process of the node sends it; else it comes in by a device.
    pub(super) is_host: bool,
    pub(super) from: IpAddr,
    pub(super) to: Socket,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Drop,
    Reject,
    /// It goes to one of these endpoints, masqueraded or not.
    Forward(BTreeSet<(IpAddr, bool)>),
}

fn find(all: &[Wanted], at: Socket) -> Option<(&Wanted, &WantedFrontend)> {
    all.iter().find_map(|wanted| {
        let mut frontends = wanted.frontends.iter();
        let found = frontends.find(|frontend| frontend.at == at);
        found.map(|found| (wanted, found))
    })
}

pub(super) fn judge(policy: &Policy, all: &[Wanted], packet: Packet) -> Verdict {
    let at = packet.to;
    let whole = Socket {
        port: 0,
        proto: Proto(0),
        ..at
    };
    let Some((wanted, frontend)) = find(all, at).or_else(|| find(all, whole)) else {
        return Verdict::Pass;
    };
    let is_filtered = frontend.flags.has(FrontendFlags::FILTERED);
    let mut sources = wanted.sources.iter();
    if is_filtered && !sources.any(|net| net.contains(&packet.from)) {
        return Verdict::Drop;
    }
    let detector = policy.detector();
    let is_inside = match packet.from {
        IpAddr::V4(from) => detector.contains4(from.into()),
        IpAddr::V6(from) => detector.contains6(from.into()),
    };
    let origin = match packet.is_host {
        true => Origin::Host,
        false if is_inside => Origin::Inside,
        false => Origin::Outside,
    };
    let list = match origin {
        Origin::Outside => frontend.outside,
        Origin::Inside | Origin::Host => frontend.inside,
    };
    let is_local = frontend.flags.has(FrontendFlags::local(origin));
    assert_eq!(list == List::Local, is_local, "{frontend:?}");
    let listed = wanted.endpoints.iter().filter(|endpoint| match list {
        List::Nobody => false,
        List::Cluster => endpoint.in_cluster,
        List::Local => endpoint.in_local,
    });
    let is_iptables = policy.config.mode == Mode::Iptables;
    let masquerades = frontend.flags.has(FrontendFlags::masquerade(origin));
    let endpoints: BTreeSet<_> = listed
        .map(|endpoint| {
            let is_hairpin = endpoint.addr == packet.from && (endpoint.is_local || is_iptables);
            (endpoint.addr, is_hairpin || masquerades)
        })
        .collect();
    if !endpoints.is_empty() {
        return Verdict::Forward(endpoints);
    }
    match frontend.flags.empty(origin) {
        Empty::Drop => Verdict::Drop,
        Empty::Reject => Verdict::Reject,
        Empty::Pass => Verdict::Pass,
    }
}
