//! What the kernel noticed: signs of a translation that the host stack could see.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;

use anyhow::{Context as _, Result};

use super::Lab;
use super::command;
use super::firewall;
use super::namespace::Namespace;

/// Packets dropped by `rp_filter` in that namespace.
pub fn reverse_path_drops(namespace: &Namespace) -> Result<u64> {
    namespace.enter(|| Ok(table_sum(&read_net("netstat")?, "IPReversePathFilter")))
}

/// Packets received in that namespace whose checksum, of any layer, was wrong.
pub fn checksum_errors(namespace: &Namespace) -> Result<u64> {
    namespace.enter(|| {
        let mut errors = 0;
        for file in ["snmp", "netstat"] {
            errors += table_sum(&read_net(file)?, "InCsumErrors");
        }
        Ok(errors + list_sum(&read_net("snmp6")?, "InCsumErrors"))
    })
}

/// First packets of TCP connections that were sent more than once from that namespace.
pub fn repeated_syns(namespace: &Namespace) -> Result<u64> {
    namespace.enter(|| Ok(table_sum(&read_net("netstat")?, "TCPSynRetrans")))
}

/// All entries of the connection tracking table, one a line.
pub fn conntrack(namespace: &Namespace) -> Result<Vec<String>> {
    let mut entries = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let text = command::output(namespace.command("conntrack").args(["-L", "-f", family]))?;
        entries.extend(text.lines().map(str::to_owned));
    }
    Ok(entries)
}

/// Empties the connection tracking table.
pub fn forget_connections(namespace: &Namespace) -> Result<()> {
    command::output(namespace.command("conntrack").arg("-F"))?;
    Ok(())
}

/// Forgets which hardware addresses its neighbours have, but for those entered by hand.
pub fn forget_neighbours(namespace: &Namespace) -> Result<()> {
    for family in ["-4", "-6"] {
        let flush = || {
            let mut ip = namespace.command("ip");
            command::output(ip.args([family, "neighbour", "flush", "all"]))
        };
        // It fails if an entry that it was about to remove is removed or renewed by others.
        (0..9).find_map(|_| flush().ok()).map_or_else(flush, Ok)?;
    }
    Ok(())
}

/// Ports of bridges with all their settings, in the words of `bridge link`.
pub fn bridge_ports(namespace: &Namespace) -> Result<String> {
    command::output(
        namespace
            .command("bridge")
            .args(["-details", "link", "show"]),
    )
}

/// MTU of the path to an address in bytes, if it was learned to be less than the device's.
pub fn path_mtu(namespace: &Namespace, to: IpAddr) -> Result<Option<u16>> {
    let to = to.to_string();
    let text = command::output(namespace.command("ip").args(["route", "get", &to]))?;
    let mut words = text.split_whitespace().skip_while(|word| *word != "mtu");
    Ok(words.nth(1).and_then(|mtu| mtu.parse().ok()))
}

/// Everything that should not have happened, in words; `vips` are the addresses of Services.
pub fn complaints(lab: &Lab, vips: &[IpAddr]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for namespace in lab.namespaces() {
        let drops = reverse_path_drops(namespace)?;
        if drops != 0 {
            found.push(format!(
                "{}: rp_filter dropped {drops} packets",
                namespace.name()
            ));
        }
        let errors = checksum_errors(namespace)?;
        if errors != 0 {
            found.push(format!(
                "{}: {errors} packets with a wrong checksum",
                namespace.name()
            ));
        }
    }
    for node in lab.nodes() {
        for counter in firewall::ALL {
            let packets = firewall::packets(&node.namespace, counter)?;
            if packets != 0 {
                found.push(format!(
                    "{}: {packets} packets counted as {counter}",
                    node.name
                ));
            }
        }
        // The proxy drops them before the firewall sees them.
        let packets = firewall::packets_of_proxy(&node.namespace, firewall::INVALID);
        if packets != 0 {
            found.push(format!(
                "{}: {packets} packets counted as {} by the proxy",
                node.name,
                firewall::INVALID
            ));
        }
        let entries = conntrack(&node.namespace)?;
        let seen: Vec<_> = entries
            .iter()
            .filter(|entry| vips.iter().any(|vip| mentions(entry, *vip)))
            .collect();
        if let Some(example) = seen.first() {
            let count = seen.len();
            found.push(format!(
                "{}: conntrack saw a Service address {count} times: {example}",
                node.name
            ));
        }
    }
    Ok(found)
}

