//! What is asked.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cluster::parse_ip;
use crate::model::{Family, Protocol};

/// Where a packet comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    /// From a pod of the node.
    Pod,
    /// From a process of the node.
    Host,
    /// From outside the node.
    External,
}

impl Entry {
    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Host => "host",
            Self::External => "external",
        }
    }
}

impl FromStr for Entry {
    type Err = BadQuestion;

    fn from_str(text: &str) -> Result<Self, BadQuestion> {
        [Self::Pod, Self::Host, Self::External]
            .into_iter()
            .find(|entry| entry.name() == text)
            .ok_or_else(|| BadQuestion::new("in", text, "legal are pod, host and external"))
    }
}

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It gets another destination.
    Forward,
    /// It is thrown away.
    Drop,
    /// It is refused by an ICMP error.
    Reject,
    /// It is left alone.
    Pass,
}

impl Verdict {
    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::Pass => "pass",
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A question that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {value} is not legal; {legal}")]
pub struct BadQuestion {
    field: &'static str,
    value: String,
    legal: String,
}

impl BadQuestion {
    fn new(field: &'static str, value: impl Display, legal: impl Into<String>) -> Self {
        Self {
            field,
            value: value.to_string(),
            legal: legal.into(),
        }
    }
}

/// Which packet is to be explained: the first one of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its source address.
    pub src: IpAddr,
    /// Its source port, if it matters.
    pub sport: Option<u16>,
    /// Its destination.
    pub dst: SocketAddr,
    /// Its protocol.
    pub proto: Protocol,
    /// Where it comes in, if that is not to be told by its source.
    pub entry: Option<Entry>,
}

const SOURCE: &str = "give an address, or address:port, IPv6 in brackets: [2001:db8::1]:40000";
const DESTINATION: &str = "give address:port, IPv6 in brackets: [2001:db8::1]:80";

impl Question {
    /// A question as it is given on the command line.
    pub fn parse(
        src: &str,
        dst: &str,
        proto: Protocol,
        entry: Option<Entry>,
    ) -> Result<Self, BadQuestion> {
        let (addr, sport) = match parse_socket(src) {
            Some(socket) => (socket.ip(), Some(socket.port())),
            None => (
                parse_ip(bare(src)).ok_or_else(|| BadQuestion::new("source", src, SOURCE))?,
                None,
            ),
        };
        let dst = destination(dst)?;
        if Family::of(addr) != Family::of(dst.ip()) {
            let legal = format!("give two addresses of one family, as {dst} has");
            return Err(BadQuestion::new("source", src, legal));
        }
        Ok(Self {
            src: addr,
            sport,
            dst,
            proto,
            entry,
        })
    }

    /// What the query part of an address says.
    pub fn from_query(query: &str) -> Result<Self, BadQuestion> {
        let get = |name| value(query, name);
        Self::parse(
            get("src").unwrap_or_default(),
            get("dst").unwrap_or_default(),
            protocol(get("proto").unwrap_or("tcp"))?,
            get("in").map(str::parse).transpose()?,
        )
    }

    /// As the query part of an address.
    pub fn to_query(&self) -> String {
        let src = match self.sport {
            Some(port) => SocketAddr::new(self.src, port).to_string(),
            None => self.src.to_string(),
        };
        let proto = self.proto.to_string().to_lowercase();
        let mut query = format!("src={src}&dst={}&proto={proto}", self.dst);
        if let Some(entry) = self.entry {
            query.push_str("&in=");
            query.push_str(entry.name());
        }
        query
    }
}

/// Which address and port is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhyQuestion {
    /// Address and port.
    pub at: SocketAddr,
    /// Protocol.
    pub proto: Protocol,
    /// Who wants to reach it, if that matters.
    pub from: Option<IpAddr>,
}

