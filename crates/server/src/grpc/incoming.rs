//! What of a call's messages has come in and is not whole yet.
//!
//! A message is kept in memory until its last byte is there, which a client may never send. So its bytes are
//! counted against a bound of the whole server as they come, and given back when the message is taken.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use crate::app::App;

/// Longest time between a message's first byte and its last.
pub(crate) const MESSAGE_TIME_MAX: Duration = Duration::from_mins(2);

/// Told to who lets a message wait for its end.
pub(crate) fn late() -> Status {
    let most = MESSAGE_TIME_MAX.as_secs();
    Status::unavailable(format!("a message is not whole after {most} s: send it anew"))
}

/// The bytes of one call.
#[derive(Clone)]
pub(crate) struct Incoming {
    app: App,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    bytes: usize,
    room: Option<OwnedSemaphorePermit>,
    since: Option<Instant>,
}

/// A body whose bytes are counted.
pub(crate) struct Counted {
    body: Body,
    incoming: Incoming,
}

impl Incoming {
    /// Counts the bytes of a request from now on.
    pub(crate) fn of(app: &App, request: Request) -> (Self, hyper::Request<Counted>) {
        let incoming = Self { app: Arc::clone(app), held: Arc::default() };
        let theirs = incoming.clone();
        (incoming, request.map(|body| Counted { body, incoming: theirs }))
    }

    /// A message was taken: what comes from now on is of the next one.
    pub(crate) fn taken(&self) {
        *self.held() = Held::default();
    }

    /// Fails when the message under way takes too long.
    pub(crate) fn check(&self) -> Result<(), Status> {
        match self.held().since {
            Some(since) if since.elapsed() > MESSAGE_TIME_MAX => Err(late()),
            _ => Ok(()),
        }
    }

    fn count(&self, bytes: usize) -> Result<(), Status> {
        let mut held = self.held();
        held.since.get_or_insert_with(Instant::now);
        let before = held.bytes.div_ceil(1024);
        held.bytes += bytes;
        let more = held.bytes.div_ceil(1024) - before;
        if self.app.turns.incoming_kib.grow(&mut held.room, more) {
            Ok(())
        } else {
            Err(Status::unavailable("the server is busy: too much is on its way to it already, come again"))
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        polled.map(|frame| {
            let frame = match frame? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(Status::from_error(error.into()))),
            };
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            Some(self.incoming.count(bytes).map(|()| frame))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
