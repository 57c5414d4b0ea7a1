//! A client in a lab.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_reuseaddr, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, connect_unspec, socket_with,
};

use super::Host;
pub use super::wire::Answer;
use super::wire::{LARGEST, PATIENCE, Payload, SAME};

/// An open TCP connection to a [server](super::server::Server).
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
    answer: Answer,
}

impl Connection {
    /// Connects from a host.
    pub fn open(host: &Host, target: SocketAddr) -> Result<Self> {
        host.namespace.enter(|| Self::open_here(target, None))
    }

    /// Connects from a host and a certain address and port (0 for any).
    pub fn open_from(host: &Host, from: SocketAddr, target: SocketAddr) -> Result<Self> {
        host.namespace.enter(|| Self::open_here(target, Some(from)))
    }

    /// Connects from the namespace that the thread is in.
    pub fn open_here(target: SocketAddr, from: Option<SocketAddr>) -> Result<Self> {
        let socket = socket(target, SocketType::STREAM, from)?;
        connect(&socket, &target).with_context(|| format!("cannot connect to {target}"))?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let answer = line(&mut stream)
            .with_context(|| format!("{target} did not greet"))?
            .parse()?;
        Ok(Self { stream, answer })
    }

    /// What the server said of itself.
    pub const fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Sends a line and waits until it comes back.
    pub fn echo(&mut self, text: &str) -> Result<()> {
        writeln!(self.stream.get_mut(), "echo {text}")?;
        let back = line(&mut self.stream)?;
        ensure!(back == text, "sent {text:?}, received {back:?}");
        Ok(())
    }

    /// Sends bytes, which the server compares with what they should be.
    pub fn upload(&mut self, length: usize, seed: u64) -> Result<()> {
        writeln!(self.stream.get_mut(), "take {length} {seed}")?;
        Payload::new(seed).send(self.stream.get_mut(), length)?;
        let verdict = line(&mut self.stream)?;
        ensure!(verdict == SAME, "{verdict}");
        Ok(())
    }

    /// Has the server send bytes, and compares them with what they should be.
    pub fn download(&mut self, length: usize, seed: u64) -> Result<()> {
        writeln!(self.stream.get_mut(), "give {length} {seed}")?;
        Payload::new(seed).receive(&mut self.stream, length)?;
        Ok(())
    }

    /// Ends with a RST, which frees the port at once.
    pub fn reset(self) -> Result<()> {
        set_socket_linger(self.stream.get_ref(), Some(Duration::ZERO))?;
        // Closing may not be enough: a process that another thread is just starting holds all
        // that is open here, until it becomes another program.
        connect_unspec(self.stream.get_ref())?;
        Ok(())
    }

    /// Ends in good order: FIN both ways.
    pub fn close(mut self) -> Result<()> {
        self.stream.get_ref().shutdown(Shutdown::Write)?;
        let mut rest = String::new();
        let length = self.stream.read_line(&mut rest)?;
        ensure!(length == 0, "the server had more to say: {rest:?}");
        Ok(())
    }

    /// The client's own address.
    pub fn local(&self) -> Result<SocketAddr> {
        Ok(self.stream.get_ref().local_addr()?)
    }
}

/// A UDP socket that talks to one [server](super::server::Server).
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    target: SocketAddr,
}

impl Datagrams {
    /// A socket in a host.
    pub fn open(host: &Host, target: SocketAddr) -> Result<Self> {
        host.namespace.enter(|| Self::open_here(target, None))
    }

    /// A socket in a host with a certain address and port (0 for any).
    pub fn open_from(host: &Host, from: SocketAddr, target: SocketAddr) -> Result<Self> {
        host.namespace.enter(|| Self::open_here(target, Some(from)))
    }

    /// A socket in the namespace that the thread is in.
    pub fn open_here(target: SocketAddr, from: Option<SocketAddr>) -> Result<Self> {
        let socket = socket(target, SocketType::DGRAM, from)?;
        // Connected: an answer from any other address than the target's is not received.
        connect(&socket, &target).with_context(|| format!("cannot send to {target}"))?;
        let socket = UdpSocket::from(socket);
        Ok(Self { socket, target })
    }

    /// Sends a datagram and waits for its answer.
    pub fn ask(&self) -> Result<Answer> {
        self.ask_with(b"who are you?")
    }

    /// Sends a datagram and waits for its answer, which has to bring the content back.
    pub fn ask_with(&self, content: &[u8]) -> Result<Answer> {
        self.socket.send(content)?;
        let mut reply = vec![0; LARGEST];
        let length = self
            .socket
            .recv(&mut reply)
            .with_context(|| format!("no answer from {} over UDP", self.target))?;
        let (reply, _) = reply.split_at(length);
        let Some(end) = reply.iter().position(|byte| *byte == b'\n') else {
            bail!("no answer: {reply:?}");
        };
        let (answer, back) = reply.split_at(end);
        ensure!(
            back.get(1..) == Some(content),
            "the content came back changed"
        );
        std::str::from_utf8(answer)?.parse()
    }

    /// The client's own address.
    pub fn local(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }
}

fn socket(target: SocketAddr, kind: SocketType, from: Option<SocketAddr>) -> Result<OwnedFd> {
    let family = if target.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // The time to send bounds connect as well.
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    if let Some(from) = from {
        // For TCP only: two UDP sockets could take the same port, and each other's answers.
        set_socket_reuseaddr(&socket, kind == SocketType::STREAM)?;
        bind(&socket, &from).with_context(|| format!("cannot use {from}"))?;
    }
    Ok(socket)
}

fn line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    let length = stream.read_line(&mut line)?;
    ensure!(length != 0, "the server has closed the connection");
    Ok(line.trim_end().to_owned())
}
