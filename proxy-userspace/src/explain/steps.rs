//! The answer step by step, for people.

use super::draw::Fate;
use super::question::{Entry, Verdict};
use super::scene::Scene;
use crate::control::api::explain::{
    ExplainedEndpoint, ExplainedLottery, ExplainedStep, Explanation,
};

/// Of so many endpoints each has a line; of more, the first ones that are in and out.
const MOST: usize = 16;
/// How many of each.
const SOME: usize = 6;

struct Steps(Vec<ExplainedStep>);

impl Steps {
    fn add(&mut self, name: &str, text: impl Into<String>) -> &mut Vec<String> {
        let step = ExplainedStep {
            name: name.to_owned(),
            text: text.into(),
            lines: Vec::new(),
        };
        &mut self.0.push_mut(step).lines
    }
}

pub(super) fn steps(all: &Explanation, scene: &Scene, fate: &Fate) -> Vec<ExplainedStep> {
    let mut steps = Steps(Vec::new());
    origin(all, &mut steps);
    let found = frontend(all, scene, &mut steps);
    if found {
        if let Some(ranges) = &all.source_ranges {
            let is = if ranges.allowed {
                "is in"
            } else {
                "is in none of"
            };
            steps.add(
                "sources",
                format!("{} {is} {}", scene.question.src, ranges.ranges.join(", ")),
            );
        }
        flow(all, &mut steps);
        // Who may not use it does not get any further.
        if all.source_ranges.as_ref().is_none_or(|own| own.allowed) {
            endpoints(all, &mut steps);
            affinity(all, &mut steps);
            lottery(all, &mut steps);
        }
    }
    outcome(all, scene, fate, &mut steps);
    steps.0
}

fn origin(all: &Explanation, steps: &mut Steps) {
    let entry = all.packet.entry;
    let how = match entry {
        Entry::Pod => "from a pod of this node",
        Entry::Host => "from a process of this node",
        Entry::External => "from outside this node",
    };
    let name = &all.origin.name;
    let lines = steps.add("origin", format!("{name}: {}", all.origin.because));
    lines.push(match &all.packet.in_because {
        Some(because) if *because != all.origin.because => {
            format!("taken to come {how} (--in): {because}")
        }
        Some(_) => format!("taken to come {how} (--in)"),
        None => format!("it comes {how}"),
    });
}

/// Whether there is a frontend for the port.
fn frontend(all: &Explanation, scene: &Scene, steps: &mut Steps) -> bool {
    let Some(frontend) = &all.frontend else {
        let to = &all.packet.destination;
        let text = format!("no Service has {to}/{} on this node", all.packet.protocol);
        let lines = steps.add("frontend", text);
        let proto = match &*all.packet.protocol {
            "TCP" => String::new(),
            proto => format!(" --proto {}", proto.to_lowercase()),
        };
        lines.push(format!(
            "`kube-lottery why {to}{proto}` looks for the reason"
        ));
        return false;
    };
    let kind = kind(&frontend.kind);
    let of = format!("{}/{}", frontend.namespace, frontend.service);
    if frontend.whole_address {
        let (port, proto) = (scene.question.dst.port(), &all.packet.protocol);
        let text = format!(
            "{} is {kind} of {of}, which has no port {port}/{proto}",
            frontend.address
        );
        let lines = steps.add("frontend", text);
        if let Some(ports) = &scene.whole_ports {
            lines.push(format!("its ports are {ports}"));
        }
        return false;
    }
    let port = match &*frontend.port {
        "" => String::new(),
        port => format!(", port {port}"),
    };
    let lines = steps.add(
        "frontend",
        format!("{} is {kind} of {of}{port}", frontend.address),
    );
    for other in &frontend.others {
        lines.push(format!(
            "{}/{} wants it as well and comes later: {}",
            other.namespace, other.service, other.because
        ));
    }
    if let Some(port) = scene.port() {
        lines.extend(port.notices.iter().cloned());
    }
    true
}

