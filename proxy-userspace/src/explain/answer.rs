//! From a scene and what the data path did with its packet to the answer.

use std::net::{IpAddr, SocketAddr};

use proxy_common::abi::Origin;
use proxy_common::datapath::memory::Stored;
use proxy_common::lottery::MOST_RULES;

use super::draw::{DrawError, Fate};
use super::scene::{Run, Scene, range};
use super::steps;
use super::view::View;
use crate::config::{Detect, Mode};
use crate::control::api::Kind;
use crate::control::api::explain::{
    ExplainedClaim, ExplainedFrontend, ExplainedLottery, ExplainedOrigin, ExplainedPacket,
    ExplainedPolicy, ExplainedRule, Explanation,
};
use crate::dataplane::Private;
use crate::dataplane::apply::Layout;
use crate::model::TrafficPolicy;
use crate::plan::{Account, EndpointAccount, FrontendKind, List, PortAccount, Standing};

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
        let outcome = self.outcome(
            &ran,
            flow.as_ref(),
            affinity.as_ref(),
            lottery.as_ref(),
            origin,
        );
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
        let has_hints =
            |own: &EndpointAccount| !own.for_nodes.is_empty() || !own.for_zones.is_empty();
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
pub(super) fn one_in(n: usize) -> f64 {
    1.0 / n as f64
}
