//! v1 Service.

use k8s_openapi::api::core::v1::{Service as ApiService, ServicePort as ApiPort, ServiceSpec};

use super::{
    Convert, Converted, Invalid, OTHER_PROXY, Selectors, has_label, object_name, parse_net, port,
    protocol, unicast,
};
use crate::model::{Family, IpNet, Object, Service, ServicePort, TrafficPolicy};
use std::net::IpAddr;

/// For how many seconds a client keeps its endpoint unless that is given.
const AFFINITY_TIMEOUT: i32 = 10_800;

impl Convert for ApiService {
    fn convert(&self) -> Result<Converted, Invalid> {
        let name = object_name(&self.metadata)?;
        let no_spec = ServiceSpec::default();
        let spec = self.spec.as_ref().unwrap_or(&no_spec);
        let kind = kind(spec.type_.as_deref())?;
        if has_label(&self.metadata, OTHER_PROXY) || kind == Kind::ExternalName {
            return Ok(Converted::NOTHING);
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
            Some(&"None") => return Ok(Converted::NOTHING),
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
        let mut load_balancer_ips = load_balancer_ips(self, &mut left_out);
        load_balancer_ips.retain(has_family);
        let service = Service {
            external_ips,
            load_balancer_ips,
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
        })
    }

    fn is_hidden(&self, selectors: Selectors) -> bool {
        selectors.hid(&self.metadata)
    }
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

/// The addresses that nodes answer for. Where the load balancer is a proxy, packets to its address
/// have to go there.
fn load_balancer_ips(service: &ApiService, left_out: &mut Vec<Invalid>) -> Vec<IpAddr> {
    let status = service.status.as_ref();
    let status = status.and_then(|status| status.load_balancer.as_ref());
    let given = status.and_then(|status| status.ingress.as_deref());
    let mut taken = Vec::new();
    for (index, ingress) in given.unwrap_or_default().iter().enumerate() {
        let field = |name: &str| format!("status.loadBalancer.ingress[{index}].{name}");
        let text = ingress.ip.as_deref().unwrap_or_default();
        match ingress.ip_mode.as_deref() {
            _ if text.is_empty() => {}
            None | Some("VIP") => match unicast(text, || field("ip")) {
                Ok(addr) => taken.push(addr),
                Err(invalid) => left_out.push(invalid),
            },
            Some("Proxy") => {}
            Some(other) => left_out.push(Invalid::new(
                field("ipMode"),
                other,
                "legal are VIP and Proxy",
            )),
        }
    }
    taken
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
mod tests {
    use super::*;
    use crate::model::{ObjectName, Protocol};

    fn service(yaml: &str) -> ApiService {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn converted(yaml: &str) -> Option<Service> {
        match service(yaml).convert().unwrap().object? {
            Object::Service(service) => Some(Service::clone(&service)),
            other => panic!("{other:?}"),
        }
    }

    fn refused(yaml: &str) -> String {
        service(yaml).convert().unwrap_err().to_string()
    }

    #[test]
    fn a_dual_stack_service_keeps_both_addresses_and_its_ports() {
        let expected = Service::new(
            ObjectName::new("shop", "web"),
            vec!["10.96.0.10".parse().unwrap(), "fd00::a".parse().unwrap()],
            vec![
                ServicePort {
                    name: "http".into(),
                    protocol: Protocol::Tcp,
                    port: 80,
                    node_port: 0,
                },
                ServicePort {
                    name: "dns".into(),
                    protocol: Protocol::Udp,
                    port: 53,
                    node_port: 0,
                },
            ],
        );
        let yaml = "
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, 'fd00::a']
  ipFamilies: [IPv4, IPv6]
  ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]";
        assert_eq!(Some(expected), converted(yaml));
    }

    fn texts<T: ToString>(all: &[T]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    /// A Service of this specification, and of this status of its load balancer.
    fn of(spec: &str, ingress: &str) -> Service {
        let yaml = format!(
            "{{metadata: {{name: a}}, spec: {{{spec}}}, \
             status: {{loadBalancer: {{ingress: [{ingress}]}}}}}}"
        );
        converted(&yaml).unwrap()
    }

    #[test]
    fn addresses_are_those_of_the_families_of_its_cluster_ips() {
        let fields = "externalIPs: [192.0.2.1, 'fd00::1', 192.000.002.010], type: ClusterIP";
        let ingress = "{ip: 198.51.100.1}, {ip: 'fd00::2', ipMode: VIP}, \
                       {ip: 198.51.100.3, ipMode: Proxy}, {hostname: lb}, {ip: '', ipMode: VIP}";
        let v4 = of(&format!("clusterIP: 10.96.0.1, {fields}"), ingress);
        assert_eq!(["192.0.2.1", "192.0.2.10"], *texts(&v4.external_ips));
        assert_eq!(["198.51.100.1"], *texts(&v4.load_balancer_ips));
        let both = of(
            &format!("clusterIPs: ['fd00::9', 10.96.0.1], {fields}"),
            ingress,
        );
        assert_eq!(3, both.external_ips.len());
        assert_eq!(["198.51.100.1", "fd00::2"], *texts(&both.load_balancer_ips));
    }

    #[test]
    fn an_external_policy_is_in_force_for_what_is_meant_for_outside() {
        for (fields, expected) in [
            ("type: NodePort", TrafficPolicy::Local),
            ("type: LoadBalancer", TrafficPolicy::Local),
            ("type: ClusterIP", TrafficPolicy::Cluster),
            ("externalIPs: []", TrafficPolicy::Cluster),
            ("externalIPs: [192.0.2.1]", TrafficPolicy::Local),
        ] {
            let spec = format!("clusterIP: 10.96.0.1, externalTrafficPolicy: Local, {fields}");
            assert_eq!(expected, of(&spec, "").external_policy, "{fields}");
        }
        let neither = of("clusterIP: 10.96.0.1, type: NodePort", "");
        assert_eq!(TrafficPolicy::Cluster, neither.external_policy);
        assert_eq!(TrafficPolicy::Cluster, neither.internal_policy);
        let internal = of("clusterIP: 10.96.0.1, internalTrafficPolicy: Local", "");
        assert_eq!(TrafficPolicy::Local, internal.internal_policy);
    }

    #[test]
    fn affinity_lasts_three_hours_unless_something_else_is_given() {
        let timeout =
            |fields: &str| of(&format!("clusterIP: 10.96.0.1, {fields}"), "").affinity_timeout;
        let seconds = |seconds: &str| {
            timeout(&format!(
                "sessionAffinity: ClientIP, \
                 sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {seconds}}}}}"
            ))
        };
        assert_eq!(None, timeout("sessionAffinity: None"));
        assert_eq!(Some(10_800), timeout("sessionAffinity: ClientIP"));
        assert_eq!(Some(10_800), seconds("null"));
        assert_eq!([Some(1), Some(86_400)], [seconds("1"), seconds("86400")]);
    }

    #[test]
    fn source_ranges_are_trimmed_and_node_ports_taken() {
        let spec = "clusterIP: 10.96.0.1, ports: [{port: 80, nodePort: 30080}], \
                    loadBalancerSourceRanges: [' 192.0.2.7/24 ', 'fd00::/8']";
        let service = of(spec, "");
        assert_eq!(["192.0.2.7/24", "fd00::/8"], *texts(&service.source_ranges));
        assert_eq!(30080, service.ports[0].node_port);
    }

    #[test]
    fn the_old_selectors_hide_what_has_either_label() {
        let labelled = |label: &str| {
            service(&format!(
                "{{metadata: {{name: a, labels: {{{label}: ''}}}}, spec: {{clusterIP: 10.96.0.1}}}}"
            ))
        };
        let headless = labelled("service.kubernetes.io/headless");
        assert!(!headless.is_hidden(Selectors::Current));
        assert!(headless.is_hidden(Selectors::Until134));
        assert!(
            labelled("service.kubernetes.io/service-proxy-name").is_hidden(Selectors::Until134)
        );
        assert!(!labelled("other").is_hidden(Selectors::Until134));
    }

    #[test]
    fn cluster_ip_alone_is_enough() {
        let web = converted("{metadata: {name: web}, spec: {clusterIP: 10.96.0.10}}").unwrap();
        assert_eq!(ObjectName::new("default", "web"), web.name);
        assert_eq!(1, web.cluster_ips.len());
    }

    #[test]
    fn headless_external_and_foreign_services_are_not_ours() {
        for yaml in [
            "{metadata: {name: a}, spec: {clusterIP: None}}",
            "{metadata: {name: a}, spec: {clusterIP: None, clusterIPs: [None]}}",
            "{metadata: {name: a}, spec: {type: ExternalName, clusterIP: 10.96.0.1}}",
            "{metadata: {name: a, labels: {service.kubernetes.io/service-proxy-name: ''}}, \
              spec: {clusterIP: 10.96.0.1}}",
        ] {
            assert_eq!(
                Converted::NOTHING,
                service(yaml).convert().unwrap(),
                "{yaml}"
            );
        }
    }

    #[test]
    fn a_headless_label_on_a_service_with_a_cluster_ip_hides_nothing() {
        let yaml = "{metadata: {name: a, labels: {service.kubernetes.io/headless: ''}}, \
                     spec: {clusterIP: 10.96.0.1}}";
        assert!(converted(yaml).is_some());
    }

    #[test]
    fn refusals_name_the_field_and_what_is_legal() {
        let table = [
            (
                "{spec: {clusterIP: 10.96.0.1}}",
                "metadata.name: nothing is not legal; give a name",
            ),
            (
                "{metadata: {name: a}, spec: {clusterIP: web}}",
                "spec.clusterIPs[0]: web is not legal; give an IPv4 or IPv6 address",
            ),
            (
                "{metadata: {name: a}, spec: {clusterIP: 10.96.0.1, ports: [{port: 70000}]}}",
                "spec.ports[0].port: 70000 is not legal; legal are 1 to 65535",
            ),
            (
                "{metadata: {name: a}, spec: {clusterIP: 10.96.0.1, \
                  ports: [{port: 1, protocol: tcp}]}}",
                "spec.ports[0].protocol: tcp is not legal; legal are TCP, UDP and SCTP",
            ),
            (
                "{metadata: {name: a}, spec: {clusterIPs: [10.96.0.1], ipFamilies: [IPv6]}}",
                "spec.clusterIPs[0]: 10.96.0.1 is not legal; must be of the family in \
                 spec.ipFamilies",
            ),
        ];
        for (yaml, message) in table {
            assert_eq!(message, refused(yaml), "{yaml}");
        }
    }

    #[test]
    fn a_missing_cluster_ip_is_refused() {
        assert_eq!(
            "spec.clusterIP: nothing is not legal; give an address, or None for a headless Service",
            refused("{metadata: {name: web}, spec: {}}")
        );
    }
}
