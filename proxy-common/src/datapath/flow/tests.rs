use core::net::Ipv4Addr;

use super::*;
use crate::abi::{State, V4};

const PAST: Past = Past {
    state: State::NEW,
    proof: 1,
    now: 2,
};

fn path(endpoint: [u8; 4]) -> Path<V4> {
    Path {
        client: Ipv4Addr::new(10, 244, 1, 2).into(),
        vip: Ipv4Addr::new(10, 96, 0, 10).into(),
        endpoint: Ipv4Addr::from(endpoint).into(),
        client_port: Port::new(40_000),
        sport: Port::new(61_001),
        vip_port: Port::new(80),
        endpoint_port: Port::new(8080),
        proto: 6,
        service: 7,
        slot: 9,
        generation: 3,
        flags: FlowFlags::NONE,
        hop: Hop::UNKNOWN,
    }
}

/// The key of the packet that answers what `kind` makes of its packets.
fn answer(path: &Path<V4>, kind: Kind) -> (Ipv4Addr, u16, Ipv4Addr, u16) {
    let half = path.half(kind, PAST);
    (
        half.new_dst.into(),
        half.state.new_dport.host(),
        half.new_src.into(),
        half.state.new_sport.host(),
    )
}

fn key(path: &Path<V4>, kind: Kind) -> (Ipv4Addr, u16, Ipv4Addr, u16) {
    let key = path.key(Tier::HalfOpen, kind);
    (
        key.src.into(),
        key.sport.host(),
        key.dst.into(),
        key.dport.host(),
    )
}

#[test]
fn the_answer_to_one_half_is_the_key_of_its_partner() {
    let path = path([10, 244, 1, 2]);
    for (kind, partner) in [
        (Kind::DNAT, Kind::UNDNAT),
        (Kind::UNDNAT, Kind::DNAT),
        (Kind::SNAT, Kind::UNSNAT),
        (Kind::UNSNAT, Kind::SNAT),
    ] {
        assert_eq!(answer(&path, kind), key(&path, partner), "{kind:?}");
        assert_ne!(
            path.key(Tier::HalfOpen, kind).hook,
            path.key(Tier::HalfOpen, partner).hook
        );
    }
}

#[test]
fn a_flow_can_be_read_off_either_half() {
    let path = path([10, 244, 2, 2]);
    for kind in [Kind::DNAT, Kind::UNDNAT] {
        let (key, half) = (path.key(Tier::HalfOpen, kind), path.half(kind, PAST));
        let mut back = Path::<V4>::empty();
        if kind == Kind::DNAT {
            back.read_forward(&key, &half);
        } else {
            back.read_reverse(&key, &half);
        }
        for kind in [Kind::DNAT, Kind::UNDNAT, Kind::SNAT, Kind::UNSNAT] {
            assert_eq!(
                path.key(Tier::HalfOpen, kind),
                back.key(Tier::HalfOpen, kind)
            );
            assert_eq!(path.half(kind, PAST), back.half(kind, PAST));
            assert!(back.is_half(kind, &path.half(kind, PAST)));
        }
    }
}

#[test]
fn a_direct_flow_is_read_off_either_direction_and_its_note_changes_nothing() {
    let path = path([10, 244, 2, 2]);
    let (mut there, mut back) = (Path::<V4>::empty(), Path::<V4>::empty());
    there.begin_direct(&path.key(Tier::HalfOpen, Kind::SNAT));
    back.answer_direct(&path.key(Tier::HalfOpen, Kind::UNDNAT));
    let note = there.half(Kind::PASS, PAST);
    assert!(there.is_direct() && back.is_half(Kind::PASS, &note));
    let key = there.key(Tier::HalfOpen, Kind::PASS);
    assert_eq!(key, path.key(Tier::HalfOpen, Kind::UNDNAT));
    assert_eq!((key.src, key.dst), (note.new_src, note.new_dst));
    let ports = (note.state.new_sport, note.state.new_dport);
    assert_eq!((key.sport, key.dport), ports);
}

#[test]
fn what_is_being_renewed_stands_under_a_key_of_its_own() {
    let path = path([10, 244, 2, 2]);
    let kinds = [Kind::DNAT, Kind::UNDNAT, Kind::SNAT, Kind::UNSNAT];
    let tiers = [Tier::HalfOpen, Tier::Renewal];
    let keys: std::collections::HashSet<_> = kinds
        .iter()
        .flat_map(|kind| tiers.map(|tier| path.key(tier, *kind)))
        .collect();
    assert_eq!(8, keys.len());
}

#[test]
fn what_was_decided_of_a_flow_is_in_every_half() {
    for flags in [FlowFlags::NONE, FlowFlags::HAIRPIN, FlowFlags::MASQUERADE] {
        let path = Path {
            flags,
            ..path([10, 244, 2, 2])
        };
        for kind in [Kind::DNAT, Kind::UNDNAT, Kind::SNAT, Kind::UNSNAT] {
            let marks = path.half(kind, PAST).state.marks;
            assert_eq!((kind, flags), (marks.kind(), marks.flags()));
        }
    }
}

/// Across a bridge, the endpoint would answer to the client itself.
#[test]
fn a_masqueraded_flow_takes_no_way_across_a_bridge_even_if_rebuilt() {
    let path = Path {
        flags: FlowFlags::MASQUERADE,
        ..path([10, 244, 2, 2])
    };
    let (key, half) = (
        path.key(Tier::HalfOpen, Kind::UNDNAT),
        path.half(Kind::UNDNAT, PAST),
    );
    let mut back = Path::<V4>::empty();
    back.read_reverse(&key, &half);
    assert_eq!(Hop::ELSEWHERE, back.hop);
}
