//! What a lock file says: who has the lock and how far its series are. One line of JSON, always as long,
//! so that it is written over in place.

use model::{CaptureOwner, NANOS_PER_MILLI};
use serde_json::{Value, json};

use super::Me;

/// Length of the line, its end included.
pub(super) const BYTES: usize = 512;
/// The longest token and host that are written.
const TOKEN_CHARS_MAX: usize = 128;
const HOST_CHARS_MAX: usize = 64;
/// A step beyond this is nonsense: steps count samples.
const STEP_MAX: i64 = 1 << 53;

/// A line, read.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) owner: Option<CaptureOwner>,
    pub(super) last_step: Option<i64>,
    /// Of that step; 0 where it is unknown.
    pub(super) time_ns: i64,
}

/// Writes a line.
pub(super) fn line(me: &Me, last_step: Option<i64>, time_ns: Option<i64>) -> Vec<u8> {
    let cut = |text: &str, max: usize| text.chars().take(max).collect::<String>();
    let write = |host: &str, token: &str| {
        let fields = json!({
            "pid": std::process::id(),
            "host": host,
            "rank": me.rank,
            "job_token": token,
            "last_step": last_step,
            "last_ts": time_ns.map(|time| time / NANOS_PER_MILLI),
        });
        fields.to_string().into_bytes()
    };
    let (host, token) = (cut(&me.host, HOST_CHARS_MAX), cut(&me.job_token, TOKEN_CHARS_MAX));
    // Text that needs escaping may grow: what matters least is left out first.
    let fits = |line: &Vec<u8>| line.len() < BYTES;
    let candidates = [(&*host, &*token), (&*host, ""), ("", "")];
    padded(candidates.iter().map(|(host, token)| write(host, token)).find(fits).unwrap_or_default())
}

/// Writes the line of a lock that nobody has.
pub(super) fn let_go(last_step: Option<i64>) -> Vec<u8> {
    padded(json!({"last_step": last_step}).to_string().into_bytes())
}

fn padded(mut line: Vec<u8>) -> Vec<u8> {
    line.resize(BYTES - 1, b' ');
    line.push(b'\n');
    line
}

/// Reads what is there; nothing of what is torn, of another kind or nonsense.
pub(super) fn read(bytes: &[u8]) -> Record {
    let Ok(Value::Object(fields)) = serde_json::from_slice::<Value>(bytes) else { return Record::default() };
    let number = |name: &str| fields.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let host = fields.get("host").and_then(Value::as_str).unwrap_or_default();
    let owner = number("pid").map(|pid| CaptureOwner {
        host: host.chars().filter(|c| !c.is_control()).take(HOST_CHARS_MAX).collect(),
        pid,
        rank: number("rank"),
    });
    let step = fields.get("last_step").and_then(Value::as_i64);
    let time = fields.get("last_ts").and_then(Value::as_i64).unwrap_or_default();
    let last_step = step.filter(|step| (0..STEP_MAX).contains(step));
    Record { owner, last_step, time_ns: time.saturating_mul(NANOS_PER_MILLI) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn line_is_always_as_long_and_reads_as_it_was_written(
            host in "[a-z0-9.-]{1,64}",
            job_token in ".{0,300}",
            rank in proptest::option::of(any::<u32>()),
            step in proptest::option::of(0..STEP_MAX),
        ) {
            let me = Me { host: host.clone(), rank, job_token, ..Me::default() };
            let line = line(&me, step, Some(NANOS_PER_MILLI));
            prop_assert_eq!((line.len(), line.last()), (BYTES, Some(&b'\n')));
            let read = read(&line);
            prop_assert_eq!(read.owner, Some(CaptureOwner { host, pid: std::process::id(), rank }));
            prop_assert_eq!((read.last_step, read.time_ns), (step, NANOS_PER_MILLI));
        }

        #[test]
        fn any_text_is_bounded_in_a_line(host in ".{0,200}", job_token in ".{0,200}") {
            let me = Me { host, job_token, ..Me::default() };
            let line = line(&me, Some(7), None);
            prop_assert_eq!(line.len(), BYTES);
            prop_assert_eq!(read(&line).last_step, Some(7));
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..BYTES)) {
            let read = read(&bytes);
            prop_assert!(read.last_step.is_none_or(|step| step >= 0));
        }
    }
}
