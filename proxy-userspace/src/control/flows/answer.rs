//! The flow table as an answer: written piece by piece, since it may be long.

use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::mpsc;

use super::{Found, flow};
use crate::control::api::Kind;
use crate::control::body::Pieces;
use crate::control::names::Names;

/// Flows of one piece.
const AT_ONCE: usize = 500;
/// Pieces that wait for whoever reads them.
const WAITING: usize = 4;
/// How long it may take to read one.
const PATIENCE: Duration = Duration::from_secs(10);

/// A `FlowList` as JSON. Who does not read it on gets no more of it.
pub(in crate::control) fn pieces(found: Found, names: Names) -> Pieces {
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let head = Kind::new("FlowList");
        let mut text = format!(
            r#"{{"apiVersion":"{}","kind":"{}","matched":{},"items":["#,
            head.api_version, head.kind, found.matched
        )
        .into_bytes();
        for (index, rows) in found.rows.chunks(AT_ONCE).enumerate() {
            for (at, row) in rows.iter().enumerate() {
                if index + at > 0 {
                    text.push(b',');
                }
                // Strings and numbers always have a JSON form.
                serde_json::to_writer(&mut text, &flow(row, &names)).ok();
            }
            let piece = Bytes::from(std::mem::take(&mut text));
            if sender.send_timeout(piece, PATIENCE).await.is_err() {
                return;
            }
        }
        text.extend(b"]}");
        sender.send_timeout(text.into(), PATIENCE).await.ok();
    });
    Pieces(receiver)
}
