//! discovery.k8s.io/v1 `EndpointSlice`.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{
    Endpoint as ApiEndpoint, EndpointConditions, EndpointPort, EndpointSlice as ApiSlice,
};

use super::{
    Convert, Converted, HEADLESS, Invalid, Selectors, has_label, object_name, port, protocol,
    unicast,
};
use crate::model::{Endpoint, EndpointSlice, Family, Object, ObjectName, SlicePort};

/// Names the Service that a slice belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl Convert for ApiSlice {
    fn convert(&self) -> Result<Converted, Invalid> {
        let name = object_name(&self.metadata)?;
        if has_label(&self.metadata, HEADLESS) {
            return Ok(Converted::NOTHING);
        }
        let labels = self.metadata.labels.as_ref();
        let service = match labels.and_then(|all| all.get(SERVICE_NAME)) {
            Some(service) if !service.is_empty() => ObjectName::new(name.namespace(), service),
            _ => {
                return Ok(Converted::nothing_because(vec![Invalid::new(
                    "metadata.labels['kubernetes.io/service-name']",
                    "",
                    "give the name of the Service",
                )]));
            }
        };
        let family = match self.address_type.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            "FQDN" => {
                return Ok(Converted::nothing_because(vec![Invalid::new(
                    "addressType",
                    "FQDN",
                    "service proxies serve IPv4 and IPv6 only",
                )]));
            }
            other => {
                return Err(Invalid::new(
                    "addressType",
                    other,
                    "legal are IPv4 and IPv6",
                ));
            }
        };
        let mut left_out = Vec::new();
        let slice = EndpointSlice {
            ports: ports(self.ports.as_deref().unwrap_or_default())?,
            endpoints: endpoints(&self.endpoints, family, &mut left_out),
            name,
            service,
            family,
        };
        Ok(Converted {
            object: Some(Object::Slice(slice.into())),
            left_out,
            aside: None,
        })
    }

    fn is_hidden(&self, selectors: Selectors) -> bool {
        selectors.hid(&self.metadata)
    }
}

fn ports(ports: &[EndpointPort]) -> Result<Vec<SlicePort>, Invalid> {
    let mut taken = Vec::with_capacity(ports.len());
    for (index, given) in ports.iter().enumerate() {
        let field = |name: &str| format!("ports[{index}].{name}");
        // A port without a number serves no one: it stands for "all ports".
        let Some(number) = given.port.filter(|number| *number != 0) else {
            continue;
        };
        taken.push(SlicePort {
            name: given.name.as_deref().unwrap_or_default().into(),
            protocol: protocol(given.protocol.as_deref(), || field("protocol"))?,
            port: port(number, || field("port"))?,
        });
    }
    Ok(taken)
}

fn endpoints(given: &[ApiEndpoint], family: Family, left_out: &mut Vec<Invalid>) -> Vec<Endpoint> {
    let mut names = Names::default();
    let mut taken = Vec::with_capacity(given.len());
    for (index, endpoint) in given.iter().enumerate() {
        let Some(text) = endpoint.addresses.first() else {
            continue;
        };
        let field = || format!("endpoints[{index}].addresses[0]");
        let address = match unicast(text, field) {
            Ok(address) if Family::of(address) == family => address,
            Ok(_) => {
                left_out.push(Invalid::new(
                    field(),
                    text,
                    "must be of the slice's addressType",
                ));
                continue;
            }
            Err(invalid) => {
                left_out.push(invalid);
                continue;
            }
        };
        let unknown = EndpointConditions::default();
        let conditions = endpoint.conditions.as_ref().unwrap_or(&unknown);
        let hints = endpoint.hints.as_ref();
        let for_zones = hints.and_then(|hints| hints.for_zones.as_deref());
        let for_nodes = hints.and_then(|hints| hints.for_nodes.as_deref());
        taken.push(Endpoint {
            address,
            node: endpoint.node_name.as_deref().map(|name| names.shared(name)),
            ready: conditions.ready.unwrap_or(true),
            serving: conditions.serving.unwrap_or(true),
            terminating: conditions.terminating.unwrap_or(false),
            for_zones: (for_zones.into_iter().flatten())
                .map(|zone| names.shared(&zone.name))
                .collect(),
            for_nodes: (for_nodes.into_iter().flatten())
                .map(|node| names.shared(&node.name))
                .collect(),
        });
    }
    taken
}

