//! The frontends of one service port, with all that decides on the packets to them.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proxy_common::abi::{Empty, FrontendFlags, Origin};
use proxy_common::net::Proto;

use super::{Policy, detector};
use crate::config::Mode;
use crate::model::{Family, Service, ServicePort, TrafficPolicy};
use crate::plan::op::Socket;
use crate::plan::wanted::{FrontendKind, List, PortKey, Wanted, WantedFrontend};

const ORIGINS: [Origin; 3] = [Origin::Inside, Origin::Outside, Origin::Host];

/// A service port in one family.
pub(super) struct Given<'a> {
    pub(super) policy: &'a Policy,
    pub(super) service: &'a Service,
    pub(super) port: &'a ServicePort,
    /// The cluster IP of the family.
    pub(super) cluster_ip: IpAddr,
    /// Whether an endpoint anywhere takes new flows.
    pub(super) has_any: bool,
    /// Whether an endpoint on this node takes new flows.
    pub(super) has_local: bool,
}

impl Given<'_> {
    /// Its frontends, the most particular first, and who may use those that are filtered.
    pub(super) fn frontends(&self) -> (Vec<WantedFrontend>, Vec<IpNet>) {
        let mut all = Frontends(Vec::new());
        // Whoever gave the node the address answers there: a DNS cache on the node, say.
        if !self.policy.facts.is_own(self.cluster_ip) {
            all.add(self.internal());
        }
        let config = &self.policy.config;
        for addr in self.family(&self.service.external_ips) {
            if config.external_ips.include(addr) {
                all.add(self.external(FrontendKind::ExternalIp, addr));
            }
        }
        let sources = self.sources();
        // kube-proxy's iptables mode has no filter for what it refuses altogether.
        let is_filtered = !sources.is_empty() && (self.has_any || config.mode == Mode::Nftables);
        for addr in self.family(&self.service.load_balancer_ips) {
            let mut frontend = self.external(FrontendKind::LoadBalancer, addr);
            frontend.flags = frontend
                .flags
                .with(FrontendFlags::FILTERED.only_if(is_filtered));
            all.add(frontend);
        }
        if self.port.node_port != 0 {
            let node_ports = self.policy.node_ports.of(Family::of(self.cluster_ip));
            for addr in &node_ports.served {
                all.add(self.external(FrontendKind::NodePort, *addr));
            }
            if !self.has_external() {
                for addr in &node_ports.guarded {
                    all.add(self.guarded(*addr));
                }
            }
        }
        (all.0, sources)
    }

    fn family(&self, addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
        let family = Family::of(self.cluster_ip);
        let own = addresses.iter().copied();
        own.filter(move |addr| Family::of(*addr) == family)
    }

    fn at(&self, addr: IpAddr, port: u16) -> Socket {
        Socket {
            addr,
            port,
            proto: self.port.protocol.into(),
        }
    }

    /// The cluster IP.
    fn internal(&self) -> WantedFrontend {
        let (list, local) = match self.service.internal_policy {
            TrafficPolicy::Cluster => (List::Cluster, false),
            TrafficPolicy::Local => (List::Local, true),
        };
        let mut flags = self.empty();
        for origin in ORIGINS {
            let masquerades = self.policy.config.masquerade_all
                || (self.has_detector() && origin != Origin::Inside);
            flags = flags
                .with(FrontendFlags::masquerade(origin).only_if(masquerades))
                .with(FrontendFlags::local(origin).only_if(local));
        }
        WantedFrontend {
            at: self.at(self.cluster_ip, self.port.port),
            kind: FrontendKind::ClusterIp,
            flags,
            inside: list,
            outside: list,
        }
    }

    /// An external IP, an address of a load balancer, or one of the node with a node port.
    fn external(&self, kind: FrontendKind, addr: IpAddr) -> WantedFrontend {
        let port = match kind {
            FrontendKind::NodePort => self.port.node_port,
            _ => self.port.port,
        };
        let is_own = self.policy.facts.is_own(addr);
        // kube-proxy's iptables mode looks for what it refuses at INPUT and FORWARD only, so what
        // the node itself sends to other addresses leaves it.
        let is_let_go = !self.has_any && !is_own && self.policy.config.mode == Mode::Iptables;
        let mut flags = if is_let_go {
            FrontendFlags::if_empty(Origin::Inside, Empty::Reject)
                .with(FrontendFlags::if_empty(Origin::Outside, Empty::Reject))
                .with(FrontendFlags::if_empty(Origin::Host, Empty::Pass))
        } else {
            self.empty()
        };
        flags = flags.with(FrontendFlags::OWN_ADDRESS.only_if(is_own));
        let outside = match self.service.external_policy {
            TrafficPolicy::Cluster => {
                for origin in ORIGINS {
                    flags = flags.with(FrontendFlags::masquerade(origin));
                }
                List::Cluster
            }
            // The policy is meant for what a load balancer outside sends. What comes from inside,
            // or from the node, goes anywhere, as if to the cluster IP.
            TrafficPolicy::Local => {
                flags = flags
                    .with(FrontendFlags::masquerade(Origin::Host))
                    .with(FrontendFlags::local(Origin::Outside));
                List::Local
            }
        };
        WantedFrontend {
            at: self.at(addr, port),
            kind,
            flags,
            inside: List::Cluster,
            outside,
        }
    }

    /// An address of the node where node ports are not served but looked for all the same.
    fn guarded(&self, addr: IpAddr) -> WantedFrontend {
        WantedFrontend {
            at: self.at(addr, self.port.node_port),
            kind: FrontendKind::NodePort,
            flags: self.empty().with(FrontendFlags::OWN_ADDRESS),
            inside: List::Nobody,
            outside: List::Nobody,
        }
    }

    /// What becomes of packets of any origin that there is no endpoint for.
    fn empty(&self) -> FrontendFlags {
        everybody(if self.has_any {
            Empty::Drop
        } else {
            Empty::Reject
        })
    }

    /// Whether packets from outside find an endpoint at external addresses.
    const fn has_external(&self) -> bool {
        match self.service.external_policy {
            TrafficPolicy::Cluster => self.has_any,
            TrafficPolicy::Local => self.has_local,
        }
    }

    const fn has_detector(&self) -> bool {
        detector::detects(&self.policy.detector, Family::of(self.cluster_ip))
    }

    /// Who may use the addresses of the load balancer; nobody in particular if there are none.
    fn sources(&self) -> Vec<IpNet> {
        let family = Family::of(self.cluster_ip);
        let mut balancers = self.family(&self.service.load_balancer_ips).peekable();
        if balancers.peek().is_none() {
            return Vec::new();
        }
        let given = self.service.source_ranges.iter();
        let given = given.filter(|range| Family::of(range.addr()) == family);
        let mut sources: Vec<_> = given.map(IpNet::trunc).collect();
        // The node's own packets to an address that it has itself come from that address.
        let primary = &self.policy.facts.primary;
        if sources
            .iter()
            .any(|range| primary.iter().any(|own| range.contains(own)))
        {
            sources.extend(balancers.map(IpNet::from));
        }
        sources.sort_unstable();
        sources.dedup();
        sources
    }
}

