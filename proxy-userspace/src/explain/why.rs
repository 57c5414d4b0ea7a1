//! Which Service an address and port belong to, or why to none. Pure: all of it is in the plan.

mod elsewhere;

use std::net::{IpAddr, SocketAddr};

use proxy_common::abi::FrontendFlags;

use super::question::WhyQuestion;
use super::steps;
use crate::control::api::Kind;
use crate::control::api::explain::{Why, WhyService};
use crate::model::{Aside, Family, ObjectName, Protocol, ServicePort, TrafficPolicy};
use crate::netfilter::Rules;
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
            no_endpoint(&what, port)
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

/// What is to be said of a service port without an endpoint for anybody.
fn no_endpoint(what: &str, port: &PortAccount) -> Found {
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
