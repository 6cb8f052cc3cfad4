//! Reads what is left of a refused request's body and throws it away.
//!
//! A connection that is closed while its peer still sends shows the peer a broken pipe instead of the
//! answer. So a refused body is read on for a while, within bounds, before the answer goes out.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

/// Most bytes thrown away.
const BYTES_MAX: usize = 256 << 20;
/// Longest time spent on it.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Who sends nothing for so long waits for the answer.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// A body of which two can take: the handler while it works, the guard afterwards.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Mutex<Body>>);

impl Shared {
    /// Shares a body.
    pub(crate) fn new(body: Body) -> Self {
        Self(Arc::new(Mutex::new(body)))
    }

    /// Throws away what the handler has left.
    pub(crate) async fn discard(mut self) {
        let discard = async {
            let mut bytes = 0;
            while let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE_MAX, self.frame()).await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > BYTES_MAX {
                    break;
                }
            }
        };
        // Too slow or too much: the peer sees a broken connection, as it would have anyway.
        let _ = tokio::time::timeout(TIME_MAX, discard).await;
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).size_hint()
    }
}
