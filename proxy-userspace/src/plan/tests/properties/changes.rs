//! Random changes of what is declared.

use super::*;

const NAMES: [&str; 4] = ["s0", "s1", "s2", "s3"];
const PORTS: &[(&str, Protocol, u16)] = &[("a", Protocol::Tcp, 80), ("b", Protocol::Udp, 53)];

#[derive(Clone, Debug)]
pub(super) enum Step {
    Service {
        name: usize,
        ips: Vec<usize>,
        ports: usize,
    },
    ServiceGone(usize),
    Slice {
        service: usize,
        half: bool,
        is_v6: bool,
        endpoints: Vec<(u8, u8)>,
    },
    SliceGone {
        service: usize,
        half: bool,
    },
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let endpoints = prop::collection::vec((0u8..10, 0u8..6), 0..6);
    prop_oneof![
        2 => (name.clone(), prop::collection::vec(0usize..4, 1..3), 1usize..3)
            .prop_map(|(name, ips, ports)| Step::Service { name, ips, ports }),
        1 => name.clone().prop_map(Step::ServiceGone),
        5 => (name.clone(), any::<bool>(), any::<bool>(), endpoints).prop_map(
            |(service, half, is_v6, endpoints)| Step::Slice { service, half, is_v6, endpoints }
        ),
        1 => (name, any::<bool>())
            .prop_map(|(service, half)| Step::SliceGone { service, half }),
    ]
}

pub(super) fn address(is_v6: bool, net: u8, last: u8) -> IpAddr {
    if is_v6 {
        IpAddr::from([0xfd00, net.into(), 0, 0, 0, 0, 0, last.into()])
    } else {
        IpAddr::from([10, net, 0, last])
    }
}

pub(super) fn slice_name(service: usize, half: bool) -> String {
    format!("{}-{half}", NAMES[service])
}

pub(super) fn change(step: Step) -> Change {
    match step {
        Step::Service { name, ips, ports } => {
            let mut service = service(NAMES[name], "10.96.0.0", &PORTS[..ports]);
            // Few addresses, so that Services collide.
            let mut families: Vec<_> = ips
                .iter()
                .map(|n| address(n % 2 == 1, 96, u8::try_from(n / 2).unwrap()))
                .collect();
            families.dedup_by_key(|addr| Family::of(*addr));
            families.truncate(2);
            service.cluster_ips = families;
            Change::Set(Object::Service(service.into()))
        }
        Step::ServiceGone(name) => gone(NAMES[name]),
        Step::Slice {
            service,
            half,
            is_v6,
            endpoints,
        } => {
            let endpoints: Vec<_> = endpoints
                .into_iter()
                .map(|(last, state)| Endpoint {
                    node: (last % 3 == 0).then(|| "one".into()),
                    ready: state < 4,
                    serving: state != 5,
                    terminating: state >= 3,
                    ..endpoint(&address(is_v6, 1, last).to_string())
                })
                .collect();
            let ports: Vec<_> = PORTS
                .iter()
                .map(|&(name, proto, port)| (name, proto, port + 1))
                .collect();
            let mut slice = EndpointSlice::clone(&slice(NAMES[service], "", &ports, &endpoints));
            slice.name = ObjectName::new("default", &slice_name(service, half));
            slice.family = if is_v6 { Family::V6 } else { Family::V4 };
            Change::Set(Object::Slice(slice.into()))
        }
        Step::SliceGone { service, half } => {
            let name = ObjectName::new("default", &slice_name(service, half));
            Change::Gone(ObjectKey::Slice(name))
        }
    }
}
