//! v1 Node.

use k8s_openapi::api::core::v1::Node as ApiNode;

use super::{Convert, Converted, Invalid, parse_ip};
use crate::model::{Node, Object};

impl Convert for ApiNode {
    fn convert(&self) -> Result<Converted, Invalid> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(Invalid::new("metadata.name", name, "give a name"));
        }
        let status = self.status.as_ref();
        let given = status.and_then(|status| status.addresses.as_deref());
        let mut addresses = Vec::new();
        let mut left_out = Vec::new();
        for (index, entry) in given.unwrap_or_default().iter().enumerate() {
            // The others are host names.
            if !matches!(entry.type_.as_str(), "InternalIP" | "ExternalIP") {
                continue;
            }
            match parse_ip(&entry.address) {
                Some(addr) => addresses.push(addr),
                None => left_out.push(Invalid::new(
                    format!("status.addresses[{index}].address"),
                    &entry.address,
                    "give an IPv4 or IPv6 address",
                )),
            }
        }
        let node = Node {
            name: name.into(),
            addresses,
            zone: None,
            pod_cidrs: Vec::new(),
        };
        Ok(Converted {
            object: Some(Object::Node(node.into())),
            left_out,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_no_addresses() {
        let yaml = "
metadata: {name: one}
status:
  addresses:
  - {type: Hostname, address: one}
  - {type: InternalIP, address: 192.168.0.1}
  - {type: InternalIP, address: 'fd00::1'}
  - {type: ExternalIP, address: nowhere}";
        let api: ApiNode = serde_saphyr::from_str(yaml).unwrap();
        let converted = api.convert().unwrap();
        let expected = Node {
            name: "one".into(),
            addresses: vec!["192.168.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            zone: None,
            pod_cidrs: Vec::new(),
        };
        assert_eq!(Some(Object::Node(expected.into())), converted.object);
        assert_eq!("status.addresses[3].address", converted.left_out[0].field);
    }
}
