//! Neighbours that the kernel is asked to keep, in a network namespace with a bridge.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use aya::util::KernelVersion;
use kube_lottery::node::OnLink;
use kube_lottery::node::neighbours::{keep, release};
use tokio::runtime::Builder;
use tokio::sync::watch;

use super::is_root;
use super::ports::{self, BRIDGE};

const ADDRESSES: [&str; 2] = ["10.244.2.77", "fd00:10:244:2::77"];
const OTHERS: [&str; 2] = ["10.244.2.78", "fd00:10:244:2::78"];

fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// What iproute2 says of an address at the bridge; nothing if the kernel has forgotten it.
fn entry(addr: &str) -> String {
    let output = Command::new("ip")
        .args(["-d", "neighbour", "show", addr, "dev", "br0", "nud", "all"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the kernel keeps neighbours by itself; before 5.16 it only looks for them when asked.
fn manages() -> bool {
    KernelVersion::current().unwrap() >= KernelVersion::new(5, 16, 0)
}

fn is_kept(addr: &str) -> bool {
    let entry = entry(addr);
    if manages() {
        entry.contains("managed")
    } else {
        !entry.is_empty() && !entry.contains("PERMANENT")
    }
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn the_kernel_keeps_neighbours_until_they_are_released() {
    if !is_root() {
        return;
    }
    ports::alone(|| {
        ports::bridge(["10.244.0.1/16", "fd00:10:244::1/48"]);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(keep_and_release());
    });
}

async fn keep_and_release() {
    let (endpoints, told_endpoints) = watch::channel(BTreeSet::new());
    let networks = ["10.244.0.1/16", "fd00:10:244::1/48"].map(|text| OnLink {
        device: BRIDGE,
        address: text.parse().unwrap(),
    });
    let (_networks, told_networks) = watch::channel(networks.into());
    let keeping = tokio::spawn(keep(told_endpoints, told_networks));

    endpoints.send_replace(addresses(&ADDRESSES));
    for addr in ADDRESSES {
        wait_until("it is kept", || is_kept(addr)).await;
        ports::ip(&[format!("neighbour delete {addr} dev br0")]);
        wait_until("it is back", || is_kept(addr)).await;
    }
    // What an administrator says of an address stands.
    for addr in OTHERS {
        let permanent = "lladdr 02:00:00:00:09:09 dev br0 nud permanent";
        ports::ip(&[format!("neighbour add {addr} {permanent}")]);
    }
    let all: Vec<_> = ADDRESSES.into_iter().chain(OTHERS).collect();
    endpoints.send_replace(addresses(&all));
    // These come back when all are looked at.
    ports::ip(&ADDRESSES.map(|addr| format!("neighbour delete {addr} dev br0")));
    for addr in ADDRESSES {
        wait_until("it is back", || is_kept(addr)).await;
    }
    for addr in OTHERS {
        assert!(entry(addr).contains("PERMANENT") && !is_kept(addr));
    }

    if !manages() {
        return;
    }
    endpoints.send_replace(addresses(&ADDRESSES[..1]));
    wait_until("one is released", || !is_kept(ADDRESSES[1])).await;
    assert!(is_kept(ADDRESSES[0]));
    keeping.abort();
    // What a run leaves behind, a clean-up finds.
    assert_eq!(1, release(false).await.unwrap());
    assert!(is_kept(ADDRESSES[0]));
    assert_eq!(1, release(true).await.unwrap());
    wait_until("all are released", || !is_kept(ADDRESSES[0])).await;
    assert_eq!(0, release(true).await.unwrap());
}