/// What a frontend is called.
pub(super) fn kind(name: &str) -> &'static str {
    match name {
        "cluster" => "the cluster IP",
        "external" => "an external IP",
        "load-balancer" => "an address of the load balancer",
        _ => "a node port",
    }
}

fn flow(all: &Explanation, steps: &mut Steps) {
    let Some(flow) = &all.flow else {
        return;
    };
    let text = format!(
        "a flow from this port is known: {}, to {}, last packet {} s ago",
        flow.tier, flow.endpoint, flow.idle_seconds
    );
    let lines = steps.add("flow", text);
    lines.push(if flow.over {
        "it is over: a packet that opens draws anew".to_owned()
    } else {
        "its packets go there, whatever is decided for new flows below".to_owned()
    });
}

fn endpoints(all: &Explanation, steps: &mut Steps) {
    if let Some(policy) = &all.policy {
        let (first, more) = match policy.because.split_first() {
            Some((first, more)) => (first.as_str(), more),
            None => ("", &[][..]),
        };
        let text = format!("{} {}: {first}", policy.field, policy.value);
        steps.add("policy", text).extend(more.iter().cloned());
    }
    let taking = all.endpoints.iter().filter(|own| own.is_in).count();
    let text = match all.endpoints.len() {
        0 => "the Service has none".to_owned(),
        n if taking == 0 => format!("none of {n} may be used"),
        n if taking == n => format!("all {n} take part, {}", each(taking)),
        n => format!("{taking} of {n} take part, {}", each(taking)),
    };
    let lines = steps.add("endpoints", text);
    lines.extend(table(&all.endpoints));
}

