//! How far the checksums of a packet are off, from its bytes alone and with nothing of the code that
//! is tested.
//!
//! A right checksum makes the sum over all that it covers, itself included, zero (in one's
//! complement), and a CRC does the same in its own terms. What a rewrite changes it makes up for, so
//! that sum must be the same afterwards, right or wrong.

use proxy_common::net::Piece;
use proxy_common::net::sctp::crc32c;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// Sums that must stay as they are; none where there is no such checksum.
#[derive(Debug, Default, PartialEq, Eq)]
struct Residue {
    /// Of the IPv4 header.
    header: Option<u16>,
    /// Of the transport header and what follows, with the addresses.
    transport: Option<u32>,
    /// Of the packet that an ICMP error quotes.
    quoted: Option<Box<Self>>,
}

/// A packet after it was rewritten must be as right or as wrong as before.
pub(super) fn assert_unchanged(program: &str, before: &[u8], after: &[u8]) {
    assert_eq!(before.len(), after.len());
    if before == after {
        return;
    }
    let is_v6 = before[12..14] == [0x86, 0xdd];
    let residues = [before, after].map(|bytes| residue(&bytes[14..], is_v6, None));
    assert_eq!(
        residues[0], residues[1],
        "at {program}: {before:02x?} became {after:02x?}"
    );
    let end = end_of(&before[14..], is_v6) + 14;
    // Where not even its headers end before that, it is nobody's.
    if residues[0].transport.is_some() && end <= before.len() {
        assert_eq!(
            before[end..],
            after[end..],
            "at {program}, what follows the packet: {before:02x?}"
        );
    }
}

/// Where a packet ends, as its network header has it.
fn end_of(packet: &[u8], is_v6: bool) -> usize {
    let at = if is_v6 { 4 } else { 2 };
    let len = usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if is_v6 { len + 40 } else { len }
}

/// The residue of a packet, or of the part of one that an error quotes.
fn residue(packet: &[u8], is_v6: bool, quoted_in: Option<u8>) -> Residue {
    let mut residue = Residue::default();
    let fixed = if is_v6 { 40 } else { 20 };
    if packet.len() < fixed {
        return residue;
    }
    // A quote was cut short, and what follows it is none of it.
    let end = end_of(packet, is_v6);
    let is_cut = end > packet.len();
    let packet = &packet[..packet.len().min(end.max(fixed))];
    let Some((proto, at, piece)) = transport_of(packet, is_v6) else {
        return residue;
    };
    if !is_v6 {
        let header = &packet[..at.min(packet.len())];
        residue.header = Some(sum(header));
    }
    if piece == Piece::Later || at > packet.len() {
        return residue;
    }
    let (addresses, body) = (&packet[if is_v6 { 8..40 } else { 12..20 }], &packet[at..]);
    let check = match proto {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        SCTP => 8,
        _ => return residue,
    };
    let Some(field) = body.get(check..check + 2) else {
        // Nobody can make up for what changes. In a quote it may be missing, and a whole packet that
        // ends here is nobody's; but that of a fragment is in the next one.
        let is_missed = quoted_in.is_none() && piece == Piece::First;
        residue.transport = is_missed.then(|| u32::from(sum(body)));
        return residue;
    };
    residue.transport = match proto {
        UDP if field == [0, 0] => None,
        ICMP => Some(u32::from(sum(body))),
        // How it changes depends on how long the packet is.
        SCTP if is_cut => None,
        SCTP => body.get(8..12).and_then(|field| {
            let check = u32::from_le_bytes(field.try_into().unwrap());
            let mut zeroed = body.to_vec();
            zeroed[8..12].fill(0);
            (check != 0).then(|| crc32c(&zeroed) ^ check)
        }),
        _ => Some(u32::from(sum(&[addresses, body].concat()))),
    };
    let is_error = match proto {
        ICMP => matches!(body[0], 3 | 4 | 11 | 12),
        ICMPV6 => matches!(body[0], 1..=4),
        _ => false,
    };
    if is_error && quoted_in.is_none() && body.len() > 8 {
        residue.quoted = Some(Box::new(self::residue(&body[8..], is_v6, Some(proto))));
    }
    residue
}

/// Protocol and offset of the transport header, and the piece of a datagram that it begins.
fn transport_of(packet: &[u8], is_v6: bool) -> Option<(u8, usize, Piece)> {
    if !is_v6 {
        let at = usize::from(packet[0] & 15) * 4;
        let field = u16::from_be_bytes([packet[6], packet[7]]);
        let piece = Piece::at(field & 0x1fff, field & 0x2000 != 0);
        return (at >= 20).then_some((packet[9], at, piece));
    }
    let (mut next, mut at, mut piece) = (packet[6], 40, Piece::Whole);
    while matches!(next, 0 | 43 | 44 | 51 | 60) && piece != Piece::Later {
        let header = packet.get(at..at + 8)?;
        let len = usize::from(header[1]);
        at += match next {
            44 => {
                let field = u16::from_be_bytes([header[2], header[3]]);
                piece = Piece::at(field >> 3, field & 1 != 0);
                8
            }
            51 => (len + 2) * 4,
            _ => (len + 1) * 8,
        };
        next = header[0];
    }
    Some((next, at, piece))
}

/// The one's complement sum, with one form of zero.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    (words.sum::<u64>() % 0xffff) as u16
}
