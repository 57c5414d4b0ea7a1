//! Queueing disciplines and filters of devices, by rtnetlink.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::syscall::link::Direction;

/// A queueing discipline that filters of packets that come in hang on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hooks {
    /// `clsact`, which has a place for those that go out as well.
    Both,
    /// `ingress`, which has not. A device has only one of the two.
    IngressOnly,
}

/// A filter, in the order in which packets meet them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// The lower the earlier.
    pub(super) priority: u16,
    /// Number among those of its priority.
    pub(super) handle: u32,
    /// Its kind, `bpf` for instance.
    pub(super) kind: String,
    /// What it was named, if it is a program.
    pub(super) name: Option<String>,
    /// Whether it is a program whose verdict counts.
    pub(super) is_direct: bool,
}

/// A new filter that is a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFilter<'a> {
    pub(super) priority: u16,
    pub(super) handle: u32,
    pub(super) name: &'a str,
    /// Descriptor of the program.
    pub(super) program: i32,
}

/// A socket of this network namespace.
pub(super) struct Tc {
    socket: Socket,
}

impl std::fmt::Debug for Tc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tc").finish_non_exhaustive()
    }
}

impl Tc {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket })
    }

    /// The devices that filters can be hung on, by index.
    pub(super) fn hooks(&self) -> io::Result<Vec<(u32, Hooks)>> {
        let all = self.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
        Ok(all.iter().filter_map(hooks).collect())
    }

    /// Whether filters can be hung on a device.
    pub(super) fn hooks_of(&self, device: u32) -> io::Result<Option<Hooks>> {
        let mut message = TcMessage::with_index(device.cast_signed());
        message.header.parent = TcHandle::CLSACT;
        // Some kernels answer only who wants an echo.
        let message = RouteNetlinkMessage::GetQueueDiscipline(message);
        match self.ask(message, NLM_F_ACK | NLM_F_ECHO) {
            Ok(answers) => Ok(answers.iter().find_map(hooks).map(|(_, hooks)| hooks)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives a device a place for filters of both directions.
    pub(super) fn add_hooks(&self, device: u32) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewQueueDiscipline(clsact(device));
        self.change(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Takes it away, with all filters.
    pub(super) fn remove_hooks(&self, device: u32) -> io::Result<()> {
        self.change(RouteNetlinkMessage::DelQueueDiscipline(clsact(device)), 0)
    }

    /// The filters of a device.
    pub(super) fn filters(&self, device: u32, direction: Direction) -> io::Result<Vec<Filter>> {
        let message = at(device, direction);
        let all = self.dump(RouteNetlinkMessage::GetTrafficFilter(message))?;
        Ok(all.iter().filter_map(filter).collect())
    }

    /// Hangs a program on a device. It takes the place of the filter of the same handle; else it
    /// comes before all others of its priority.
    pub(super) fn set_filter(
        &self,
        device: u32,
        direction: Direction,
        filter: &NewFilter<'_>,
    ) -> io::Result<()> {
        let mut message = named(device, direction, filter.priority, filter.handle);
        let options = [
            TcFilterBpfOption::ProgFd(filter.program.cast_unsigned()),
            TcFilterBpfOption::ProgName(filter.name.to_owned()),
            TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
        ];
        message.attributes.push(TcAttribute::Options(
            options.into_iter().map(TcOption::Bpf).collect(),
        ));
        let message = RouteNetlinkMessage::NewTrafficFilter(message);
        self.change(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Takes a program off a device.
    pub(super) fn remove_filter(
        &self,
        device: u32,
        direction: Direction,
        priority: u16,
        handle: u32,
    ) -> io::Result<()> {
        let message = named(device, direction, priority, handle);
        self.change(RouteNetlinkMessage::DelTrafficFilter(message), 0)
    }

    fn change(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_ACK | flags).map(drop)
    }

    fn dump(&self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.ask(message, NLM_F_DUMP)
    }

    /// Sends a request and collects all answers.
    fn ask(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &*datagram;
            while let Some((message, after)) = next(rest) {
                rest = after;
                // What a crate does not understand is none of ours.
                let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message)
                else {
                    continue;
                };
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => {
                        return match error.code {
                            None => Ok(answers),
                            Some(code) => Err(io::Error::from_raw_os_error(-code.get())),
                        };
                    }
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
            }
        }
    }
}

/// The first message of a datagram, and what comes after it.
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let message = bytes
        .get(..length)
        .filter(|message| message.len() >= HEADER)?;
    let after = bytes.get(length.next_multiple_of(4)..);
    Some((message, after.unwrap_or_default()))
}

/// Bytes of a netlink header.
const HEADER: usize = 16;

fn kind(message: &TcMessage) -> Option<&str> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(&**kind),
            _ => None,
        })
}

