//! How draws fell, as a table.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;

use super::output::{self, Column, Format, coloured, columns, note, print_object};
use super::{FINDING, Namespace, START, View, ask_or, found, scope};
use crate::control::api::{EndpointSplit, Fairness, PortSplit, ServiceSplit, SetSplit};
use crate::fairness::Verdict;

const COLUMNS: [Column; 9] = [
    ("NAMESPACE", false),
    ("NAME", false),
    ("PORT", false),
    ("ENDPOINTS", true),
    ("DRAWS", true),
    ("X2", true),
    ("DF", true),
    ("P", true),
    ("VERDICT", false),
];

const ENDPOINTS: [Column; 8] = [
    ("PORT", false),
    ("PROTO", false),
    ("LIST", false),
    ("ENDPOINT", false),
    ("DRAWS", true),
    ("EXPECTED", true),
    ("DIFFERENCE", true),
    ("SIGMAS", true),
];

/// So many endpoints are named that got the most, and as many that got the least.
const NAMED: usize = 3;

/// Flags of `fairness`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct FairnessArgs {
    /// Only this Service, with all its endpoints. It is judged together with all others.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    service: Option<String>,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    view: View,
}

/// Prints how draws fell; 1 if the split of a Service is off.
pub(in crate::cli) fn execute(args: &FairnessArgs) -> Result<ExitCode> {
    let scope = scope(&args.namespace, args.service.as_deref())?;
    let target = format!("/v1/fairness?{}", scope.to_query());
    let fairness: Fairness = match ask_or(&args.view, &target, START)? {
        Ok(fairness) => fairness,
        Err(code) => return Ok(code),
    };
    if !print_object(args.view.output, &fairness)? {
        output::print(&screen(&fairness, &args.view, scope.name.is_some()))?;
    }
    if fairness.items.iter().any(is_off) {
        return Ok(ExitCode::from(FINDING));
    }
    if fairness.items.is_empty() && scope.name.is_none() {
        note("there are no Services");
    }
    Ok(found(fairness.items.is_empty(), &scope))
}

fn is_off(service: &ServiceSplit) -> bool {
    service.verdict == Verdict::Off.name()
}

fn screen(fairness: &Fairness, view: &View, is_asked_for: bool) -> String {
    let is_wide = view.output == Format::Wide;
    let rows = fairness.items.iter().flat_map(rows);
    let mut text = columns(&COLUMNS, rows, view.no_headers);
    for service in &fairness.items {
        if is_asked_for {
            text.push('\n');
            text.push_str(&endpoints(service, view.no_headers));
        }
        if is_off(service) {
            text.push('\n');
            text.push_str(&named(service, is_wide));
        }
    }
    if !view.no_headers {
        text.push('\n');
        text.push_str(&summary(fairness));
    }
    text
}

fn summary(fairness: &Fairness) -> String {
    let rate = fairness.false_discovery_rate * 100.0;
    let services = |count| match count {
        1 => "1 Service".to_owned(),
        count => format!("{count} Services"),
    };
    format!(
        "{} drawn from often enough, {} off (false discovery rate {rate} %)\n",
        services(fairness.tested),
        match fairness.off {
            0 => coloured("none", true),
            off => coloured(&off.to_string(), false),
        }
    )
}

/// One row for each port, and before those of several one for all.
fn rows(service: &ServiceSplit) -> Vec<Vec<String>> {
    let row =
        |port: String, endpoints: usize, draws: u64, statistic: f64, freedom: u64, p, verdict| {
            vec![
                service.namespace.clone(),
                service.name.clone(),
                port,
                endpoints.to_string(),
                draws.to_string(),
                if freedom == 0 {
                    String::new()
                } else {
                    format!("{statistic:.1}")
                },
                freedom.to_string(),
                probability(p),
                verdict,
            ]
        };
    let mut rows = vec![row(
        "(all)".to_owned(),
        service.ports.iter().map(|port| port.endpoints).sum(),
        service.draws,
        service.statistic,
        service.degrees_of_freedom,
        service.p_value,
        verdict(service),
    )];
    for port in &service.ports {
        rows.push(row(
            port_name(port),
            port.endpoints,
            port.draws,
            port.statistic,
            port.degrees_of_freedom,
            port.p_value,
            String::new(),
        ));
    }
    rows
}

