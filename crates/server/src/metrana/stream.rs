//! A client's stream: message in, message durable, answer out, in order.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use model::{RunChange, RunId, RunPath, SessionEnd};
use prost::Message;
use store::Batch;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use wire::metrana::{Ordering, SeriesDeclaration, UpdateRunRequest, UpdateRunResponse};

use super::points::{Table, Taking};
use super::session::{Session, Told, delivery};
use super::{DOOR, Service, facts, handshake, run_of};
use crate::access::{Caller, Holder, How};
use crate::app::{Shared, blocking, stopped, turn};
use crate::clock::{now_ms, now_ns};
use crate::error::ApiError;
use crate::grpc::{self, Incoming};
use crate::ingest::{self, Checked, Refused};

/// Answers that wait for a client that reads slowly; no more is read from it until it does.
const ANSWERS_MAX: usize = 16;
/// Messages up to this size are read where they arrive; larger ones where they hold nobody up.
const INLINE_BYTES_MAX: usize = 32 << 10;
/// How long a logger may be silent at first before it counts as one that lives.
const SILENT_TIME: Duration = Duration::from_secs(3);
/// A commit that takes longer says that the disk is behind; the client is then asked to wait for as long,
/// up to the bound.
const SLOW_COMMIT: Duration = Duration::from_millis(200);
const PACING_MAX: Duration = Duration::from_secs(2);
/// Series without an order that are remembered of one stream, and the longest name and scale of one. The list
/// that is kept of them has room for fewer.
const UNORDERED_MAX: usize = 8_192;
const UNORDERED_KEY_BYTES_MAX: usize = model::NAME_BYTES_MAX + 1 + model::LOGGED_LABEL_BYTES_MAX;
/// Where a client names its own process.
const OWN_PROCESS: &str = "system/process/rss_bytes";

type Answers = mpsc::Sender<Result<Vec<u8>, Status>>;

/// One stream.
struct Stream {
    service: Service,
    caller: Caller,
    logger: Option<Arc<Mutex<Logger>>>,
}

/// The one that streams.
struct Logger {
    path: RunPath,
    outer_id: Vec<u8>,
    id: u64,
    table: Table,
    session: Session,
    /// Series without an order that it has named.
    unordered: HashSet<String>,
}

/// What of a message is to be stored.
struct Part {
    checked: Option<Checked>,
    told: Option<Told>,
    /// Series without an order that the stream has not named before.
    unordered: Vec<String>,
    run: RunId,
}

/// Serves a stream until the client ends it, or it can't go on.
pub(super) fn open(
    service: Service,
    caller: Caller,
    messages: (Streaming<Bytes>, Incoming),
) -> ReceiverStream<Result<Vec<u8>, Status>> {
    let (answers, out) = mpsc::channel(ANSWERS_MAX);
    tokio::spawn(async move {
        let mut stream = Stream { service, caller, logger: None };
        if let Err(status) = stream.run(messages, &answers).await {
            tracing::debug!(code = ?status.code(), reason = status.message(), "a metrana stream ends");
            let _ = answers.send(Err(status)).await;
        }
    });
    ReceiverStream::new(out)
}

