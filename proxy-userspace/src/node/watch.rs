//! Follows the devices of this network namespace by rtnetlink.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use futures_util::{StreamExt as _, TryStreamExt as _};
use netlink_packet_core::{NLM_F_REPLACE, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteMessage;
use rtnetlink::sys::AsyncSocket as _;
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder};
use thiserror::Error;
use tokio::sync::watch::{Receiver, Sender};
use tracing::{debug, info, warn};

use super::bridge::Bridge;
use super::class::{Device, Reason, Verdict, classify};
use super::links::{Link, Links};

/// Room for bursts of messages: hundreds of pods can start at once.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Why devices cannot be followed.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The netlink socket cannot be opened or set up.
    #[error("cannot open a netlink socket")]
    Socket(#[from] std::io::Error),
    /// A question was not answered.
    #[error("cannot list the devices of this node")]
    Dump(#[from] rtnetlink::Error),
    /// The connection ended.
    #[error("the netlink connection has ended")]
    Ended,
}

/// Keeps `devices` at those to attach to, by index, until nobody looks any more; it holds nothing
/// before they are known. `node` holds the
/// addresses of this node's Node object.
pub async fn watch(
    mut node: Receiver<BTreeSet<IpAddr>>,
    devices: Sender<Option<BTreeMap<u32, Device>>>,
) -> Result<(), WatchError> {
    // One socket for both, subscribed before anything is listed: nothing falls in between.
    let (mut connection, handle, mut messages) = rtnetlink::new_multicast_connection(&[
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
    ])?;
    connection
        .socket_mut()
        .socket_mut()
        .set_rx_buf_sz(RECEIVE_BUFFER)?;
    let connection = tokio::spawn(connection);
    let _guard = AbortOnDrop(connection);

    let mut links = list(&handle).await?;
    let mut said = HashMap::new();
    loop {
        let wanted = wanted(&links, &node.borrow_and_update().clone(), &mut said);
        devices.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&wanted);
            *known = Some(wanted);
            is_new
        });
        tokio::select! {
            () = devices.closed() => return Ok(()),
            changed = node.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            message = messages.next() => {
                let Some((message, _)) = message else {
                    return Err(WatchError::Ended);
                };
                let mut lost = !note(message, &mut links);
                // What has already come in is looked at together.
                while let Ok((message, _)) = messages.try_recv() {
                    lost |= !note(message, &mut links);
                }
                if lost {
                    info!("netlink messages were lost, listing all devices again");
                    let mut anew = list(&handle).await?;
                    anew.succeed(&links);
                    links = anew;
                }
            }
        }
    }
}

/// Ends a task along with the one that started it.
pub(super) struct AbortOnDrop(pub(super) tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn list(handle: &Handle) -> Result<Links, WatchError> {
    let mut links = Links::default();
    let mut all = handle.link().get().execute();
    while let Some(message) = all.try_next().await? {
        links.link_set(&message);
    }
    let mut all = handle.address().get().execute();
    while let Some(message) = all.try_next().await? {
        links.address_set(&message);
    }
    let families: [RouteMessage; 2] = [
        RouteMessageBuilder::<std::net::Ipv4Addr>::new().build(),
        RouteMessageBuilder::<std::net::Ipv6Addr>::new().build(),
    ];
    for family in families {
        let mut all = handle.route().get(family).execute();
        while let Some(message) = all.try_next().await? {
            links.route_set(&message, false);
        }
    }
    Ok(links)
}

/// Takes a message in; whether none before it was lost.
fn note(message: NetlinkMessage<RouteNetlinkMessage>, links: &mut Links) -> bool {
    let replaces = message.header.flags & NLM_F_REPLACE != 0;
    match message.payload {
        NetlinkPayload::Overrun(_) => return false,
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => links.link_set(&link),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => links.link_gone(&link),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address)) => {
            links.address_set(&address);
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(address)) => {
            links.address_gone(&address);
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
            links.route_set(&route, replaces);
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(route)) => {
            links.route_gone(&route);
        }
        _ => {}
    }
    true
}

/// The devices to attach to. What a device is taken for is said once, and again when it changes.
fn wanted(
    links: &Links,
    node: &BTreeSet<IpAddr>,
    said: &mut HashMap<u64, Verdict>,
) -> BTreeMap<u32, Device> {
    let mut devices = BTreeMap::new();
    let mut now = HashMap::new();
    for link in links.iter() {
        let verdict = classify(link, links, node);
        if said.get(&link.incarnation) != Some(&verdict) {
            say(link, verdict);
        }
        now.insert(link.incarnation, verdict);
        if let Verdict::Takes(class, framing) = verdict {
            let device = Device {
                index: link.index,
                name: link.name.clone(),
                framing,
                class,
                incarnation: link.incarnation,
                bridge: Bridge::of(link, links),
            };
            devices.insert(link.index, device);
        }
    }
    *said = now;
    devices
}

fn say(link: &Link, verdict: Verdict) {
    let kind = link.kind.as_deref().unwrap_or("hardware");
    match verdict {
        Verdict::Takes(class, _) => {
            debug!(device = %link.name, kind, %class, "device found");
        }
        Verdict::Skip(reason @ Reason::Unknown) => {
            warn!(device = %link.name, kind, hardware = link.hardware, %reason, "device left alone");
        }
        Verdict::Skip(reason) => debug!(device = %link.name, kind, %reason, "device left alone"),
    }
}
