//! From messages to the bytes that a netlink socket takes, and back.

use netlink_packet_core::{
    ErrorBuffer, NLM_F_ACK, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily, NetfilterSubsystem,
};

use super::message::Request;

/// `NLMSG_ERROR`: an error, or that there was none.
const ERROR: u16 = 2;
/// `NLMSG_DONE`.
const DONE: u16 = 3;

/// Messages that the kernel carries out as a whole or not at all.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// Sequence number of its head, which errors that concern all of it come back with.
    pub(super) first: u32,
    /// Sequence number of the last message, which is always answered.
    pub(super) last: u32,
}

impl Batch {
    /// A batch of at least one message; takes as many sequence numbers as it has messages, and two.
    pub(super) fn new(requests: &[Request], first: u32) -> Self {
        let mut bytes = Vec::new();
        let mut sequence = first;
        append(&mut bytes, &control(ControlMessage::BatchBegin), sequence);
        for (index, request) in requests.iter().enumerate() {
            sequence = sequence.wrapping_add(1);
            let mut request = request.clone();
            if index + 1 == requests.len() {
                request.flags |= NLM_F_ACK;
            }
            append(&mut bytes, &request, sequence);
        }
        let end = sequence.wrapping_add(1);
        append(&mut bytes, &control(ControlMessage::BatchEnd), end);
        Self {
            bytes,
            first,
            last: sequence,
        }
    }
}

fn control(message: ControlMessage) -> Request {
    let subsystem = u8::from(NetfilterSubsystem::NfTables).into();
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, subsystem);
    Request {
        flags: NLM_F_REQUEST,
        message: NetfilterMessage::new(header, message),
    }
}

/// Writes a message behind others.
pub(super) fn append(bytes: &mut Vec<u8>, request: &Request, sequence: u32) {
    let mut header = NetlinkHeader::default();
    header.flags = request.flags;
    header.sequence_number = sequence;
    let payload = NetlinkPayload::InnerMessage(request.message.clone());
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let start = bytes.len();
    bytes.resize(start + message.buffer_len(), 0);
    if let Some(room) = bytes.get_mut(start..) {
        message.serialize(room);
    }
}

/// A message from the kernel.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    /// Sequence number of what it answers.
    pub(super) sequence: u32,
    /// Who caused it; the kernel fills in the port of the socket that a change came by.
    pub(super) port: u32,
    pub(super) flags: u16,
    pub(super) content: Content<'a>,
}

/// What the kernel says.
#[derive(Debug)]
pub(super) enum Content<'a> {
    /// The end of what was asked for; an `errno`, or 0.
    End(i32),
    /// A message, less its netlink header.
    Message(Message<'a>),
}

/// A message of nftables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    /// `NFPROTO_…`.
    pub(super) family: u8,
    pub(super) attributes: &'a [u8],
}

/// The messages of a datagram.
pub(super) fn replies(datagram: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let buffer = NetlinkBuffer::new_checked(rest).ok()?;
        let length = usize::try_from(buffer.length()).ok()?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let payload = buffer.payload();
        let content = match buffer.message_type() {
            ERROR => Content::End(code(payload)),
            DONE => Content::End(done(payload)),
            _ => Content::Message(message(payload)),
        };
        Some(Reply {
            sequence: buffer.sequence_number(),
            port: buffer.port_number(),
            flags: buffer.flags(),
            content,
        })
    })
}

fn code(payload: &[u8]) -> i32 {
    let buffer = ErrorBuffer::new_checked(payload).ok();
    let code = buffer.and_then(|buffer| buffer.code());
    code.map_or(0, |code| code.get().saturating_neg())
}

/// The end of a dump carries an error as well.
fn done(payload: &[u8]) -> i32 {
    let code = payload.first_chunk().copied().map(i32::from_ne_bytes);
    code.map_or(0, |code| code.min(0).saturating_neg())
}

/// Takes the header of netfilter off: family, version, and a number that changes all the time.
fn message(payload: &[u8]) -> Message<'_> {
    let (head, attributes) = payload.split_at_checked(4).unwrap_or_default();
    Message {
        family: head.first().copied().unwrap_or_default(),
        attributes,
    }
}
