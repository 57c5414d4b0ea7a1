//! Notices that somebody else has changed our tables, or a chain that has rules of ours.

use std::future::poll_fn;
use std::io;

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket as _, TokioSocket};
use tracing::debug;

use super::accepts;
use super::attribute::{find, string};
use super::batch::{Content, Message, replies};
use super::wanted::TABLE;

/// `NFNLGRP_NFTABLES`.
const NFTABLES: u32 = 7;

/// Others change tens of thousands of rules at once.
const RECEIVE_BUFFER: u32 = 4 << 20;

/// In every message about a part of a table, the attribute that names the table.
const TABLE_NAME: u16 = 1;

/// What somebody else has changed, or may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Foreign {
    /// A table of ours.
    pub(super) ours: bool,
    /// A table that accepts of ours are in, or could be.
    pub(super) accepts: bool,
}

impl Foreign {
    const ALL: Self = Self {
        ours: true,
        accepts: true,
    };

    const fn is_any(self) -> bool {
        self.ours || self.accepts
    }
}

/// Listens to all changes of nftables in this network namespace.
pub(super) struct Events {
    socket: TokioSocket,
}

impl Events {
    /// Begins to listen; inside of a runtime.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
        let own = socket.socket_mut();
        own.bind_auto()?;
        own.set_rx_buf_sz(RECEIVE_BUFFER)?;
        own.add_membership(NFTABLES)?;
        Ok(Self { socket })
    }

    /// Waits until anybody but the socket of this port has changed something that matters, or may
    /// have: messages that do not fit into the buffer are lost.
    pub(super) async fn foreign(&self, own: Option<u32>) -> io::Result<Foreign> {
        loop {
            match poll_fn(|context| self.socket.poll_recv_from_full(context)).await {
                Ok((datagram, _)) => {
                    let foreign = foreign(&datagram, own);
                    if foreign.is_any() {
                        return Ok(foreign);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    debug!("messages about changes of nftables were lost");
                    return Ok(Foreign::ALL);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// What a datagram tells of changes that came by another socket.
pub(super) fn foreign(datagram: &[u8], own: Option<u32>) -> Foreign {
    let mut foreign = Foreign::default();
    for reply in replies(datagram) {
        if let Content::Message(message) = reply.content
            && Some(reply.port) != own
        {
            foreign.ours |= is_in(message, TABLE);
            foreign.accepts |= is_in(message, accepts::TABLE);
        }
    }
    foreign
}

fn is_in(message: Message<'_>, table: &str) -> bool {
    let families = [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6].map(u8::from);
    families.contains(&message.family)
        && find(message.attributes, TABLE_NAME).is_some_and(|name| string(name) == table)
}