fn hooks(message: &RouteNetlinkMessage) -> Option<(u32, Hooks)> {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = message else {
        return None;
    };
    let hooks = match kind(message)? {
        "clsact" => Hooks::Both,
        "ingress" => Hooks::IngressOnly,
        _ => return None,
    };
    Some((message.header.index.cast_unsigned(), hooks))
}

fn filter(message: &RouteNetlinkMessage) -> Option<Filter> {
    let RouteNetlinkMessage::NewTrafficFilter(message) = message else {
        return None;
    };
    let handle = u32::from(message.header.handle);
    let kind = kind(message)?;
    // A whole priority is listed beside its filters.
    if handle == 0 {
        return None;
    }
    let mut filter = Filter {
        priority: (message.header.info >> 16) as u16,
        handle,
        kind: kind.to_owned(),
        name: None,
        is_direct: false,
    };
    let options = message
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            TcAttribute::Options(options) => Some(options),
            _ => None,
        });
    for option in options.flatten() {
        match option {
            TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => filter.name = Some(name.clone()),
            TcOption::Bpf(TcFilterBpfOption::Flags(flags)) => {
                filter.is_direct = flags.contains(TcBpfFlags::DirectAction);
            }
            _ => {}
        }
    }
    Some(filter)
}

fn clsact(device: u32) -> TcMessage {
    let mut message = TcMessage::with_index(device.cast_signed());
    message.header.parent = TcHandle::CLSACT;
    message.header.handle = TcHandle {
        major: 0xffff,
        minor: 0,
    };
    message
        .attributes
        .push(TcAttribute::Kind("clsact".to_owned()));
    message
}

/// A message about the filters at a hook.
fn at(device: u32, direction: Direction) -> TcMessage {
    let mut message = TcMessage::with_index(device.cast_signed());
    message.header.parent = TcHandle {
        major: 0xffff,
        minor: match direction {
            Direction::Ingress => TcHandle::MIN_INGRESS,
            Direction::Egress => TcHandle::MIN_EGRESS,
        },
    };
    message
}

/// A message about one filter, for all protocols.
fn named(device: u32, direction: Direction, priority: u16, handle: u32) -> TcMessage {
    let mut message = at(device, direction);
    message.header.handle = handle.into();
    message.header.info = u32::from(priority) << 16 | u32::from(ALL_PROTOCOLS.to_be());
    message
        .attributes
        .push(TcAttribute::Kind(TcFilterBpf::KIND.to_owned()));
    message
}

/// `ETH_P_ALL`.
const ALL_PROTOCOLS: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_cut_into_its_messages() {
        let message = |length: u32| {
            let mut bytes = vec![0_u8; (length as usize).next_multiple_of(4)];
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes
        };
        let datagram = [message(16), message(21), message(20)].concat();
        let mut lengths = Vec::new();
        let mut rest = &*datagram;
        while let Some((message, after)) = next(rest) {
            lengths.push(message.len());
            rest = after;
        }
        assert_eq!([16, 21, 20], *lengths);
        assert_eq!(None, next(&message(16)[..8]));
        assert_eq!(None, next(&[0; 8]));
    }
}
