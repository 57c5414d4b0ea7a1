//! What passes the devices of a namespace, as `tcpdump` would see it: before tc programs of packets
//! that come in, and after those of packets that go out.

use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use super::Namespace;

/// Frames that are kept until somebody reads them.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
}

impl Capture {
    /// Keeps frames from now on.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let all = NonZero::new(u32::from(ALL_PROTOCOLS.to_be())).map(Protocol::from_raw);
        let socket = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            Ok(socket_with(
                AddressFamily::PACKET,
                SocketType::RAW,
                flags,
                all,
            )?)
        };
        let socket = namespace.enter(socket)?;
        Ok(Self { socket })
    }

    /// The next frame; nothing if there was none yet. Long ones are cut.
    pub fn next(&self) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0; LONGEST];
        match recv(&self.socket, &mut frame, RecvFlags::empty()) {
            Ok((_, length)) => {
                frame.truncate(length);
                Ok(Some(frame))
            }
            Err(error) if io::Error::from(error).kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// `ETH_P_ALL`.
const ALL_PROTOCOLS: u16 = 3;
/// Enough for every ICMP error, which has to fit into 1,280 bytes.
const LONGEST: usize = 2048;
