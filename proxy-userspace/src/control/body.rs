//! Bodies of answers: all at once, or piece by piece as they come to be.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::{Either, Full};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use tokio::sync::mpsc;

/// A body.
pub(super) type Body = Either<Full<Bytes>, Pieces>;

/// A body that ends when nobody sends any more.
pub(super) struct Pieces(pub(super) mpsc::Receiver<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}
