//! The delivery thread: makes requests, sends them, and drains the spool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::SESSION_HEARTBEAT_SECONDS;
use wire::push::PushResponse;

use crate::capture::REPORTED_ELSEWHERE;
use crate::outbox::{Link, Outbox, Stage};
use crate::shared::{Shared, lock};
use crate::transport::{Away, Transport, Verdict};
use crate::warning::Warning;

/// Longest time that a point waits in memory while the server is there.
const SEND_EVERY: Duration = Duration::from_millis(100);
/// The same while it is away: fewer, larger records.
const SPOOL_EVERY: Duration = Duration::from_secs(1);

/// Bytes on their way.
enum Job {
    /// A request that waits in memory, by its sequence.
    Ready(u64, Arc<[u8]>),
    /// The oldest record of the spool.
    Spooled(Vec<u8>),
}

impl Job {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Ready(_, bytes) => bytes,
            Self::Spooled(bytes) => bytes,
        }
    }
}

/// Runs until the run is closed.
pub(crate) fn run(shared: &Shared) {
    loop {
        shared.tell_progress(false);
        let mut outbox = lock(&shared.outbox);
        if outbox.stage == Stage::Closed {
            return shared.release(outbox);
        }
        prepare(shared, &mut outbox);
        let job = next_job(&mut outbox);
        if let (Some(job), Some(transport)) = (job, &shared.transport) {
            outbox.in_flight = if let Job::Ready(sequence, _) = &job { Some(*sequence) } else { None };
            shared.release(outbox);
            let verdict = transport.push(job.bytes());
            settle(shared, transport, &job, verdict);
        } else {
            shared.release(outbox);
            drop(Shared::pause(&shared.wake, lock(&shared.outbox), SEND_EVERY));
        }
    }
}

/// Seals what is due and moves it to the spool where it has to go there.
fn prepare(shared: &Shared, outbox: &mut Outbox) {
    let now = Instant::now();
    if now.duration_since(outbox.heartbeat_at).as_secs() >= SESSION_HEARTBEAT_SECONDS {
        outbox.heartbeat_at = now;
        let event = shared.session_event(false, None, "");
        shared.say(|pending| pending.sessions.push(event));
    }
    let every = if outbox.link.is_up() { SEND_EVERY } else { SPOOL_EVERY };
    let is_full = lock(&shared.log).points.len() >= shared.capacity.div_ceil(4);
    if outbox.ready.is_empty() && (is_full || now.duration_since(outbox.sealed_at) >= every) {
        shared.seal(outbox);
    }
    if outbox.goes_to_spool() && !outbox.ready.is_empty() {
        outbox.spill(true);
        if outbox.has_backlog() {
            say_where(shared, outbox);
        }
    }
}

/// The oldest thing to send, if anything may be sent now.
fn next_job(outbox: &mut Outbox) -> Option<Job> {
    if !outbox.link.may_send(Instant::now()) {
        return None;
    }
    // A run whose every point is in the spool asks for the server with the oldest of them; one that
    // the spool refused asks with what it still has in memory.
    let ready = outbox.ready.front().map(|sealed| Job::Ready(sealed.sequence, Arc::clone(&sealed.bytes)));
    ready.or_else(|| outbox.oldest_record().map(|record| Job::Spooled(record.bytes)))
}

fn settle(shared: &Shared, transport: &Transport, job: &Job, verdict: Verdict) {
    if let Verdict::Stored(answer) = &verdict {
        shared.capture.hear(job.bytes(), answer);
    }
    let mut outbox = lock(&shared.outbox);
    outbox.in_flight = None;
    if outbox.stage == Stage::Closed {
        return shared.release(outbox);
    }
    match verdict {
        Verdict::Stored(answer) => {
            let points = done(&mut outbox, job);
            outbox.delivered += points;
            outbox.acknowledge();
            take_refusals(&mut outbox, &answer);
        }
        Verdict::Refused(why) => {
            let points = done(&mut outbox, job);
            outbox.acknowledge();
            let message = format!("the server at {} refuses a batch: {why}", transport.shown());
            outbox.lost.push(("refused_batch", points, message.clone()));
            outbox.warnings.push(Warning { cause: "refused_batch", message });
        }
        Verdict::Later(away) => turn_away(shared, &mut outbox, away),
    }
    shared.settled.notify_all();
    shared.release(outbox);
}

/// Takes the job off its queue; its points. One that went to the spool meanwhile is sent again from
/// there, which is harmless.
fn done(outbox: &mut Outbox, job: &Job) -> u64 {
    match job {
        Job::Spooled(_) => outbox.consume_oldest(),
        Job::Ready(sequence, _) => outbox
            .ready
            .iter()
            .position(|sealed| sealed.sequence == *sequence)
            .and_then(|at| outbox.ready.remove(at))
            .map_or(0, |sealed| sealed.points),
    }
}

/// Counts the points that the server did not take, though it took their request.
fn take_refusals(outbox: &mut Outbox, answer: &PushResponse) {
    for refused in &answer.refused {
        outbox.refusals.push((refused.reason.clone(), refused.count));
        if refused.reason == REPORTED_ELSEWHERE {
            continue;
        }
        outbox.warnings.push(Warning {
            cause: "refused_points",
            message: format!("the server refuses points ({}): {}", refused.reason, refused.example),
        });
    }
}

fn turn_away(shared: &Shared, outbox: &mut Outbox, away: Away) {
    outbox.turn_away(away);
    if !outbox.ready.is_empty() {
        outbox.spill(true);
    }
    if outbox.has_backlog() {
        say_where(shared, outbox);
    }
}

/// Says once that the run goes to the spool, and how to see it.
pub(crate) fn say_where(shared: &Shared, outbox: &mut Outbox) {
    let Link::Away { away, .. } = &outbox.link else { return };
    let dir = outbox.plan.dir.display();
    let base = shared.transport.as_ref().map(Transport::shown).unwrap_or_default();
    if let Some(fix) = away.fix {
        let why = &away.why;
        let message =
            format!("the server at {base} takes nothing ({why}): {fix}; till then the run is kept in {dir}");
        outbox.warnings.push(Warning { cause: "server_refuses", message });
        return;
    }
    let message = match &shared.config.url {
        Some(_) => format!(
            "the server at {base} does not answer ({}): the run is kept in {dir} and sent when it is back",
            away.why
        ),
        None => format!(
            "no server runs at {}: the run is kept in {dir}; `truegauge up` on this machine shows it, \
             `truegauge sync {dir} --url URL` sends it to another",
            crate::config::DEFAULT_URL
        ),
    };
    outbox.warnings.push(Warning { cause: "server_away", message });
}

/// Starts the thread.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("truegauge-send".into()).spawn(move || run(&shared)).map(drop)
}
