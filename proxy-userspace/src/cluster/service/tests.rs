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
    assert!(labelled("service.kubernetes.io/service-proxy-name").is_hidden(Selectors::Until134));
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
        let mut converted = service(yaml).convert().unwrap();
        let aside = converted.aside.take().unwrap();
        assert_eq!("default/a", aside.name.to_string());
        assert_eq!(Converted::NOTHING, converted, "{yaml}");
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
