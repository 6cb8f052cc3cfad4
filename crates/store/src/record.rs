//! Rows of the catalogue: runs, sessions, series' identities, writers' sequences.
//!
//! The bytes are described in `docs/format/log.md`. Every row starts with a version byte; `None`
//! when reading means that a row is not what it should be.

use model::{
    Attempt, AttributeValue, Labels, RunId, RunPath, RunRecord, SeriesIdentity, Session, SessionEnd,
    SessionFacts, WriterId,
};

use crate::codec::{Reader, put_bytes, put_f64, put_i64, put_optional, put_u64};

const VERSION: u8 = 1;
/// Of a session that says after which silence it no longer counts as alive.
const VERSION_SILENT: u8 = 2;

/// A series' identity as bytes: equal identities have equal bytes.
pub(crate) fn encode_identity(identity: &SeriesIdentity) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_bytes(&mut out, identity.display.as_bytes());
    put_u64(&mut out, identity.labels.len() as u64);
    for (name, value) in identity.labels.iter() {
        put_bytes(&mut out, name.as_bytes());
        put_bytes(&mut out, value.as_bytes());
    }
    out
}

/// See [`encode_identity`].
pub(crate) fn decode_identity(bytes: &[u8]) -> Option<SeriesIdentity> {
    let (display, labels) = identity_parts(bytes)?;
    Some(SeriesIdentity { labels: Labels::from_pairs(labels), display: display.to_owned() })
}

/// The metric's name and the run of an [`encode_identity`]d series, without building its labels.
pub(crate) fn identity_scope(bytes: &[u8]) -> Option<(Option<RunId>, &str, &str)> {
    let mut reader = versioned(bytes)?;
    let mut text = || reader.bytes().and_then(|b| std::str::from_utf8(b).ok());
    let display = text()?;
    let (mut run, mut metric) = (None, "");
    for _ in 0..reader.count(2)? {
        let name = reader.bytes()?;
        let value = reader.bytes()?;
        match name {
            b"run_id" => run = RunId::parse(std::str::from_utf8(value).ok()?),
            b"__name__" => metric = std::str::from_utf8(value).ok()?,
            _ => {}
        }
    }
    Some((run, metric, display))
}

/// The name as logged and the labels of an [`encode_identity`]d series, in order of name.
pub(crate) fn identity_parts(bytes: &[u8]) -> Option<(&str, Vec<(&str, &str)>)> {
    let mut reader = versioned(bytes)?;
    let display = std::str::from_utf8(reader.bytes()?).ok()?;
    let count = reader.count(2)?;
    let mut labels = Vec::with_capacity(count);
    for _ in 0..count {
        let name = std::str::from_utf8(reader.bytes()?).ok()?;
        labels.push((name, std::str::from_utf8(reader.bytes()?).ok()?));
    }
    reader.is_empty().then_some((display, labels))
}

/// The value of one label of an [`encode_identity`]d series.
pub(crate) fn identity_label<'b>(bytes: &'b [u8], name: &str) -> Option<&'b str> {
    let mut reader = versioned(bytes)?;
    reader.bytes()?;
    for _ in 0..reader.count(2)? {
        let (found, value) = (reader.bytes()?, reader.bytes()?);
        if found == name.as_bytes() {
            return std::str::from_utf8(value).ok();
        }
    }
    None
}

/// Everything of a run but its sessions.
pub(crate) fn encode_run(run: &RunRecord) -> Vec<u8> {
    let mut out = vec![VERSION];
    for name in [&run.path.organization, &run.path.workspace, &run.path.project, &run.path.run] {
        put_bytes(&mut out, name.as_bytes());
    }
    put_i64(&mut out, run.created_ns);
    put_optional(&mut out, run.deleted_ns);
    put_bytes(&mut out, run.description.as_bytes());
    put_bytes(&mut out, run.failure.as_bytes());
    put_u64(&mut out, run.attributes.len() as u64);
    for (key, value) in &run.attributes {
        put_bytes(&mut out, key.as_bytes());
        put_value(&mut out, value);
    }
    put_u64(&mut out, run.tags.len() as u64);
    for tag in &run.tags {
        put_bytes(&mut out, tag.as_bytes());
    }
    put_u64(&mut out, run.dropped.len() as u64);
    for (reason, count) in &run.dropped {
        put_bytes(&mut out, reason.as_bytes());
        put_u64(&mut out, *count);
    }
    put_u64(&mut out, run.attempts.len() as u64);
    for attempt in &run.attempts {
        put_u64(&mut out, u64::from(attempt.number));
        put_i64(&mut out, attempt.started_ns);
        put_bytes(&mut out, attempt.job_token.as_bytes());
        put_u64(&mut out, u64::from(attempt.restart_count));
    }
    out
}

