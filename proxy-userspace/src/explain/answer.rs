//! From a scene and what the data path did with its packet to the answer.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use proxy_common::abi::endpoint::Endpoint as _;
use proxy_common::abi::flow::Flow as _;
use proxy_common::abi::flow::FlowKey as _;
use proxy_common::abi::{
    Affinity, Counter, EndpointFlags, EndpointSet, Frontend, FrontendFlags, Hook, Kind as HalfKind,
    Origin, Tier,
};
use proxy_common::datapath::Tables;
use proxy_common::datapath::lifetime::is_over;
use proxy_common::datapath::memory::{MemoryTables, Stored};
use proxy_common::datapath::origin::{host_origin, origin_of};
use proxy_common::datapath::verdict::Step;
use proxy_common::datapath::work::{Part, Work};
use proxy_common::lottery::MOST_RULES;
use proxy_common::net::{Address as _, Port, Proto};

use super::draw::{DrawError, Fate, draw};
use super::excerpt::{Packet, TIERS};
use super::host::{HostPath, LOOPBACK};
use super::question::{Entry, Verdict};
use super::scene::{Ran, Run, Scene, range};
use super::steps;
use crate::config::{Detect, Mode};
use crate::control::api::Counter as CounterOf;
use crate::control::api::Kind;
use crate::control::api::explain::{
    ExplainedAffinity, ExplainedClaim, ExplainedEndpoint, ExplainedFlow, ExplainedFrontend,
    ExplainedLottery, ExplainedOrigin, ExplainedOutcome, ExplainedPacket, ExplainedPolicy,
    ExplainedRanges, ExplainedRule, Explanation,
};
use crate::dataplane::Private;
use crate::dataplane::apply::Layout;
use crate::model::TrafficPolicy;
use crate::netfilter::{Judgement, TABLE};
use crate::plan::{Account, FrontendKind, List, PortAccount, Standing};

impl Scene {
    pub(super) fn explain_in<F>(
        &self,
        run: Run,
        instance: &mut Option<Private>,
    ) -> Result<Explanation, DrawError>
    where
        F: Stored<Addr: Into<IpAddr>> + Layout,
    {
        let view = View::<F>::new(self);
        let ran = self.run(run, instance)?;
        let origin = view.origin();
        let each = view.each(origin)?;
        let endpoints = view.endpoints(origin, &each);
        let flow = view.flow();
        let affinity = view.affinity(origin);
        let lottery = self.lottery(&each);
        let outcome = self.outcome(&ran, &flow, &affinity, &lottery, origin);
        let mut all = Explanation {
            kind: Kind::new("Explanation"),
            node: self.node.to_string(),
            mode: mode(self.config.mode).to_owned(),
            source: if self.is_live {
                "controller"
            } else {
                "manifests"
            }
            .to_owned(),
            data_path: if ran.is_kernel { "kernel" } else { "host" }.to_owned(),
            data_path_note: ran.note.clone(),
            packet: ExplainedPacket {
                protocol: self.question.proto.to_string(),
                source: self.from().to_string(),
                source_port_given: self.question.sport.is_some(),
                destination: self.question.dst.to_string(),
                entry: self.entry,
                in_because: self.entry_because.clone(),
            },
            origin: ExplainedOrigin {
                name: origin_name(origin).to_owned(),
                because: self.origin_because(origin),
            },
            frontend: self.frontend(),
            source_ranges: view.ranges(),
            policy: self.policy(origin),
            endpoints,
            affinity,
            lottery,
            flow,
            conntrack: self.conntrack(&ran.fate),
            outcome,
            steps: Vec::new(),
        };
        all.steps = steps::steps(&all, self, &ran.fate);
        Ok(all)
    }

    /// The service port that has the frontend.
    pub(super) fn port(&self) -> Option<&PortAccount> {
        self.exact.as_ref()?.port.as_ref()
    }

