//! What a CNI and a careful administrator leave on a node: rules that a proxy must live with.

use anyhow::{Context as _, Result};

use super::address::{POD_RANGE_V4, POD_RANGE_V6};
use super::command;
use super::namespace::Namespace;

/// Packets that conntrack knows nothing of.
pub const INVALID: &str = "invalid";
/// IPv6 packets that came in by the wrong device: what `rp_filter` is for IPv4.
pub const WRONG_WAY: &str = "wrong-way";
/// Packets that came in with an address of the node itself as their source.
pub const MARTIAN: &str = "martian";
/// Packets that no rule of the CNI lets through.
pub const REFUSED: &str = "refused";

/// Every counter; none of them counts what a proxy should cause.
pub const ALL: [&str; 4] = [INVALID, WRONG_WAY, MARTIAN, REFUSED];

/// Loads the rules.
pub fn load(node: &Namespace) -> Result<()> {
    command::fed(node.command("nft").args(["-f", "-"]), &rules())
        .with_context(|| format!("cannot load the firewall of {}", node.name()))?;
    Ok(())
}

/// How many packets a counter has seen.
pub fn packets(node: &Namespace, counter: &str) -> Result<u64> {
    let args = ["list", "counter", "inet", "cni", counter];
    let text = command::output(node.command("nft").args(args))?;
    parse_packets(&text).with_context(|| format!("nft counter {counter}: {text}"))
}

/// How many packets a counter of the proxy's own tables has seen, both families together; none where
/// there is no such table.
pub fn packets_of_proxy(node: &Namespace, counter: &str) -> u64 {
    let listed = ["ip", "ip6"].map(|family| {
        let args = ["list", "counter", family, "kube-lottery", counter];
        command::output(node.command("nft").args(args)).unwrap_or_default()
    });
    listed.iter().filter_map(|text| parse_packets(text)).sum()
}

fn parse_packets(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == "packets")?;
    words.next()?.parse().ok()
}

const NEIGHBOURS: &str = "nd-router-solicit, nd-router-advert, nd-neighbor-solicit, \
     nd-neighbor-advert, mld-listener-query, mld-listener-report, mld2-listener-report";

// Multicast and neighbour discovery have no route back and are no business of the proxy; on a
// bridge with netfilter they pass the forward chain.
fn rules() -> String {
    format!(
        "table inet cni {{
  counter {INVALID} {{ }}
  counter {WRONG_WAY} {{ }}
  counter {MARTIAN} {{ }}
  counter {REFUSED} {{ }}
  chain prerouting {{
    type filter hook prerouting priority raw; policy accept;
    icmpv6 type {{ {NEIGHBOURS} }} accept
    iif != lo fib saddr type local counter name {MARTIAN}
    meta nfproto ipv6 fib saddr . iif oif missing counter name {WRONG_WAY} drop
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    ct state invalid counter name {INVALID} drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
    icmpv6 type {{ {NEIGHBOURS} }} accept
    ip protocol igmp accept
    ct state invalid counter name {INVALID} drop
    ct state established,related accept
    ip saddr {POD_RANGE_V4} accept
    ip daddr {POD_RANGE_V4} accept
    ip6 saddr {POD_RANGE_V6} accept
    ip6 daddr {POD_RANGE_V6} accept
    counter name {REFUSED}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {POD_RANGE_V4} ip daddr != {POD_RANGE_V4} masquerade
    ip6 saddr {POD_RANGE_V6} ip6 daddr != {POD_RANGE_V6} masquerade
  }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_from_what_nft_prints() {
        let text = "table inet cni {\n\tcounter invalid {\n\t\tpackets 12 bytes 720\n\t}\n}\n";
        assert_eq!(Some(12), parse_packets(text));
        assert_eq!(None, parse_packets("table inet cni {}"));
    }
}
