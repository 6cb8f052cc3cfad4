//! What is known of a run beside its series: state, attempts, sessions, attributes, tags.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{AttributeValue, RunId, RunPath, SESSION_HEARTBEAT_SECONDS, STALE_AFTER_SECONDS};

/// Identifies one writer, that is one process's session with a run: 16 random bytes.
pub type WriterId = [u8; 16];

/// How a run stands at a given moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunState {
    /// A session reports that it lives.
    Running,
    /// Sessions are open and all have been silent for too long: for [`STALE_AFTER_SECONDS`], or what
    /// [`SessionFacts::silent_after_seconds`] says.
    Stale,
    /// Ended by an exception, or a non-zero exit under `truegauge run`.
    Failed,
    /// Its last session closed.
    Finished,
    /// Every session left without ending the run, so that it can go on later.
    Paused,
}

impl RunState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stale => "stale",
            Self::Failed => "failed",
            Self::Finished => "finished",
            Self::Paused => "paused",
        }
    }
}

/// How a session came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// `close()`.
    Finished,
    /// An exception, or a non-zero exit.
    Failed,
    /// `shutdown()`: the run can be resumed.
    Left,
}

/// What a process says of itself, with every sign of life.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// Host name.
    pub host: String,
    /// Process id, as the process sees it.
    pub pid: u32,
    /// Rank in the job, absent for a single process.
    pub rank: Option<u32>,
    /// Processes in the job, absent for a single process.
    pub world_size: Option<u32>,
    /// What the launcher calls this job, empty when there is no launcher.
    pub job_token: String,
    /// How often the launcher restarted the job.
    pub restart_count: u32,
    /// Version of the client.
    pub client_version: String,
    /// Silence after which it no longer counts as alive, seconds; 0 for [`STALE_AFTER_SECONDS`]. Set for
    /// those that are seen through their telemetry only: they are alive while they export.
    pub silent_after_seconds: u32,
}

/// A sign of life or of its end.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionEvent {
    /// When, in nanoseconds since the epoch, by the writer's clock.
    pub time_ns: i64,
    /// Whether this is the session's first word.
    pub opens: bool,
    /// Set when the session ends.
    pub end: Option<SessionEnd>,
    /// Why it ended; shown to the user.
    pub reason: String,
    /// Who speaks.
    pub facts: SessionFacts,
}

/// One process's time with a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Its writer.
    pub writer: WriterId,
    /// Number of the attempt it belongs to, from 1.
    pub attempt: u32,
    /// First word, nanoseconds.
    pub started_ns: i64,
    /// Latest sign of life, nanoseconds.
    pub heartbeat_ns: i64,
    /// End, if it ended.
    pub ended_ns: Option<i64>,
    /// How it ended.
    pub end: Option<SessionEnd>,
    /// Who it is.
    pub facts: SessionFacts,
}

/// One go at a run: all sessions between a start and the next restart.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Counts from 1.
    pub number: u32,
    /// First session's start, nanoseconds.
    pub started_ns: i64,
    /// Token of the job that made it; empty when there was none.
    pub job_token: String,
    /// Restart count of that job.
    pub restart_count: u32,
}

/// Adds or removes a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagChange {
    /// Forgets every tag.
    Clear,
    /// Adds one.
    Add(String),
    /// Removes one.
    Remove(String),
}

/// A change to a run, as a writer or a user asks for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunChange {
    /// Which run; it is made when it is not there.
    pub path: RunPath,
    /// A sign of life of the writer, if there is one.
    pub session: Option<(WriterId, SessionEvent)>,
    /// Facts to set; an existing one is overwritten.
    pub attributes: Vec<(String, AttributeValue)>,
    /// Facts to set only where the key is not there yet.
    pub attributes_if_absent: Vec<(String, AttributeValue)>,
    /// Tags to add or remove, in order.
    pub tags: Vec<TagChange>,
    /// New description.
    pub description: Option<String>,
    /// Points that the writer refused or lost, by reason, to be added up.
    pub dropped: Vec<(String, u64)>,
}

