//! Asks a running controller.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{DeserializeOwned, IgnoredAny};
use thiserror::Error;

use super::api::Failure;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody answers there.
    #[error("no controller answers on {}", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It has ended in the middle of what it said.
    #[error("the controller has ended")]
    Ended,
    /// The answer is not one of ours.
    #[error("the controller answers what this program does not understand")]
    Foreign(#[source] Option<serde_json::Error>),
    /// The controller says no.
    #[error("{0}")]
    Failure(String),
}

/// Gets what is at `target` on the control socket at `socket`.
pub fn get<T: DeserializeOwned>(socket: &Path, target: &str) -> Result<T, ClientError> {
    get_within(socket, target, Duration::ZERO)
}

/// The same where the controller takes so long on purpose.
pub fn get_within<T: DeserializeOwned>(
    socket: &Path,
    target: &str,
    time: Duration,
) -> Result<T, ClientError> {
    let answer = ask(socket, target, time).map_err(|source| ClientError::NotRunning {
        path: socket.into(),
        source,
    })?;
    parse(&answer)
}

/// What comes back. A controller that is there and says nothing is as good as none.
fn ask(socket: &Path, target: &str, time: Duration) -> io::Result<Vec<u8>> {
    let mut stream = begin(socket, target)?;
    stream.set_read_timeout(Some(PATIENCE + time))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer)
}

fn begin(socket: &Path, target: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The connection ends with the answer, whose length the header tells all the same.
    write!(
        stream,
        "GET {target} HTTP/1.0\r\nHost: kube-lottery\r\n\r\n"
    )?;
    Ok(stream)
}

/// Gives `take` what is at `target`, line by line as it comes, until that wants no more (`false`). An empty line says that what happens from then on is told.
pub fn follow(
    socket: &Path,
    target: &str,
    mut take: impl FnMut(&str) -> bool,
) -> Result<(), ClientError> {
    let not_running = |source| ClientError::NotRunning {
        path: socket.into(),
        source,
    };
    let stream = begin(socket, target).map_err(not_running)?;
    let mut lines = BufReader::new(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if lines.read_until(b'\n', &mut head).map_err(not_running)? == 0 {
            return Err(not_running(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    if status(&head) != Some(b"200") {
        lines.read_to_end(&mut head).map_err(not_running)?;
        return parse::<IgnoredAny>(&head).map(drop);
    }
    // Nothing may happen for as long as it likes.
    lines
        .get_ref()
        .set_read_timeout(None)
        .map_err(not_running)?;
    let mut line = String::new();
    while lines.read_line(&mut line).map_err(not_running)? > 0 {
        let text = line.trim_end();
        if !take(text) {
            return Ok(());
        }
        line.clear();
    }
    Err(ClientError::Ended)
}

fn status(head: &[u8]) -> Option<&[u8]> {
    head.split(|byte| *byte == b' ').nth(1)
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, ClientError> {
    let gap = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = gap
        .and_then(|at| answer.split_at_checked(at + 4))
        .ok_or(ClientError::Foreign(None))?;
    let foreign = |error| ClientError::Foreign(Some(error));
    if status(head) == Some(b"200") {
        return serde_json::from_slice(body).map_err(foreign);
    }
    let failure: Failure = serde_json::from_slice(body).map_err(foreign)?;
    Err(ClientError::Failure(failure.message))
}