    fn origin_because(&self, origin: Origin) -> String {
        let src = self.question.src;
        let range = range(&self.config, src);
        match (&self.config.detect, origin) {
            (Detect::BridgeInterface(name), Origin::Inside) => {
                format!("it comes in by bridge {name}")
            }
            (Detect::InterfaceNamePrefix(prefix), Origin::Inside) => {
                format!("it comes in by a device whose name begins with {prefix}")
            }
            (Detect::BridgeInterface(name), Origin::Outside) => {
                format!("it does not come in by bridge {name}")
            }
            (Detect::InterfaceNamePrefix(prefix), Origin::Outside) => {
                format!("it comes in by no device whose name begins with {prefix}")
            }
            (_, Origin::Inside) => format!("{src} is in the range of pods{range}"),
            (Detect::ClusterCidr(ranges), Origin::Outside) if ranges.is_empty() => {
                "no range of pods is configured, so nobody is inside".to_owned()
            }
            (_, Origin::Outside) => format!("{src} is in no range of pods"),
            (_, Origin::Host) => "a process of the node sends it".to_owned(),
        }
    }

    fn frontend(&self) -> Option<ExplainedFrontend> {
        let account: &Account = self.exact.as_ref().or(self.whole.as_ref())?;
        let (first, others) = account.claims.split_first()?;
        let is_whole = self.exact.is_none();
        Some(ExplainedFrontend {
            address: account.at.to_string(),
            kind: first.kind.name().to_owned(),
            whole_address: is_whole,
            namespace: first.service.namespace().to_owned(),
            service: first.service.name().to_owned(),
            port: first.port.to_string(),
            number: account.port.as_ref().map(|port| port.number),
            others: others
                .iter()
                .map(|other| ExplainedClaim {
                    namespace: other.service.namespace().to_owned(),
                    service: other.service.name().to_owned(),
                    port: other.port.to_string(),
                    kind: other.kind.name().to_owned(),
                    because: if other.is_empty && !first.is_empty {
                        "it has no endpoint"
                    } else if other.kind != first.kind {
                        "its kind of address comes later"
                    } else if other.created > first.created {
                        "it is younger"
                    } else {
                        "its name comes later"
                    }
                    .to_owned(),
                })
                .collect(),
        })
    }

    fn policy(&self, origin: Origin) -> Option<ExplainedPolicy> {
        let port = self.port()?;
        let list = port.list(origin);
        let (field, value) = match port.kind {
            FrontendKind::ClusterIp => ("internalTrafficPolicy", port.service.internal_policy),
            _ => ("externalTrafficPolicy", port.service.external_policy),
        };
        let standings = || port.endpoints.iter().filter_map(|own| own.standing(list));
        let has = |one: Standing, other: Standing| {
            standings().any(|standing| standing == one || standing == other)
        };
        let topology = if has(Standing::HintsNode, Standing::OtherNodes) {
            Some("node")
        } else if has(Standing::HintsZone, Standing::OtherZones) {
            Some("zone")
        } else {
            None
        };
        let is_fallback = has(Standing::Fallback, Standing::Fallback);
        let mut because = vec![match (value, list) {
            (_, List::Nobody) => "node ports are not served at this address of the node".to_owned(),
            (TrafficPolicy::Cluster, _) => "any endpoint of the cluster".to_owned(),
            (TrafficPolicy::Local, List::Local) => "endpoints on this node only".to_owned(),
            (TrafficPolicy::Local, List::Cluster) => format!(
                "any endpoint of the cluster: Local is for packets from outside, and this one is {}",
                match origin {
                    Origin::Inside => "from inside",
                    _ => "the node's own",
                }
            ),
        }];
        let node = &self.node;
        let zone = self.zone.as_deref().unwrap_or_default();
        let has_hints = |own: &crate::plan::EndpointAccount| {
            !own.for_nodes.is_empty() || !own.for_zones.is_empty()
        };
        match topology {
            Some("node") => because.push(format!("hints are followed: those for node {node}")),
            Some(_) => because.push(format!("hints are followed: those for zone {zone}")),
            None if list == List::Cluster && port.endpoints.iter().any(has_hints) => {
                because.push(
                    "hints are not followed: an endpoint that is ready has none, or none names \
                     this node or zone"
                        .to_owned(),
                );
            }
            None => {}
        }
        if is_fallback {
            because.push("none is ready, so those that end and still serve are used".to_owned());
        }
        Some(ExplainedPolicy {
            field: field.to_owned(),
            value: match value {
                TrafficPolicy::Cluster => "Cluster",
                TrafficPolicy::Local => "Local",
            }
            .to_owned(),
            list: match list {
                List::Nobody => "nobody",
                List::Cluster => "cluster",
                List::Local => "local",
            }
            .to_owned(),
            topology: topology.map(str::to_owned),
            terminating_fallback: is_fallback,
            because,
        })
    }

