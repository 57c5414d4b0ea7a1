//! Clients whom nobody answers.

use std::net::{SocketAddr, TcpStream, UdpSocket};

use proxy_common::abi::Counter;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use xtask::lab::Host;

use super::pinned::Live;
use super::world::wait_until;

/// Fails unless connections and datagrams of these clients to these addresses are dropped at a node
/// for one reason, and none of them is told so. Takes the second after which a SYN is sent again.
pub(super) fn assert_dropped(
    node: &Host,
    counter: Counter,
    clients: &[&Host],
    targets: &[SocketAddr],
) {
    let live = Live::open(node);
    let before = live.count(counter);
    let ways = clients.iter().flat_map(|client| {
        let all = targets.iter();
        all.map(|target| client.namespace.enter(|| begin(*target)).unwrap())
    });
    let ways: Vec<_> = ways.collect();
    wait_until("all of it is dropped, and each SYN twice", || {
        live.count(counter) >= before + 3 * ways.len() as u64
    });
    for (stream, socket) in &ways {
        assert_eq!(None, stream.take_error().unwrap().map(|error| error.kind()));
        stream.peer_addr().unwrap_err();
        let error = socket.recv(&mut [0; 9]).unwrap_err();
        assert_eq!(std::io::ErrorKind::WouldBlock, error.kind());
    }
}

fn begin(target: SocketAddr) -> anyhow::Result<(TcpStream, UdpSocket)> {
    let family = if target.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(family, SocketType::STREAM, flags, None)?;
    assert_eq!(Err(Errno::INPROGRESS), connect(&stream, &target));
    let socket = UdpSocket::from(socket_with(family, SocketType::DGRAM, flags, None)?);
    socket.connect(target)?;
    socket.send(b"hello")?;
    Ok((stream.into(), socket))
}
