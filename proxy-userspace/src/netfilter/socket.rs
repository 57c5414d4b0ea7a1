//! A netlink socket to netfilter.

use std::io;
use std::time::Duration;

use netlink_packet_core::NLM_F_DUMP_INTR;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{
    Timeout, set_socket_send_buffer_size, set_socket_send_buffer_size_force, set_socket_timeout,
};

use super::batch::{Batch, Content, append, replies};
use super::message::Request;

/// The kernel answers while it takes a message in; only what is lost is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// A batch goes out as one datagram. This bounds it and takes no memory by itself.
const SEND_BUFFER: usize = 16 << 20;

/// So often a listing is begun anew that was changed while it was read.
const ATTEMPTS: usize = 5;

/// A socket by which tables are read and changed.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    port: u32,
    sequence: u32,
}

impl Connection {
    /// Opens a socket in the network namespace that the thread is in.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        let port = socket.bind_auto()?.port_number();
        // Else an error brings the whole message back.
        socket.set_cap_ack(true)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        if set_socket_send_buffer_size_force(&socket, SEND_BUFFER).is_err() {
            set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
        }
        Ok(Self {
            socket,
            port,
            sequence: 1,
        })
    }

    /// The number by which the kernel tells others who made a change.
    pub(super) const fn port(&self) -> u32 {
        self.port
    }

    /// Has the kernel carry out all or nothing; the first error if it is nothing.
    ///
    /// Waits as long as anybody else's batch takes.
    pub(super) fn commit(&mut self, requests: &[Request]) -> io::Result<()> {
        if requests.is_empty() {
            return Ok(());
        }
        let batch = Batch::new(requests, self.sequence);
        self.sequence = batch.last.wrapping_add(2);
        self.send(&batch.bytes)?;
        let mut refusal = None;
        loop {
            let datagram = self.receive()?;
            for reply in replies(&datagram) {
                // Answers to what was given up come late.
                let is_own = reply.sequence.wrapping_sub(batch.first)
                    <= batch.last.wrapping_sub(batch.first);
                let Content::End(code) = reply.content else {
                    continue;
                };
                if !is_own {
                    continue;
                }
                if code != 0 && refusal.is_none() {
                    refusal = Some(io::Error::from_raw_os_error(code));
                }
                let is_whole = reply.sequence == batch.first && code != 0;
                if is_whole || reply.sequence == batch.last {
                    return refusal.map_or(Ok(()), Err);
                }
            }
        }
    }

    /// The attributes of each object that a question is answered with.
    pub(super) fn list(&mut self, request: &Request) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..ATTEMPTS {
            if let Some(all) = self.list_once(request)? {
                return Ok(all);
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// The same, or nothing if something changed meanwhile.
    fn list_once(&mut self, request: &Request) -> io::Result<Option<Vec<Vec<u8>>>> {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        append(&mut bytes, request, sequence);
        self.send(&bytes)?;
        let mut all = Vec::new();
        let mut is_whole = true;
        loop {
            let datagram = self.receive()?;
            for reply in replies(&datagram) {
                if reply.sequence != sequence {
                    continue;
                }
                is_whole &= reply.flags & NLM_F_DUMP_INTR == 0;
                match reply.content {
                    Content::End(0) => return Ok(is_whole.then_some(all)),
                    Content::End(code) => return Err(io::Error::from_raw_os_error(code)),
                    Content::Message(message) => all.push(message.attributes.to_vec()),
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let kernel = SocketAddr::new(0, 0);
        self.socket.send_to(bytes, &kernel, 0).map(drop)
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        match self.socket.recv_from_full() {
            Ok((datagram, _)) => Ok(datagram),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::TimedOut.into())
            }
            Err(error) => Err(error),
        }
    }
}
