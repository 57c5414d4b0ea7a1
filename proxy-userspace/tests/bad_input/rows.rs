//! The rows: one mistake each.

use kube_lottery::plan::Limits;

/// One thing that can be wrong.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) input: Input,
    pub(super) limits: Option<Limits>,
}

/// What is done to the file `a.yaml`, or to the directory.
pub(super) enum Input {
    /// In [`SOUND`], replace the first by the second.
    Edit(&'static str, &'static str),
    /// Write this.
    Text(String),
    /// Write what is no text.
    Bytes(&'static [u8]),
    /// Make it a link.
    Link(&'static str),
    /// Make it a pipe.
    Pipe,
    /// Write another file that holds this.
    Other(&'static str),
    /// Remove all files.
    NoFiles,
    /// Remove the directory.
    NoDirectory,
}

/// A Service that nothing is wrong with, in a file of its own.
pub(super) const GOOD: &str = "\
apiVersion: v1
kind: Service
metadata: {name: good}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: good-1, labels: {kubernetes.io/service-name: good}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.1.0.1]}]
";

/// What is in `a.yaml` before it is spoiled.
pub(super) const SOUND: &str = "\
apiVersion: v1
kind: Service
metadata: {name: a}
spec:
  clusterIPs: [10.96.0.2, \"fd00::2\"]
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-4, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.1.0.2]}, {addresses: [10.1.0.3]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-6, labels: {kubernetes.io/service-name: a}}
addressType: IPv6
ports: [{port: 8080}]
endpoints: [{addresses: [\"fd01::2\"]}, {addresses: [\"fd01::3\"]}]
";

const IPS: &str = "clusterIPs: [10.96.0.2, \"fd00::2\"]";
const PORTS: &str = "ports: [{port: 80}]";
const SLICE_PORTS: &str = "addressType: IPv4\nports: [{port: 8080}]";

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        edit("unparsable YAML", IPS, "clusterIPs: [10.96.0.2"),
        text("YAML that is not an object", "- one\n- two\n"),
        text("text", "hello\n"),
        text(
            "a list whose items are none",
            "apiVersion: v1\nkind: List\nitems: all\n",
        ),
        edit("wrong kind", "kind: Service", "kind: Deployment"),
        edit("no kind", "kind: Service", "kind:"),
        edit("wrong apiVersion", "apiVersion: v1\n", "apiVersion: v2\n"),
        edit(
            "wrong apiVersion of a slice",
            "apiVersion: discovery.k8s.io/v1",
            "apiVersion: v1",
        ),
        edit("missing name", "metadata: {name: a}", "metadata: {}"),
        edit("missing clusterIP", IPS, "type: ClusterIP"),
        edit("clusterIP that is no address", IPS, "clusterIP: web"),
        edit(
            "IPv6 clusterIP that is no address",
            IPS,
            "clusterIP: \"fd00::g\"",
        ),
        edit(
            "clusterIP with a prefix length",
            IPS,
            "clusterIP: 10.96.0.2/32",
        ),
        edit(
            "clusterIP of the wrong family",
            IPS,
            "clusterIPs: [10.96.0.2]\n  ipFamilies: [IPv6]",
        ),
        edit(
            "IPv6 clusterIP of the wrong family",
            IPS,
            "clusterIPs: [\"fd00::2\"]\n  ipFamilies: [IPv4]",
        ),
        edit(
            "two clusterIPs of one family",
            IPS,
            "clusterIPs: [10.96.0.2, 10.96.0.3]",
        ),
        edit(
            "clusterIP unlike the first of clusterIPs",
            IPS,
            "clusterIPs: [10.96.0.2]\n  clusterIP: 10.96.0.3",
        ),
        edit("loopback clusterIP", IPS, "clusterIP: 127.0.0.1"),
        edit("port 0", PORTS, "ports: [{port: 0}]"),
        edit("port 70000", PORTS, "ports: [{port: 70000}]"),
        edit("port that is a name", PORTS, "ports: [{port: http}]"),
        edit(
            "two ports of one name",
            PORTS,
            "ports: [{port: 80}, {port: 81}]",
        ),
        edit(
            "unknown protocol",
            PORTS,
            "ports: [{port: 80, protocol: tcp}]",
        ),
        edit(
            "port 70000 of a slice",
            SLICE_PORTS,
            "addressType: IPv4\nports: [{port: 70000}]",
        ),
        edit(
            "port of a slice that is a name",
            SLICE_PORTS,
            "addressType: IPv4\nports: [{port: http}]",
        ),
        edit(
            "unknown protocol of a slice",
            SLICE_PORTS,
            "addressType: IPv4\nports: [{port: 8080, protocol: QUIC}]",
        ),
    ];
    rows.extend(fields());
    rows.extend(endpoints());
    rows.extend(several_objects());
    rows.extend(files());
    rows.extend(limits());
    rows
}

/// Fields of Services beside the `clusterIP`, and of `ServiceCIDR`s.
fn fields() -> Vec<Row> {
    let spec = |name, field: &'static str| edit(name, "ports: [{port: 80}]", field);
    let mut rows = vec![
        spec(
            "external IP that is no address",
            "externalIPs: [192.0.2.9, web]\n  ports: [{port: 80}]",
        ),
        spec(
            "loopback external IP",
            "externalIPs: [127.0.0.1]\n  ports: [{port: 80}]",
        ),
        spec(
            "IPv6 link-local external IP",
            "externalIPs: [\"fe80::9\"]\n  ports: [{port: 80}]",
        ),
        spec(
            "address of a load balancer that is none",
            "ports: [{port: 80}]\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.9}, {ip: lb}]}}",
        ),
        spec(
            "unknown ipMode",
            "ports: [{port: 80}]\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.9, ipMode: NAT}]}}",
        ),
        spec(
            "source range that is none",
            "loadBalancerSourceRanges: [192.0.2.0/24, 192.0.2.0/33]\n  ports: [{port: 80}]",
        ),
        spec("unknown type", "type: Nodeport\n  ports: [{port: 80}]"),
        spec(
            "unknown internalTrafficPolicy",
            "internalTrafficPolicy: local\n  ports: [{port: 80}]",
        ),
        spec(
            "unknown externalTrafficPolicy",
            "externalTrafficPolicy: Node\n  ports: [{port: 80}]",
        ),
        spec(
            "unknown sessionAffinity",
            "sessionAffinity: Cookie\n  ports: [{port: 80}]",
        ),
    ];
    rows.extend([
        spec(
            "affinity for more than a day",
            "sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}\n  \
             ports: [{port: 80}]",
        ),
        spec("node port 70000", "ports: [{port: 80, nodePort: 70000}]"),
        spec(
            "one node port twice",
            "ports: [{name: p, port: 80, nodePort: 30080}, {name: q, port: 81, nodePort: 30080}]",
        ),
        row(
            "ServiceCIDR that is none",
            Input::Text(format!(
                "{SOUND}---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\n\
                 metadata: {{name: s}}\nspec: {{cidrs: [10.96.0.0]}}\n"
            )),
        ),
    ]);
    rows
}

fn endpoints() -> Vec<Row> {
    const V4: &str = "{addresses: [10.1.0.2]}";
    const V6: &str = "{addresses: [\"fd01::2\"]}";
    vec![
        edit("loopback endpoint", V4, "{addresses: [127.0.0.1]}"),
        edit("IPv6 loopback endpoint", V6, "{addresses: [\"::1\"]}"),
        edit("link-local endpoint", V4, "{addresses: [169.254.1.1]}"),
        edit("IPv6 link-local endpoint", V6, "{addresses: [\"fe80::1\"]}"),
        edit("multicast endpoint", V4, "{addresses: [224.0.0.1]}"),
        edit("IPv6 multicast endpoint", V6, "{addresses: [\"ff02::1\"]}"),
        edit("unspecified endpoint", V4, "{addresses: [0.0.0.0]}"),
        edit("IPv6 unspecified endpoint", V6, "{addresses: [\"::\"]}"),
        edit("endpoint that is no address", V4, "{addresses: [pod-2]}"),
        edit("endpoint without an address", V4, "{addresses: []}"),
        edit(
            "IPv6 address in an IPv4 slice",
            V4,
            "{addresses: [\"fd01::2\"]}",
        ),
        edit(
            "IPv4 address in an IPv6 slice",
            V6,
            "{addresses: [10.1.0.2]}",
        ),
        edit(
            "IPv4 address in IPv6 clothes",
            V6,
            "{addresses: [\"::ffff:10.1.0.2\"]}",
        ),
        edit("FQDN slice", "addressType: IPv6", "addressType: FQDN"),
        edit(
            "unknown addressType",
            "addressType: IPv6",
            "addressType: IPv5",
        ),
        edit("no addressType", "addressType: IPv6\n", ""),
        edit(
            "slice of no Service",
            "{name: a-6, labels: {kubernetes.io/service-name: a}}",
            "{name: a-6}",
        ),
    ]
}

fn several_objects() -> Vec<Row> {
    let (service, slices) = SOUND.split_once("---\n").expect("three documents");
    let taken = |ip: &str| {
        format!(
            "{SOUND}---\napiVersion: v1\nkind: Service\nmetadata: {{name: b}}\n\
             spec: {{clusterIP: \"{ip}\", ports: [{{port: 80}}]}}\n"
        )
    };
    let twice = |from: &str, to: &str| {
        let copy = slices.replace("a-4", "a-4-copy").replace("a-6", "a-6-copy");
        format!("{SOUND}---\n{}", copy.replace(from, to))
    };
    vec![
        row(
            "duplicate Service",
            Input::Text(format!("{SOUND}---\n{}", service.replace("80", "81"))),
        ),
        row("duplicate Service in another file", Input::Other(SOUND)),
        row(
            "two Services with one clusterIP and port",
            Input::Text(taken("10.96.0.2")),
        ),
        row(
            "two Services with one IPv6 clusterIP and port",
            Input::Text(taken("fd00::2")),
        ),
        row(
            "duplicate endpoints in two slices",
            Input::Text(twice("", "")),
        ),
        row(
            "the same, one of them ending",
            Input::Text(twice(
                "]}]",
                "], conditions: {ready: false, terminating: true}}]",
            )),
        ),
        row(
            "slice before its Service",
            Input::Text(format!("{slices}---\n{service}")),
        ),
    ]
}

fn files() -> Vec<Row> {
    let remark = format!("# {}\n", "nothing but remarks ".repeat(1 << 10));
    vec![
        row("file that is no text", Input::Bytes(b"kind: \xff\xfe")),
        row(
            "file that cannot be read: a link to itself",
            Input::Link("a.yaml"),
        ),
        row("dangling link", Input::Link("nowhere.yaml")),
        row("pipe", Input::Pipe),
        row("empty file", Input::Text(String::new())),
        row("directory without a manifest", Input::NoFiles),
        row("vanished directory", Input::NoDirectory),
        row(
            "file of 64 MB",
            Input::Text(format!(
                "{SOUND}---\n{}",
                remark.repeat((64 << 20) / remark.len())
            )),
        ),
    ]
}

fn limits() -> Vec<Row> {
    let limits = |frontends, endpoints, row| Row {
        limits: Some(Limits::new(frontends, endpoints)),
        ..row
    };
    let two_ports = "ports: [{port: 80}, {name: q, port: 81}]";
    vec![
        limits(
            2,
            64,
            edit("more frontends than --max-frontends=2", PORTS, two_ports),
        ),
        limits(
            64,
            3,
            edit(
                "more endpoints than --max-endpoints=3",
                "{addresses: [10.1.0.3]}]",
                "{addresses: [10.1.0.3]}, {addresses: [10.1.0.4]}]",
            ),
        ),
    ]
}

const fn row(name: &'static str, input: Input) -> Row {
    Row {
        name,
        input,
        limits: None,
    }
}

const fn edit(name: &'static str, from: &'static str, to: &'static str) -> Row {
    row(name, Input::Edit(from, to))
}

fn text(name: &'static str, text: &str) -> Row {
    row(name, Input::Text(text.to_owned()))
}

impl Row {
    /// What is wrong, as short as it can be shown.
    pub(super) fn shown(&self) -> String {
        match &self.input {
            Input::Edit(_, to) => to.split_whitespace().collect::<Vec<_>>().join(" "),
            Input::Text(text) if (1..50).contains(&text.len()) => text.trim().replace('\n', "; "),
            _ => String::new(),
        }
    }
}