fn port_name(port: &PortSplit) -> String {
    let name = if port.name.is_empty() {
        "-"
    } else {
        &port.name
    };
    format!("{name}/{}/{}", port.protocol, port.family)
}

fn verdict(service: &ServiceSplit) -> String {
    match service.missing {
        None if is_off(service) => coloured("OFF", false),
        None if service.p_value.is_none() => "nothing to draw".to_owned(),
        None => coloured(&service.verdict, true),
        Some(missing) => format!("not enough draws yet (needs about {missing} more)"),
    }
}

fn probability(p: Option<f64>) -> String {
    match p {
        None => String::new(),
        Some(p) if p >= 0.001 => format!("{p:.3}"),
        // What is smaller than any number is not nothing.
        Some(p) if p < 1e-300 => "<1e-300".to_owned(),
        Some(p) => format!("{p:.1e}"),
    }
}

fn endpoints(service: &ServiceSplit, no_headers: bool) -> String {
    // Of others there is nothing to compare.
    let drawn = sets(service).filter(|(_, set)| set.draws > 0);
    let rows = drawn.flat_map(|(port, set)| {
        set.endpoints.iter().map(move |endpoint| {
            let mut row = vec![
                port.name.clone(),
                port.protocol.clone(),
                set.lists.join(","),
            ];
            row.extend(split(set, endpoint));
            row
        })
    });
    columns(&ENDPOINTS, rows, no_headers)
}

fn sets(service: &ServiceSplit) -> impl Iterator<Item = (&PortSplit, &SetSplit)> {
    let ports = service.ports.iter();
    ports.flat_map(|port| port.sets.iter().map(move |set| (port, set)))
}

#[expect(clippy::cast_precision_loss, reason = "a number for people")]
fn split(set: &SetSplit, endpoint: &EndpointSplit) -> [String; 5] {
    [
        place(endpoint),
        endpoint.draws.to_string(),
        format!("{:.1}", set.expected),
        format!("{:+.1}", endpoint.draws as f64 - set.expected),
        format!("{:+.2}", endpoint.sigmas),
    ]
}

fn place(endpoint: &EndpointSplit) -> String {
    match endpoint.address.parse() {
        Ok(address) => SocketAddr::new(address, endpoint.target_port).to_string(),
        Err(_) => format!("{}:{}", endpoint.address, endpoint.target_port),
    }
}

