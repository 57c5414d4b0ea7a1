//! Everything that a client and an endpoint say to each other through a Service.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use xtask::lab::client::{Answer, Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Addresses, Family, Host};

/// The only endpoint of a Service is reached in every way, small and large, and sees the client as
/// `seen`. Returns the number of connections.
pub(super) fn exchange(
    client: &Host,
    service: &Service,
    endpoint: &Host,
    seen: Addresses,
) -> Result<u64> {
    let mut connections = 0;
    for family in Family::ALL {
        let target = service.target(family);
        let expected = (endpoint.name.as_str(), seen.of(family));
        let what = format!("{} to {} over {family}", client.name, endpoint.name);
        connections += connect(client, target, expected).with_context(|| what.clone())?;
        send(client, target, expected).context(what)?;
    }
    Ok(connections)
}

fn connect(client: &Host, target: SocketAddr, expected: (&str, IpAddr)) -> Result<u64> {
    for round in 0..10 {
        let mut open = Connection::open(client, target)?;
        check(open.answer(), expected)?;
        open.echo("hello")?;
        // Both ways to end, for each leaves another state behind.
        if round % 2 == 0 {
            open.close()?;
        } else {
            open.reset()?;
        }
    }
    let mut open = Connection::open(client, target)?;
    open.upload(TRANSFER, 1).context("upload")?;
    open.download(TRANSFER, 2).context("download")?;
    open.close()?;
    Ok(11)
}

fn send(client: &Host, target: SocketAddr, expected: (&str, IpAddr)) -> Result<()> {
    // The last ones in fragments, and so are the answers. All but pods cut them too large for a
    // tunnel, and IPv6 routers do not cut.
    let are_pods = [client.name.as_str(), expected.0].map(|name| name.starts_with("pod"));
    let is_cut = target.is_ipv4() || are_pods == [true; 2];
    let lengths = [0, 1, 2, 3, 512, 1300, 3000, 8192];
    for length in lengths.into_iter().filter(|len| is_cut || *len < 1400) {
        let flow = Datagrams::open(client, target)?;
        for fill in [0, 0xff, 0x5a] {
            let answer = flow
                .ask_with(&vec![fill; length])
                .with_context(|| format!("{length} bytes"))?;
            check(&answer, expected)?;
        }
    }
    Ok(())
}

fn check(answer: &Answer, (name, seen): (&str, IpAddr)) -> Result<()> {
    ensure!(answer.name == name, "{} answers", answer.name);
    let peer = answer.peer.ip();
    ensure!(peer == seen, "the client is seen as {peer}, not as {seen}");
    Ok(())
}

/// Bytes; enough for windows to open and for segments of the largest size.
const TRANSFER: usize = 20_000_000;
