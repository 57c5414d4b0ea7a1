//! The nftables tables: that this kernel takes every expression they are made of.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use kube_lottery::config::{Config, Mode};
use kube_lottery::netfilter::{Counter, Destination, Keeper, Options, counts, leftovers};
use proxy_common::net::Proto;
use tokio::runtime::Runtime;

use super::is_root;
use super::ports::alone;

const LIMIT: Duration = Duration::from_mins(2);

#[test]
fn this_kernel_takes_the_tables() {
    if !is_root() {
        return;
    }
    let addresses: [IpAddr; 2] = ["10.96.0.10", "fd00:10:96::a"].map(|text| text.parse().unwrap());
    let ranges = ["10.96.0.0/16", "fd00:10:96::/112"].map(|text| text.parse().unwrap());
    alone(|| {
        // The second one replaces what the first has left.
        for mode in [Mode::Iptables, Mode::Nftables] {
            let mut options = Options::new(&Config {
                mode,
                ..Config::default()
            });
            options.service_cidrs = ranges.into();
            let held: BTreeSet<_> = addresses
                .map(|address| match mode {
                    Mode::Iptables => Destination::port(address, Proto::TCP, 80),
                    Mode::Nftables => Destination::address(address),
                })
                .into();
            let runtime = Runtime::new().unwrap();
            let (netfilter, keeper, mut states) = Keeper::new(options);
            let thread = runtime.spawn_blocking(move || keeper.run());
            netfilter.add(held);
            let state = runtime.block_on(async {
                let served = states.wait_for(|state| state.cluster_ips == 2);
                let served = tokio::time::timeout(LIMIT, served).await;
                served.map(|served| served.unwrap().clone())
            });
            let state = state.unwrap_or_else(|_| states.borrow().clone());
            assert_eq!((2, None), (state.cluster_ips, state.trouble), "{mode:?}");
            drop(netfilter);
            runtime.block_on(thread).unwrap();
            let expected = match mode {
                Mode::Iptables => Counter::Invalid,
                Mode::Nftables => Counter::Unallocated,
            };
            let all = BTreeSet::from([Counter::Untranslated, Counter::Rejected, expected]);
            let found = counts().unwrap().into_keys().collect();
            assert_eq!(all, found, "{mode:?}");
        }
        let left = leftovers().unwrap();
        assert_eq!(2, left.len());
        for leftover in left {
            leftover.remove().unwrap();
        }
        assert!(leftovers().unwrap().is_empty());
    });
}
