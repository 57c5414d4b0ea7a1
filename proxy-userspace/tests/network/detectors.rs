//! Who is masqueraded at a cluster IP: whom nobody takes for a pod, where anything detects pods.

use xtask::lab::Family;

use super::scene::{CLUSTER_CIDR, Scene, answers, assert_seen_as, names};

/// How the endpoints see clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    AsThemselves,
    AsTheNode,
}
use Seen::{AsTheNode, AsThemselves};

fn expect(config: &str, outsider: Seen, pod: Seen) {
    // The answer to an outsider who is not masqueraded has to come back by the first node.
    let scene = if outsider == AsTheNode {
        Scene::new(config, |service| service)
    } else {
        Scene::with_endpoint_on(1, config, |service| service)
    };
    let Some(scene) = scene else {
        return;
    };
    let expected = scene.service.endpoints.len();
    let client = scene.client.clone();
    for family in Family::ALL {
        for (client, seen) in [(&scene.outside(), outsider), (&client, pod)] {
            for answers in answers(client, scene.service.target(family)) {
                assert_eq!(expected, names(&answers).len(), "{config}");
                if seen == AsTheNode {
                    scene.assert_masqueraded(&answers, 1);
                } else {
                    assert_seen_as(client, &answers);
                }
            }
        }
    }
    scene.assert_unnoticed(&[]);
}

#[test]
fn at_a_cluster_ip_nobody_is_masqueraded_without_a_detector() {
    expect("", AsThemselves, AsThemselves);
}

#[test]
fn at_a_cluster_ip_those_outside_of_the_cluster_cidr_are_masqueraded() {
    expect(CLUSTER_CIDR, AsTheNode, AsThemselves);
}

#[test]
fn at_a_cluster_ip_those_outside_of_the_nodes_own_range_are_masqueraded() {
    expect("detectLocalMode: NodeCIDR", AsTheNode, AsThemselves);
}

// B223
#[test]
fn at_a_cluster_ip_those_who_come_by_other_devices_are_masqueraded() {
    let config = "detectLocalMode: InterfaceNamePrefix
detectLocal: {interfaceNamePrefix: pod}";
    expect(config, AsTheNode, AsThemselves);
}

#[test]
fn at_a_cluster_ip_everybody_is_masqueraded_if_that_is_configured() {
    expect("iptables: {masqueradeAll: true}", AsTheNode, AsTheNode);
}
