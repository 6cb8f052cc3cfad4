//! OTLP: what clients of OpenTelemetry send, over HTTP and gRPC.
//!
//! The doors turn a request into an [`Arrival`]: one body, unpacked, in protobuf. [`take`] hands it to its
//! signal, which stores all of it in one commit and says what became of it point by point. Nothing is
//! acknowledged before it is durable.

mod body;
pub(crate) mod forward;
pub(crate) mod grpc;
pub(crate) mod http;
mod logs;
mod metrics;
mod runs;
mod spans;
mod state;
mod steps;
pub(crate) mod text;

use std::cell::Cell;

use store::AppendError;
use tokio::sync::OwnedSemaphorePermit;
use wire::otlp::answer::Signal;
use wire::otlp::{OtlpError, Outcome};

use crate::access::Caller;
use crate::app::Shared;
use crate::ingest::outcome;

pub(crate) use logs::IS_TEXT;
pub(crate) use runs::{ATTRIBUTE_PREFIX, Seen, Sources, has_telemetry};
pub(crate) use spans::{ITERATION_SPANS, STEP_SERIES, is_iteration};
pub(crate) use state::Streams;
pub(crate) use steps::StepLine;
pub(crate) use text::{hide_texts, keeps as keeps_text};

/// A request that came in whole.
pub(crate) struct Arrival<'a> {
    /// Name of the door in the counters.
    pub(crate) door: &'static str,
    /// The request, unpacked, in protobuf.
    pub(crate) body: &'a [u8],
    /// Who sent it.
    pub(crate) caller: &'a Caller,
    /// When it came, nanoseconds since the epoch.
    pub(crate) now_ns: i64,
    /// The turn among those that decode.
    decoding: Cell<Option<OwnedSemaphorePermit>>,
}

impl<'a> Arrival<'a> {
    /// One that came at a door just now.
    pub(crate) fn new(door: &'static str, body: &'a [u8], caller: &'a Caller) -> Self {
        Self { door, body, caller, now_ns: crate::clock::now_ns(), decoding: Cell::new(None) }
    }

    /// The same, with its turn among those that decode.
    pub(crate) fn in_turn(self, turn: OwnedSemaphorePermit) -> Self {
        self.decoding.set(Some(turn));
        self
    }

    /// The body is read: from now on it only waits for the store, so that others may decode. To be
    /// called before what may block.
    pub(crate) fn is_read(&self) {
        drop(self.decoding.take());
    }
}

/// Why nothing of a request was kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    /// It can't be read, whenever it comes again.
    #[error(transparent)]
    Unusable(#[from] OtlpError),
    /// It can't be kept now.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Stores a request; blocks until it is durable. What of it can't be kept is in the outcome.
pub(crate) fn take(shared: &Shared, signal: Signal, arrival: &Arrival<'_>) -> Result<Outcome, TakeError> {
    let taken = match signal {
        Signal::Metrics => metrics::take(shared, arrival),
        Signal::Traces => spans::take(shared, arrival),
        Signal::Logs => logs::take(shared, arrival),
    };
    let counted = match &taken {
        Ok(_) => "stored",
        Err(TakeError::Unusable(OtlpError::TooMuch { .. })) => "too_large",
        Err(TakeError::Unusable(_)) => "unusable",
        Err(TakeError::Append(error)) => outcome(error),
    };
    let metrics = &shared.metrics;
    metrics.requests.add(&[arrival.door, counted], 1);
    metrics.otlp.bytes.add(&[arrival.door], arrival.body.len() as u64);
    let accepted = taken.as_ref().map_or(0, |outcome| outcome.accepted);
    match signal {
        // A point may be several samples; they are counted where they are stored.
        Signal::Metrics => {}
        Signal::Traces => {
            metrics.otlp.spans.add(&[arrival.door], accepted);
            if let Some(forward) = shared.forward.as_ref().filter(|_| accepted > 0) {
                forward.offer(arrival, accepted);
            }
        }
        Signal::Logs => metrics.otlp.records.add(&[arrival.door], accepted),
    }
    for (reason, count) in taken.iter().flat_map(Outcome::reasons) {
        metrics.rejected.add(&[arrival.door, reason], *count);
    }
    taken
}