/// See [`encode_run`]; the sessions are empty.
pub(crate) fn decode_run(bytes: &[u8]) -> Option<RunRecord> {
    let mut reader = versioned(bytes)?;
    let path = RunPath {
        organization: reader.text()?,
        workspace: reader.text()?,
        project: reader.text()?,
        run: reader.text()?,
    };
    let mut run = RunRecord::new(path, reader.i64()?);
    run.deleted_ns = reader.optional()?;
    run.description = reader.text()?;
    run.failure = reader.text()?;
    for _ in 0..reader.count(2)? {
        let key = reader.text()?;
        run.attributes.insert(key, take_value(&mut reader)?);
    }
    for _ in 0..reader.count(1)? {
        run.tags.insert(reader.text()?);
    }
    for _ in 0..reader.count(2)? {
        let reason = reader.text()?;
        run.dropped.insert(reason, reader.u64()?);
    }
    for _ in 0..reader.count(4)? {
        run.attempts.push(Attempt {
            number: reader.u32()?,
            started_ns: reader.i64()?,
            job_token: reader.text()?,
            restart_count: reader.u32()?,
        });
    }
    reader.is_empty().then_some(run)
}

fn put_value(out: &mut Vec<u8>, value: &AttributeValue) {
    match value {
        AttributeValue::Null => out.push(0),
        AttributeValue::Bool(value) => out.extend([1, u8::from(*value)]),
        AttributeValue::Int(value) => {
            out.push(2);
            put_i64(out, *value);
        }
        AttributeValue::Float(value) => {
            out.push(3);
            put_f64(out, *value);
        }
        AttributeValue::Text(value) => {
            out.push(4);
            put_bytes(out, value.as_bytes());
        }
    }
}

fn take_value(reader: &mut Reader<'_>) -> Option<AttributeValue> {
    Some(match reader.byte()? {
        0 => AttributeValue::Null,
        1 => AttributeValue::Bool(reader.byte()? != 0),
        2 => AttributeValue::Int(reader.i64()?),
        3 => AttributeValue::Float(reader.f64()?),
        4 => AttributeValue::Text(reader.text()?),
        _ => return None,
    })
}

/// One session of a run.
pub(crate) fn encode_session(session: &Session) -> Vec<u8> {
    let silent = session.facts.silent_after_seconds;
    let mut out = vec![if silent > 0 { VERSION_SILENT } else { VERSION }];
    out.extend(session.writer);
    put_u64(&mut out, u64::from(session.attempt));
    put_i64(&mut out, session.started_ns);
    put_i64(&mut out, session.heartbeat_ns);
    put_optional(&mut out, session.ended_ns);
    out.push(match session.end {
        None => 0,
        Some(SessionEnd::Finished) => 1,
        Some(SessionEnd::Failed) => 2,
        Some(SessionEnd::Left) => 3,
    });
    let facts = &session.facts;
    put_bytes(&mut out, facts.host.as_bytes());
    put_u64(&mut out, u64::from(facts.pid));
    put_optional(&mut out, facts.rank.map(i64::from));
    put_optional(&mut out, facts.world_size.map(i64::from));
    put_bytes(&mut out, facts.job_token.as_bytes());
    put_u64(&mut out, u64::from(facts.restart_count));
    put_bytes(&mut out, facts.client_version.as_bytes());
    if silent > 0 {
        put_u64(&mut out, u64::from(silent));
    }
    out
}

/// See [`encode_session`].
pub(crate) fn decode_session(bytes: &[u8]) -> Option<Session> {
    let mut reader = Reader::new(bytes);
    let version = reader.byte().filter(|version| [VERSION, VERSION_SILENT].contains(version))?;
    let writer = reader.array()?;
    let attempt = reader.u32()?;
    let (started_ns, heartbeat_ns, ended_ns) = (reader.i64()?, reader.i64()?, reader.optional()?);
    let end = match reader.byte()? {
        0 => None,
        1 => Some(SessionEnd::Finished),
        2 => Some(SessionEnd::Failed),
        3 => Some(SessionEnd::Left),
        _ => return None,
    };
    let small = |value: Option<i64>| value.map(u32::try_from).transpose().ok();
    let facts = SessionFacts {
        host: reader.text()?,
        pid: reader.u32()?,
        rank: small(reader.optional()?)?,
        world_size: small(reader.optional()?)?,
        job_token: reader.text()?,
        restart_count: reader.u32()?,
        client_version: reader.text()?,
        silent_after_seconds: if version == VERSION_SILENT { reader.u32()? } else { 0 },
    };
    let session = Session { writer, attempt, started_ns, heartbeat_ns, ended_ns, end, facts };
    reader.is_empty().then_some(session)
}

fn versioned(bytes: &[u8]) -> Option<Reader<'_>> {
    let mut reader = Reader::new(bytes);
    (reader.byte()? == VERSION).then_some(reader)
}

/// The deliveries of one writer that were stored, as ranges `first..=last` in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sequences(Vec<(u64, u64)>);

impl Sequences {
    /// Most separate ranges. A writer whose disk and server are away leaves a gap between two signs of
    /// life, ten seconds apart, as long as its megabyte of memory takes: some 5,000 at a time.
    pub(crate) const RANGES_MAX: usize = 65_536;

