//! How many draws show what is drawn from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use crate::case::Case;

/// How likely it may be that one of several backends is never drawn.
const MISSED: f64 = 1e-7;

/// How many draws show each of `n` equally likely backends.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small and positive"
)]
pub fn that_show_all(n: usize) -> usize {
    const FEW: usize = 8;
    if n < 2 {
        return FEW;
    }
    let n = n as f64;
    // Each is missed with (1 - 1/n)^draws; n of them might be.
    let draws = (MISSED / n).ln() / (1.0 - 1.0 / n).ln();
    FEW.max(draws.ceil() as usize)
}

/// How many endpoints a service port of the case has in a family, at most.
pub fn most_backends(case: &Case, is_v4: bool) -> usize {
    let mut all: BTreeMap<[&str; 4], BTreeSet<(IpAddr, u64)>> = BTreeMap::new();
    for slice in &case.objects {
        let text = |pointer| slice.pointer(pointer).and_then(Value::as_str);
        if slice["kind"] != "EndpointSlice" {
            continue;
        }
        let namespace = text("/metadata/namespace").unwrap_or_default();
        let service = text("/metadata/labels/kubernetes.io~1service-name").unwrap_or_default();
        for port in items(&slice["ports"]) {
            let Some(number) = port["port"].as_u64() else {
                continue;
            };
            let [name, protocol] = ["name", "protocol"].map(|key| port[key].as_str());
            let key = [
                namespace,
                service,
                name.unwrap_or_default(),
                protocol.unwrap_or("TCP"),
            ];
            let addresses = items(&slice["endpoints"]).filter_map(address_of);
            let own = addresses.filter(|addr| addr.is_ipv4() == is_v4);
            all.entry(key)
                .or_default()
                .extend(own.map(|addr| (addr, number)));
        }
    }
    all.values().map(BTreeSet::len).max().unwrap_or_default()
}

/// The address of an endpoint of a slice.
pub fn address_of(endpoint: &Value) -> Option<IpAddr> {
    let text = endpoint.pointer("/addresses/0")?.as_str()?;
    kube_lottery::cluster::parse_ip(text)
}

/// The items of a list; none of anything else.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_backend_is_seen_at_once_and_many_are_with_many_draws() {
        assert_eq!(8, that_show_all(0));
        assert_eq!(8, that_show_all(1));
        // 2 * (1/2)^25 is below 1e-7, and 2 * (1/2)^24 is not.
        assert_eq!(25, that_show_all(2));
        assert_eq!(175, that_show_all(10));
    }
}
