//! Addresses and ports that no frontend has: what else has to do with them.

use proxy_common::net::Proto;

use super::{Found, Search, named, ports};
use crate::config::{Mode, NodePortAddresses};
use crate::explain::question::WhyQuestion;
use crate::model::{Aside, AsideReason, Family, Protocol, Service};
use crate::netfilter::{self, Judgement, Path};
use crate::plan::{FrontendKind, Socket};

impl Search<'_> {
    /// Whatever else has to do with the address or the port.
    pub(super) fn elsewhere(&self) -> Option<Found> {
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
    pub(super) fn unknown(&self) -> Found {
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
}

fn has_port(service: &Service, question: &WhyQuestion) -> bool {
    let mut ports = service.ports.iter();
    ports.any(|own| own.port == question.at.port() && own.protocol == question.proto)
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
