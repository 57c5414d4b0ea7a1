//! Which Service an address and port belong to, or why to none. Pure: all of it is in the plan.

use std::net::{IpAddr, SocketAddr};

use proxy_common::abi::FrontendFlags;
use proxy_common::net::Proto;

use super::question::WhyQuestion;
use super::steps;
use crate::config::{Mode, NodePortAddresses};
use crate::control::api::Kind;
use crate::control::api::explain::{Why, WhyService};
use crate::model::{
    Aside, AsideReason, Family, ObjectName, Protocol, Service, ServicePort, TrafficPolicy,
};
use crate::netfilter::{self, Judgement, Path, Rules};
use crate::plan::{Account, FrontendKind, List, Plan, PortAccount, Socket, Standing};

/// Looks for the Service.
pub fn why(plan: &Plan, asides: &[Aside], rules: &Rules, question: &WhyQuestion) -> Why {
    let search = Search {
        plan,
        asides,
        rules,
        question,
    };
    let found = search.claimed().or_else(|| search.elsewhere());
    let found = found.unwrap_or_else(|| search.unknown());
    Why {
        kind: Kind::new("Why"),
        node: plan.node().to_string(),
        address: question.at.to_string(),
        protocol: question.proto.to_string(),
        reason: found.reason.to_owned(),
        served: found.is_served,
        service: found.service,
        message: found.message,
        details: found.details,
        advice: found.advice,
    }
}

/// Ports for people: `http 80/TCP, dns 53/UDP`.
pub(super) fn ports(ports: &[ServicePort]) -> String {
    let all = ports.iter().map(|port| {
        let number = format!("{}/{}", port.port, port.protocol);
        if port.name.is_empty() {
            number
        } else {
            format!("{number} ({})", port.name)
        }
    });
    let all: Vec<_> = all.collect();
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(", ")
    }
}

struct Search<'a> {
    plan: &'a Plan,
    asides: &'a [Aside],
    rules: &'a Rules,
    question: &'a WhyQuestion,
}

/// What was found.
struct Found {
    reason: &'static str,
    is_served: bool,
    service: Option<WhyService>,
    message: String,
    details: Vec<String>,
    advice: Option<String>,
}

impl Found {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            is_served: false,
            service: None,
            message: message.into(),
            details: Vec::new(),
            advice: None,
        }
    }

    fn of(mut self, name: &ObjectName, port: &str, door: Option<&str>) -> Self {
        self.service = Some(WhyService {
            namespace: name.namespace().to_owned(),
            name: name.name().to_owned(),
            port: port.to_owned(),
            door: door.map(str::to_owned),
        });
        self
    }

    fn advise(mut self, text: impl Into<String>) -> Self {
        self.advice = Some(text.into());
        self
    }
}

