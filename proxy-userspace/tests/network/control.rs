//! Rules in the shape of kube-proxy's in the place of the proxy: what works with them has to work
//! with us, and a lab in which they fail would prove nothing.

use xtask::lab::network::Network;
use xtask::lab::{Family, Protocol, observe};

use super::exchange::exchange;
use super::matrix::{Path, paths};
use super::nftables::nft;
use super::world::World;

#[test]
fn netfilter_rules_reach_every_endpoint_from_routed_pods() {
    pass(Network::default(), |_| true);
}

#[test]
fn netfilter_rules_reach_every_endpoint_from_pods_on_a_bridge_that_netfilter_sees() {
    pass(Network::vxlan(true), |_| true);
}

// Answers between ports of that bridge pass by the rules.
#[test]
fn netfilter_rules_reach_every_endpoint_from_pods_on_a_bridge_but_those_on_it() {
    pass(Network::bridged(false), |path| {
        let on_it = |name: &str| name.starts_with("pod1-");
        !(on_it(&path.client.name) && on_it(&path.endpoint.name))
    });
}

fn pass(network: Network, works: fn(&Path) -> bool) {
    let Some(mut world) = World::on(2, network) else {
        return;
    };
    let (mut paths, _servers) = paths(&mut world);
    // A pod that reaches itself is what netfilter needs hairpin mode for.
    paths.pop();
    paths.retain(works);
    let rules = rules(&paths);
    for node in world.lab.nodes() {
        nft(node, &rules);
    }
    for path in &paths {
        exchange(&path.client, &path.service, &path.endpoint, path.seen).unwrap();
    }
    let complaints = observe::complaints(&world.lab, &[]).unwrap();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn rules(paths: &[Path]) -> String {
    let mut lines = Vec::new();
    for Path {
        endpoint, service, ..
    } in paths
    {
        for (family, word) in Family::ALL.into_iter().zip(["ip", "ip6"]) {
            for protocol in Protocol::ALL {
                let vip = service.addresses.of(family);
                let to =
                    std::net::SocketAddr::new(endpoint.addresses.of(family), service.target_port);
                let protocol = protocol.to_string().to_lowercase();
                lines.push(format!(
                    "{word} daddr {vip} {protocol} dport {} dnat {word} to {to}",
                    service.port
                ));
            }
        }
    }
    format!(
        "table inet control {{
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    {}
  }}
}}
",
        lines.join("\n    ")
    )
}
