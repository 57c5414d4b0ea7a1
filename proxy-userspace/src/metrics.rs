//! Metrics in the text format of Prometheus, whoever serves them.
//!
//! How many series there are does not depend on how many Services there are: only those whose split
//! is off have one of their own, [`MOST_NAMED`] at most.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::model::ObjectName;

/// What [`text`] is in.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// So many Services have a series of their own at most: those with the smallest p-values.
pub const MOST_NAMED: usize = 100;

/// What is measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Draws since the maps were made, less those from sets that a former run has left.
    pub draws: u64,
    /// Services that were drawn from often enough to be judged.
    pub tested: usize,
    /// The smallest p-value of those; 1 if there are none.
    pub least_p_value: f64,
    /// Those whose split is off.
    pub off: Vec<Named>,
}

/// A Service whose split is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Its name.
    pub service: ObjectName,
    /// How likely a fair lottery is to come to its split.
    pub p_value: f64,
}

#[derive(Clone, Debug, EncodeLabelSet, Hash, PartialEq, Eq)]
struct ServiceLabels {
    namespace: String,
    service: String,
}

type Real = Gauge<f64, AtomicU64>;

/// The figures as text.
pub fn text(figures: &Figures) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    encode(&mut text, &registry(figures)).ok();
    text
}

fn registry(figures: &Figures) -> Registry {
    let mut registry = Registry::with_prefix("kube_lottery");
    let draws: Counter = Counter::default();
    draws.inc_by(figures.draws);
    registry.register("draws", "Endpoints drawn by the lottery", draws);
    let gauge = |count: usize| {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        gauge
    };
    registry.register(
        "fairness_tested_services",
        "Services that were drawn from often enough to be judged",
        gauge(figures.tested),
    );
    registry.register(
        "unfair_services",
        "Services whose draws are not spread evenly, at a false discovery rate of 1 %",
        gauge(figures.off.len()),
    );
    let least = Real::default();
    least.set(figures.least_p_value);
    registry.register(
        "fairness_least_p_value",
        "Smallest p-value of all Services that are judged, not corrected for their number",
        least,
    );
    let named = Family::<ServiceLabels, Real>::default();
    let mut off: Vec<_> = figures.off.iter().collect();
    off.sort_by(|one, other| one.p_value.total_cmp(&other.p_value));
    for Named { service, p_value } in off.into_iter().take(MOST_NAMED) {
        let labels = ServiceLabels {
            namespace: service.namespace().to_owned(),
            service: service.name().to_owned(),
        };
        named.get_or_create(&labels).set(*p_value);
    }
    registry.register(
        "fairness_p_value",
        "Probability that a fair lottery spreads a Service's draws as unevenly, of those Services \
        whose draws are not spread evenly",
        named,
    );
    registry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_services_that_are_off_have_series_and_no_more_than_so_many() {
        let off = |n: u32| Named {
            service: ObjectName::new("shop", &format!("web-{n}")),
            p_value: 1e-9 / f64::from(n + 1),
        };
        let mut figures = Figures {
            draws: 12,
            tested: 345,
            least_p_value: 0.25,
            off: vec![off(0)],
        };
        let expected = "\
# HELP kube_lottery_draws Endpoints drawn by the lottery.
# TYPE kube_lottery_draws counter
kube_lottery_draws_total 12
# HELP kube_lottery_fairness_tested_services Services that were drawn from often enough to be judged.
# TYPE kube_lottery_fairness_tested_services gauge
kube_lottery_fairness_tested_services 345
# HELP kube_lottery_unfair_services Services whose draws are not spread evenly, at a false discovery rate of 1 %.
# TYPE kube_lottery_unfair_services gauge
kube_lottery_unfair_services 1
# HELP kube_lottery_fairness_least_p_value Smallest p-value of all Services that are judged, not corrected for their number.
# TYPE kube_lottery_fairness_least_p_value gauge
kube_lottery_fairness_least_p_value 0.25
# HELP kube_lottery_fairness_p_value Probability that a fair lottery spreads a Service's draws as unevenly, of those Services whose draws are not spread evenly.
# TYPE kube_lottery_fairness_p_value gauge
kube_lottery_fairness_p_value{namespace=\"shop\",service=\"web-0\"} 1e-9
# EOF
";
        assert_eq!(expected, text(&figures));
        figures.off = (0..200).map(off).collect();
        let text = text(&figures);
        let series = text.lines().filter(|line| line.contains("service="));
        assert_eq!(MOST_NAMED, series.count());
        assert!(text.contains("web-199") && !text.contains("web-99\""));
        assert!(text.contains("kube_lottery_unfair_services 200\n"));
    }
}
