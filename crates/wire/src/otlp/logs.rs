//! The message `ExportLogsServiceRequest`, record by record.

use std::borrow::Cow;

use super::proto::Fields;
use super::resource::Resource;
use super::value::{Attributes, Value};
use super::{BODY_BYTES_MAX, OtlpError, Outcome, Refusal, Scope, id, text};

/// Most records in one request.
pub const RECORDS_MAX: usize = 500_000;
/// Longest body of a record, bytes; longer ones are cut.
pub const RECORD_BYTES_MAX: usize = 65_536;

/// A log record: an event with a severity.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<'a, 'r> {
    /// Who sent it.
    pub resource: &'r Resource<'a>,
    /// The logger.
    pub scope: Scope<'a>,
    /// When it happened, else when it was seen, nanoseconds since the epoch.
    pub time_ns: i64,
    /// 1 to 4 trace, to 8 debug, to 12 info, to 16 warn, to 20 error, to 24 fatal; 0 not said.
    pub severity: u8,
    /// The severity in the sender's words.
    pub severity_text: &'a str,
    /// The name of its kind of event, or empty.
    pub event: &'a str,
    /// What it says.
    pub body: Cow<'a, str>,
    /// Whether the body may be a message of a chat: it is no plain text, or of an event `gen_ai.*`.
    pub is_text: bool,
    /// Its attributes, without texts of prompts and completions unless they are asked for.
    pub attributes: Attributes<'a>,
    /// The trace it was written in.
    pub trace: Option<[u8; 16]>,
    /// The span it was written in.
    pub span: Option<[u8; 8]>,
}

/// Takes a record or says why not.
pub type RecordSink<'s> = &'s mut dyn FnMut(&Record<'_, '_>) -> Result<(), Refusal>;

/// Reads a body and hands its records to `sink` in order; `now_ns` stands for times that are missing.
/// Without `keep_text`, texts of prompts and completions are not among their attributes, and a body
/// that [`Record::is_text`] is left out. On an error nothing of the body counts.
pub fn read(body: &[u8], now_ns: i64, keep_text: bool, sink: RecordSink<'_>) -> Result<Outcome, OtlpError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(OtlpError::TooMuch { what: "bytes unpacked", limit: BODY_BYTES_MAX });
    }
    let (mut outcome, mut records) = (Outcome::default(), 0);
    super::each_element(body, &mut |resource, scope, message| {
        records += 1;
        if records > RECORDS_MAX {
            return Err(OtlpError::TooMuch { what: "log records", limit: RECORDS_MAX });
        }
        let record = record(resource, scope, message, (now_ns, keep_text))?;
        match sink(&record) {
            Ok(()) => outcome.accepted += 1,
            Err(refusal) => outcome.refuse(scope.name, 1, refusal),
        }
        Ok(())
    })?;
    Ok(outcome)
}

fn record<'a, 'r>(
    resource: &'r Resource<'a>,
    scope: Scope<'a>,
    message: &'a [u8],
    (now_ns, keep_text): (i64, bool),
) -> Result<Record<'a, 'r>, OtlpError> {
    let (mut time_ns, mut observed_ns, mut body) = (0, 0, Value::Empty);
    let mut record = Record {
        resource,
        scope,
        time_ns: 0,
        severity: 0,
        severity_text: "",
        event: "",
        body: Cow::Borrowed(""),
        is_text: false,
        attributes: Attributes::default(),
        trace: None,
        span: None,
    };
    let mut fields = Fields(message);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => time_ns = field.fixed()?,
            2 => record.severity = u8::try_from(field.int()?).ok().filter(|s| *s <= 24).unwrap_or(0),
            3 => record.severity_text = text::cut(field.text()?, text::VALUE_BYTES_MAX),
            5 => body = Value::read(field.bytes()?)?,
            6 => record.attributes.push(field.bytes()?)?,
            7 => record.attributes.left_out += field.int()?,
            9 => record.trace = id(field.bytes()?),
            10 => record.span = id(field.bytes()?),
            11 => observed_ns = field.fixed()?,
            12 => record.event = text::cut(field.text()?, text::VALUE_BYTES_MAX),
            _ => {}
        }
    }
    let time = [time_ns, observed_ns].into_iter().find(|time| *time > 0);
    record.time_ns = time.map_or(now_ns, |time| i64::try_from(time).unwrap_or(i64::MAX));
    if !keep_text {
        text::drop_texts(&mut record.attributes.list);
    }
    // Messages of chats come as maps and lists, or as events of their own; a log line is plain text.
    record.is_text = matches!(body, Value::Map(_) | Value::List(_)) || record.event.starts_with("gen_ai.");
    if keep_text || !record.is_text {
        record.body = match body.text()? {
            Cow::Borrowed(all) => Cow::Borrowed(text::cut(all, RECORD_BYTES_MAX)),
            Cow::Owned(all) => Cow::Owned(text::cut(&all, RECORD_BYTES_MAX).to_owned()),
        };
    }
    Ok(record)
}