impl Search<'_> {
    const fn addr(&self) -> IpAddr {
        self.question.at.ip()
    }

    fn socket(&self, proto: Protocol) -> Socket {
        Socket {
            addr: if self.addr().is_ipv4() && self.addr().is_loopback() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                self.addr()
            },
            port: self.question.at.port(),
            proto: proto.into(),
        }
    }

    fn is_own(&self) -> bool {
        let own = self.plan.own_addresses();
        self.addr().is_loopback() || own.contains(&self.addr())
    }

    /// A Service that has the address, the port and the protocol.
    fn claimed(&self) -> Option<Found> {
        let account = self.plan.account(self.socket(self.question.proto))?;
        let first = account.claims.first()?;
        let name = first.service.clone();
        let at = account.at;
        let Some(port) = &account.port else {
            let text = format!("{at} belongs to {name}, but the tables have no room for it");
            return Some(
                Found::new("no-room", text)
                    .of(&name, &first.port, Some(first.kind.name()))
                    .advise("raise --max-frontends; `kube-lottery status` says how full it is"),
            );
        };
        let mut found = self.of_port(&account, port);
        let others = account.claims.iter().skip(1);
        found
            .details
            .extend(others.map(|other| {
                format!("Service {} wants it as well and comes later", other.service)
            }));
        Some(found.of(&name, &port.port.name, Some(port.kind.name())))
    }

    /// What is to be said of a service port that has the frontend.
    fn of_port(&self, account: &Account, port: &PortAccount) -> Found {
        let at = account.at;
        let what = format!(
            "{at} is {} of {}",
            steps::kind(port.kind.name()),
            named(&port.service.name, &port.port.name)
        );
        if port.inside == List::Nobody && port.outside == List::Nobody {
            return self.guarded(&what, at.addr);
        }
        let takes = |list| {
            let endpoints = port.endpoints.iter();
            let standings = endpoints.filter_map(move |own| own.standing(list));
            standings.filter(|standing| standing.is_in()).count()
        };
        let (inside, outside) = (takes(port.inside), takes(port.outside));
        let mut found = if inside == 0 && outside == 0 {
            self.no_endpoint(&what, port)
        } else if outside == 0 {
            let mut found = Found::new(
                "policy-local",
                format!("{what}, but no endpoint on this node takes packets from outside"),
            )
            .advise("send to a node that has one, or set externalTrafficPolicy: Cluster");
            found.details.push(format!(
                "externalTrafficPolicy is Local: packets from outside are dropped here, those of \
                 pods and of this node go to {}",
                count(inside)
            ));
            found
        } else {
            let mut found = Found::new("served", what.clone());
            found.is_served = true;
            found
                .details
                .push(if inside == outside && port.inside == port.outside {
                    format!("{} take new flows", count(inside))
                } else {
                    format!(
                        "{} take new flows from outside, {} those from pods and from this node",
                        count(outside),
                        count(inside)
                    )
                });
            found
        };
        if port.flags.has(FrontendFlags::FILTERED) {
            self.ranges(&what, port, &mut found);
        }
        found.details.extend(port.notices.iter().cloned());
        found
    }

    /// A node port at an address of the node where it is not served.
    fn guarded(&self, what: &str, addr: IpAddr) -> Found {
        let served = self.node_port_addresses(Family::of(addr));
        Found::new(
            "not-node-port-address",
            format!("{what}, but node ports are not served at {addr}"),
        )
        .advise(format!("use {served}, or change nodePortAddresses"))
    }

    fn no_endpoint(&self, what: &str, port: &PortAccount) -> Found {
        let policy = match port.kind {
            FrontendKind::ClusterIp => port.service.internal_policy,
            _ => port.service.external_policy,
        };
        let elsewhere = port
            .endpoints
            .iter()
            .filter(|own| own.cluster.is_in())
            .count();
        if policy == TrafficPolicy::Local && elsewhere > 0 {
            let mut found = Found::new(
                "policy-local",
                format!("{what}, but none of its endpoints is on this node"),
            )
            .advise("run one on this node, or set the policy to Cluster");
            found.details.push(format!(
                "the traffic policy is Local, and {} on other nodes",
                are(elsewhere)
            ));
            return found;
        }
        let mut found = Found::new("no-endpoint", format!("{what}, but no endpoint can serve"));
        if port.endpoints.is_empty() {
            let name = &port.service.name;
            let (own, proto) = (&port.port.name, port.port.protocol);
            found.details.push(format!(
                "no EndpointSlice of {name} names an endpoint for port \"{own}\" of {proto}"
            ));
            return found.advise(format!(
                "compare the Service's selector and port names: kubectl -n {} get endpointslices \
                 -l kubernetes.io/service-name={}",
                name.namespace(),
                name.name()
            ));
        }
        for standing in Standing::ALL {
            let those = port.endpoints.iter().filter(|own| own.cluster == standing);
            let those: Vec<_> = those
                .map(|own| SocketAddr::new(own.addr, own.port).to_string())
                .collect();
            if !those.is_empty() {
                let (text, n) = (standing.text(), those.len());
                let shown = those.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
                let more = if n > 4 { ", ..." } else { "" };
                found.details.push(format!("{n} {text}: {shown}{more}"));
            }
        }
        found.advise("look why the pods are not ready: kubectl describe pod")
    }

    /// Says who may use a frontend that is filtered.
    fn ranges(&self, what: &str, port: &PortAccount, found: &mut Found) {
        let all: Vec<_> = port.sources.iter().map(ToString::to_string).collect();
        let all = all.join(", ");
        found
            .details
            .push(format!("only sources in {all} may use it"));
        let Some(from) = self.question.from else {
            return;
        };
        if !port.sources.iter().any(|range| range.contains(&from)) {
            found.reason = "source-range";
            found.is_served = false;
            found.message = format!("{what}, but {from} is in none of its source ranges");
            found.advice = Some("add it to spec.loadBalancerSourceRanges".to_owned());
        }
    }

    /// Whatever else has to do with the address or the port.
    fn elsewhere(&self) -> Option<Found> {
        self.other_protocol()
            .or_else(|| self.aside())
            .or_else(|| self.of_address())
            .or_else(|| self.node_port())
            .or_else(|| self.endpoint())
    }

    fn other_protocol(&self) -> Option<Found> {
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let mut others = all.into_iter().filter(|own| *own != self.question.proto);
        others.find_map(|proto| {
            let account = self.plan.account(self.socket(proto))?;
            let first = account.claims.first()?;
            let text = format!(
                "{} serves {} by {proto}, not by {}",
                first.service, self.question.at, self.question.proto
            );
            let found = Found::new("wrong-protocol", text)
                .of(&first.service, &first.port, Some(first.kind.name()))
                .advise(format!(
                    "ask with --proto {}",
                    proto.to_string().to_lowercase()
                ));
            Some(found)
        })
    }

    /// A Service that is left aside and has the address, or the node port.
    fn aside(&self) -> Option<Found> {
        let port = self.question.at.port();
        let is_node_port =
            |aside: &Aside| self.is_own() && aside.ports.iter().any(|own| own.node_port == port);
        let mut asides = self.asides.iter();
        let aside =
            asides.find(|aside| aside.addresses.contains(&self.addr()) || is_node_port(aside))?;
        let (reason, text, advice) = left_aside(aside);
        let name = &aside.name;
        let found = Found::new(
            reason,
            format!("{name} has {}, but {text}", self.question.at),
        );
        Some(found.of(name, "", None).advise(advice))
    }

    /// A Service that has the address, but not the port, or not on this node.
    fn of_address(&self) -> Option<Found> {
        let addr = self.addr();
        let mut own: Vec<_> = self
            .plan
            .services()
            .filter(|service| {
                service.cluster_ips.contains(&addr)
                    || service.external_ips.contains(&addr)
                    || service.load_balancer_ips.contains(&addr)
                    || service.proxied_ips.contains(&addr)
            })
            .collect();
        own.sort_by(|one, other| {
            let has = |service: &Service| !has_port(service, self.question);
            (has(one), &one.name).cmp(&(has(other), &other.name))
        });
        let service = *own.first()?;
        let name = &service.name;
        let known = ports(&service.ports);
        if has_port(service, self.question) {
            return Some(self.not_here(service).of(name, "", None));
        }
        let mut found = Found::new(
            "no-such-port",
            format!(
                "{addr} belongs to {name}, which has no port {}",
                self.port()
            ),
        );
        found.details.push(format!("its ports are {known}"));
        found.details.extend(
            own.iter()
                .skip(1)
                .map(|other| format!("{} has it too: {}", other.name, ports(&other.ports))),
        );
        found.details.push(self.fate_of_the_rest());
        Some(
            found
                .of(name, "", None)
                .advise(format!("use one of its ports, or add {}", self.port())),
        )
    }

    /// A Service has the address and the port, and this node does not serve them.
    fn not_here(&self, service: &Service) -> Found {
        let addr = self.addr();
        let name = &service.name;
        if service.proxied_ips.contains(&addr) {
            return Found::new(
                "ip-mode-proxy",
                format!(
                    "{addr} is an address of the load balancer of {name} that nodes leave to it"
                ),
            )
            .advise("its ipMode is Proxy: packets have to reach the load balancer itself");
        }
        if service.external_ips.contains(&addr) && !self.plan.config().external_ips.include(addr) {
            return Found::new(
                "external-ip-refused",
                format!("{addr} is an external IP of {name} that is configured not to be served"),
            )
            .advise("allow it by --external-ips");
        }
        if self.is_own() {
            return Found::new(
                "own-address",
                format!("{addr} is the cluster IP of {name} and an address of this node as well"),
            )
            .advise("whoever listens there answers: a DNS cache of the node, say");
        }
        Found::new("not-served", format!("{addr} of {name} is not served"))
    }

    /// A Service that has the port as its node port.
    fn node_port(&self) -> Option<Found> {
        let number = self.question.at.port();
        let family = Family::of(self.addr());
        let services = self.plan.services();
        let mut own: Vec<_> = services
            .flat_map(|service| service.ports.iter().map(move |port| (service, port)))
            .filter(|(_, port)| port.node_port == number)
            .collect();
        own.sort_by_key(|(service, port)| {
            (port.protocol != self.question.proto, service.name.clone())
        });
        let (service, port) = *own.first()?;
        let name = named(&service.name, &port.name);
        let what = format!("{number} is the node port of {name} for {}", port.protocol);
        let has_family = service
            .cluster_ips
            .iter()
            .any(|own| Family::of(*own) == family);
        let served = self.node_port_addresses(family);
        let found = if !has_family {
            Found::new(
                "no-family",
                format!("{what}, which has no {family} address"),
            )
            .advise("use the other family, or make the Service dual-stack (ipFamilyPolicy)")
        } else if !self.is_own() {
            let text = format!("{what}, but {} is no address of this node", self.addr());
            Found::new("not-this-node", text).advise(format!("here it is reached at {served}"))
        } else if port.protocol == self.question.proto {
            let text = format!("{what}, but node ports are not served at {}", self.addr());
            Found::new("not-node-port-address", text).advise(match self.plan.config() {
                config if config.node_port_addresses == NodePortAddresses::Default => format!(
                    "use {served}; nodePortAddresses is not given, so it is the mode's default"
                ),
                _ => format!("use {served}, or change nodePortAddresses"),
            })
        } else {
            Found::new(
                "wrong-protocol",
                format!("{what}, not for {}", self.question.proto),
            )
            .advise(format!(
                "ask with --proto {}",
                port.protocol.to_string().to_lowercase()
            ))
        };
        let door = Some(FrontendKind::NodePort.name());
        Some(found.of(&service.name, &port.name, door))
    }

    /// The address and port of an endpoint.
    fn endpoint(&self) -> Option<Found> {
        let mut names: Vec<_> = self
            .plan
            .services_of_endpoint(self.question.at, self.question.proto)
            .collect();
        names.sort();
        let name = *names.first()?;
        let at = self.question.at;
        let aside = self.asides.iter().find(|aside| aside.name == *name);
        let found = match aside {
            Some(aside) => {
                let (reason, text, advice) = left_aside(aside);
                let text = format!("{at} is an endpoint of {name}; {text}");
                Found::new(reason, text).advise(advice)
            }
            None => Found::new(
                "endpoint",
                format!("{at} is no Service's address but an endpoint of {name}"),
            )
            .advise("what is sent there goes there, without a Service"),
        };
        Some(found.of(name, "", None))
    }

    /// Nothing is known of it.
    fn unknown(&self) -> Found {
        let at = self.question.at;
        if self.is_own() {
            let text = format!(
                "{} is an address of this node, without a Service at {}",
                self.addr(),
                self.port()
            );
            let mut found = Found::new("no-node-port", text)
                .advise("whoever listens there answers; node ports: `kube-lottery services`");
            found.details.extend(self.near());
            return found;
        }
        let judged = self.rules.judge(&netfilter::Packet {
            path: Path::Forward,
            destination: self.addr(),
            is_local: false,
            proto: Proto::from(self.question.proto),
            port: at.port(),
            mark: 0,
        });
        if judged == Judgement::Drop(Some(netfilter::Counter::Unallocated)) {
            return Found::new(
                "unallocated",
                format!(
                    "{} is in a range of cluster IPs, and no Service has it",
                    self.addr()
                ),
            )
            .advise("the Service may be gone, or the client holds an old address");
        }
        let text = format!("no Service has {} or the port {}", self.addr(), self.port());
        let mut found = Found::new("unknown", text)
            .advise("`kube-lottery services` lists what this node serves");
        found.details.extend(self.near());
        found
    }

    /// Services with the same port at other addresses.
    fn near(&self) -> Option<String> {
        let number = self.question.at.port();
        let mut near: Vec<_> = self
            .plan
            .services()
            .filter(|own| own.ports.iter().any(|port| port.port == number))
            .map(|own| {
                let addresses = own.cluster_ips.iter().map(ToString::to_string);
                format!(
                    "{} ({})",
                    own.name,
                    addresses.collect::<Vec<_>>().join(", ")
                )
            })
            .collect();
        near.sort();
        near.truncate(4);
        if near.is_empty() {
            return None;
        }
        Some(format!("Services with port {number}: {}", near.join(", ")))
    }

    /// What becomes of packets to other ports of a Service's address.
    fn fate_of_the_rest(&self) -> String {
        let whole = Socket {
            addr: self.addr(),
            port: 0,
            proto: Proto::ANY,
        };
        if self.plan.account(whole).is_some() {
            return "packets to other ports of a cluster IP are rejected".to_owned();
        }
        match self.plan.config().mode {
            Mode::Iptables => "packets to other ports are left alone in the mode of iptables",
            Mode::Nftables => "packets to other ports of this address are left alone",
        }
        .to_owned()
    }

    fn port(&self) -> String {
        format!("{}/{}", self.question.at.port(), self.question.proto)
    }

    fn node_port_addresses(&self, family: Family) -> String {
        let all = self.plan.node_port_addresses(family).iter();
        let all: Vec<_> = all.map(ToString::to_string).collect();
        if all.is_empty() {
            format!("no {family} address of this node")
        } else {
            all.join(" or ")
        }
    }
}

