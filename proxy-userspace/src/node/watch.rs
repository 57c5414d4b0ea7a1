//! Follows the devices and addresses of this network namespace by rtnetlink.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use netlink_packet_core::{NLM_F_REPLACE, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteMessage;
use rtnetlink::sys::AsyncSocket as _;
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder};
use thiserror::Error;
use tokio::sync::watch::{Receiver, Sender};
use tracing::{debug, info, warn};

use super::class::Reason;
use super::device::Devices;
use super::links::Links;
use crate::config::Detect;

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

/// What to look at, and whom to tell. Both senders hold nothing before anything is known.
pub struct Look {
    /// What tells local pods from others.
    pub detect: Detect,
    /// The addresses of this node's Node object. Devices are not told apart before they are known.
    pub node: Receiver<Option<BTreeSet<IpAddr>>>,
    /// Told the addresses that packets are delivered at on this node, those of the loopback device
    /// (127.0.0.0/8 and `::1`) left out.
    pub addresses: Sender<Option<Arc<BTreeSet<IpAddr>>>>,
    /// Told the devices.
    pub devices: Sender<Option<Devices>>,
}

/// Follows the devices and addresses of this network namespace until nobody looks at the devices
/// any more.
pub async fn watch(look: Look) -> Result<(), WatchError> {
    let Look {
        detect,
        mut node,
        addresses,
        devices,
    } = look;
    let mut session = Session::begin().await?;
    let mut said = HashMap::new();
    loop {
        set(&addresses, Arc::new(session.links.own_addresses()));
        if let Some(node) = &*node.borrow_and_update() {
            let sorted = Devices::sort(&session.links, node, &detect);
            say(&session.links, &sorted, &mut said);
            set(&devices, sorted);
        }
        tokio::select! {
            () = devices.closed() => return Ok(()),
            changed = node.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            followed = session.follow() => match followed? {
                Followed::Changes => {}
                Followed::Lost => {
                    info!("netlink messages were lost, listing all devices again");
                    // By another socket: what this one still holds is older than what was lost.
                    let mut anew = Session::begin().await?;
                    anew.links.succeed(&session.links);
                    session = anew;
                }
            },
        }
    }
}

/// Tells what is known now to whoever was told something else.
fn set<T: PartialEq>(sender: &Sender<Option<T>>, now: T) {
    sender.send_if_modified(|known| {
        let is_new = known.as_ref() != Some(&now);
        *known = Some(now);
        is_new
    });
}

/// A netlink socket and what was learned by it.
struct Session {
    links: Links,
    messages: BoxStream<'static, NetlinkMessage<RouteNetlinkMessage>>,
    _connection: AbortOnDrop,
}

enum Followed {
    Changes,
    Lost,
}

impl Session {
    async fn begin() -> Result<Self, WatchError> {
        // One socket for both, subscribed before anything is listed: nothing falls in between.
        let (mut connection, handle, messages) = rtnetlink::new_multicast_connection(&[
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
        let connection = AbortOnDrop(tokio::spawn(connection));
        Ok(Self {
            links: list(&handle).await?,
            messages: messages.map(|(message, _)| message).boxed(),
            _connection: connection,
        })
    }

    /// Waits for a message, and takes in what has come by then.
    async fn follow(&mut self) -> Result<Followed, WatchError> {
        let Some(message) = self.messages.next().await else {
            return Err(WatchError::Ended);
        };
        let mut is_whole = note(message, &mut self.links);
        while let Some(Some(message)) = self.messages.next().now_or_never() {
            is_whole &= note(message, &mut self.links);
        }
        Ok(if is_whole {
            Followed::Changes
        } else {
            Followed::Lost
        })
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

/// Says what a device is taken for: once, and again when it changes.
fn say(links: &Links, devices: &Devices, said: &mut HashMap<u64, String>) {
    let mut now = HashMap::new();
    for link in links.iter() {
        let (wanted, other) = (
            devices.wanted.get(&link.index),
            devices.others.get(&link.index),
        );
        let text = match (wanted, other) {
            (Some(device), _) => device.class.to_string(),
            (_, Some(other)) => other.reason.to_string(),
            _ => continue,
        };
        if said.get(&link.incarnation) != Some(&text) {
            let kind = link.kind.as_deref().unwrap_or("hardware");
            let device = &*link.name;
            match other.map(|other| other.reason) {
                None => debug!(device, kind, class = text, "device found"),
                Some(Reason::Unknown | Reason::Header) => {
                    warn!(
                        device,
                        kind,
                        hardware = link.hardware,
                        reason = text,
                        "device left alone"
                    );
                }
                Some(_) => debug!(device, kind, reason = text, "device left alone"),
            }
        }
        now.insert(link.incarnation, text);
    }
    *said = now;
}
