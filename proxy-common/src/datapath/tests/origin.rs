//! Who is inside and who is outside, and what they reach.

use bytemuck::Zeroable as _;

use super::*;
use crate::abi::EndpointSet;

/// A Service with one endpoint for those inside and another one for those outside.
fn two_sets(node: &mut Node, is_v6: bool) -> SocketAddr {
    let service = node.service(is_v6, 1, &[1, 2]);
    node.change(service, |frontend| {
        let base = frontend.inside.base();
        frontend.inside = EndpointSet::new(base, 1);
        frontend.outside = EndpointSet::new(base + 1, 1);
    });
    service
}

fn reaches(node: &mut Node, client: SocketAddr, service: SocketAddr) -> IpAddr {
    node.enters(client, service, SYN).unwrap().1.ip()
}

#[test]
fn a_source_in_the_detectors_range_is_inside() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = two_sets(&mut node, is_v6);
        let (near, far) = (endpoint_addr(is_v6, 1), endpoint_addr(is_v6, 2));
        // Nobody is, as long as nothing is told.
        assert_eq!(far, reaches(&mut node, client(is_v6, 2, 1000), service));
        node.detect();
        assert_eq!(near, reaches(&mut node, client(is_v6, 2, 1001), service));
        assert_eq!(near, reaches(&mut node, client(is_v6, 3, 1001), service));
        assert_eq!(far, reaches(&mut node, client(is_v6, 1, 1001), service));
        assert_eq!(far, reaches(&mut node, client(is_v6, 4, 1001), service));
    }
}

#[test]
fn where_the_device_decides_the_source_does_not() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = two_sets(&mut node, is_v6);
        node.detect();
        node.tables().detector.by_device = 1;
        let pods = Device {
            inside: 1,
            ..Device::zeroed()
        };
        node.tables().devices.insert(7, pods);
        node.tables().devices.insert(8, Device::zeroed());
        for (device, endpoint) in [(7, 1), (8, 2), (9, 2)] {
            node.device = device;
            let client = client(is_v6, 2, 1000 + device as u16);
            let reached = reaches(&mut node, client, service);
            assert_eq!(endpoint_addr(is_v6, endpoint), reached, "{device}");
        }
    }
}

/// The half that is lost is found among the endpoints of the client's own set.
#[test]
fn a_lost_half_is_rebuilt_whatever_the_origin() {
    for (is_v6, number, endpoint) in [(false, 1, 2), (false, 2, 1), (true, 1, 2), (true, 2, 1)] {
        let mut node = Node::new(Proto::TCP);
        let service = two_sets(&mut node, is_v6);
        node.detect();
        let client = client(is_v6, number, 1000);
        let reached = node.connect(client, service);
        assert_eq!(endpoint_addr(is_v6, endpoint), reached.ip());
        node.lose_kind(Kind::DNAT);
        assert_eq!(Ok((client, reached)), node.enters(client, service, ACK));
        assert_eq!(1, node.counted(Counter::Repaired));
    }
}