fn has_port(service: &Service, question: &WhyQuestion) -> bool {
    let mut ports = service.ports.iter();
    ports.any(|own| own.port == question.at.port() && own.protocol == question.proto)
}

fn named(name: &ObjectName, port: &str) -> String {
    if port.is_empty() {
        name.to_string()
    } else {
        format!("{name}, port {port}")
    }
}

fn count(n: usize) -> String {
    match n {
        1 => "1 endpoint".to_owned(),
        n => format!("{n} endpoints"),
    }
}

fn are(n: usize) -> String {
    match n {
        1 => "1 is".to_owned(),
        n => format!("{n} are"),
    }
}

/// Why a Service is left aside: a word, a part of a sentence, and what to do.
fn left_aside(aside: &Aside) -> (&'static str, String, &'static str) {
    match &aside.reason {
        AsideReason::OtherProxy(proxy) => (
            "other-proxy",
            format!("the label service.kubernetes.io/service-proxy-name={proxy} gives it to another proxy"),
            "remove the label, or look at that proxy",
        ),
        AsideReason::Headless => (
            "headless",
            "it is headless (clusterIP: None): the DNS leads to its endpoints, and no proxy serves it"
                .to_owned(),
            "give it a cluster IP, or use the DNS name",
        ),
        AsideReason::HeadlessLabel => (
            "headless-label",
            "it has the label service.kubernetes.io/headless, which is configured to hide it \
             (--hide-headless-labelled-services)"
                .to_owned(),
            "remove the label or the flag",
        ),
        AsideReason::ExternalName(target) => (
            "external-name",
            format!("it is an ExternalName for {target}: the DNS leads there, and no proxy serves it"),
            "use the DNS name",
        ),
    }
}
