//! Asks a running controller.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
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
    let answer =
        ask(socket, target, PATIENCE + time).map_err(|source| ClientError::NotRunning {
            path: socket.into(),
            source,
        })?;
    parse(&answer)
}

/// What comes back. A controller that is there and says nothing is as good as none.
fn ask(socket: &Path, target: &str, patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The connection ends with the answer, whose length the header tells all the same.
    write!(
        stream,
        "GET {target} HTTP/1.0\r\nHost: kube-lottery\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer)
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, ClientError> {
    let gap = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = gap
        .and_then(|at| answer.split_at_checked(at + 4))
        .ok_or(ClientError::Foreign(None))?;
    let foreign = |error| ClientError::Foreign(Some(error));
    let status = head.split(|byte| *byte == b' ').nth(1);
    if status == Some(b"200") {
        return serde_json::from_slice(body).map_err(foreign);
    }
    let failure: Failure = serde_json::from_slice(body).map_err(foreign)?;
    Err(ClientError::Failure(failure.message))
}