/// One copy of each name: a slice has a thousand endpoints on few nodes, in few zones.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, Arc<str>>);

impl<'a> Names<'a> {
    fn shared(&mut self, name: &'a str) -> Arc<str> {
        Arc::clone(self.0.entry(name).or_insert_with(|| name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n";

    fn convert(yaml: &str) -> Result<Converted, Invalid> {
        serde_saphyr::from_str::<ApiSlice>(yaml).unwrap().convert()
    }

    fn slice(converted: &Converted) -> &EndpointSlice {
        match &converted.object {
            Some(Object::Slice(slice)) => slice,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unset_conditions_mean_ready_and_serving() {
        let yaml = "
addressType: IPv4
ports: [{port: 8080}]
endpoints:
- addresses: [10.1.0.1, 10.9.9.9]
- addresses: [10.1.0.2]
  nodeName: one
  conditions: {ready: false, serving: true, terminating: true}
- addresses: []";
        let converted = convert(&format!("{HEAD}{yaml}")).unwrap();
        let web = slice(&converted);
        assert_eq!(ObjectName::new("default", "web"), web.service);
        assert_eq!(8080, web.ports[0].port);
        assert_eq!(2, web.endpoints.len());
        assert!(web.endpoints[0].ready && web.endpoints[0].serving);
        assert!(!web.endpoints[0].terminating);
        assert_eq!(Some("one"), web.endpoints[1].node.as_deref());
        assert!(!web.endpoints[1].ready && web.endpoints[1].terminating);
    }

    #[test]
    fn hints_are_taken() {
        let yaml = "
addressType: IPv4
endpoints:
- addresses: [10.1.0.1]
  hints: {forZones: [{name: a}, {name: b}], forNodes: [{name: one}]}
- addresses: [10.1.0.2]";
        let converted = convert(&format!("{HEAD}{yaml}")).unwrap();
        let endpoints = &slice(&converted).endpoints;
        assert_eq!(
            ["a", "b"],
            *endpoints[0]
                .for_zones
                .iter()
                .map(|zone| &**zone)
                .collect::<Vec<_>>()
        );
        assert_eq!(
            ["one"],
            *endpoints[0]
                .for_nodes
                .iter()
                .map(|node| &**node)
                .collect::<Vec<_>>()
        );
        assert!(endpoints[1].for_zones.is_empty() && endpoints[1].for_nodes.is_empty());
    }

    #[test]
    fn bad_addresses_are_left_out_one_by_one() {
        let yaml = "
addressType: IPv6
endpoints:
- addresses: ['fd00::1']
- addresses: [10.1.0.2]
- addresses: ['fe80::1']
- addresses: ['::ffff:10.0.0.1']";
        let converted = convert(&format!("{HEAD}{yaml}")).unwrap();
        assert_eq!(1, slice(&converted).endpoints.len());
        let fields: Vec<_> = converted.left_out.iter().map(|out| &*out.field).collect();
        let expected = [
            "endpoints[1].addresses[0]",
            "endpoints[2].addresses[0]",
            "endpoints[3].addresses[0]",
        ];
        assert_eq!(expected, *fields);
    }

    #[test]
    fn slices_that_serve_no_one_are_not_ours() {
        for yaml in [
            "{metadata: {name: a}, addressType: IPv4}",
            "{metadata: {name: a, labels: {kubernetes.io/service-name: ''}}, addressType: IPv4}",
            "{metadata: {name: a, labels: {kubernetes.io/service-name: web, \
              service.kubernetes.io/headless: ''}}, addressType: IPv4}",
            "{metadata: {name: a, labels: {kubernetes.io/service-name: web}}, addressType: FQDN}",
        ] {
            assert_eq!(None, convert(yaml).unwrap().object, "{yaml}");
        }
    }

    #[test]
    fn ports_without_a_number_are_skipped() {
        let yaml = "
addressType: IPv4
ports: [{name: a}, {name: b, port: 0}, {name: c, port: 1}]";
        let converted = convert(&format!("{HEAD}{yaml}")).unwrap();
        assert_eq!(1, slice(&converted).ports.len());
    }
}