/// Everything about a run but its points.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its names.
    pub path: RunPath,
    /// First heard of, nanoseconds.
    pub created_ns: i64,
    /// Facts by key.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Tags.
    pub tags: BTreeSet<String>,
    /// Description.
    pub description: String,
    /// Attempts in order; at least one as soon as a session was seen.
    pub attempts: Vec<Attempt>,
    /// Sessions in order of start.
    pub sessions: Vec<Session>,
    /// Why the latest failed session failed.
    pub failure: String,
    /// Points that writers refused or lost, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Set when a user deleted the run and may still undo it, nanoseconds.
    pub deleted_ns: Option<i64>,
}

impl RunRecord {
    /// A run that nobody has said anything of yet.
    pub fn new(path: RunPath, created_ns: i64) -> Self {
        Self {
            path,
            created_ns,
            attributes: BTreeMap::new(),
            tags: BTreeSet::new(),
            description: String::new(),
            attempts: Vec::new(),
            sessions: Vec::new(),
            failure: String::new(),
            dropped: BTreeMap::new(),
            deleted_ns: None,
        }
    }

    /// The run's id.
    pub fn id(&self) -> RunId {
        self.path.id()
    }

    /// Applies a change that was written at `now_ns`.
    ///
    /// Changes may come late and out of order, as an old spool does: a session's liveness is judged
    /// at the time its events carry, never at the time they arrive.
    pub fn apply(&mut self, change: &RunChange, now_ns: i64) {
        if let Some((writer, event)) = &change.session {
            self.apply_session(*writer, event);
        }
        for (key, value) in &change.attributes {
            self.attributes.insert(key.clone(), value.clone());
        }
        for (key, value) in &change.attributes_if_absent {
            self.attributes.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for tag in &change.tags {
            match tag {
                TagChange::Clear => self.tags.clear(),
                TagChange::Add(tag) => _ = self.tags.insert(tag.clone()),
                TagChange::Remove(tag) => _ = self.tags.remove(tag),
            }
        }
        if let Some(description) = &change.description {
            self.description.clone_from(description);
        }
        for (reason, count) in &change.dropped {
            *self.dropped.entry(reason.clone()).or_default() += count;
        }
        self.created_ns = self.created_ns.min(now_ns);
    }

    fn apply_session(&mut self, writer: WriterId, event: &SessionEvent) {
        let at = match self.sessions.iter().position(|s| s.writer == writer) {
            Some(at) => at,
            None => self.open_session(writer, event),
        };
        let covered_ns = self.sessions[at].covered_ns();
        let was_replaced = self.is_replaced(at);
        let session = &mut self.sessions[at];
        session.heartbeat_ns = session.heartbeat_ns.max(event.time_ns);
        // Some learn only later where they run.
        if session.facts.host.is_empty() {
            session.facts.host.clone_from(&event.facts.host);
            session.facts.pid = session.facts.pid.max(event.facts.pid);
        }
        if event.facts.silent_after_seconds > 0 {
            session.facts.silent_after_seconds = event.facts.silent_after_seconds;
        }
        if let Some(end) = event.end {
            session.ended_ns = Some(event.time_ns);
            session.end = Some(end);
            if end == SessionEnd::Failed {
                self.failure.clone_from(&event.reason);
            }
        }
        let now_covered_ns = self.sessions[at].covered_ns();
        let changed_from_ns = covered_ns.min(now_covered_ns);
        let touches_others = covered_ns != now_covered_ns
            && self.sessions.last().is_some_and(|s| s.started_ns >= changed_from_ns);
        let session = &self.sessions[at];
        if touches_others || was_replaced || self.sessions.iter().any(|other| session.has_replaced(other)) {
            self.regroup();
        }
    }

    /// Adds a session at its place in time and finds the attempts anew.
    fn open_session(&mut self, writer: WriterId, event: &SessionEvent) -> usize {
        let session = Session {
            writer,
            attempt: 0,
            started_ns: event.time_ns,
            heartbeat_ns: event.time_ns,
            ended_ns: None,
            end: None,
            facts: event.facts.clone(),
        };
        self.created_ns = self.created_ns.min(event.time_ns);
        let at = self.sessions.partition_point(|s| s.started_ns <= session.started_ns);
        self.sessions.insert(at, session);
        self.regroup();
        at
    }

    /// Until when each session is known to have lived: no longer than its last sign of life if another
    /// process has taken its place.
    fn covers_ns(&self) -> Vec<i64> {
        // By place, its later sessions from the last on: when each started, and of it and those after it
        // when they were seen.
        let mut later: HashMap<Place<'_>, Vec<(i64, Latest)>> = HashMap::new();
        let mut covers: Vec<i64> = self
            .sessions
            .iter()
            .rev()
            .map(|session| {
                let same_place = later.entry(session.place()).or_default();
                let started = same_place.partition_point(|(start_ns, _)| *start_ns > session.heartbeat_ns);
                let seen =
                    started.checked_sub(1).and_then(|at| same_place[at].1.of_another(session.facts.pid));
                let is_replaced = session.end.is_none() && seen.is_some_and(|ns| session.is_surely_gone(ns));
                let mut latest = same_place.last().map_or_else(Latest::default, |(_, latest)| *latest);
                latest.note(session.facts.pid, session.seen_ns());
                same_place.push((session.started_ns, latest));
                if is_replaced { session.heartbeat_ns } else { session.covered_ns() }
            })
            .collect();
        covers.reverse();
        covers
    }

    fn is_replaced(&self, at: usize) -> bool {
        let session = &self.sessions[at];
        self.sessions[at + 1..].iter().any(|later| later.has_replaced(session))
    }

    /// Sorts the sessions into attempts: a pure function of when each started and showed life, so that
    /// the order in which spools arrive does not matter.
    ///
    /// A session joins the attempt before it while one of that attempt's sessions lives, unless it
    /// brings another job token or a higher restart count. Clocks of a job's hosts may be minutes apart, so that
    /// one that names the job, and is of a rank that the attempt lacks, joins it whenever it seems to have started.
    fn regroup(&mut self) {
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut covered_ns = i64::MIN;
        let covers = self.covers_ns();
        // Where the sessions of the latest attempt begin.
        let mut first = 0;
        for (at, session_covered_ns) in covers.into_iter().enumerate() {
            let (before, after) = self.sessions.split_at_mut(at);
            let Some(session) = after.first_mut() else { break };
            let facts = &session.facts;
            let is_lacking = || {
                let is_of_job = !facts.job_token.is_empty() && facts.rank.is_some();
                is_of_job && before[first..].iter().all(|other| other.completes(facts))
            };
            let joins = attempts.last_mut().filter(|latest| {
                let same_job = facts.job_token.is_empty()
                    || latest.job_token.is_empty()
                    || facts.job_token == latest.job_token;
                same_job
                    && facts.restart_count <= latest.restart_count
                    && (session.started_ns < covered_ns || is_lacking())
            });
            if let Some(latest) = joins {
                if latest.job_token.is_empty() {
                    latest.job_token.clone_from(&facts.job_token);
                }
                covered_ns = covered_ns.max(session_covered_ns);
            } else {
                attempts.push(Attempt {
                    number: attempts.len() as u32 + 1,
                    started_ns: session.started_ns,
                    job_token: facts.job_token.clone(),
                    restart_count: facts.restart_count,
                });
                covered_ns = session_covered_ns;
                first = at;
            }
            session.attempt = attempts.len() as u32;
        }
        self.attempts = attempts;
    }

    /// The run's state at `now_ns` and since when, nanoseconds.
    pub fn state(&self, now_ns: i64) -> (RunState, i64) {
        let Some(attempt) = self.attempts.last() else {
            return (RunState::Stale, self.created_ns);
        };
        let sessions = || self.sessions.iter().filter(|s| s.attempt == attempt.number);
        if sessions().any(|s| s.is_live(now_ns)) {
            return (RunState::Running, attempt.started_ns);
        }
        // One that fell silent while others went on does not keep the run from ending with them.
        let last_end_ns = sessions().filter_map(|s| s.ended_ns).max().unwrap_or(i64::MIN);
        let mut starts: HashMap<Place<'_>, Latest> = HashMap::new();
        for session in sessions() {
            starts.entry(session.place()).or_default().note(session.facts.pid, session.started_ns);
        }
        let is_replaced = |s: &Session| {
            let latest = starts.get(&s.place()).and_then(|starts| starts.of_another(s.facts.pid));
            latest.is_some_and(|started_ns| started_ns > s.heartbeat_ns)
        };
        let silent = |s: &&Session| s.end.is_none() && s.covered_ns() > last_end_ns && !is_replaced(s);
        if let Some(heartbeat_ns) = sessions().filter(silent).map(|s| s.heartbeat_ns).max() {
            return (RunState::Stale, heartbeat_ns);
        }
        let ended_ns = sessions().filter_map(|s| s.ended_ns).max().unwrap_or(attempt.started_ns);
        let ended = |how| sessions().any(|s| s.end == Some(how));
        let state = if ended(SessionEnd::Failed) {
            RunState::Failed
        } else if ended(SessionEnd::Finished) {
            RunState::Finished
        } else {
            RunState::Paused
        };
        (state, ended_ns)
    }

    /// Number of the attempt that a point at `time_ns` belongs to, 1 before the first.
    pub fn attempt_at(&self, time_ns: i64) -> u32 {
        let after = self.attempts.partition_point(|a| a.started_ns <= time_ns);
        after.checked_sub(1).map_or(1, |at| self.attempts[at].number)
    }

    /// The latest sign of life, nanoseconds.
    pub fn heartbeat_ns(&self) -> Option<i64> {
        self.sessions.iter().map(|s| s.heartbeat_ns).max()
    }
}

/// Where a process runs, by host and rank: it takes the place of one before it there.
type Place<'a> = (&'a str, Option<u32>);

