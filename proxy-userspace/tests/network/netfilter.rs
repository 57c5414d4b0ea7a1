//! The keeper of the tables by itself: what it needs, and what it takes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kube_lottery::config::{Config, Mode};
use kube_lottery::netfilter::{Destination, Keeper, Netfilter, Options, State};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use xtask::lab::Host;

use super::nftables::listed;
use super::restart::say;
use super::world::{World, is_long};

/// What a `DaemonSet` grants, and nothing else.
const SHIPPED: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::PERFMON);

const LIMIT: Duration = Duration::from_mins(1);

/// A keeper in a network namespace.
pub(super) struct Keeping<'a> {
    pub(super) netfilter: Netfilter,
    states: watch::Receiver<State>,
    runtime: &'a Runtime,
}

impl Keeping<'_> {
    /// Waits until it says so.
    pub(super) fn wait_for(&mut self, is_so: impl FnMut(&State) -> bool) -> State {
        let told = async { tokio::time::timeout(LIMIT, self.states.wait_for(is_so)).await };
        let told = self.runtime.block_on(told);
        told.expect("it says something else").unwrap().clone()
    }
}

/// What kube-proxy has by default, in a mode.
pub(super) fn options(mode: Mode) -> Options {
    Options::new(&Config {
        mode,
        ..Config::default()
    })
}

/// Has a keeper work in a host, with some capabilities only or with all.
pub(super) fn keeping<T: Send>(
    host: &Host,
    capabilities: Option<CapabilitySet>,
    options: Options,
    work: impl FnOnce(Keeping<'_>) -> T + Send,
) -> T {
    let inside = || {
        if let Some(held) = capabilities {
            let sets = CapabilitySets {
                effective: held,
                permitted: held,
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, sets)?;
        }
        // Its threads take over what this one has.
        let runtime = Runtime::new()?;
        let (netfilter, keeper, states) = Keeper::new(options);
        let thread = runtime.spawn_blocking(move || keeper.run());
        let done = work(Keeping {
            netfilter,
            states,
            runtime: &runtime,
        });
        runtime.block_on(thread)?;
        Ok(done)
    };
    host.namespace.enter(inside).unwrap()
}

fn addresses(count: u32) -> BTreeSet<Destination> {
    let v4 = (0..count).map(|n| IpAddr::from((0x0a60_0000 + n).to_be_bytes()));
    let v6 = (0..count).map(|n| IpAddr::from((0xfd_u128 << 120 | u128::from(n)).to_be_bytes()));
    v4.chain(v6).map(Destination::address).collect()
}

#[test]
fn the_shipped_capabilities_are_enough() {
    let Some(world) = World::new(1) else {
        return;
    };
    let node = world.lab.node(1);
    let state = keeping(
        &node,
        Some(SHIPPED),
        options(Mode::Nftables),
        |mut keeping| {
            keeping.netfilter.add(addresses(5));
            keeping.wait_for(|state| state.cluster_ips == 10)
        },
    );
    assert_eq!(None, state.trouble);
    assert!(listed(&node).contains("10.96.0.4"));
}

#[test]
fn without_them_it_says_so_as_soon_as_something_is_missed() {
    let Some(world) = World::new(1) else {
        return;
    };
    let node = world.lab.node(1);
    let without = SHIPPED.difference(CapabilitySet::NET_ADMIN);
    keeping(
        &node,
        Some(without),
        options(Mode::Nftables),
        |mut keeping| {
            assert_eq!(None, keeping.states.borrow_and_update().trouble);
            keeping.netfilter.add(addresses(1));
            let state = keeping.wait_for(|state| state.trouble.is_some());
            let trouble = state.trouble.unwrap();
            assert!(trouble.contains("Operation not permitted"), "{trouble}");
            assert_eq!(0, state.cluster_ips);
            keeping.netfilter.remove(addresses(1));
            keeping.wait_for(|state| state.trouble.is_none());
        },
    );
    assert_eq!("", listed(&node));
}

/// How long ten thousand `ClusterIP`s of each family take. Prints numbers and fails on none.
#[test]
fn ten_thousand_cluster_ips() {
    if !is_long() {
        return;
    }
    let Some(world) = World::new(1) else {
        return;
    };
    let node = world.lab.node(1);
    let all = addresses(10_000);
    let one = Destination::address(IpAddr::from([192, 0, 2, 1]));
    let began = Instant::now();
    let (loaded, added) = keeping(
        &node,
        Some(SHIPPED),
        options(Mode::Nftables),
        |mut keeping| {
            keeping.netfilter.add(all.clone());
            keeping.wait_for(|state| state.cluster_ips == all.len());
            let loaded = began.elapsed();
            let began = Instant::now();
            keeping.netfilter.add(BTreeSet::from([one]));
            (loaded, began.elapsed())
        },
    );
    let began = Instant::now();
    let completed = keeping(
        &node,
        Some(SHIPPED),
        options(Mode::Nftables),
        |mut keeping| {
            keeping.netfilter.add(all.clone());
            keeping.wait_for(|state| state.cluster_ips == all.len() + 1);
            let adopted = began.elapsed();
            keeping.netfilter.complete();
            keeping.wait_for(|state| state.cluster_ips == all.len());
            (adopted, began.elapsed())
        },
    );
    assert!(!listed(&node).contains(&one.address.to_string()));
    say(&format!(
        "{} ClusterIPs: loaded in {loaded:.1?}, one more in {added:.1?}, found again in {:.1?}, \
         what is not declared any more gone in {:.1?}",
        all.len(),
        completed.0,
        completed.1,
    ));
}