fn each(n: usize) -> String {
    match n {
        1 => "always".to_owned(),
        _ => format!("each drawn with 1/{n} = {}", percent(n)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "few")]
fn percent(n: usize) -> String {
    format!("{:.2}%", 100.0 / n as f64)
}

/// Endpoints in columns.
fn table(all: &[ExplainedEndpoint]) -> Vec<String> {
    let shown: Vec<_> = if all.len() <= MOST {
        all.iter().collect()
    } else {
        let some = |is_in| all.iter().filter(move |own| own.is_in == is_in).take(SOME);
        some(true).chain(some(false)).collect()
    };
    let node = |own: &ExplainedEndpoint| own.node.clone().unwrap_or_else(|| "-".to_owned());
    let width = |of: fn(&ExplainedEndpoint) -> usize| {
        shown.iter().map(|own| of(own)).max().unwrap_or_default()
    };
    let address = width(|own| own.address.chars().count());
    let on = width(|own| own.node.as_ref().map_or(1, |node| node.chars().count()));
    let mut lines: Vec<_> = shown
        .iter()
        .map(|own| {
            let is_in = if own.is_in { "in " } else { "out" };
            format!(
                "{is_in}  {:<address$}  {:<on$}  {}{}",
                own.address,
                node(own),
                own.because,
                if own.hairpin {
                    "; the client itself"
                } else {
                    ""
                },
            )
        })
        .collect();
    if shown.len() < all.len() {
        lines.push(format!("and {} more (-o json)", all.len() - shown.len()));
    }
    lines
}

fn affinity(all: &Explanation, steps: &mut Steps) {
    let Some(affinity) = &all.affinity else {
        return;
    };
    let text = format!(
        "ClientIP: a client keeps its endpoint for {} s after its last new flow",
        affinity.timeout_seconds
    );
    let lines = steps.add("affinity", text);
    lines.push(match (&affinity.endpoint, affinity.valid) {
        (Some(endpoint), true) => format!(
            "this client has {endpoint}, for {} s more: nothing is drawn",
            affinity.left_seconds
        ),
        (Some(endpoint), false) => {
            format!("this client had {endpoint}, which does not count any more")
        }
        (None, _) => "nothing is remembered for this client".to_owned(),
    });
}

fn lottery(all: &Explanation, steps: &mut Steps) {
    let Some(lottery) = &all.lottery else {
        return;
    };
    if lottery.endpoints < 2 {
        return;
    }
    steps.add("lottery", odds(lottery));
}

/// The rules of the cascade in a line.
fn odds(lottery: &ExplainedLottery) -> String {
    let n = lottery.endpoints;
    let rule = |(index, own): (usize, usize)| match own {
        1 => format!("rule {index} always"),
        own => format!("rule {index} fires with 1/{own}"),
    };
    let all: Vec<_> = lottery
        .rules
        .iter()
        .map(|own| own.one_in)
        .enumerate()
        .collect();
    let rules: Vec<_> = if n <= 4 {
        all.iter().copied().map(rule).collect()
    } else {
        let mut some: Vec<_> = all.iter().copied().take(2).map(rule).collect();
        some.push("...".to_owned());
        some.extend(all.last().copied().map(rule));
        some
    };
    let rules = rules.join(", ");
    match &*lottery.method {
        "cascade" => format!("cascade of {n} rules: {rules}"),
        _ => format!("one draw of {n}, distributed as by a cascade: {rules}"),
    }
}

fn outcome(all: &Explanation, scene: &Scene, fate: &Fate, steps: &mut Steps) {
    let outcome = &all.outcome;
    let vip = &all.packet.destination;
    match (fate.verdict, &outcome.endpoint) {
        (Verdict::Forward, Some(endpoint)) => {
            let text = match outcome.decided_by.as_deref() {
                Some("flow") => format!("{endpoint}, where the flow goes"),
                Some("affinity") => format!("{endpoint}, which the client has"),
                Some("only") => format!("{endpoint}, the only one"),
                _ => format!("{endpoint} this time; the next new flow draws for itself"),
            };
            steps.add("draw", text);
            let at = match all.packet.entry {
                Entry::Host => "at the socket",
                _ => "at tc ingress",
            };
            let lines = steps.add("rewrite", format!("{at}: destination {vip} -> {endpoint}"));
            if outcome.source != all.packet.source {
                lines.push(format!(
                    "source {} -> {}: another flow has this port at the endpoint",
                    all.packet.source, outcome.source
                ));
            }
            let is = match (outcome.hairpin, outcome.masquerade) {
                (true, _) => "hairpin",
                (_, true) => "yes",
                _ => "no",
            };
            let lines = steps.add("masquerade", format!("{is}: {}", outcome.because));
            lines.extend(outcome.rule.clone());
            lines.extend(mixed(all));
        }
        _ => {
            let name = outcome.verdict.name();
            let lines = steps.add(name, outcome.because.clone());
            lines.extend(
                outcome
                    .counter
                    .as_ref()
                    .map(|counter| format!("counted as {} ({})", counter.name, counter.hook)),
            );
            lines.extend(outcome.rule.clone());
        }
    }
    steps.add("conntrack", all.conntrack.clone());
    if all.packet.entry == Entry::Host && all.outcome.verdict != Verdict::Pass {
        let judged = scene.shot().judge(scene.question.dst, 0);
        let text = "this version does not serve the node's own sockets yet: steps above say what \
                    they would get";
        let lines = steps.add("note", text);
        lines.push(match judged {
            crate::netfilter::Judgement::Drop(Some(counter)) => {
                format!("the packet is dropped ({})", counter.name())
            }
            _ => "the packet goes on untranslated".to_owned(),
        });
    }
}

/// Where flows to some endpoints only get another source.
fn mixed(all: &Explanation) -> Option<String> {
    let taking = all.endpoints.iter().filter(|own| own.is_in);
    let (changed, kept): (Vec<_>, Vec<_>) = taking.partition(|own| own.masquerade);
    if changed.is_empty() || kept.is_empty() {
        return None;
    }
    let names: Vec<_> = changed.iter().map(|own| &*own.address).take(SOME).collect();
    Some(format!(
        "only flows to {} get another source",
        names.join(", ")
    ))
}
