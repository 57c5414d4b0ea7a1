//! Addresses and ports that are asked for.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

/// Addresses, a port, or both: `10.0.0.1`, `10.0.0.0/8`, `10.0.0.1:80`, `10.0.0.0/8:80`, `:80`,
/// `fd00::1`, `fd00::/64`, `[fd00::1]:80`, `[fd00::/64]:80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    net: Option<IpNet>,
    port: Option<u16>,
}

impl Peer {
    /// Whether this is one of them.
    pub fn includes(&self, at: SocketAddr) -> bool {
        self.port.is_none_or(|port| port == at.port())
            && self.net.is_none_or(|net| net.contains(&at.ip()))
    }
}

/// What is no address and no port.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no address with or without a port; give one like 10.0.0.1, 10.0.0.0/8:80, \
    [fd00::1]:80 or :80"
)]
pub struct BadPeer(String);

impl FromStr for Peer {
    type Err = BadPeer;

    fn from_str(text: &str) -> Result<Self, BadPeer> {
        let bad = || BadPeer(text.to_owned());
        if let Some(net) = net(text) {
            let net = Some(net);
            return Ok(Self { net, port: None });
        }
        if let Some(port) = text.strip_prefix(':') {
            let port = Some(port.parse().map_err(|_unread| bad())?);
            return Ok(Self { net: None, port });
        }
        let (addr, port) = if let Some(rest) = text.strip_prefix('[') {
            let (addr, port) = rest.split_once(']').ok_or_else(bad)?;
            // Only an IPv6 address needs them.
            if !addr.contains(':') {
                return Err(bad());
            }
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':').ok_or_else(bad)?),
            };
            (addr, port)
        } else {
            let (addr, port) = text.rsplit_once(':').ok_or_else(bad)?;
            // With more than one colon, nobody could tell where the port begins.
            if addr.contains(':') {
                return Err(bad());
            }
            (addr, Some(port))
        };
        let port = port.map(str::parse).transpose().map_err(|_unread| bad())?;
        let net = Some(net(addr).ok_or_else(bad)?);
        Ok(Self { net, port })
    }
}

fn net(text: &str) -> Option<IpNet> {
    let addr = text.parse::<IpAddr>().map(IpNet::from);
    addr.ok().or_else(|| text.parse().ok())
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.net {
            Some(net @ IpNet::V6(_)) if self.port.is_some() => write!(f, "[{net}]")?,
            Some(net) => net.fmt(f)?,
            None => {}
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_length_and_a_port() {
        for (text, inside, outside) in [
            ("10.0.0.1", "10.0.0.1:7", "10.0.0.2:7"),
            ("10.0.0.0/8", "10.9.9.9:7", "11.0.0.1:7"),
            ("10.0.0.1:80", "10.0.0.1:80", "10.0.0.1:81"),
            ("10.0.0.0/8:80", "10.1.0.1:80", "10.1.0.1:81"),
            (":80", "[fd00::1]:80", "10.0.0.1:81"),
            ("fd00::1", "[fd00::1]:7", "[fd00::2]:7"),
            ("fd00::/64", "[fd00::9]:7", "10.0.0.1:7"),
            ("[fd00::1]:80", "[fd00::1]:80", "[fd00::1]:81"),
            ("[fd00::/64]:80", "[fd00::9]:80", "[fd00::9]:81"),
            ("[fd00::1]", "[fd00::1]:7", "[fd00::2]:7"),
        ] {
            let peer: Peer = text.parse().unwrap();
            assert!(peer.includes(inside.parse().unwrap()), "{text}");
            assert!(!peer.includes(outside.parse().unwrap()), "{text}");
            let again: Peer = peer.to_string().parse().unwrap();
            assert_eq!(peer, again, "{text}");
        }
        for bad in [
            "",
            "x",
            "10.0.0.1:",
            "10.0.0.1:x",
            "10.0.0.0/33",
            "fd00::1:x",
            "[10.0.0.1]:80",
            "[fd00::1",
            "[fd00::1]80",
            "a:b:80",
            ":70000",
        ] {
            assert!(bad.parse::<Peer>().is_err(), "{bad}");
        }
    }
}
