//! What becomes of a packet, and why.

use proxy_common::abi::{Counter, Origin};

use super::draw::Fate;
use super::question::{Entry, Verdict};
use super::scene::{Ran, Scene};
use crate::control::api::Counter as CounterOf;
use crate::control::api::explain::{
    ExplainedAffinity, ExplainedFlow, ExplainedLottery, ExplainedOutcome,
};
use crate::model::TrafficPolicy;
use crate::netfilter::{Count, Judgement, TABLE};
use crate::plan::FrontendKind;

impl Scene {
    pub(super) fn outcome(
        &self,
        ran: &Ran,
        flow: Option<&ExplainedFlow>,
        affinity: Option<&ExplainedAffinity>,
        lottery: Option<&ExplainedLottery>,
        origin: Origin,
    ) -> ExplainedOutcome {
        let fate = &ran.fate;
        let to = fate.to.map(|to| to.to_string());
        let is_known = flow.is_some_and(|flow| !flow.over && Some(&flow.endpoint) == to.as_ref());
        let is_remembered = affinity.is_some_and(|own| own.valid && own.endpoint == to);
        let n = lottery.map_or(0, |own| own.endpoints);
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
        let first = |is_wanted: fn(&Counter) -> bool| {
            let mut all = ran.counted.iter().copied();
            all.find(is_wanted)
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
                    counter.map(|own| CounterOf::from((own, Count::default()))),
                    chain(name, "drop what nobody has translated"),
                )
            }
            (Verdict::Drop, _) => (first(|own| own.name().starts_with("drop-")), None),
            (Verdict::Reject, Some(_)) => {
                let mark = self.config.reject_mark();
                let name = match (self.entry, is_local) {
                    (Entry::Host, _) => "output",
                    (_, true) => "input",
                    (_, false) => "forward",
                };
                (
                    first(|own| *own == Counter::Reject),
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
            _ => (first(|own| *own == Counter::PassNoFrontend), None),
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
                |counter| unprefixed(counter.meaning()),
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
                .map_or_else(
                    || "it is dropped".to_owned(),
                    |own| unprefixed(own.meaning()),
                ),
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

    /// What conntrack sees.
    pub(super) fn conntrack(&self, fate: &Fate) -> String {
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

/// A meaning without the word that the step has for its name.
fn unprefixed(meaning: &str) -> String {
    let bare = meaning.strip_prefix("dropped: ");
    bare.unwrap_or(meaning).to_owned()
}
