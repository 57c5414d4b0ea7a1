//! Packets of the node's own processes: decided where sockets connect or send, over what the
//! kernel's tables hold.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail};
use kube_lottery::netfilter::{self, Judgement, Path};
use proxy_common::abi::flow::FlowKey as _;
use proxy_common::abi::flow::Hook;
use proxy_common::abi::{Empty, Family, FlowFlags, Origin, V4, V6};
use proxy_common::datapath::Tables;
use proxy_common::datapath::choose::choose_for;
use proxy_common::datapath::memory::MemoryTables;
use proxy_common::datapath::verdict::Step;
use proxy_common::datapath::work::Work;
use proxy_common::net::{Port, Proto};

use crate::case::{Packet, Verdict};
use crate::packet::{Fate, is_local};
use crate::world::World;

/// What becomes of the first packet of a flow of the node.
pub(crate) fn draw(
    world: &mut World,
    packet: &Packet,
    from: SocketAddr,
    to: SocketAddr,
    own: &BTreeSet<IpAddr>,
) -> Result<Fate> {
    let proto = Proto::from(packet.proto);
    let host = world.host();
    let decided = match (from.ip(), to.ip()) {
        (IpAddr::V4(client), IpAddr::V4(vip)) => decide::<V4>(
            host,
            (client.into(), from.port()),
            (vip.into(), to.port()),
            proto,
        ),
        (IpAddr::V6(client), IpAddr::V6(vip)) => decide::<V6>(
            host,
            (client.into(), from.port()),
            (vip.into(), to.port()),
            proto,
        ),
        _ => bail!("{from} and {to} are not of one family"),
    };
    let judged = world.rules().judge(&netfilter::Packet {
        path: Path::Output,
        destination: to.ip(),
        is_local: is_local(own, to.ip()),
        proto,
        port: to.port(),
        mark: 0,
    });
    Ok(match (decided, judged) {
        (Decision::Forward(fate), _) => fate,
        (Decision::Drop, _) | (Decision::Pass, Judgement::Drop(_)) => Fate::of(Verdict::Drop),
        (Decision::Reject, _) | (Decision::Pass, Judgement::Reject) => Fate::of(Verdict::Reject),
        (Decision::Pass, Judgement::Pass(_)) => Fate::of(Verdict::Pass),
        (Decision::Pass, Judgement::Masquerade(_)) => {
            bail!("a packet that was left alone is masqueraded")
        }
    })
}

enum Decision {
    Forward(Fate),
    Drop,
    Reject,
    Pass,
}

fn decide<F: Family>(
    tables: &mut MemoryTables,
    (client, sport): (F::Addr, u16),
    (vip, port): (F::Addr, u16),
    proto: Proto,
) -> Decision
where
    MemoryTables: Tables<F>,
    F::Addr: Into<IpAddr>,
{
    let mut work = Work::<F>::empty();
    let ports = (Port::new(sport), Port::new(port));
    work.key.fill((&client, &vip), ports, proto, Hook::INGRESS);
    if Tables::<F>::frontend(tables, &work.frontend_key()).is_none() {
        let whole = F::frontend_key(vip, Port::new(0), Proto::ANY);
        return match Tables::<F>::frontend(tables, &whole) {
            None => Decision::Pass,
            Some(frontend) => match frontend.flags.empty(Origin::Host) {
                Empty::Drop => Decision::Drop,
                Empty::Reject => Decision::Reject,
                Empty::Pass => Decision::Pass,
            },
        };
    }
    match choose_for(tables, &mut work, Origin::Host) {
        Step::NONE => {
            let path = &work.path;
            Decision::Forward(Fate {
                verdict: Verdict::Forward,
                to: Some(SocketAddr::new(
                    path.endpoint.into(),
                    path.endpoint_port.host(),
                )),
                is_masqueraded: path.flags != FlowFlags::NONE,
            })
        }
        Step::REJECT => Decision::Reject,
        Step::PASS => Decision::Pass,
        _ => Decision::Drop,
    }
}