    pub(crate) fn contains(&self, sequence: u64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= sequence);
        after > 0 && self.0[after - 1].1 >= sequence
    }

    pub(crate) fn insert(&mut self, sequence: u64) {
        let at = self.0.partition_point(|(first, _)| *first <= sequence);
        if at > 0 && self.0[at - 1].1 >= sequence {
            return;
        }
        let joins_before = at > 0 && self.0[at - 1].1.checked_add(1) == Some(sequence);
        let joins_after =
            sequence.checked_add(1).is_some_and(|next| self.0.get(at).is_some_and(|r| r.0 == next));
        match (joins_before, joins_after) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = sequence,
            (false, true) => self.0[at].0 = sequence,
            (false, false) => self.0.insert(at, (sequence, sequence)),
        }
    }

    pub(crate) fn ranges(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_u64(&mut out, self.0.len() as u64);
        let mut before = 0_u64;
        for (first, last) in &self.0 {
            put_u64(&mut out, first.wrapping_sub(before));
            put_u64(&mut out, last - first);
            before = *last;
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = versioned(bytes)?;
        let count = reader.count(2)?;
        let mut ranges = Vec::with_capacity(count);
        let mut before = 0_u64;
        for _ in 0..count {
            let first = before.wrapping_add(reader.u64()?);
            before = first.checked_add(reader.u64()?)?;
            ranges.push((first, before));
        }
        (reader.is_empty() && ranges.is_sorted()).then_some(Self(ranges))
    }
}

/// A session's key: its run, then its place among the run's sessions.
pub(crate) fn session_key(run: RunId, at: usize) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&run.0);
    key[8..].copy_from_slice(&(at as u32).to_be_bytes());
    key
}

/// The writers of a run's sessions.
pub(crate) fn writers_of(run: &RunRecord) -> impl Iterator<Item = WriterId> + '_ {
    run.sessions.iter().map(|session| session.writer)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{DEFAULT_SCALE, RunChange, SessionEvent, TagChange, series_identity};
    use proptest::prelude::*;

    use super::*;

    fn run() -> RunRecord {
        let path = RunPath { project: "llm".into(), run: "α".into(), ..RunPath::default() };
        let mut run = RunRecord::new(path, 7);
        let facts = SessionFacts {
            rank: Some(3),
            world_size: Some(8),
            pid: 9,
            silent_after_seconds: 30,
            ..SessionFacts::default()
        };
        let end = Some(SessionEnd::Failed);
        let event = SessionEvent { time_ns: 5, opens: true, end, reason: "out of memory".into(), facts };
        let attributes = [
            AttributeValue::Null,
            AttributeValue::Bool(true),
            AttributeValue::Int(i64::MIN),
            AttributeValue::Float(-0.0),
            AttributeValue::Text("x".into()),
        ];
        run.apply(
            &RunChange {
                session: Some(([4; 16], event)),
                attributes: attributes
                    .into_iter()
                    .enumerate()
                    .map(|(n, v)| (format!("config/{n}"), v))
                    .collect(),
                tags: vec![TagChange::Add("night".into())],
                description: Some("first".into()),
                dropped: vec![("queue_full".into(), 12)],
                ..RunChange::default()
            },
            7,
        );
        run.deleted_ns = Some(-3);
        run
    }

    #[test]
    fn runs_and_sessions_come_back() {
        let run = run();
        let mut back = decode_run(&encode_run(&run)).unwrap();
        back.sessions = run.sessions.iter().map(|s| decode_session(&encode_session(s)).unwrap()).collect();
        assert_eq!(back, run);
    }

    #[test]
    fn rows_cut_anywhere_are_refused() {
        let run = run();
        let identity = series_identity(&run.path, "loss (val)", DEFAULT_SCALE, &[("a".into(), "b".into())]);
        let (row, series) = (encode_run(&run), encode_identity(&identity));
        let session = encode_session(&run.sessions[0]);
        assert!((0..row.len()).all(|cut| decode_run(&row[..cut]).is_none()));
        assert!((0..series.len()).all(|cut| decode_identity(&series[..cut]).is_none()));
        assert!((0..session.len()).all(|cut| decode_session(&session[..cut]).is_none()));
        assert_eq!(decode_identity(&series), Some(identity));
        assert_eq!(identity_scope(&series), Some((Some(run.id()), "loss__val_", "loss (val)")));
    }

    proptest! {
        #[test]
        fn sequences_are_a_set(numbers in prop::collection::vec(prop_oneof![0..40_u64, Just(u64::MAX), Just(u64::MAX - 1)], 0..60)) {
            let mut sequences = Sequences::default();
            let mut set = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(sequences.contains(number), set.contains(&number));
                sequences.insert(number);
                set.insert(number);
            }
            prop_assert!((0..41).all(|n| sequences.contains(n) == set.contains(&n)));
            prop_assert_eq!(Sequences::decode(&sequences.encode()), Some(sequences));
        }
    }
}
