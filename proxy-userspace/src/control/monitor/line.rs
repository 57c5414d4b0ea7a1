//! An event of the ring buffer as it is told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use proxy_common::abi::{self, EventKind, FlowFlags, Hook, What};
use proxy_common::net::Port;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::control::api;
use crate::control::flows::{Ends, named, protocol};
use crate::control::names::Names;
use crate::model::Family;

/// From the clock of events to that of people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// How much the one is ahead of the other.
    ahead: Duration,
}

impl Clock {
    pub(super) fn now() -> Self {
        let since = |time: Timespec| {
            let whole = u64::try_from(time.tv_sec).unwrap_or_default();
            let part = u32::try_from(time.tv_nsec).unwrap_or_default();
            Duration::new(whole, part)
        };
        let real = since(clock_gettime(ClockId::Realtime));
        let boot = since(clock_gettime(ClockId::Boottime));
        Self {
            ahead: real.saturating_sub(boot),
        }
    }

    fn text(self, boot: Duration) -> String {
        let since = i64::try_from((self.ahead + boot).as_micros()).unwrap_or_default();
        let time = Timestamp::from_microsecond(since).unwrap_or_default();
        format!("{time:.6}")
    }

    /// The time now, as events tell it.
    pub(super) fn text_now() -> String {
        format!("{:.6}", Timestamp::now())
    }
}

/// Whom an event is about.
pub(super) fn ends(event: &abi::Event) -> Ends {
    let at = |words: [u32; 4], port: Port| {
        let bytes: [u8; 16] = bytemuck::cast(words);
        let addr: IpAddr = if event.is_v6 == 0 {
            let [a, b, c, d, ..] = bytes;
            Ipv4Addr::new(a, b, c, d).into()
        } else {
            Ipv6Addr::from(bytes).into()
        };
        SocketAddr::new(addr, port.host())
    };
    let there = |words: [u32; 4], port| (words != [0; 4]).then(|| at(words, port));
    Ends {
        proto: event.proto,
        client: at(event.client, event.client_port),
        frontend: there(event.frontend, event.frontend_port),
        endpoint: there(event.endpoint, event.endpoint_port),
    }
}

/// The event with names; `devices` has those of devices.
pub(super) fn event(
    event: &abi::Event,
    ends: &Ends,
    names: &Names,
    devices: &[api::Device],
    clock: Clock,
) -> api::Event {
    let (namespace, service, port) = named(event.service, names);
    let what = event.what;
    let is_flow = what.kind() != Some(EventKind::Dropped);
    let device = devices.iter().find(|device| device.index == event.device);
    let hook = match (what, event.hook) {
        (What::EXPIRED | What::HURRIED, _) => "sweep",
        (_, Hook::EGRESS) => "tc egress",
        _ => "tc ingress",
    };
    let node = ends.endpoint.and_then(|endpoint| names.node(endpoint));
    api::Event {
        api_version: api::API_VERSION.to_owned(),
        time: clock.text(Duration::from_nanos(event.time)),
        event: what.kind().map_or("unknown", EventKind::name).to_owned(),
        reason: what.reason().to_owned(),
        hook: hook.to_owned(),
        device_index: (event.device != 0).then_some(event.device),
        device: device.map(|device| device.name.clone()),
        protocol: protocol(event.proto),
        family: Family::of(ends.client.ip()).to_string(),
        client: ends.client.to_string(),
        frontend: ends.frontend.map(|at| at.to_string()),
        endpoint: ends.endpoint.map(|at| at.to_string()),
        namespace,
        service,
        port,
        number: event.service,
        slot: is_flow.then_some(event.slot),
        node: node.map(str::to_owned),
        masquerade: event.flags.has(FlowFlags::MASQUERADE),
        hairpin: event.flags.has(FlowFlags::HAIRPIN),
        source_port: (event.source_port != event.client_port).then(|| event.source_port.host()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_common::abi::Counter;
    use proxy_common::net::{Address as _, Ip4, Ip6, Proto};

    #[test]
    fn an_event_says_what_is_known_and_nothing_else() {
        let v6 = |text: &str| Ip6::from(text.parse::<Ipv6Addr>().unwrap()).words();
        let raw = abi::Event {
            time: 3_000_000_000,
            client: v6("fd00::1"),
            client_port: Port::new(4000),
            source_port: Port::new(61_000),
            frontend: v6("fd00:10:96::a"),
            frontend_port: Port::new(80),
            endpoint: v6("fd00::2"),
            endpoint_port: Port::new(8080),
            service: 9,
            slot: 5,
            device: 7,
            what: What::RESET,
            flags: FlowFlags::MASQUERADE,
            proto: Proto::TCP,
            hook: Hook::EGRESS,
            is_v6: 1,
            ..bytemuck::Zeroable::zeroed()
        };
        let clock = Clock {
            ahead: Duration::from_secs(1_000_000_000),
        };
        let names = Names::default();
        let told = event(&raw, &ends(&raw), &names, &[], clock);
        assert_eq!("2001-09-09T01:46:43.000000Z", told.time);
        assert_eq!(
            ("closed", "reset", "tc egress"),
            (&*told.event, &*told.reason, &*told.hook)
        );
        assert_eq!(("[fd00::1]:4000", "IPv6"), (&*told.client, &*told.family));
        assert_eq!(Some("[fd00:10:96::a]:80"), told.frontend.as_deref());
        assert_eq!(Some("[fd00::2]:8080"), told.endpoint.as_deref());
        assert_eq!(
            (Some("-"), Some("#9")),
            (told.namespace.as_deref(), told.service.as_deref())
        );
        assert_eq!((Some(7), None), (told.device_index, told.device));
        assert_eq!((Some(5), Some(61_000)), (told.slot, told.source_port));
        assert!(told.masquerade && !told.hairpin);

        let raw = abi::Event {
            client: Ip4::from(Ipv4Addr::new(10, 0, 0, 1)).words(),
            client_port: Port::new(0),
            source_port: Port::new(0),
            frontend: [0; 4],
            endpoint: Ip4::from(Ipv4Addr::new(10, 0, 0, 2)).words(),
            service: 0,
            device: 0,
            what: What::dropped(Counter::DropFragmentHeadOut),
            is_v6: 0,
            ..raw
        };
        let told = event(&raw, &ends(&raw), &names, &[], clock);
        assert_eq!(
            ("dropped", "fragment-head-out"),
            (&*told.event, &*told.reason)
        );
        assert_eq!(("10.0.0.1:0", None), (&*told.client, told.frontend));
        assert_eq!(Some("10.0.0.2:8080"), told.endpoint.as_deref());
        assert_eq!(
            (None, None, None),
            (told.namespace, told.slot, told.device_index)
        );
        let swept = abi::Event {
            what: What::HURRIED,
            ..raw
        };
        assert_eq!(
            "sweep",
            event(&swept, &ends(&swept), &names, &[], clock).hook
        );
    }
}