    fn lottery(&self, each: &[(SocketAddr, Fate)]) -> Option<ExplainedLottery> {
        let n = each.len();
        if n == 0 {
            return None;
        }
        let limit = self.tables.settings.cascade_limit.min(MOST_RULES) as usize;
        let rules = each
            .iter()
            .enumerate()
            .map(|(rule, (at, _))| ExplainedRule {
                rule,
                endpoint: at.to_string(),
                one_in: n - rule,
                probability: one_in(n),
            });
        Some(ExplainedLottery {
            endpoints: n,
            method: if n > limit { "single-draw" } else { "cascade" }.to_owned(),
            rules: rules.collect(),
        })
    }

    fn outcome(
        &self,
        ran: &Ran,
        flow: &Option<ExplainedFlow>,
        affinity: &Option<ExplainedAffinity>,
        lottery: &Option<ExplainedLottery>,
        origin: Origin,
    ) -> ExplainedOutcome {
        let fate = &ran.fate;
        let to = fate.to.map(|to| to.to_string());
        let is_known = flow
            .as_ref()
            .is_some_and(|flow| !flow.over && Some(&flow.endpoint) == to.as_ref());
        let is_remembered = affinity
            .as_ref()
            .is_some_and(|own| own.valid && own.endpoint == to);
        let n = lottery.as_ref().map_or(0, |own| own.endpoints);
        let decided_by = match fate.to {
            None => None,
            Some(_) if is_known => Some("flow"),
            Some(_) if is_remembered => Some("affinity"),
            Some(_) if n == 1 => Some("only"),
            Some(_) => Some("lottery"),
        };
        let (counter, rule) = self.accounted(ran);
        ExplainedOutcome {
            verdict: fate.verdict,
            endpoint: to,
            decided_by: decided_by.map(str::to_owned),
            source: fate.from.to_string(),
            masquerade: fate.is_masqueraded,
            hairpin: fate.is_hairpin,
            mark: format!("{:#x}", fate.mark),
            because: self.because(ran, origin),
            counter: counter.map(Into::into),
            rule,
        }
    }

    /// The counter and the rule of nftables that have to do with what became of the packet.
    fn accounted(&self, ran: &Ran) -> (Option<CounterOf>, Option<String>) {
        let fate = &ran.fate;
        let family = if self.question.dst.is_ipv4() {
            "ip"
        } else {
            "ip6"
        };
        let chain = |name: &str, rule: &str| Some(format!("{family} {TABLE} {name}: {rule}"));
        let counted = |is_wanted: fn(&Counter) -> bool| {
            let mut all = ran.counted.iter().copied();
            all.find(|counter| is_wanted(counter))
                .map(|counter| CounterOf::from((counter, 0)))
        };
        let is_local = fate.to.is_none() && self.shot().is_local(self.question.dst.ip());
        match (fate.verdict, fate.judged) {
            (Verdict::Drop, Some(Judgement::Drop(counter))) => {
                let name = if self.entry == Entry::Host {
                    "output"
                } else {
                    "prerouting"
                };
                (
                    counter.map(|own| CounterOf::from((own, Default::default()))),
                    chain(name, "drop what nobody has translated"),
                )
            }
            (Verdict::Drop, _) => (counted(|own| own.name().starts_with("drop-")), None),
            (Verdict::Reject, Some(_)) => {
                let mark = self.config.reject_mark();
                let name = match (self.entry, is_local) {
                    (Entry::Host, _) => "output",
                    (_, true) => "input",
                    (_, false) => "forward",
                };
                (
                    counted(|own| *own == Counter::Reject),
                    chain(
                        name,
                        &format!("mark {mark:#x}, ct state new: reject with port unreachable"),
                    ),
                )
            }
            (Verdict::Forward, _) if fate.is_masqueraded && !fate.is_hairpin => {
                let mark = self.config.masquerade_mark();
                let rule = format!("mark {mark:#x}: masquerade fully-random");
                (None, chain("postrouting", &rule))
            }
            _ => (counted(|own| *own == Counter::PassNoFrontend), None),
        }
    }

