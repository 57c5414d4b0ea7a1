//! Services that are left aside: what is worth knowing when somebody asks why they are not served.

use k8s_openapi::api::core::v1::{Service as ApiService, ServiceSpec};

use super::super::{parse_ip, port, protocol};
use crate::model::{Aside, AsideReason, ObjectName, ServicePort};

/// What is known of such a Service. Nothing of it is served, so what cannot be read does no harm.
pub(super) fn of(service: &ApiService, name: ObjectName, reason: AsideReason) -> Aside {
    let no_spec = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&no_spec);
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref());
    let ingress = ingress.unwrap_or_default().iter();
    let listed = [&spec.cluster_ips, &spec.external_ips].into_iter();
    let texts = listed
        .flat_map(|list| list.iter().flatten())
        .chain(&spec.cluster_ip)
        .chain(ingress.filter_map(|own| own.ip.as_ref()));
    let mut addresses: Vec<_> = texts.filter_map(|text| parse_ip(text)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let ports = spec.ports.iter().flatten().filter_map(|given| {
        let field = || String::new();
        Some(ServicePort {
            name: given.name.as_deref().unwrap_or_default().into(),
            protocol: protocol(given.protocol.as_deref(), field).ok()?,
            port: port(given.port, field).ok()?,
            node_port: given
                .node_port
                .and_then(|number| port(number, field).ok())
                .unwrap_or_default(),
        })
    });
    Aside {
        name,
        reason,
        addresses,
        ports: ports.collect(),
    }
}