/// The state of all nodes, for a person who looks for the reason of a failure.
pub fn report(lab: &Lab) -> String {
    let mut text = String::new();
    for namespace in lab.namespaces() {
        let drops = reverse_path_drops(namespace).unwrap_or_default();
        if drops != 0 {
            let _ = writeln!(text, "{}: IPReversePathFilter {drops}", namespace.name());
        }
    }
    for node in lab.nodes() {
        let commands: [(&str, &[&str]); 5] = [
            ("ip", &["-brief", "address"]),
            ("ip", &["-s", "link"]),
            ("nft", &["list", "ruleset"]),
            ("conntrack", &["-L"]),
            ("conntrack", &["-L", "-f", "ipv6"]),
        ];
        for (program, args) in commands {
            let said = command::output(node.namespace.command(program).args(args))
                .unwrap_or_else(|error| format!("{error:#}"));
            let _ = writeln!(text, "--- {}: {program} {}", node.name, args.join(" "));
            // Thousands of entries tell no more than some.
            for line in said.lines().take(60) {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

// Not /proc/net: that is the namespace of the process, not of this thread.
fn read_net(file: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/thread-self/net/{file}"))
        .with_context(|| format!("no {file}"))
}

// Lines come in pairs: names, then values in the same columns.
fn table_sum(table: &str, name: &str) -> u64 {
    let mut lines = table.lines();
    let mut sum = 0;
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let columns = names.split_whitespace().zip(values.split_whitespace());
        sum += columns
            .filter(|(column, _)| *column == name)
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum::<u64>();
    }
    sum
}

// One name and one value a line; the names begin with their protocol.
fn list_sum(list: &str, end: &str) -> u64 {
    list.lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .filter(|(name, _)| name.ends_with(end))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

fn mentions(entry: &str, address: IpAddr) -> bool {
    entry
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter(|(key, _)| matches!(*key, "src" | "dst"))
        .any(|(_, value)| value.parse() == Ok(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_in_its_columns() {
        let table = "Tcp: A Wrong B\nTcp: 1 7 3\nUdp: Wrong\nUdp: 4\n";
        assert_eq!(11, table_sum(table, "Wrong"));
        assert_eq!(3, table_sum(table, "B"));
        assert_eq!(0, table_sum(table, "D"));
    }

    #[test]
    fn a_counter_is_found_in_its_lines() {
        let list = "Udp6InWrong      \t2\nUdp6InWrongs\t8\nIcmp6InWrong\t3\n";
        assert_eq!(5, list_sum(list, "InWrong"));
    }

    #[test]
    fn this_kernel_has_the_counters() {
        let names = [
            ("netstat", "IPReversePathFilter"),
            ("netstat", "TCPSynRetrans"),
        ];
        for (file, name) in names.into_iter().chain([("snmp", "InCsumErrors")]) {
            assert!(read_net(file).unwrap().contains(name), "{name}");
        }
    }

    #[test]
    fn an_address_is_not_found_inside_a_longer_one() {
        let entry = "tcp 6 431999 ESTABLISHED src=10.244.1.2 dst=10.96.0.10 sport=1 dport=80";
        assert!(mentions(entry, "10.96.0.10".parse().unwrap()));
        assert!(!mentions(entry, "10.96.0.1".parse().unwrap()));
        assert!(!mentions(entry, "fd00::1".parse().unwrap()));
    }
}