/// Who got most and least of a Service whose split is off.
fn named(service: &ServiceSplit, is_wide: bool) -> String {
    let all = sets(service).filter(|(_, set)| set.counts);
    let mut all: Vec<_> = all
        .flat_map(|(port, set)| {
            let endpoints = set.endpoints.iter();
            endpoints.map(move |endpoint| (port, set, endpoint))
        })
        .collect();
    all.sort_by(|(.., one), (.., other)| other.sigmas.total_cmp(&one.sigmas));
    let count = if is_wide { all.len() } else { NAMED };
    let mut text = format!("{}/{}: ", service.namespace, service.name);
    if all.is_empty() {
        text.push_str("uneven among endpoints that it had before\n");
        return text;
    }
    text.push_str("its draws are not spread evenly\n");
    let most = all.iter().filter(|(.., own)| own.sigmas > 0.0).take(count);
    let least = all.iter().rev().filter(|(.., own)| own.sigmas < 0.0);
    let rows = most
        .map(|found| ("most", found))
        .chain(least.take(count).map(|found| ("least", found)))
        .map(|(word, (port, set, endpoint))| {
            let [at, draws, expected, _, sigmas] = split(set, endpoint);
            vec![
                format!("  {word}"),
                at,
                format!("{draws} draws"),
                format!("{expected} expected"),
                format!("{sigmas} sigmas"),
                format!("{} {}", port_name(port), set.lists.join(",")),
            ]
        });
    text.push_str(&columns(&[("", false); 6], rows, true));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::{FormerSets, Kind};

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn service(name: &str, verdict: &str, draws: [u64; 2], p: Option<f64>) -> ServiceSplit {
        let sum = draws[0] + draws[1];
        let expected = sum as f64 / 2.0;
        let error = (expected / 2.0).sqrt().max(1.0);
        let endpoint = |(last, draws): (u8, u64)| EndpointSplit {
            address: format!("10.1.0.{last}"),
            target_port: 8080,
            draws,
            sigmas: (draws as f64 - expected) / error,
        };
        let endpoints = (1..).zip(draws).map(endpoint).collect();
        let (statistic, freedom) = p.map_or((0.0, 0), |_| (36.0, 1));
        ServiceSplit {
            namespace: "shop".into(),
            name: name.into(),
            verdict: verdict.into(),
            draws: sum,
            statistic,
            degrees_of_freedom: freedom,
            p_value: p,
            missing: p.is_none().then_some(17),
            ports: vec![PortSplit {
                name: "http".into(),
                protocol: "TCP".into(),
                family: "IPv4".into(),
                endpoints: 2,
                draws: sum,
                statistic,
                degrees_of_freedom: freedom,
                p_value: p,
                sets: vec![SetSplit {
                    lists: vec!["cluster".into(), "local".into()],
                    size: 2,
                    draws: sum,
                    expected,
                    counts: p.is_some(),
                    statistic,
                    endpoints,
                }],
                former: FormerSets::default(),
            }],
        }
    }

    #[test]
    fn a_service_that_is_off_is_named_with_who_got_most_and_least() {
        let all = Fairness {
            kind: Kind::new("Fairness"),
            false_discovery_rate: 0.01,
            tested: 1,
            off: 1,
            items: vec![
                service("cart", "off", [80, 20], Some(2e-9)),
                service("web", "too-few", [2, 1], None),
            ],
        };
        let expected = "\
NAMESPACE  NAME  PORT           ENDPOINTS  DRAWS    X2  DF       P  VERDICT
shop       cart  (all)                  2    100  36.0   1  2.0e-9  OFF
shop       cart  http/TCP/IPv4          2    100  36.0   1  2.0e-9  -
shop       web   (all)                  2      3     -   0       -  not enough draws yet (needs about 17 more)
shop       web   http/TCP/IPv4          2      3     -   0       -  -

shop/cart: its draws are not spread evenly
  most   10.1.0.1:8080  80 draws  50.0 expected  +6.00 sigmas  http/TCP/IPv4 cluster,local
  least  10.1.0.2:8080  20 draws  50.0 expected  -6.00 sigmas  http/TCP/IPv4 cluster,local

1 Service drawn from often enough, 1 off (false discovery rate 1 %)
";
        let view = View {
            control_socket: "x".into(),
            output: Format::Table,
            no_headers: false,
        };
        assert_eq!(expected, screen(&all, &view, false));
        let one = Fairness {
            items: all.items[..1].to_vec(),
            ..all
        };
        let whole = screen(&one, &view, true);
        let line = "http  TCP    cluster,local  10.1.0.1:8080     80      50.0       +30.0   +6.00";
        assert!(whole.lines().any(|own| own == line), "{whole}");
    }

    #[test]
    fn probabilities_are_never_nothing() {
        let all = [Some(0.25), Some(1e-6), Some(0.0), None].map(probability);
        assert_eq!(
            ["0.250", "1.0e-6", "<1e-300", ""],
            all.each_ref().map(|p| &**p)
        );
    }
}
