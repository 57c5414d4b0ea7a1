//! What the sets of the tables hold.

use std::net::IpAddr;

use proxy_common::net::Proto;

/// An address, or one port of it, that only a Service answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The address.
    pub address: IpAddr,
    /// Protocol and port, if it is not all of the address.
    pub port: Option<(Proto, u16)>,
}

impl Destination {
    /// All of an address.
    pub const fn address(address: IpAddr) -> Self {
        Self {
            address,
            port: None,
        }
    }

    /// One port of an address.
    pub const fn port(address: IpAddr, proto: Proto, port: u16) -> Self {
        Self {
            address,
            port: Some((proto, port)),
        }
    }

    /// As an element of a set; each part begins at a multiple of four bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = match self.address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        if let Some((proto, port)) = self.port {
            let [high, low] = port.to_be_bytes();
            bytes.extend([proto.0, 0, 0, 0, high, low, 0, 0]);
        }
        bytes
    }

    /// From an element of a set.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if let Some(address) = address(bytes) {
            return Some(Self::address(address));
        }
        let (bytes, port) = bytes.split_last_chunk::<8>()?;
        let [proto, _, _, _, high, low, _, _] = *port;
        let port = u16::from_be_bytes([high, low]);
        Some(Self::port(address(bytes)?, Proto(proto), port))
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