    /// Why the packet ends as it does.
    fn because(&self, ran: &Ran, origin: Origin) -> String {
        let fate = &ran.fate;
        let has_any = self.port().is_some_and(|port| {
            let endpoints = port.endpoints.iter();
            endpoints
                .clone()
                .any(|own| own.cluster.is_in() || own.local.is_in())
        });
        match (fate.verdict, fate.judged) {
            (Verdict::Forward, _) if fate.is_hairpin => {
                "the client is its own endpoint: its source becomes the Service's address on the \
                 way out, or it would drop a packet from itself"
                    .to_owned()
            }
            (Verdict::Forward, _) if fate.is_masqueraded => self.masquerade_because(origin),
            (Verdict::Forward, _) => "the endpoint sees the client's own address".to_owned(),
            (Verdict::Drop, Some(Judgement::Drop(counter))) => counter.map_or_else(
                || "a rule of nftables drops it".to_owned(),
                |counter| counter.meaning().to_owned(),
            ),
            (Verdict::Drop, _) if ran.counted.contains(&Counter::DropSourceRange) => {
                format!("{} is in none of the source ranges", self.question.src)
            }
            (Verdict::Drop, _) if ran.counted.contains(&Counter::DropNoEndpoint) => {
                let outside = match origin {
                    Origin::Outside => "packets from outside",
                    Origin::Inside => "packets from inside",
                    Origin::Host => "packets of the node",
                };
                format!("the Service has endpoints, but none that {outside} may go to")
            }
            (Verdict::Drop, _) => ran
                .counted
                .iter()
                .find(|own| own.name().starts_with("drop-"))
                .map_or("it is dropped", |own| own.meaning())
                .to_owned(),
            (Verdict::Reject, _) if self.exact.is_some() && has_any => {
                "no endpoint may be used here".to_owned()
            }
            (Verdict::Reject, _) if self.exact.is_some() => {
                "the Service has no endpoint that could serve".to_owned()
            }
            (Verdict::Reject, _) => "no Service has this port of the cluster IP".to_owned(),
            (Verdict::Pass, _) if self.exact.is_some() => {
                "without an endpoint, packets of this origin are left alone".to_owned()
            }
            (Verdict::Pass, _) if self.entry == Entry::Host => {
                "no Service is reached there".to_owned()
            }
            (Verdict::Pass, _) => {
                "no Service is reached there: routing and other rules decide".to_owned()
            }
        }
    }

    fn masquerade_because(&self, origin: Origin) -> String {
        let Some(port) = self.port() else {
            return "the flow was opened so".to_owned();
        };
        match (port.kind, port.service.external_policy) {
            (FrontendKind::ClusterIp, _) if self.config.masquerade_all => {
                "masqueradeAll is configured".to_owned()
            }
            (FrontendKind::ClusterIp, _) => {
                "it comes to a cluster IP and not from a pod: the answer must come back this way"
                    .to_owned()
            }
            (_, TrafficPolicy::Cluster) => {
                "externalTrafficPolicy is Cluster: the answer must come back this way".to_owned()
            }
            (_, TrafficPolicy::Local) if origin == Origin::Host => {
                "the node sends it, from an address that the endpoint may not answer to".to_owned()
            }
            (_, TrafficPolicy::Local) => "the flow was opened so".to_owned(),
        }
    }

    fn conntrack(&self, fate: &Fate) -> String {
        let vip = self.question.dst;
        let from = fate.from;
        match (fate.verdict, fate.to, fate.judged) {
            (Verdict::Forward, Some(to), _) if fate.is_hairpin => format!(
                "sees one flow {from} -> {to}; the source becomes {} behind it, and the answer is \
                 turned back before it",
                vip.ip()
            ),
            (Verdict::Forward, Some(to), _) if fate.is_masqueraded => format!(
                "sees one flow {from} -> {to} and keeps its source NAT; no entry mentions {vip}"
            ),
            (Verdict::Forward, Some(to), _) => {
                format!("sees one flow {from} -> {to}: no NAT, and no entry mentions {vip}")
            }
            (Verdict::Forward, None, _) | (Verdict::Pass, ..) => {
                format!("sees it as it came: {from} -> {vip}")
            }
            (Verdict::Drop, _, None) if self.entry != Entry::Host => {
                "never sees it: it is dropped at tc ingress".to_owned()
            }
            (Verdict::Drop | Verdict::Reject, _, None) => {
                "sees nothing: the socket gets an error".to_owned()
            }
            (Verdict::Drop | Verdict::Reject, _, Some(_)) => {
                "sees it as NEW and keeps no entry: it ends before it is confirmed".to_owned()
            }
        }
    }
}