/// The whole of a cluster IP: what is sent to ports that no Service has is refused.
pub(super) fn whole_address(addr: IpAddr) -> Wanted {
    let at = Socket {
        addr,
        port: 0,
        proto: Proto(0),
    };
    Wanted {
        key: PortKey {
            name: Arc::from(""),
            proto: at.proto,
            family: at.family(),
        },
        frontends: vec![WantedFrontend {
            at,
            kind: FrontendKind::ClusterIp,
            flags: everybody(Empty::Reject),
            inside: List::Nobody,
            outside: List::Nobody,
        }],
        endpoints: Vec::new(),
        idle: Vec::new(),
        affinity_timeout: 0,
        sources: Vec::new(),
    }
}

fn everybody(empty: Empty) -> FrontendFlags {
    ORIGINS
        .into_iter()
        .fold(FrontendFlags::NONE, |flags, origin| {
            flags.with(FrontendFlags::if_empty(origin, empty))
        })
}

/// Frontends, each address, port and protocol once.
struct Frontends(Vec<WantedFrontend>);

impl Frontends {
    /// An address can be given twice, as an external IP and as the load balancer's. What comes
    /// first counts, but the ranges of sources hold for it all the same.
    fn add(&mut self, new: WantedFrontend) {
        match self.0.iter_mut().find(|known| known.at == new.at) {
            Some(known) => {
                let is_filtered = new.flags.has(FrontendFlags::FILTERED);
                known.flags = known
                    .flags
                    .with(FrontendFlags::FILTERED.only_if(is_filtered));
            }
            None => self.0.push(new),
        }
    }
}