/// The latest time that processes tell, and the latest that another process than that tells. A run may have
/// thousands of sessions in one place, so that not each is held against each.
#[derive(Debug, Clone, Copy, Default)]
struct Latest {
    first: Option<(i64, u32)>,
    other: Option<i64>,
}

impl Latest {
    fn note(&mut self, pid: u32, time_ns: i64) {
        match self.first {
            Some((latest_ns, known)) if known == pid => self.first = Some((latest_ns.max(time_ns), pid)),
            Some((latest_ns, _)) if latest_ns >= time_ns => self.other = self.other.max(Some(time_ns)),
            _ => {
                self.other = self.first.map(|(latest_ns, _)| latest_ns);
                self.first = Some((time_ns, pid));
            }
        }
    }

    /// The latest time of a process that is not this one.
    fn of_another(&self, pid: u32) -> Option<i64> {
        self.first.filter(|(_, known)| *known != pid).map_or(self.other, |(latest_ns, _)| Some(latest_ns))
    }
}

/// Two missed heartbeats and some.
const SURE_AFTER_NS: i64 = (2 * SESSION_HEARTBEAT_SECONDS as i64 + 2) * crate::NANOS_PER_SECOND;

impl Session {
    /// Whether this is the same rank on the same host, started after the other's last sign of life: a
    /// process that was killed and started again, as long as the other stays silent.
    fn takes_the_place_of(&self, other: &Self) -> bool {
        self.started_ns > other.heartbeat_ns
            && other.end.is_none()
            && self.facts.rank == other.facts.rank
            && self.facts.pid != other.facts.pid
            && self.facts.host == other.facts.host
    }