impl Stream {
    async fn run(
        &mut self,
        (mut messages, incoming): (Streaming<Bytes>, Incoming),
        answers: &Answers,
    ) -> Result<(), Status> {
        let mut stopping = self.service.app.stopping.clone();
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + SILENT_TIME, Session::every());
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                message = messages.message() => message,
                _ = beat.tick() => {
                    incoming.check()?;
                    self.beat().await?;
                    continue;
                }
                () = stopped(&mut stopping) => {
                    return Err(Status::unavailable("the server stops: come again"));
                }
                () = answers.closed() => return Ok(()),
            };
            match message {
                Ok(Some(bytes)) => {
                    incoming.taken();
                    let answer = self.take(bytes).await?.encode_to_vec();
                    if answers.send(Ok(answer)).await.is_err() {
                        return Ok(());
                    }
                }
                Ok(None) => return self.left().await,
                // What the client has sent too much of, or packed in a way that is not known, it is told;
                // for one that is gone nobody listens.
                Err(status) => return Err(status),
            }
        }
    }

    /// Takes one message; the answer is for when it is durable.
    async fn take(&mut self, bytes: Bytes) -> Result<UpdateRunResponse, Status> {
        let app = Arc::clone(&self.service.app);
        let busy = |error: ApiError| grpc::status(&error);
        let _bodies = turn(&app.turns.bodies_kib, bytes.len().div_ceil(1024)).await.map_err(busy)?;
        let part = if bytes.len() <= INLINE_BYTES_MAX {
            self.read(&bytes)?
        } else {
            let turn = turn(&app.turns.decoding, 1).await.map_err(busy)?;
            let mut reader = Stream { service: Arc::clone(&self.service), ..self.same() };
            let (reader, part) = blocking(move || {
                let _turn = turn;
                let part = reader.read(&bytes);
                Ok((reader, part))
            })
            .await
            .map_err(busy)?;
            self.logger = reader.logger;
            part?
        };
        let Some(Part { checked, told, unordered, run }) = part else {
            return Ok(UpdateRunResponse::default());
        };
        let bytes = checked.as_ref().map_or(1, Checked::bytes);
        let waiting = turn(&app.turns.waiting_kib, bytes.div_ceil(1024)).await.map_err(busy)?;
        let started = Instant::now();
        let service = Arc::clone(&self.service);
        let stored = blocking(move || {
            let _turn = waiting;
            if !unordered.is_empty() {
                handshake::note_unordered(&service, run, unordered)?;
            }
            Ok(checked.map(|checked| ingest::store(&service.app, checked, DOOR)).transpose()?)
        })
        .await
        .map_err(busy)?;
        if let (Some(told), Some(false)) = (told, stored.map(|stored| stored.duplicate)) {
            self.with(|logger| logger.session.told(told));
        }
        Ok(UpdateRunResponse { pacing_delay_ms: pacing(started.elapsed()) })
    }

    fn same(&self) -> Self {
        Self { service: Arc::clone(&self.service), caller: self.caller.clone(), logger: self.logger.clone() }
    }

    /// Does something with the one that streams, once it is known.
    fn with<T>(&self, what: impl FnOnce(&mut Logger) -> T) -> Option<T> {
        let logger = self.logger.as_ref()?;
        Some(what(&mut logger.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Reads a message; gives what of it is to be stored.
    fn read(&mut self, bytes: &[u8]) -> Result<Option<Part>, Status> {
        let update = wire::metrana::decode_update(bytes)
            .map_err(|error| Status::invalid_argument(ingest::shorten(error.to_string())))?;
        if self.logger.is_none() {
            self.logger = Some(Arc::new(Mutex::new(self.hello(&update)?)));
        }
        let shared = &self.service.app;
        self.with(|logger| logger.read(shared, update)).unwrap_or(Ok(None))
    }

    /// Finds out who streams, by the first message.
    fn hello(&self, update: &UpdateRunRequest) -> Result<Logger, Status> {
        let run = run_of(&self.service.app, &update.run_id)?;
        self.caller.check_path(&run.path).map_err(|error| grpc::status(&error))?;
        let job = self.service.jobs().remove(&(run.id(), update.logger_id));
        let job = job.or_else(|| handshake::first_job(&run));
        Ok(Logger {
            path: run.path.clone(),
            outer_id: update.run_id.clone(),
            id: update.logger_id,
            table: Table::of(&self.service.app),
            session: Session::of(&run, update.logger_id, job),
            unordered: HashSet::new(),
        })
    }

    /// Says that the logger lives, and looks whether it still may send.
    async fn beat(&mut self) -> Result<(), Status> {
        let app = Arc::clone(&self.service.app);
        if let How::Token { id, .. } = self.caller.how() {
            app.access
                .of_holder(Holder::Token(*id), now_ns())
                .map_err(|closed| grpc::status(&crate::access::refusal(closed)))?;
        }
        let event = self.with(|logger| {
            if let Some(run) = app.store.run(logger.path.id()) {
                logger.session.name(&run, 0);
            }
            let (event, told) = logger.session.event(None, "")?;
            Some((logger.path.clone(), event, told))
        });
        let Some((path, event, told)) = event.flatten() else { return Ok(()) };
        let change = RunChange { path, session: Some(event), ..RunChange::default() };
        // A sign of life that can't be written now is due again soon.
        if note(&app, change).await.is_ok() {
            self.with(|logger| logger.session.told(told));
        }
        Ok(())
    }

    /// The client has ended its stream and not closed the run.
    async fn left(&mut self) -> Result<(), Status> {
        let event = self.with(|logger| Some((logger.path.clone(), logger.session.left()?)));
        let Some((path, event)) = event.flatten() else { return Ok(()) };
        let change = RunChange { path, session: Some(event), ..RunChange::default() };
        note(&self.service.app, change).await
    }
}

impl Logger {
    fn read(&mut self, shared: &Shared, update: UpdateRunRequest) -> Result<Option<Part>, Status> {
        if update.run_id != self.outer_id || update.logger_id != self.id {
            return Err(Status::invalid_argument("a stream is one logger's, of one run: open another"));
        }
        self.place(&update.series_declarations);
        let unordered = self.new_unordered(&update.series_declarations);
        self.table.declare(&self.path, update.series_declarations)?;
        let run = shared.store.run(self.path.id());
        let process = update.logger_session_id;
        let mut change = RunChange { path: self.path.clone(), ..RunChange::default() };
        facts::apply(&mut change, run.as_deref(), update.attributes);
        facts::apply_of_environments(&mut change, run.as_deref(), update.env_attr_updates);
        let mut taking = Taking {
            shared,
            path: &self.path,
            now_ms: now_ms(),
            series: Vec::with_capacity(update.series.len()),
            refused: Refused::default(),
        };
        self.table.points(&mut taking, update.series);
        self.table.histograms(&mut taking, update.histogram_series)?;
        taking.refuse_others(&update.rl_series, &update.scatter_series);
        let Taking { series, mut refused, .. } = taking;
        let told = (process != 0 || update.close_run.is_some()).then(|| {
            if let Some(run) = &run {
                self.session.name(run, process);
            }
            let end = update.close_run.as_ref().map(|_| SessionEnd::Finished);
            let reason = update.close_run.and_then(|close| close.close_message).unwrap_or_default();
            let (event, told) = self.session.event(end, &reason)?;
            change.session = Some(event);
            Some(told)
        });
        let mut part = Part { checked: None, told: told.flatten(), unordered, run: self.path.id() };
        if series.is_empty() && refused.is_empty() && change == self.no_change() {
            return Ok(Some(part).filter(|part| !part.unordered.is_empty()));
        }
        ingest::check_change(shared, &mut change, &mut refused);
        let known_by = if update.sequence_number == 0 {
            // Nothing a client does; each such message counts as one that never came before.
            (crate::guard::random(), 1)
        } else {
            delivery(&self.path, self.id, process, update.sequence_number)
        };
        part.checked = Some(ingest::checked(Some(known_by), change, series, refused));
        Ok(Some(part))
    }

    /// Series that have no order and were not among those that the stream has named before.
    fn new_unordered(&mut self, declarations: &[SeriesDeclaration]) -> Vec<String> {
        let unordered = declarations.iter().filter(|one| one.ordering() == Ordering::AbsoluteUnordered);
        let keys = unordered.map(|one| handshake::unordered_key(&one.metric_name, &one.scale));
        let known = self.unordered.len();
        let is_new = |key: &String| key.len() <= UNORDERED_KEY_BYTES_MAX && !self.unordered.contains(key);
        let new: Vec<String> = keys.filter(is_new).take(UNORDERED_MAX.saturating_sub(known)).collect();
        self.unordered.extend(new.iter().cloned());
        new
    }

    fn no_change(&self) -> RunChange {
        RunChange { path: self.path.clone(), ..RunChange::default() }
    }

    /// Learns where the logger runs, from the series of its own process.
    fn place(&mut self, declarations: &[SeriesDeclaration]) {
        let Some(own) = declarations.iter().find(|one| one.metric_name == OWN_PROCESS) else { return };
        if let Some(host) = own.labels.get("host") {
            let pid = own.labels.get("pid").and_then(|pid| pid.parse().ok());
            self.session.place(host, pid);
        }
    }
}

/// Stores what is said about a run, and nothing else.
async fn note(app: &crate::app::App, change: RunChange) -> Result<(), Status> {
    let app = Arc::clone(app);
    let id = change.path.id();
    let stored = blocking(move || {
        app.store.append(Batch { change: Some(change), ..Batch::default() })?;
        app.changed(id);
        Ok(())
    });
    stored.await.map_err(|error: ApiError| grpc::status(&error))
}

/// How long a client is to wait after a commit that took so long, milliseconds.
fn pacing(took: Duration) -> u32 {
    if took < SLOW_COMMIT { 0 } else { took.min(PACING_MAX).as_millis() as u32 }
}
