//! v1 Service.

mod aside;

use k8s_openapi::api::core::v1::{Service as ApiService, ServicePort as ApiPort, ServiceSpec};

use super::{
    Convert, Converted, Invalid, OTHER_PROXY, Selectors, object_name, parse_ip, parse_net, port,
    protocol, unicast,
};
use crate::model::{
    Aside, AsideReason, Family, IpNet, Object, Service, ServicePort, TrafficPolicy,
};
use std::net::IpAddr;

/// For how many seconds a client keeps its endpoint unless that is given.
const AFFINITY_TIMEOUT: i32 = 10_800;

impl Convert for ApiService {
    fn convert(&self) -> Result<Converted, Invalid> {
        let name = object_name(&self.metadata)?;
        let no_spec = ServiceSpec::default();
        let spec = self.spec.as_ref().unwrap_or(&no_spec);
        let kind = kind(spec.type_.as_deref())?;
        if let Some(proxy) = other_proxy(self) {
            let reason = AsideReason::OtherProxy(proxy.clone());
            return Ok(Converted::aside(aside::of(self, name, reason)));
        }
        if kind == Kind::ExternalName {
            let target = spec.external_name.clone().unwrap_or_default();
            let reason = AsideReason::ExternalName(target);
            return Ok(Converted::aside(aside::of(self, name, reason)));
        }
        let texts = cluster_ip_texts(spec)?;
        match texts.first() {
            None => {
                return Err(Invalid::new(
                    "spec.clusterIP",
                    "",
                    "give an address, or None for a headless Service",
                ));
            }
            Some(&"None") => {
                return Ok(Converted::aside(aside::of(
                    self,
                    name,
                    AsideReason::Headless,
                )));
            }
            Some(_) => {}
        }
        let cluster_ips = cluster_ips(&texts, spec.ip_families.as_deref().unwrap_or_default())?;
        let mut left_out = Vec::new();
        let has_family = |addr: &IpAddr| {
            let mut families = cluster_ips.iter().map(|own| Family::of(*own));
            families.any(|family| family == Family::of(*addr))
        };
        let mut external_ips = external_ips(spec, &mut left_out);
        external_ips.retain(has_family);
        let (mut load_balancer_ips, proxied_ips) = load_balancer_ips(self, &mut left_out);
        load_balancer_ips.retain(has_family);
        let created = self.metadata.creation_timestamp.as_ref();
        let service = Service {
            created: created.map(|time| time.0.as_second()),
            external_ips,
            load_balancer_ips,
            proxied_ips,
            source_ranges: source_ranges(spec)?,
            internal_policy: policy(
                spec.internal_traffic_policy.as_deref(),
                "spec.internalTrafficPolicy",
            )?,
            external_policy: external_policy(spec, kind)?,
            affinity_timeout: affinity(spec)?,
            ports: ports(spec.ports.as_deref().unwrap_or_default())?,
            ..Service::new(name, cluster_ips, Vec::new())
        };
        Ok(Converted {
            object: Some(Object::Service(service.into())),
            left_out,
            aside: None,
        })
    }

    fn is_hidden(&self, selectors: Selectors) -> bool {
        selectors.hid(&self.metadata)
    }

    fn aside(&self) -> Option<Aside> {
        let name = object_name(&self.metadata).ok()?;
        let reason = match other_proxy(self) {
            Some(proxy) => AsideReason::OtherProxy(proxy.clone()),
            None => AsideReason::HeadlessLabel,
        };
        Some(aside::of(self, name, reason))
    }
}

/// The proxy that a Service is given to, if it is.
fn other_proxy(service: &ApiService) -> Option<&String> {
    service.metadata.labels.as_ref()?.get(OTHER_PROXY)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ClusterIp,
    /// `NodePort` or `LoadBalancer`.
    Exposed,
    ExternalName,
}

fn kind(given: Option<&str>) -> Result<Kind, Invalid> {
    match given.unwrap_or_default() {
        "" | "ClusterIP" => Ok(Kind::ClusterIp),
        "NodePort" | "LoadBalancer" => Ok(Kind::Exposed),
        "ExternalName" => Ok(Kind::ExternalName),
        other => Err(Invalid::new(
            "spec.type",
            other,
            "legal are ClusterIP, NodePort, LoadBalancer and ExternalName",
        )),
    }
}

fn external_ips(spec: &ServiceSpec, left_out: &mut Vec<Invalid>) -> Vec<IpAddr> {
    let mut taken = Vec::new();
    let given = spec.external_ips.as_deref().unwrap_or_default();
    for (index, text) in given.iter().enumerate() {
        match unicast(text, || format!("spec.externalIPs[{index}]")) {
            Ok(addr) => taken.push(addr),
            Err(invalid) => left_out.push(invalid),
        }
    }
    taken
}

/// The addresses that nodes answer for, and the others. Where the load balancer is a proxy, packets
/// to its address have to go there.
fn load_balancer_ips(
    service: &ApiService,
    left_out: &mut Vec<Invalid>,
) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let status = service.status.as_ref();
    let status = status.and_then(|status| status.load_balancer.as_ref());
    let given = status.and_then(|status| status.ingress.as_deref());
    let (mut taken, mut proxied) = (Vec::new(), Vec::new());
    for (index, ingress) in given.unwrap_or_default().iter().enumerate() {
        let field = |name: &str| format!("status.loadBalancer.ingress[{index}].{name}");
        let text = ingress.ip.as_deref().unwrap_or_default();
        match ingress.ip_mode.as_deref() {
            _ if text.is_empty() => {}
            None | Some("VIP") => match unicast(text, || field("ip")) {
                Ok(addr) => taken.push(addr),
                Err(invalid) => left_out.push(invalid),
            },
            Some("Proxy") => proxied.extend(parse_ip(text)),
            Some(other) => left_out.push(Invalid::new(
                field("ipMode"),
                other,
                "legal are VIP and Proxy",
            )),
        }
    }
    (taken, proxied)
}

