//! Frames in fragments, and with extension headers: for tests, and so with nothing of the header
//! code that is to be tested.

use std::vec::Vec;

use crate::net::eth;

/// Length of the fixed IPv6 header, and of the fragment header, in bytes.
const FIXED: usize = 40;
const FRAGMENT: usize = 8;

/// Offsets of fields from the beginning of the frame.
const LEN4: usize = eth::LEN + 2;
const ID: usize = eth::LEN + 4;
const OFFSET: usize = eth::LEN + 6;
const SUM: usize = eth::LEN + 10;
const LEN6: usize = eth::LEN + 4;
const NEXT: usize = eth::LEN + 6;

/// What is no frame of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

/// The same frame with this IPv4 identification, and such as routers may cut; IPv6 knows neither in
/// a whole packet.
pub fn numbered(frame: &[u8], id: u16) -> Result<Vec<u8>, Unfit> {
    let mut frame = frame.to_vec();
    if !is_v6(&frame)? {
        put(&mut frame, ID, id)?;
        put(&mut frame, OFFSET, 0)?;
        sum(&mut frame)?;
    }
    Ok(frame)
}

/// A frame in fragments that carry `len` bytes each, a multiple of 8, and the last what is left.
pub fn cut(frame: &[u8], id: u32, len: usize) -> Result<Vec<Vec<u8>>, Unfit> {
    let is_v6 = is_v6(frame)?;
    let (head, body) = frame.split_at_checked(head_len(frame)?).ok_or(Unfit)?;
    let count = body.len().div_ceil(len);
    let mut pieces = Vec::new();
    for (n, part) in body.chunks(len).enumerate() {
        let (offset, more) = (n * len, u16::from(n + 1 < count));
        let mut piece = head.to_vec();
        if is_v6 {
            let next = std::mem::replace(piece.get_mut(NEXT).ok_or(Unfit)?, 44);
            put(&mut piece, LEN6, (FRAGMENT + part.len()) as u16)?;
            piece.extend([next, 0]);
            piece.extend((offset as u16 | more).to_be_bytes());
            piece.extend(id.to_be_bytes());
        } else {
            put(
                &mut piece,
                LEN4,
                (head.len() - eth::LEN + part.len()) as u16,
            )?;
            put(&mut piece, ID, id as u16)?;
            put(&mut piece, OFFSET, (offset / 8) as u16 | more << 13)?;
            sum(&mut piece)?;
        }
        piece.extend(part);
        pieces.push(piece);
    }
    Ok(pieces)
}

/// The frame that all these fragments were cut from, in this order.
pub fn join(pieces: &[Vec<u8>]) -> Result<Vec<u8>, Unfit> {
    let first = pieces.first().ok_or(Unfit)?;
    let is_v6 = is_v6(first)?;
    let head = head_len(first)?;
    let mut frame = first.get(..head).ok_or(Unfit)?.to_vec();
    let key = |piece: &[u8]| {
        let id = if is_v6 {
            head..head + FRAGMENT
        } else {
            ID..ID + 2
        };
        let id = piece.get(id).map(<[u8]>::to_vec);
        let addrs = piece.get(eth::LEN + if is_v6 { 8 } else { 12 }..head);
        let id = id.map(|id| match id.as_slice() {
            [next, _, _, _, rest @ ..] => [&[*next], rest].concat(),
            all => all.to_vec(),
        });
        (id, addrs.map(<[u8]>::to_vec))
    };
    for (n, piece) in pieces.iter().enumerate() {
        let more = u16::from(n + 1 < pieces.len());
        let so_far = frame.len() - head;
        let (field, data) = if is_v6 {
            (get(piece, head + 2)?, head + FRAGMENT)
        } else {
            let mut sound = piece.clone();
            sum(&mut sound)?;
            if sound != *piece {
                return Err(Unfit);
            }
            (get(piece, OFFSET)?, head)
        };
        let wanted = if is_v6 {
            so_far as u16 | more
        } else {
            (so_far / 8) as u16 | more << 13
        };
        if field != wanted || key(piece) != key(first) {
            return Err(Unfit);
        }
        frame.extend(piece.get(data..).ok_or(Unfit)?);
    }
    if is_v6 {
        let next = *first.get(head).ok_or(Unfit)?;
        *frame.get_mut(NEXT).ok_or(Unfit)? = next;
        let len = frame.len() - head;
        put(&mut frame, LEN6, len as u16)?;
    } else {
        let len = frame.len() - eth::LEN;
        put(&mut frame, LEN4, len as u16)?;
        put(&mut frame, OFFSET, 0)?;
        sum(&mut frame)?;
    }
    Ok(frame)
}

/// An IPv6 frame with these headers behind the fixed one, each with its protocol number. The first
/// byte of a header is what comes next, and filled in.
pub fn extended(frame: &[u8], headers: &[(u8, Vec<u8>)]) -> Result<Vec<u8>, Unfit> {
    if !is_v6(frame)? {
        return Err(Unfit);
    }
    let (head, body) = frame.split_at_checked(eth::LEN + FIXED).ok_or(Unfit)?;
    let mut frame = head.to_vec();
    let mut next = NEXT;
    for (proto, header) in headers {
        let at = frame.len();
        let following = std::mem::replace(frame.get_mut(next).ok_or(Unfit)?, *proto);
        frame.extend(header);
        *frame.get_mut(at).ok_or(Unfit)? = following;
        next = at;
    }
    frame.extend(body);
    let len = frame.len() - head.len();
    put(&mut frame, LEN6, len as u16)?;
    Ok(frame)
}

fn is_v6(frame: &[u8]) -> Result<bool, Unfit> {
    match frame.get(eth::LEN).map(|first| first >> 4) {
        Some(4) => Ok(false),
        Some(6) => Ok(true),
        _ => Err(Unfit),
    }
}

/// Length of what comes before the payload of IP, the Ethernet header included.
fn head_len(frame: &[u8]) -> Result<usize, Unfit> {
    let first = usize::from(*frame.get(eth::LEN).ok_or(Unfit)?);
    let len = if is_v6(frame)? {
        FIXED
    } else {
        (first & 15) * 4
    };
    Ok(eth::LEN + len)
}

fn get(bytes: &[u8], at: usize) -> Result<u16, Unfit> {
    let field = bytes
        .get(at..at + 2)
        .and_then(|field| field.try_into().ok());
    field.map(u16::from_be_bytes).ok_or(Unfit)
}

fn put(bytes: &mut [u8], at: usize, value: u16) -> Result<(), Unfit> {
    let field = bytes.get_mut(at..at + 2).ok_or(Unfit)?;
    field.copy_from_slice(&value.to_be_bytes());
    Ok(())
}

/// Fills in the IPv4 header checksum.
fn sum(frame: &mut [u8]) -> Result<(), Unfit> {
    put(frame, SUM, 0)?;
    let header = frame.get(eth::LEN..head_len(frame)?).ok_or(Unfit)?;
    let words = header.chunks(2).map(|word| match *word {
        [high, low] => u32::from(high) << 8 | u32::from(low),
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    put(frame, SUM, !(sum as u16))
}
