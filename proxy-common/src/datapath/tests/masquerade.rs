//! Flows that netfilter is asked to masquerade.

use super::*;
use crate::abi::Hop;

const MASQUERADE: u32 = Settings::with_hz(250).masquerade_mark;

#[test]
fn every_packet_of_the_client_is_marked_and_no_answer_is() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        node.flag(service, FrontendFlags::masquerade(Origin::Outside));
        let client = client(is_v6, 1, 1000);
        for (there, back) in [(SYN, SYN_ACK), (ACK, REPLY), (ACK, REPLY)] {
            let (_, endpoint) = node.enters(client, service, there).unwrap();
            assert_eq!(MASQUERADE, node.marked());
            assert_eq!(Ok((service, client)), node.leaves(endpoint, client, back));
            assert_eq!(0, node.marked());
            node.later(5);
        }
    }
}

#[test]
fn only_the_origin_that_is_named_is_masqueraded() {
    for (is_v6, proto) in ALL {
        for (origin, inside, outside) in [
            (Origin::Inside, MASQUERADE, 0),
            (Origin::Outside, 0, MASQUERADE),
            (Origin::Host, 0, 0),
        ] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[1]);
            node.detect();
            node.flag(service, FrontendFlags::masquerade(origin));
            for (n, mark) in [(2, inside), (1, outside)] {
                node.enters(client(is_v6, n, 1000), service, SYN).unwrap();
                assert_eq!(mark, node.marked());
            }
        }
    }
}

/// It was decided when the flow was opened, and both halves know.
#[test]
fn a_flow_stays_as_it_was_decided_whichever_half_is_lost() {
    for (is_v6, was, is) in [
        (false, true, false),
        (false, false, true),
        (true, true, false),
    ] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1]);
        let masquerade = FrontendFlags::masquerade(Origin::Outside);
        node.flag(service, masquerade.only_if(was));
        let client = client(is_v6, 1, 1000);
        let endpoint = node.connect(client, service);
        node.change(service, |frontend| frontend.flags = masquerade.only_if(is));
        let mark = if was { MASQUERADE } else { 0 };
        for lost in [Kind::DNAT, Kind::UNDNAT, Kind::DNAT] {
            node.lose_kind(lost);
            node.leaves(endpoint, client, REPLY).unwrap();
            node.enters(client, service, ACK).unwrap();
            assert_eq!(mark, node.marked(), "{lost:?}");
        }
        assert_eq!(3, node.counted(Counter::Repaired));
    }
}

#[test]
fn a_hairpin_is_not_masqueraded() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        node.flag(service, FrontendFlags::masquerade(Origin::Outside));
        let client = SocketAddr::new(endpoint_addr(is_v6, 1), 1000);
        node.enters(client, service, SYN).unwrap();
        assert_eq!(0, node.marked());
        assert_eq!(4, node.halves(Tier::HalfOpen));
    }
}

/// As in kube-proxy's nftables mode: an endpoint elsewhere that gets itself keeps its address here.
#[test]
fn where_hairpins_are_local_one_elsewhere_is_a_flow_like_any_other() {
    for (is_v6, proto) in ALL {
        for (anywhere, is_local, is_hairpin) in [
            (1, false, true),
            (1, true, true),
            (0, true, true),
            (0, false, false),
        ] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[1]);
            node.flag(service, FrontendFlags::masquerade(Origin::Outside));
            node.tables().settings.hairpin_anywhere = anywhere;
            let addr = endpoint_addr(is_v6, 1);
            if is_local {
                node.world
                    .flag(addr, |flags| *flags = flags.with(EndpointFlags::LOCAL));
            }
            let (client, endpoint) = (SocketAddr::new(addr, 1000), SocketAddr::new(addr, 8080));
            assert_eq!(Ok((client, endpoint)), node.enters(client, service, SYN));
            let (halves, mark) = if is_hairpin { (4, 0) } else { (2, MASQUERADE) };
            assert_eq!(halves, node.halves(Tier::HalfOpen));
            assert_eq!(mark, node.marked());
            let answered = node.leaves(endpoint, client, SYN_ACK);
            assert_eq!(Ok((service, client)), answered);
        }
    }
}

/// The bridge would carry the answer to the client, past the node that is to undo it.
#[test]
fn the_way_of_a_masqueraded_flow_leads_through_the_stack() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        node.flag(service, FrontendFlags::masquerade(Origin::Outside));
        node.connect(client(is_v6, 1, 1000), service);
        let halves = node.states().into_iter();
        let hops: Vec<_> = halves
            .filter(|half| half.marks.kind() == Kind::DNAT)
            .map(|half| half.hop)
            .collect();
        assert_eq!([Hop::ELSEWHERE], *hops);
    }
}
