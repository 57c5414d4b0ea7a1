//! A server in a lab, which tells every client who it is.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::wire::{self, Answer, Payload, SAME};
use super::{Family, Host};

/// A server for TCP and UDP, which ends when dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    stop: AtomicBool,
    accepted: AtomicU64,
    datagrams: AtomicU64,
}

impl Server {
    /// Serves at the host's own addresses.
    pub fn start(host: &Host, name: &str, port: u16) -> Result<Self> {
        let addresses = Family::ALL.map(|family| SocketAddr::new(host.addresses.of(family), port));
        Self::start_at(host, name, &addresses)
    }

    /// Serves at the given addresses; at an unspecified one TCP only, for a datagram would be
    /// answered from another address than it was sent to.
    pub fn start_at(host: &Host, name: &str, addresses: &[SocketAddr]) -> Result<Self> {
        let server = Self {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                stop: AtomicBool::new(false),
                accepted: AtomicU64::new(0),
                datagrams: AtomicU64::new(0),
            }),
        };
        for address in addresses {
            let (listener, socket) = host.namespace.enter(|| {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("{}: cannot listen at {address}", host.name))?;
                let socket = (!address.ip().is_unspecified())
                    .then(|| UdpSocket::bind(address))
                    .transpose()
                    .with_context(|| format!("{}: cannot receive at {address}", host.name))?;
                Ok((listener, socket))
            })?;
            set_socket_timeout(&listener, Timeout::Recv, Some(NAP))?;
            spawn(&server.shared, move |shared| shared.accept(&listener))?;
            if let Some(socket) = socket {
                socket.set_read_timeout(Some(NAP))?;
                spawn(&server.shared, move |shared| shared.answer(&socket))?;
            }
        }
        Ok(server)
    }

    /// Name that it gives to clients.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// TCP connections so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Datagrams so far.
    pub fn datagrams(&self) -> u64 {
        self.shared.datagrams.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while self.goes_on() {
            if let Ok((stream, peer)) = listener.accept() {
                self.accepted.fetch_add(1, Ordering::Relaxed);
                // A connection whose thread cannot start is closed: its client will complain.
                drop(spawn(self, move |shared| drop(shared.serve(stream, peer))));
            }
        }
    }

    fn serve(&self, mut stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let answer = self.answer_to(stream.local_addr()?, peer);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(NAP))?;
        stream.set_write_timeout(Some(wire::PATIENCE))?;
        writeln!(stream, "{answer}")?;
        let mut reader = BufReader::new(stream);
        while let Some(line) = self.next_line(&mut reader)? {
            reader.get_ref().set_read_timeout(Some(wire::PATIENCE))?;
            obey(line.trim_end(), &mut reader)?;
            reader.get_ref().set_read_timeout(Some(NAP))?;
        }
        Ok(())
    }

    // Clients may keep still for as long as they like, but not for longer than the server lives.
    fn next_line(&self, reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
        let mut line = String::new();
        while self.goes_on() {
            match reader.read_line(&mut line) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(line)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn answer(&self, socket: &UdpSocket) {
        let mut request = vec![0; wire::LARGEST];
        while self.goes_on() {
            let Ok((length, peer)) = socket.recv_from(&mut request) else {
                continue;
            };
            self.datagrams.fetch_add(1, Ordering::Relaxed);
            let Ok(local) = socket.local_addr() else {
                continue;
            };
            let mut reply = format!("{}\n", self.answer_to(local, peer)).into_bytes();
            reply.extend(request.iter().take(length));
            // An unreachable client is the client's trouble.
            drop(socket.send_to(&reply, peer));
        }
    }

    fn answer_to(&self, local: SocketAddr, peer: SocketAddr) -> Answer {
        Answer {
            name: self.name.clone(),
            local: canonical(local),
            peer: canonical(peer),
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

fn obey(line: &str, client: &mut BufReader<TcpStream>) -> io::Result<()> {
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    match command {
        "echo" => writeln!(client.get_mut(), "{rest}"),
        "take" => {
            let (length, seed) = transfer(rest)?;
            let verdict = Payload::new(seed).receive(client, length);
            let text = verdict.map_or_else(|error| error.to_string(), |()| SAME.to_owned());
            writeln!(client.get_mut(), "{text}")
        }
        "give" => {
            let (length, seed) = transfer(rest)?;
            Payload::new(seed).send(client.get_mut(), length)
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            command.to_owned(),
        )),
    }
}

fn transfer(text: &str) -> io::Result<(usize, u64)> {
    let (length, seed) = text.split_once(' ').unwrap_or((text, ""));
    match (length.parse(), seed.parse()) {
        (Ok(length), Ok(seed)) => Ok((length, seed)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, text.to_owned())),
    }
}

// A socket for both families shows IPv4 addresses in IPv6 clothes.
const fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn spawn(shared: &Arc<Shared>, work: impl FnOnce(Arc<Shared>) + Send + 'static) -> Result<()> {
    let shared = Arc::clone(shared);
    // There may be thousands of these at once.
    thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(move || work(shared))
        .context("cannot start a server thread")?;
    Ok(())
}

/// How often a thread that waits looks whether it should end.
const NAP: Duration = Duration::from_millis(200);