/// Who may use the addresses of the load balancer. A restriction that cannot be read in full must
/// not open them to everybody.
fn source_ranges(spec: &ServiceSpec) -> Result<Vec<IpNet>, Invalid> {
    let given = spec.load_balancer_source_ranges.as_deref();
    let ranges = given.unwrap_or_default().iter().enumerate();
    ranges
        .map(|(index, text)| {
            parse_net(text).ok_or_else(|| {
                Invalid::new(
                    format!("spec.loadBalancerSourceRanges[{index}]"),
                    text,
                    "give a range such as 192.0.2.0/24 or 2001:db8::/32",
                )
            })
        })
        .collect()
}

fn policy(given: Option<&str>, field: &str) -> Result<TrafficPolicy, Invalid> {
    match given.unwrap_or_default() {
        "" | "Cluster" => Ok(TrafficPolicy::Cluster),
        "Local" => Ok(TrafficPolicy::Local),
        other => Err(Invalid::new(field, other, "legal are Cluster and Local")),
    }
}

/// The external policy, which only a Service that is meant for outside has.
fn external_policy(spec: &ServiceSpec, kind: Kind) -> Result<TrafficPolicy, Invalid> {
    let policy = policy(
        spec.external_traffic_policy.as_deref(),
        "spec.externalTrafficPolicy",
    )?;
    let has_external_ips = spec
        .external_ips
        .as_ref()
        .is_some_and(|all| !all.is_empty());
    Ok(if kind == Kind::Exposed || has_external_ips {
        policy
    } else {
        TrafficPolicy::Cluster
    })
}

fn affinity(spec: &ServiceSpec) -> Result<Option<u32>, Invalid> {
    match spec.session_affinity.as_deref().unwrap_or_default() {
        "" | "None" => return Ok(None),
        "ClientIP" => {}
        other => {
            return Err(Invalid::new(
                "spec.sessionAffinity",
                other,
                "legal are None and ClientIP",
            ));
        }
    }
    let config = spec.session_affinity_config.as_ref();
    let config = config.and_then(|config| config.client_ip.as_ref());
    let given = config.and_then(|config| config.timeout_seconds);
    match given.unwrap_or(AFFINITY_TIMEOUT) {
        seconds @ 1..=86_400 => Ok(Some(seconds.unsigned_abs())),
        other => Err(Invalid::new(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            other,
            "legal are 1 to 86400",
        )),
    }
}

/// The texts of `clusterIPs`, or of `clusterIP` where only that is given.
fn cluster_ip_texts(spec: &ServiceSpec) -> Result<Vec<&str>, Invalid> {
    let single = spec.cluster_ip.as_deref().unwrap_or_default();
    let several = spec.cluster_ips.as_deref().unwrap_or_default();
    match several.first() {
        None if single.is_empty() => Ok(Vec::new()),
        None => Ok(vec![single]),
        Some(first) if !single.is_empty() && first != single => Err(Invalid::new(
            "spec.clusterIP",
            single,
            "must equal spec.clusterIPs[0]",
        )),
        Some(_) => Ok(several.iter().map(String::as_str).collect()),
    }
}

fn cluster_ips(texts: &[&str], families: &[String]) -> Result<Vec<IpAddr>, Invalid> {
    let mut addrs: Vec<IpAddr> = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        let field = || format!("spec.clusterIPs[{index}]");
        let addr = unicast(text, field)?;
        let family = Family::of(addr);
        if addrs.iter().any(|other| Family::of(*other) == family) {
            return Err(Invalid::new(
                field(),
                text,
                "one address of each family at most",
            ));
        }
        if families
            .get(index)
            .is_some_and(|want| *want != family.to_string())
        {
            return Err(Invalid::new(
                field(),
                text,
                "must be of the family in spec.ipFamilies",
            ));
        }
        addrs.push(addr);
    }
    Ok(addrs)
}

fn ports(ports: &[ApiPort]) -> Result<Vec<ServicePort>, Invalid> {
    let mut taken: Vec<ServicePort> = Vec::with_capacity(ports.len());
    for (index, given) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{index}].{name}");
        let new = ServicePort {
            name: given.name.as_deref().unwrap_or_default().into(),
            protocol: protocol(given.protocol.as_deref(), || field("protocol"))?,
            port: port(given.port, || field("port"))?,
            node_port: match given.node_port.unwrap_or_default() {
                0 => 0,
                number => port(number, || field("nodePort"))?,
            },
        };
        if taken.iter().any(|old| old.name == new.name) {
            return Err(Invalid::new(
                field("name"),
                &new.name,
                "each port of a Service needs a name of its own",
            ));
        }
        if taken
            .iter()
            .any(|old| (old.port, old.protocol) == (new.port, new.protocol))
        {
            return Err(Invalid::new(
                field("port"),
                new.port,
                "each port number may be given once for a protocol",
            ));
        }
        if new.node_port != 0
            && taken
                .iter()
                .any(|old| (old.node_port, old.protocol) == (new.node_port, new.protocol))
        {
            return Err(Invalid::new(
                field("nodePort"),
                new.node_port,
                "each node port may be given once for a protocol",
            ));
        }
        taken.push(new);
    }
    Ok(taken)
}

#[cfg(test)]
mod tests;