impl WhyQuestion {
    /// A question as it is given on the command line.
    pub fn parse(at: &str, proto: Protocol, from: Option<&str>) -> Result<Self, BadQuestion> {
        let at = destination(at)?;
        let from = from.map(|text| {
            let own = parse_ip(bare(text)).filter(|own| own.is_ipv4() == at.is_ipv4());
            let legal = "give an address of the same family";
            own.ok_or_else(|| BadQuestion::new("from", text, legal))
        });
        Ok(Self {
            at,
            proto,
            from: from.transpose()?,
        })
    }

    /// What the query part of an address says.
    pub fn from_query(query: &str) -> Result<Self, BadQuestion> {
        let get = |name| value(query, name);
        Self::parse(
            get("at").unwrap_or_default(),
            protocol(get("proto").unwrap_or("tcp"))?,
            get("from"),
        )
    }

    /// As the query part of an address.
    pub fn to_query(&self) -> String {
        let proto = self.proto.to_string().to_lowercase();
        let mut query = format!("at={}&proto={proto}", self.at);
        if let Some(from) = self.from {
            query.push_str(&format!("&from={from}"));
        }
        query
    }
}

/// Address and port, IPv6 in brackets.
pub fn parse_socket(text: &str) -> Option<SocketAddr> {
    let (addr, port) = text.rsplit_once(':')?;
    let is_v6 = addr.starts_with('[') && addr.ends_with(']');
    if addr.contains(':') != is_v6 {
        return None;
    }
    Some(SocketAddr::new(parse_ip(bare(addr))?, port.parse().ok()?))
}

fn destination(text: &str) -> Result<SocketAddr, BadQuestion> {
    parse_socket(text)
        .filter(|own| own.port() != 0)
        .ok_or_else(|| BadQuestion::new("destination", text, DESTINATION))
}

fn bare(text: &str) -> &str {
    let inner = text.strip_prefix('[').and_then(|own| own.strip_suffix(']'));
    inner.unwrap_or(text)
}

fn protocol(text: &str) -> Result<Protocol, BadQuestion> {
    [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .into_iter()
        .find(|own| own.to_string().eq_ignore_ascii_case(text))
        .ok_or_else(|| BadQuestion::new("proto", text, "legal are tcp, udp and sctp"))
}

/// Addresses and words need no escaping, IPv6 and its brackets included.
fn value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(own, _)| *own == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_come_back_from_their_queries() {
        for (src, dst, entry) in [
            ("10.0.0.1", "10.96.0.1:80", None),
            ("10.0.0.1:4000", "10.96.0.1:80", Some(Entry::Pod)),
            ("fd00::1", "[fd00::2]:80", Some(Entry::Host)),
            ("[fd00::1]:4000", "[fd00::2]:80", Some(Entry::External)),
        ] {
            let asked = Question::parse(src, dst, Protocol::Udp, entry).unwrap();
            assert_eq!(Ok(asked), Question::from_query(&asked.to_query()));
            let asked = WhyQuestion::parse(dst, Protocol::Sctp, Some(src));
            if let Ok(asked) = asked {
                assert_eq!(Ok(asked), WhyQuestion::from_query(&asked.to_query()));
            }
        }
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        for (src, dst, start) in [
            (
                "10.0.0.1",
                "10.96.0.1",
                "destination: 10.96.0.1 is not legal",
            ),
            ("10.0.0.1", "10.96.0.1:0", "destination: 10.96.0.1:0 is not"),
            ("10.0.0.1", "fd00::1:80", "destination: fd00::1:80 is not"),
            ("10.0.0.1:x", "10.96.0.1:80", "source: 10.0.0.1:x is not"),
            (
                "fd00::1",
                "10.96.0.1:80",
                "source: fd00::1 is not legal; give two",
            ),
        ] {
            let said = Question::parse(src, dst, Protocol::Tcp, None).unwrap_err();
            assert!(said.to_string().starts_with(start), "{said}");
        }
        let said = Question::from_query("src=10.0.0.1&dst=10.0.0.2:1&in=bed").unwrap_err();
        assert_eq!(
            "in: bed is not legal; legal are pod, host and external",
            said.to_string()
        );
    }
}