/// A packet and its tables in one family.
struct View<'a, F: Stored> {
    scene: &'a Scene,
    tables: &'a MemoryTables,
    packet: Packet<F>,
    frontend: Option<Frontend>,
}

impl<'a, F> View<'a, F>
where
    F: Stored<Addr: Into<IpAddr>> + Layout,
{
    fn new(scene: &'a Scene) -> Self {
        // It is of the family that is asked about.
        let addr = |addr| F::addr(addr).unwrap_or_else(bytemuck::Zeroable::zeroed);
        let packet = Packet::<F> {
            src: addr(scene.question.src),
            dst: addr(scene.question.dst.ip()),
            sport: Port::new(scene.sport),
            dport: Port::new(scene.question.dst.port()),
            proto: Proto::from(scene.question.proto),
        };
        Self {
            scene,
            tables: &scene.tables,
            packet,
            frontend: F::maps(&scene.tables)
                .frontends
                .get(&packet.frontend())
                .copied(),
        }
    }

    fn work(&self) -> Work<F> {
        let mut work = Work::<F>::empty();
        let (src, dst) = (self.packet.src, self.packet.dst.unique());
        let ports = (self.packet.sport, self.packet.dport);
        work.key
            .fill((&src, &dst), ports, self.packet.proto, Hook::INGRESS);
        work.device = LOOPBACK;
        work.event.now = self.tables.now;
        work
    }

    fn origin(&self) -> Origin {
        match self.scene.entry {
            Entry::Host => host_origin(self.tables, &self.work(), true),
            Entry::Pod | Entry::External => origin_of(self.tables, &self.work()),
        }
    }

    fn ranges(&self) -> Option<ExplainedRanges> {
        let frontend = self.frontend?;
        if !frontend.flags.has(FrontendFlags::FILTERED) {
            return None;
        }
        let sources = &self.scene.port()?.sources;
        Some(ExplainedRanges {
            ranges: sources.iter().map(ToString::to_string).collect(),
            allowed: Tables::<F>::is_in_ranges(self.tables, frontend.service, self.packet.src),
        })
    }

    /// What becomes of a new flow to each endpoint of the packet's set, by its place in the set:
    /// the data path itself tells, with a set that has no other.
    fn each(&self, origin: Origin) -> Result<Vec<(SocketAddr, Fate)>, DrawError> {
        let Some(frontend) = self.frontend else {
            return Ok(Vec::new());
        };
        let set = frontend.set(origin);
        let mut path = HostPath::new(self.tables.clone());
        let mut each = Vec::with_capacity(set.count() as usize);
        for index in 0..set.count() {
            let one = EndpointSet::new(set.base() + index, 1);
            let maps = F::maps_mut(&mut path.tables);
            maps.flows.clear();
            maps.half_open.clear();
            maps.affinity.clear();
            let one = Frontend {
                inside: one,
                outside: one,
                ..frontend
            };
            maps.frontends.insert(self.packet.frontend(), one);
            let at = self.at(set.base() + index);
            each.push((at, draw(&mut path, &self.scene.shot())?));
        }
        Ok(each)
    }

    /// Where the endpoint of a slot of the set array listens.
    fn at(&self, index: u32) -> SocketAddr {
        let slot = self.tables.sets.get(index as usize);
        self.listens(slot.map_or(0, |slot| slot.endpoint))
    }

    fn listens(&self, index: u32) -> SocketAddr {
        let endpoint = Tables::<F>::endpoint(self.tables, index);
        endpoint.map_or_else(
            || SocketAddr::new(self.packet.dst.into(), 0),
            |own| SocketAddr::new(own.addr().into(), own.port().host()),
        )
    }

    fn endpoints(&self, origin: Origin, each: &[(SocketAddr, Fate)]) -> Vec<ExplainedEndpoint> {
        let fates: HashMap<_, _> = each.iter().copied().collect();
        let Some(port) = self.scene.port() else {
            return Vec::new();
        };
        let list = port.list(origin);
        let explained = port.endpoints.iter().map(|own| {
            let at = SocketAddr::new(own.addr, own.port);
            let fate = fates.get(&at);
            let standing = own.standing(list);
            let (reason, because) = match standing {
                None => ("nobody", "no endpoint is used at this address"),
                Some(standing) if standing.is_in() != fate.is_some() => (
                    "no-room",
                    "it should take part, but the tables do not have it",
                ),
                Some(standing) => (standing.name(), standing.text()),
            };
            ExplainedEndpoint {
                address: at.to_string(),
                node: own.node.as_deref().map(str::to_owned),
                local: own.is_local,
                state: own.condition.name().to_owned(),
                for_zones: own.for_zones.iter().map(ToString::to_string).collect(),
                for_nodes: own.for_nodes.iter().map(ToString::to_string).collect(),
                is_in: fate.is_some(),
                reason: reason.to_owned(),
                because: because.to_owned(),
                probability: if fate.is_some() {
                    one_in(each.len())
                } else {
                    0.0
                },
                masquerade: fate.is_some_and(|fate| fate.is_masqueraded),
                hairpin: fate.is_some_and(|fate| fate.is_hairpin),
            }
        });
        explained.collect()
    }

    fn affinity(&self, origin: Origin) -> Option<ExplainedAffinity> {
        let frontend = self.frontend.filter(|own| own.affinity_timeout != 0)?;
        let key = F::affinity_key(frontend.service, self.packet.src);
        let known: Option<Affinity> = F::maps(self.tables).affinity.get(&key).copied();
        let timeout = frontend.affinity_timeout;
        let age = known.map(|own| self.tables.now.saturating_sub(own.last_used));
        Some(ExplainedAffinity {
            timeout_seconds: timeout,
            endpoint: known.map(|own| self.listens(own.endpoint).to_string()),
            left_seconds: age.map_or(0, |age| timeout.saturating_sub(age)),
            valid: self.is_remembered(&frontend, origin),
        })
    }

    /// Whether the data path gives the client the endpoint that it had.
    fn is_remembered(&self, frontend: &Frontend, origin: Origin) -> bool {
        let mut tables = self.tables.clone();
        let mut work = self.work();
        work.service = frontend.service;
        work.affinity_timeout = frontend.affinity_timeout;
        work.listed = if frontend.flags.has(FrontendFlags::local(origin)) {
            EndpointFlags::IN_LOCAL_SET
        } else {
            EndpointFlags::IN_CLUSTER_SET
        };
        Tables::<F>::part(&mut tables, Part::Recall, &mut work) == Step::TAKEN
    }

    fn flow(&self) -> Option<ExplainedFlow> {
        self.scene.question.sport?;
        let key = self.packet.key();
        for tier in TIERS {
            let Some(flow) = F::maps(self.tables).tier(tier).get(&key) else {
                continue;
            };
            let state = flow.state();
            if state.marks.kind() != HalfKind::DNAT {
                continue;
            }
            return Some(ExplainedFlow {
                tier: match tier {
                    Tier::Established => "established",
                    _ => "half-open",
                }
                .to_owned(),
                endpoint: SocketAddr::new(flow.new_dst().into(), state.new_dport.host())
                    .to_string(),
                over: is_over(self.packet.proto, tier, state, self.tables.now),
                idle_seconds: self.tables.now.saturating_sub(state.last_seen),
            });
        }
        None
    }
}

pub(super) const fn origin_name(origin: Origin) -> &'static str {
    match origin {
        Origin::Inside => "inside",
        Origin::Outside => "outside",
        Origin::Host => "host",
    }
}

const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Iptables => "iptables",
        Mode::Nftables => "nftables",
    }
}

#[expect(clippy::cast_precision_loss, reason = "few")]
fn one_in(n: usize) -> f64 {
    1.0 / n as f64
}
