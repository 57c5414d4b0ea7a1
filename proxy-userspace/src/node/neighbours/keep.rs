//! Asks the kernel, by rtnetlink.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage,
    NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::watch::Receiver;
use tracing::{debug, info};

use super::super::bridge::OnLink;
use super::super::watch::{AbortOnDrop, WatchError};
use super::{Entry, Neighbour, Neighbours, Step, wanted};

/// Tells entries of ours from others': the protocol that set them (`NDA_PROTOCOL`, Linux 5.0).
/// Numbers below 192 without an entry in iproute2's `rt_protos` are nobody's.
const PROTOCOL: u8 = 108;

/// How long to wait before what was refused, or what the kernel does not keep, is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Has the kernel keep those of `endpoints` in mind that are on link on `networks`, until nobody
/// tells them any more.
pub async fn keep(
    mut endpoints: Receiver<BTreeSet<IpAddr>>,
    mut networks: Receiver<BTreeSet<OnLink>>,
) -> Result<(), WatchError> {
    let (connection, handle, mut messages) =
        rtnetlink::new_multicast_connection(&[MulticastGroup::Neigh])?;
    let _guard = AbortOnDrop(tokio::spawn(connection));
    let start = Instant::now();
    let mut neighbours = Neighbours::default();
    list(&handle, &mut neighbours).await?;
    loop {
        let all = wanted(
            &networks.borrow_and_update(),
            &endpoints.borrow_and_update(),
        );
        neighbours.want(all);
        if !neighbours.steps(start.elapsed()).is_empty() {
            // Asked for over an administrator's entry, a neighbour would lose that: what was just
            // entered must be known.
            neighbours.forget();
            list(&handle, &mut neighbours).await?;
            for step in neighbours.steps(start.elapsed()) {
                if let Err(error) = ask(&handle, step).await {
                    debug!(?step, %error, "the kernel refuses to change a neighbour");
                }
                neighbours.asked(step, start.elapsed());
            }
        }
        tokio::select! {
            changed = endpoints.changed() => if changed.is_err() { return Ok(()) },
            changed = networks.changed() => if changed.is_err() { return Ok(()) },
            () = tokio::time::sleep(LOOK_AGAIN), if neighbours.is_waiting() => {}
            message = messages.next() => {
                let Some((message, _)) = message else {
                    return Err(WatchError::Ended);
                };
                let mut lost = !note(message, &mut neighbours);
                while let Ok((message, _)) = messages.try_recv() {
                    lost |= !note(message, &mut neighbours);
                }
                if lost {
                    info!("netlink messages were lost, listing all neighbours again");
                    neighbours.forget();
                    list(&handle, &mut neighbours).await?;
                }
            }
        }
    }
}

/// Releases all neighbours that are kept in this network namespace; how many there were. If not
/// `really`, they are only counted.
pub async fn release(really: bool) -> Result<usize, WatchError> {
    let (connection, handle, _messages) = rtnetlink::new_connection()?;
    let _guard = AbortOnDrop(tokio::spawn(connection));
    let mut neighbours = Neighbours::default();
    list(&handle, &mut neighbours).await?;
    let steps = neighbours.steps(Duration::ZERO);
    if really {
        for step in &steps {
            ask(&handle, *step).await?;
        }
    }
    Ok(steps.len())
}

async fn list(handle: &Handle, neighbours: &mut Neighbours) -> Result<(), WatchError> {
    let mut all = handle.neighbours().get().execute();
    while let Some(message) = all.try_next().await? {
        if let Some((neighbour, entry)) = read(&message) {
            neighbours.set(neighbour, entry);
        }
    }
    Ok(())
}

/// Takes a message in; whether none before it was lost.
fn note(message: NetlinkMessage<RouteNetlinkMessage>, neighbours: &mut Neighbours) -> bool {
    match message.payload {
        NetlinkPayload::Overrun(_) => return false,
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message)) => {
            if let Some((neighbour, entry)) = read(&message) {
                neighbours.set(neighbour, entry);
            }
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(message)) => {
            if let Some((neighbour, _)) = read(&message) {
                neighbours.gone(neighbour);
            }
        }
        _ => {}
    }
    true
}

fn read(message: &NeighbourMessage) -> Option<(Neighbour, Entry)> {
    let mut addr = None;
    let mut entry = Entry {
        is_permanent: message.header.state == NeighbourState::Permanent,
        ..Entry::default()
    };
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                addr = Some(IpAddr::V4(*v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                addr = Some(IpAddr::V6(*v6));
            }
            NeighbourAttribute::ExtFlags(flags) => {
                entry.is_managed = flags.contains(NeighbourExtFlags::Managed);
            }
            NeighbourAttribute::Protocol(protocol) => {
                entry.is_ours = u8::from(*protocol) == PROTOCOL;
            }
            _ => {}
        }
    }
    let neighbour = Neighbour {
        device: message.header.ifindex,
        addr: addr?,
    };
    Some((neighbour, entry))
}

/// Changes an entry, which is made if it is not there. Its state and address stay as they are, and
/// it is looked for.
async fn ask(handle: &Handle, step: Step) -> Result<(), rtnetlink::Error> {
    let (neighbour, is_kept) = match step {
        Step::Keep(neighbour) => (neighbour, true),
        Step::Release(neighbour) => (neighbour, false),
    };
    let mut request = handle
        .neighbours()
        .add(neighbour.device, neighbour.addr)
        .state(NeighbourState::None)
        // What kernels before 5.16 know of it.
        .flags(NeighbourFlags::Use)
        .replace();
    let attributes = &mut request.message_mut().attributes;
    attributes.push(NeighbourAttribute::Protocol(RouteProtocol::from(PROTOCOL)));
    if is_kept {
        attributes.push(NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed));
    }
    request.execute().await
}
