//! Headers, addresses and ports as they stand on the wire.

pub mod addr;
pub mod checksum;
pub mod eth;
pub mod fragment;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod sctp;
pub mod tcp;
pub mod udp;

pub use addr::{Address, Ip4, Ip6, Port, Proto};
pub use eth::Mac;
pub use fragment::Piece;
