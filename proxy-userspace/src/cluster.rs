//! From Kubernetes API objects to the [`model`](crate::model), one kind a module, without I/O.
//!
//! What the API server would have filled in or refused is filled in and refused here as well:
//! manifests may come from files that no API server has seen.

mod endpoint_slice;
mod node;
mod service;
mod service_cidr;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use thiserror::Error;

use crate::model::{Aside, Object, Protocol};

/// Its presence, whatever its value, gives an object to another proxy.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// Its presence, whatever its value, says that there is no cluster IP to serve.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// A field whose value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {value} is not legal; {legal}")]
pub struct Invalid {
    /// Path of the field.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// What may stand there.
    pub legal: &'static str,
}

impl Invalid {
    pub(crate) fn new(
        field: impl Into<String>,
        value: impl fmt::Display,
        legal: &'static str,
    ) -> Self {
        let mut value = format!("{value}");
        if value.is_empty() {
            "nothing".clone_into(&mut value);
        }
        Self {
            field: field.into(),
            value,
            legal,
        }
    }
}

/// What came of an API object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The object, unless it is none that a service proxy serves.
    pub object: Option<Object>,
    /// Parts that were left out, each with its reason.
    pub left_out: Vec<Invalid>,
    /// A Service that is none for us.
    pub aside: Option<Aside>,
}

impl Converted {
    /// An object that is not for us, such as a slice of a headless Service.
    const NOTHING: Self = Self {
        object: None,
        left_out: Vec::new(),
        aside: None,
    };

    /// A Service that is none for us, of which no more is known than that.
    fn aside(aside: Aside) -> Self {
        Self {
            aside: Some(aside),
            ..Self::NOTHING
        }
    }

    fn nothing_because(reason: Vec<Invalid>) -> Self {
        Self {
            left_out: reason,
            ..Self::NOTHING
        }
    }
}

/// Whose label selectors count: what they leave out is as if it did not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selectors {
    /// Those from Kubernetes 1.35 on: `service-proxy-name` hides Services, `headless` hides slices.
    #[default]
    Current,
    /// Those up to Kubernetes 1.34: either label hides Services, slices and `ServiceCIDR`s.
    Until134,
}

impl Selectors {
    /// Whether labels hide an object that only the selectors up to 1.34 looked at.
    fn hid(self, meta: &ObjectMeta) -> bool {
        self == Self::Until134 && (has_label(meta, OTHER_PROXY) || has_label(meta, HEADLESS))
    }
}

/// An API object that has a meaning in the model.
pub trait Convert {
    /// The object in the model's terms. What the current label selectors leave out is nothing.
    fn convert(&self) -> Result<Converted, Invalid>;

    /// Whether these label selectors leave it out although the current ones do not.
    fn is_hidden(&self, _selectors: Selectors) -> bool {
        false
    }

    /// What is worth knowing of it where they do.
    fn aside(&self) -> Option<Aside> {
        None
    }
}

fn has_label(meta: &ObjectMeta, key: &str) -> bool {
    let labels = meta.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(key))
}

fn object_name(meta: &ObjectMeta) -> Result<crate::model::ObjectName, Invalid> {
    let name = meta.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        return Err(Invalid::new("metadata.name", "", "give a name"));
    }
    let namespace = meta.namespace.as_deref().filter(|text| !text.is_empty());
    Ok(crate::model::ObjectName::new(
        namespace.unwrap_or("default"),
        name,
    ))
}

fn protocol(text: Option<&str>, field: impl FnOnce() -> String) -> Result<Protocol, Invalid> {
    match text.unwrap_or("TCP") {
        "TCP" => Ok(Protocol::Tcp),
        "UDP" => Ok(Protocol::Udp),
        "SCTP" => Ok(Protocol::Sctp),
        other => Err(Invalid::new(field(), other, "legal are TCP, UDP and SCTP")),
    }
}

fn port(number: i32, field: impl FnOnce() -> String) -> Result<u16, Invalid> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(Invalid::new(field(), number, "legal are 1 to 65535")),
    }
}

/// An address that packets can be sent to, or why it is none.
fn unicast(text: &str, field: impl FnOnce() -> String) -> Result<IpAddr, Invalid> {
    let Some(addr) = parse_ip(text) else {
        return Err(Invalid::new(field(), text, "give an IPv4 or IPv6 address"));
    };
    let link_local = match addr {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local || addr.is_loopback() || addr.is_multicast() || addr.is_unspecified() {
        return Err(Invalid::new(
            field(),
            text,
            "loopback, link-local, multicast and unspecified addresses are refused",
        ));
    }
    Ok(addr)
}

/// Parses an address as Kubernetes does: leading zeros of an IPv4 octet are decimal, and an IPv4
/// address in IPv6 clothes is IPv4.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(addr) = text.parse::<IpAddr>() {
        return Some(addr.to_canonical());
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts
        .next()
        .is_none()
        .then(|| Ipv4Addr::from(octets).into())
}

/// Parses a range as Kubernetes does, blanks around it and host bits included.
pub(crate) fn parse_net(text: &str) -> Option<IpNet> {
    let (addr, prefix_len) = text.trim().split_once('/')?;
    if !prefix_len.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let prefix_len: u8 = prefix_len.parse().ok()?;
    if !addr.contains(':') {
        return IpNet::new(parse_ip(addr)?, prefix_len).ok();
    }
    let addr: Ipv6Addr = addr.parse().ok()?;
    // One in IPv6 clothes has a prefix length of IPv6, and is a range of IPv4 all the same.
    match (addr.to_ipv4_mapped(), prefix_len.checked_sub(96)) {
        (Some(addr), Some(prefix_len)) => IpNet::new(addr.into(), prefix_len).ok(),
        _ => IpNet::new(addr.into(), prefix_len).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_their_host_bits() {
        for (text, expected) in [
            (" 203.0.113.7/25", "203.0.113.7/25"),
            ("010.000.001.000/24", "10.0.1.0/24"),
            ("fd00::1/64\t", "fd00::1/64"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/95", "::ffff:0:0/95"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(expected.parse().ok(), parse_net(text), "{text}");
        }
        for bad in [
            "10.0.0.1",
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0.0/+8",
            "x/8",
            "10.0.0.0/",
        ] {
            assert_eq!(None, parse_net(bad), "{bad}");
        }
    }

    #[test]
    fn leading_zeros_of_octets_are_decimal() {
        assert_eq!("10.0.1.1".parse().ok(), parse_ip("010.000.001.001"));
        assert_eq!("10.96.0.10".parse().ok(), parse_ip("10.96.0.10"));
        for bad in [
            "10.0.1",
            "10.0.1.1.1",
            "10.0.1.256",
            "10..1.1",
            "+1.2.3.4",
            "",
        ] {
            assert_eq!(None, parse_ip(bad), "{bad}");
        }
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        assert_eq!("10.0.0.1".parse().ok(), parse_ip("::ffff:10.0.0.1"));
    }

    #[test]
    fn addresses_that_no_service_can_have_are_refused() {
        for bad in [
            "127.0.0.1",
            "::1",
            "169.254.1.1",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "0.0.0.0",
            "::",
            "255.255.255.255",
            "host",
            "fe80::1%eth0",
        ] {
            assert!(unicast(bad, || "field".into()).is_err(), "{bad}");
        }
        for good in ["10.0.0.1", "fd00::1", "192.168.0.1", "2001:db8::1"] {
            assert!(unicast(good, || "field".into()).is_ok(), "{good}");
        }
    }
}