    /// Whether it is another rank of the same start of the same job.
    fn completes(&self, facts: &SessionFacts) -> bool {
        let (own, other) = (&self.facts, facts);
        own.job_token == other.job_token
            && own.restart_count == other.restart_count
            && own.world_size == other.world_size
            && own.rank.is_some()
            && own.rank != other.rank
    }

    /// Whether that is sure: the other missed two heartbeats while this one lived.
    fn has_replaced(&self, other: &Self) -> bool {
        self.takes_the_place_of(other) && other.is_surely_gone(self.seen_ns())
    }

    /// Whether it is gone when the process in its place was seen at this time.
    fn is_surely_gone(&self, seen_ns: i64) -> bool {
        let sure_after_ns = match self.facts.silent_after_seconds {
            0 => SURE_AFTER_NS,
            _ => self.silence_ns(),
        };
        seen_ns.saturating_sub(self.heartbeat_ns) >= sure_after_ns
    }

    /// When it was seen last, nanoseconds.
    fn seen_ns(&self) -> i64 {
        self.ended_ns.unwrap_or(self.heartbeat_ns).max(self.heartbeat_ns)
    }

    fn place(&self) -> Place<'_> {
        (&self.facts.host, self.facts.rank)
    }

    /// Silence after which it no longer counts as alive, nanoseconds.
    fn silence_ns(&self) -> i64 {
        let seconds = match self.facts.silent_after_seconds {
            0 => STALE_AFTER_SECONDS as i64,
            seconds => i64::from(seconds),
        };
        seconds * crate::NANOS_PER_SECOND
    }

    /// Until when it is known to have lived: its end, else a while after its last sign of life.
    fn covered_ns(&self) -> i64 {
        self.ended_ns.unwrap_or_else(|| self.heartbeat_ns.saturating_add(self.silence_ns()))
    }

    /// Whether the session had not ended and had shown life within the silence that it may keep.
    pub fn is_live(&self, now_ns: i64) -> bool {
        self.end.is_none() && now_ns.saturating_sub(self.heartbeat_ns) < self.silence_ns()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::NANOS_PER_SECOND;

    const T0: i64 = 1_800_000_000 * NANOS_PER_SECOND;

    fn event(seconds: i64, token: &str, restarts: u32, end: Option<SessionEnd>) -> SessionEvent {
        SessionEvent {
            time_ns: T0 + seconds * NANOS_PER_SECOND,
            opens: end.is_none(),
            end,
            reason: String::new(),
            facts: SessionFacts {
                job_token: token.into(),
                restart_count: restarts,
                ..SessionFacts::default()
            },
        }
    }

    /// Applies `(writer, seconds, token, restarts, end)` and returns the record.
    fn record(events: &[(u8, i64, &str, u32, Option<SessionEnd>)]) -> RunRecord {
        let mut record = RunRecord::new(RunPath::default(), T0);
        for (writer, seconds, token, restarts, end) in events {
            let session = Some(([*writer; 16], event(*seconds, token, *restarts, *end)));
            record.apply(&RunChange { session, ..RunChange::default() }, T0);
        }
        record
    }

    /// A session that started, was seen, and may have ended: in one of two places, as one of three processes.
    fn any_session() -> impl Strategy<Value = Session> {
        let facts = (0..2_u32, 0..3_u32, 0..3_u32).prop_map(|(rank, pid, silence)| SessionFacts {
            rank: (rank > 0).then_some(rank),
            pid,
            silent_after_seconds: silence * 40,
            ..SessionFacts::default()
        });
        let end = prop_oneof![3 => Just(None), 1 => Just(Some(SessionEnd::Finished))];
        (0..400_i64, 0..200_i64, end, facts).prop_map(|(start, length, end, facts)| {
            let heartbeat_ns = T0 + (start + length) * NANOS_PER_SECOND;
            Session {
                writer: [0; 16],
                attempt: 1,
                started_ns: T0 + start * NANOS_PER_SECOND,
                heartbeat_ns,
                ended_ns: end.map(|_| heartbeat_ns),
                end,
                facts,
            }
        })
    }

    proptest! {
        /// Looking at a place's latest is the same as holding each session against each.
        #[test]
        fn who_took_whose_place_is_found_without_looking_at_all(
            mut sessions in proptest::collection::vec(any_session(), 0..30)
        ) {
            sessions.sort_by_key(|session| session.started_ns);
            let mut record = record(&[]);
            record.sessions = sessions;
            let all = &record.sessions;
            let covers = |(at, session): (usize, &Session)| {
                let is_replaced = all[at + 1..].iter().any(|later| later.has_replaced(session));
                if is_replaced { session.heartbeat_ns } else { session.covered_ns() }
            };
            prop_assert_eq!(record.covers_ns(), all.iter().enumerate().map(covers).collect::<Vec<_>>());
            record.attempts = vec![Attempt { number: 1, started_ns: T0, job_token: String::new(), restart_count: 0 }];
            let all = &record.sessions;
            let last_end_ns = all.iter().filter_map(|s| s.ended_ns).max().unwrap_or(i64::MIN);
            let silent = all.iter().filter(|s| {
                s.end.is_none()
                    && s.covered_ns() > last_end_ns
                    && !all.iter().any(|later| later.takes_the_place_of(s))
            });
            let silent_ns = silent.map(|s| s.heartbeat_ns).max();
            let (state, since_ns) = record.state(i64::MAX);
            prop_assert_eq!((state == RunState::Stale).then_some(since_ns), silent_ns);
        }
    }

    fn attempts(record: &RunRecord) -> Vec<u32> {
        record.sessions.iter().map(|s| s.attempt).collect()
    }

    #[test]
    fn ranks_of_one_job_are_one_attempt() {
        assert_eq!(
            attempts(&record(&[(1, 0, "j", 0, None), (2, 1, "j", 0, None), (3, 2, "", 0, None)])),
            [1, 1, 1]
        );
    }

    #[test]
    fn ranks_of_one_job_are_one_attempt_though_their_clocks_are_far_apart() {
        let of = |told: &[(u32, i64, &str, u32)]| {
            let mut run = RunRecord::new(RunPath::default(), T0);
            for (at, (rank, seconds, token, world)) in (1_u8..).zip(told) {
                let mut event = event(*seconds, token, 0, None);
                (event.facts.rank, event.facts.world_size) = (Some(*rank), Some(*world));
                run.apply(&RunChange { session: Some(([at; 16], event)), ..RunChange::default() }, T0);
            }
            attempts(&run)
        };
        assert_eq!(of(&[(0, 0, "j", 4), (1, 600, "j", 4), (2, -900, "j", 4), (3, 1, "j", 4)]), [1, 1, 1, 1]);
        assert_eq!(of(&[(0, 0, "", 2), (1, 600, "", 2)]), [1, 2], "nobody says that they are of one job");
        assert_eq!(of(&[(0, 0, "j", 2), (1, 0, "j", 2), (1, 600, "j", 2), (0, 600, "j", 2)]), [1, 1, 2, 2]);
        assert_eq!(of(&[(0, 0, "j", 2), (1, 600, "k", 2)]), [1, 2]);
        assert_eq!(of(&[(0, 0, "j", 4), (1, 600, "j", 2)]), [1, 2], "a job that was made smaller");
    }

    #[test]
    fn new_token_or_restart_or_silence_opens_an_attempt() {
        assert_eq!(attempts(&record(&[(1, 0, "j", 0, None), (2, 5, "k", 0, None)])), [1, 2]);
        assert_eq!(attempts(&record(&[(1, 0, "j", 0, None), (2, 5, "j", 1, None)])), [1, 2]);
        assert_eq!(attempts(&record(&[(1, 0, "j", 0, None), (2, 61, "j", 0, None)])), [1, 2]);
        assert_eq!(
            attempts(&record(&[(1, 0, "", 0, Some(SessionEnd::Finished)), (2, 1, "", 0, None)])),
            [1, 2]
        );
    }

    #[test]
    fn sessions_that_arrive_late_take_their_place_in_time() {
        // A child that lived and ended within its parent's time, heard of first.
        let child_first = [(2, 5, "", 0, None), (2, 6, "", 0, Some(SessionEnd::Failed)), (1, 0, "", 0, None)];
        assert_eq!(attempts(&record(&child_first)), [1, 1]);
        // The spool of a process that ended before the one that was heard of first.
        let spool_last =
            [(2, 50, "", 0, None), (1, 0, "", 0, None), (1, 30, "", 0, Some(SessionEnd::Finished))];
        let run = record(&spool_last);
        assert_eq!(
            run.sessions.iter().map(|s| (s.writer[0], s.attempt)).collect::<Vec<_>>(),
            [(1, 1), (2, 2)]
        );
        assert!(run.attempts.is_sorted_by_key(|a| a.started_ns));
        // A heartbeat that arrives after the session it covers.
        let heartbeat_last = [(1, 0, "", 0, None), (2, 70, "", 0, None), (1, 60, "", 0, None)];
        assert_eq!(attempts(&record(&heartbeat_last)), [1, 1]);
    }

    #[test]
    fn a_killed_process_that_starts_again_is_a_new_attempt() {
        let session = |writer: u8, seconds: i64, end| {
            let mut event = event(seconds, "", 0, end);
            event.facts.pid = u32::from(writer);
            event.facts.host = "h".into();
            RunChange { session: Some(([writer; 16], event)), ..RunChange::default() }
        };
        let mut run = RunRecord::new(RunPath::default(), T0);
        let at = |s: i64| T0 + s * NANOS_PER_SECOND;
        for (writer, seconds) in [(1, 0), (1, 10), (2, 15), (2, 25)] {
            run.apply(&session(writer, seconds, None), T0);
        }
        assert_eq!(attempts(&run), [1, 1], "the first may still live");
        run.apply(&session(2, 35, None), T0);
        assert_eq!(attempts(&run), [1, 2], "it missed its heartbeats");
        assert_eq!(run.state(at(36)).0, RunState::Running);
        run.apply(&session(2, 40, Some(SessionEnd::Finished)), T0);
        assert_eq!(run.state(at(41)), (RunState::Finished, at(40)));
        run.apply(&session(1, 41, None), T0);
        assert_eq!(attempts(&run), [1, 1], "it lived after all");
    }

    #[test]
    fn a_restart_that_ends_soon_ends_the_run_too() {
        let mut run =
            record(&[(1, 0, "", 0, None), (2, 5, "", 0, None), (2, 8, "", 0, Some(SessionEnd::Finished))]);
        run.sessions[1].facts.pid = 2;
        let at = |s: i64| T0 + s * NANOS_PER_SECOND;
        assert_eq!(run.state(at(9)).0, RunState::Running, "the first is not silent for long yet");
        assert_eq!(run.state(at(70)).0, RunState::Finished);
        assert_eq!(run.state(at(400)).0, RunState::Finished);
    }

    #[test]
    fn a_rank_that_died_early_does_not_make_a_finished_run_stale() {
        let run = record(&[
            (1, 0, "j", 0, None),
            (2, 0, "j", 0, None),
            (1, 200, "j", 0, None),
            (1, 210, "j", 0, Some(SessionEnd::Finished)),
        ]);
        assert_eq!(run.state(T0 + 300 * NANOS_PER_SECOND).0, RunState::Finished);
    }

    #[test]
    fn run_ends_with_its_last_session() {
        let one_left =
            record(&[(1, 0, "j", 0, None), (2, 0, "j", 0, None), (1, 5, "j", 0, Some(SessionEnd::Finished))]);
        assert_eq!(one_left.state(T0 + 6 * NANOS_PER_SECOND).0, RunState::Running);
        let none_left = record(&[(1, 0, "j", 0, None), (1, 5, "j", 0, Some(SessionEnd::Finished))]);
        assert_eq!(
            none_left.state(T0 + 6 * NANOS_PER_SECOND),
            (RunState::Finished, T0 + 5 * NANOS_PER_SECOND)
        );
        let failed = record(&[(1, 0, "j", 0, None), (1, 5, "j", 0, Some(SessionEnd::Failed))]);
        assert_eq!(failed.state(T0).0, RunState::Failed);
        let left = record(&[(1, 0, "j", 0, None), (1, 5, "j", 0, Some(SessionEnd::Left))]);
        assert_eq!(left.state(T0).0, RunState::Paused);
    }

    #[test]
    fn silence_makes_a_run_stale_since_its_last_heartbeat() {
        let run = record(&[(1, 0, "", 0, None), (1, 10, "", 0, None)]);
        assert_eq!(run.state(T0 + 69 * NANOS_PER_SECOND).0, RunState::Running);
        assert_eq!(run.state(T0 + 70 * NANOS_PER_SECOND), (RunState::Stale, T0 + 10 * NANOS_PER_SECOND));
    }

    #[test]
    fn an_exporter_may_be_silent_for_as_long_as_it_says() {
        let mut run = record(&[]);
        for (seconds, silent_after_seconds) in [(0, 180), (60, 180), (120, 0), (180, 30)] {
            let mut event = event(seconds, "", 0, None);
            event.facts.silent_after_seconds = silent_after_seconds;
            run.apply(&RunChange { session: Some(([1; 16], event)), ..RunChange::default() }, T0);
            let at = |after: i64| run.state(T0 + (seconds + after) * NANOS_PER_SECOND).0;
            let silence = if silent_after_seconds == 30 { 30 } else { 180 };
            assert_eq!([at(silence - 1), at(silence)], [RunState::Running, RunState::Stale], "{seconds}");
        }
        assert_eq!(attempts(&run), [1]);
    }

    #[test]
    fn points_belong_to_the_attempt_they_fall_into() {
        let run = record(&[(1, 0, "j", 0, None), (2, 100, "k", 0, None)]);
        let at = |s: i64| run.attempt_at(T0 + s * NANOS_PER_SECOND);
        assert_eq!([at(-1), at(0), at(99), at(100), at(500)], [1, 1, 1, 2, 2]);
    }
}
