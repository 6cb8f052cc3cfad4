//! Reads what a backend answers. Whatever can't be read says nothing: a client has to go on.

use std::time::Duration;

use super::proto::Fields;

/// What was refused of a request that was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partial {
    /// Points, spans or records.
    pub rejected: u64,
    /// Why, or advice where nothing was refused.
    pub message: String,
}

/// Reads `ExportMetricsServiceResponse` and its kin, whose field 1 is the partial success.
pub fn partial(body: &[u8]) -> Partial {
    read_partial(body).unwrap_or_default()
}

fn read_partial(body: &[u8]) -> Option<Partial> {
    let mut partial = Partial::default();
    let mut fields = Fields(body);
    while let Some((number, field)) = fields.next().ok()? {
        if number != 1 {
            continue;
        }
        let mut inner = Fields(field.bytes().ok()?);
        while let Some((number, field)) = inner.next().ok()? {
            match number {
                // Signed in the schema; below zero would be nonsense.
                1 => partial.rejected = u64::try_from(field.int().ok()?.cast_signed()).unwrap_or(0),
                2 => field.text().ok()?.clone_into(&mut partial.message),
                _ => {}
            }
        }
    }
    Some(partial)
}

/// `google.rpc.Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Why.
    pub message: String,
    /// After how long to try again, where it says so.
    pub retry_after: Option<Duration>,
}

/// Reads the body of an error.
pub fn status(body: &[u8]) -> Status {
    read_status(body).unwrap_or_default()
}

fn read_status(body: &[u8]) -> Option<Status> {
    let mut status = Status::default();
    let mut fields = Fields(body);
    while let Some((number, field)) = fields.next().ok()? {
        match number {
            2 => field.text().ok()?.clone_into(&mut status.message),
            3 => status.retry_after = status.retry_after.or(detail(field.bytes().ok()?)),
            _ => {}
        }
    }
    Some(status)
}

/// The delay in a detail, if that is what it is.
fn detail(any: &[u8]) -> Option<Duration> {
    let (mut is_retry, mut value) = (false, &[][..]);
    let mut fields = Fields(any);
    while let Some((number, field)) = fields.next().ok()? {
        match number {
            1 => is_retry = field.text().ok()?.ends_with("google.rpc.RetryInfo"),
            2 => value = field.bytes().ok()?,
            _ => {}
        }
    }
    if is_retry { retry_info(value) } else { None }
}

/// Reads `google.rpc.RetryInfo`.
pub fn retry_info(message: &[u8]) -> Option<Duration> {
    let mut fields = Fields(message);
    while let Some((number, field)) = fields.next().ok()? {
        if number != 1 {
            continue;
        }
        let (mut seconds, mut nanos) = (0, 0);
        let mut inner = Fields(field.bytes().ok()?);
        while let Some((number, field)) = inner.next().ok()? {
            match number {
                1 => seconds = field.int().ok()?,
                2 => nanos = field.int().ok()?,
                _ => {}
            }
        }
        let is_sane = seconds <= 86_400 && nanos < 1_000_000_000;
        return is_sane.then(|| Duration::new(seconds, nanos as u32));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::answer::{self, Encoding, Signal};
    use super::super::{Outcome, Refusal};
    use super::*;

    #[test]
    fn our_own_answers_are_read() {
        assert_eq!(partial(&[]), Partial::default());
        let mut outcome = Outcome::default();
        outcome.refuse("m", 3, Refusal::new("limit", "too many"));
        let body = answer::response(Signal::Metrics, &outcome, Encoding::Protobuf);
        let got = partial(&body);
        assert_eq!((got.rejected, got.message), (outcome.rejected, outcome.message()));
        let body = answer::status(14, "busy", Some(3), Encoding::Protobuf);
        let want = Status { message: "busy".into(), retry_after: Some(Duration::from_secs(3)) };
        assert_eq!(status(&body), want);
        assert_eq!(status(&answer::status(3, "bad", None, Encoding::Protobuf)).retry_after, None);
        assert_eq!(retry_info(&answer::retry_info(2)), Some(Duration::from_secs(2)));
    }

    #[test]
    fn garbage_says_nothing() {
        for garbage in [&b"<html>"[..], &[0xff; 40], &[0x0a, 0x50, 1]] {
            assert_eq!((partial(garbage), status(garbage)), (Partial::default(), Status::default()));
            assert_eq!(retry_info(garbage), None);
        }
    }
}
