//! v1 Node.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node as ApiNode;

use super::{Convert, Converted, Invalid, parse_ip, parse_net};
use crate::model::{IpNet, Node, Object};

/// Names the zone that a node is in.
const ZONE: &str = "topology.kubernetes.io/zone";

impl Convert for ApiNode {
    fn convert(&self) -> Result<Converted, Invalid> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(Invalid::new("metadata.name", name, "give a name"));
        }
        let mut left_out = Vec::new();
        let labels = self.metadata.labels.as_ref();
        let zone = labels.and_then(|labels| labels.get(ZONE));
        let node = Node {
            name: name.into(),
            addresses: addresses(self, &mut left_out),
            zone: zone
                .filter(|zone| !zone.is_empty())
                .map(|zone| zone.as_str().into()),
            pod_cidrs: pod_cidrs(self, &mut left_out),
        };
        Ok(Converted {
            object: Some(Object::Node(node.into())),
            left_out,
            aside: None,
        })
    }
}

/// The internal addresses, and after them those that the node has outside.
fn addresses(node: &ApiNode, left_out: &mut Vec<Invalid>) -> Vec<IpAddr> {
    let status = node.status.as_ref();
    let given = status.and_then(|status| status.addresses.as_deref());
    let mut internal = Vec::new();
    let mut external = Vec::new();
    for (index, entry) in given.unwrap_or_default().iter().enumerate() {
        let taken = match entry.type_.as_str() {
            "InternalIP" => &mut internal,
            "ExternalIP" => &mut external,
            // The others are names.
            _ => continue,
        };
        match parse_ip(&entry.address) {
            Some(addr) => taken.push(addr),
            None => left_out.push(Invalid::new(
                format!("status.addresses[{index}].address"),
                &entry.address,
                "give an IPv4 or IPv6 address",
            )),
        }
    }
    internal.append(&mut external);
    internal
}

fn pod_cidrs(node: &ApiNode, left_out: &mut Vec<Invalid>) -> Vec<IpNet> {
    let spec = node.spec.as_ref();
    let several = spec.and_then(|spec| spec.pod_cidrs.as_deref());
    let single = spec.and_then(|spec| spec.pod_cidr.as_ref());
    let given = match several.unwrap_or_default() {
        [] => single.map_or(&[][..], std::slice::from_ref),
        several => several,
    };
    let mut taken = Vec::new();
    for (index, text) in given.iter().enumerate() {
        match parse_net(text) {
            Some(net) => taken.push(net),
            None => left_out.push(Invalid::new(
                format!("spec.podCIDRs[{index}]"),
                text,
                "give a range such as 10.244.1.0/24 or fd00:10:244:1::/64",
            )),
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(yaml: &str) -> (Node, Vec<String>) {
        let api: ApiNode = serde_saphyr::from_str(yaml).unwrap();
        let converted = api.convert().unwrap();
        let left_out = converted.left_out.iter().map(|out| out.field.clone());
        let left_out = left_out.collect();
        match converted.object {
            Some(Object::Node(node)) => (Node::clone(&node), left_out),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn internal_addresses_come_first_and_names_are_none() {
        let (node, left_out) = convert(
            "
metadata: {name: one}
status:
  addresses:
  - {type: Hostname, address: one}
  - {type: ExternalIP, address: 203.0.113.1}
  - {type: InternalIP, address: 192.168.0.1}
  - {type: InternalIP, address: 'fd00::1'}
  - {type: ExternalIP, address: nowhere}",
        );
        let addresses: Vec<_> = node.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(["192.168.0.1", "fd00::1", "203.0.113.1"], *addresses);
        assert_eq!(["status.addresses[4].address"], *left_out);
        assert_eq!((None, 0), (node.zone, node.pod_cidrs.len()));
    }

    #[test]
    fn a_node_has_a_zone_and_ranges_of_pods() {
        let yaml = |labels: &str, spec: &str| {
            format!("{{metadata: {{name: one, labels: {{{labels}}}}}, spec: {{{spec}}}}}")
        };
        let several = "podCIDR: 10.1.0.0/24, podCIDRs: [10.1.0.0/24, bad, 'fd00::/64']";
        let (node, left_out) = convert(&yaml("topology.kubernetes.io/zone: a", several));
        assert_eq!(Some("a"), node.zone.as_deref());
        let ranges: Vec<_> = node.pod_cidrs.iter().map(ToString::to_string).collect();
        assert_eq!(["10.1.0.0/24", "fd00::/64"], *ranges);
        assert_eq!(["spec.podCIDRs[1]"], *left_out);
        let (node, _) = convert(&yaml(
            "topology.kubernetes.io/zone: ''",
            "podCIDR: 10.1.0.0/24",
        ));
        assert_eq!((None, 1), (node.zone, node.pod_cidrs.len()));
    }
}
