//! Notices that somebody else has changed our tables.

use std::future::poll_fn;
use std::io;

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket as _, TokioSocket};
use tracing::debug;

use super::attribute::{find, string};
use super::batch::{Content, Message, replies};
use super::wanted::TABLE;

/// `NFNLGRP_NFTABLES`.
const NFTABLES: u32 = 7;

/// Others change tens of thousands of rules at once.
const RECEIVE_BUFFER: u32 = 4 << 20;

/// In every message about a part of a table, the attribute that names the table.
const TABLE_NAME: u16 = 1;

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

    /// Waits until a table of ours was changed by anybody but the socket of this port, or may have
    /// been: messages that do not fit into the buffer are lost.
    pub(super) async fn foreign(&self, own: Option<u32>) -> io::Result<()> {
        loop {
            match poll_fn(|context| self.socket.poll_recv_from_full(context)).await {
                Ok((datagram, _)) if is_foreign(&datagram, own) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    debug!("messages about changes of nftables were lost");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether a datagram tells of a change of our tables that came by another socket.
pub(super) fn is_foreign(datagram: &[u8], own: Option<u32>) -> bool {
    replies(datagram).any(|reply| match reply.content {
        Content::Message(message) => Some(reply.port) != own && is_ours(message),
        Content::End(_) => false,
    })
}

fn is_ours(message: Message<'_>) -> bool {
    let families = [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6].map(u8::from);
    families.contains(&message.family)
        && find(message.attributes, TABLE_NAME).is_some_and(|name| string(name) == TABLE)
}
