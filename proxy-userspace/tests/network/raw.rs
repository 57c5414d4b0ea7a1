//! Packets that no socket would send: transport headers of the test's own making.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto,
    socket_with,
};
use xtask::lab::Host;

/// A raw socket of one protocol at an address of a host. The kernel writes the IP header.
pub(super) struct Raw {
    socket: OwnedFd,
    addr: IpAddr,
}

impl Raw {
    pub(super) fn new(host: &Host, addr: IpAddr, protocol: Protocol) -> Self {
        let family = if addr.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let open = || {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
            set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(20)))?;
            bind(&socket, &SocketAddr::new(addr, 0))?;
            Ok(socket)
        };
        let socket = host.namespace.enter(open).unwrap();
        Self { socket, addr }
    }

    /// Sends a transport header and what follows it.
    pub(super) fn send(&self, to: IpAddr, packet: &[u8]) {
        let to = SocketAddr::new(to, 0);
        let sent = sendto(&self.socket, packet, SendFlags::empty(), &to).unwrap();
        assert_eq!(packet.len(), sent);
    }

    /// The next packet, from its transport header on, and who sent it.
    pub(super) fn receive(&self) -> (IpAddr, Vec<u8>) {
        let mut buffer = vec![0; 65_536];
        let (filled, _, from) =
            recvfrom(&self.socket, &mut buffer[..], RecvFlags::empty()).unwrap();
        buffer.truncate(filled);
        let from = SocketAddr::try_from(from.unwrap()).unwrap().ip();
        if self.addr.is_ipv4() {
            // IPv4 hands out the IP header as well.
            let header = usize::from(buffer[0] & 0xf) * 4;
            buffer.drain(..header);
        }
        (from, buffer)
    }
}
