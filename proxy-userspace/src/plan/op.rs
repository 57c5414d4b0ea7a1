//! Operations: what the planner asks of the tables, one write each.

use std::fmt;
use std::net::IpAddr;

use proxy_common::abi::{Detector, EndpointFlags, Frontend, Slot};
use proxy_common::net::Proto;

use crate::model::{Family, IpNet};

/// An address, port and protocol: a frontend, or the place an endpoint listens at. Port 0 with
/// `Proto(0)` is the frontend of a whole address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Socket {
    /// Address.
    pub addr: IpAddr,
    /// Port.
    pub port: u16,
    /// Protocol.
    pub proto: Proto,
}

impl Socket {
    /// The family of its address.
    pub const fn family(&self) -> Family {
        Family::of(self.addr)
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.proto == Proto(0) {
            return write!(f, "{}", self.addr);
        }
        let addr = std::net::SocketAddr::new(self.addr, self.port);
        write!(f, "{addr}/{}", ProtoName(self.proto))
    }
}

/// The name of a protocol.
#[derive(Clone, Copy)]
pub(super) struct ProtoName(pub(super) Proto);

impl fmt::Display for ProtoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Proto::TCP => f.write_str("TCP"),
            Proto::UDP => f.write_str("UDP"),
            Proto::SCTP => f.write_str("SCTP"),
            Proto(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An element of an endpoint array, whatever its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Address that packets are sent to.
    pub addr: IpAddr,
    /// Port that packets are sent to.
    pub port: u16,
    /// Properties.
    pub flags: EndpointFlags,
    /// How often the slot was given up.
    pub generation: u32,
    /// Service port that it belongs, or last belonged, to.
    pub service: u32,
}

/// Which of the two address bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bitmap {
    /// Addresses of frontends.
    Frontends,
    /// Addresses of endpoints.
    Endpoints,
}

/// One write to the tables.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Says who is inside.
    Detector {
        /// What tells.
        value: Detector,
    },
    /// Lets a source range use the frontends of a service port that are filtered.
    Source {
        /// Number of the service port.
        service: u32,
        /// The range; its address tells the table.
        range: IpNet,
    },
    /// Forgets a source range.
    SourceGone {
        /// Number of the service port.
        service: u32,
        /// The range.
        range: IpNet,
    },
    /// Starts counting the picks of an endpoint slot anew.
    ResetPicks {
        /// Which array.
        family: Family,
        /// Which element.
        slot: u32,
    },
    /// Starts counting the draws from a region of the set array anew.
    ResetDraws {
        /// First element.
        base: u32,
        /// How many elements.
        len: u32,
    },
    /// Forgets which endpoints the clients of a service port had.
    ForgetClients {
        /// Which map.
        family: Family,
        /// Number of the service port.
        service: u32,
    },
    /// Writes an endpoint record; its address tells the array.
    Endpoint {
        /// Which element.
        slot: u32,
        /// What it becomes.
        record: Record,
    },
    /// Sets the frontends that an endpoint's replies may belong to.
    Reverse {
        /// Where the endpoint listens.
        endpoint: Socket,
        /// The frontends, the most useful first.
        frontends: Vec<(IpAddr, u16)>,
    },
    /// Forgets the frontends of an endpoint.
    ReverseGone {
        /// Where the endpoint listened.
        endpoint: Socket,
    },
    /// Sets bits of a bitmap.
    Bits {
        /// Which bitmap.
        bitmap: Bitmap,
        /// Which word.
        word: u32,
        /// What the word becomes.
        value: u64,
    },
    /// Writes a region of the set array.
    Set {
        /// First element.
        base: u32,
        /// What stands there from then on.
        slots: Vec<Slot>,
    },
    /// Creates a frontend, or switches it in one step.
    Frontend {
        /// Where clients send to.
        at: Socket,
        /// What it becomes.
        value: Frontend,
    },
    /// Removes a frontend.
    FrontendGone {
        /// Where clients sent to.
        at: Socket,
    },
}
