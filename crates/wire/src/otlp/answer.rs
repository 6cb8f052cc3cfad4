//! What is answered: how a request was taken, or why it was not.

use serde_json::json;

use super::proto::Fields;
use super::put::{put_bytes, put_varint};
use super::{Outcome, each_bytes};

/// In which form a request came, and so its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/x-protobuf`.
    Protobuf,
    /// `application/json`.
    Json,
}

impl Encoding {
    /// The encoding of a content type; parameters are allowed.
    pub fn of(content_type: &str) -> Option<Self> {
        let kind = content_type.split(';').next()?.trim();
        [Self::Protobuf, Self::Json].into_iter().find(|e| kind.eq_ignore_ascii_case(e.content_type()))
    }

    /// Its content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

/// Which signal a request is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Data points.
    Metrics,
    /// Spans.
    Traces,
    /// Log records.
    Logs,
}

impl Signal {
    /// The key of what was refused, in JSON.
    fn rejected(self) -> &'static str {
        match self {
            Self::Metrics => "rejectedDataPoints",
            Self::Traces => "rejectedSpans",
            Self::Logs => "rejectedLogRecords",
        }
    }
}

/// The body of `ExportMetricsServiceResponse` and its kin: empty, or `{}`, when all was taken.
pub fn response(signal: Signal, outcome: &Outcome, encoding: Encoding) -> Vec<u8> {
    let message = outcome.message();
    let all_well = outcome.rejected == 0 && message.is_empty();
    match encoding {
        Encoding::Json if all_well => b"{}".to_vec(),
        Encoding::Protobuf if all_well => Vec::new(),
        Encoding::Json => {
            let partial = json!({
                signal.rejected(): outcome.rejected.to_string(),
                "errorMessage": message,
            });
            json!({"partialSuccess": partial}).to_string().into_bytes()
        }
        Encoding::Protobuf => {
            let mut partial = Vec::new();
            put_varint(&mut partial, 1, outcome.rejected);
            put_bytes(&mut partial, 2, message.as_bytes());
            let mut out = Vec::new();
            put_bytes(&mut out, 1, &partial);
            out
        }
    }
}

/// How many elements a response in protobuf says were refused; none where it says nothing.
pub fn rejected(response: &[u8]) -> u64 {
    let mut rejected = 0;
    // An answer that can't be read says nothing.
    let _unreadable = each_bytes(response, 1, &mut |partial| {
        let mut fields = Fields(partial);
        while let Some((number, field)) = fields.next()? {
            if number == 1 {
                rejected = field.int()?;
            }
        }
        Ok(())
    });
    rejected
}

/// The type of [`retry_info`] within a status.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The body of `google.rpc.Status`: a code of gRPC, why, and after how many seconds to try again.
pub fn status(code: u32, message: &str, retry_seconds: Option<u64>, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            let details: Vec<_> = retry_seconds
                .iter()
                .map(|seconds| json!({"@type": RETRY_INFO, "retryDelay": format!("{seconds}s")}))
                .collect();
            json!({"code": code, "message": message, "details": details}).to_string().into_bytes()
        }
        Encoding::Protobuf => {
            let mut out = Vec::new();
            put_varint(&mut out, 1, u64::from(code));
            put_bytes(&mut out, 2, message.as_bytes());
            if let Some(seconds) = retry_seconds {
                let mut any = Vec::new();
                put_bytes(&mut any, 1, RETRY_INFO.as_bytes());
                put_bytes(&mut any, 2, &retry_info(seconds));
                put_bytes(&mut out, 3, &any);
            }
            out
        }
    }
}

/// The body of `google.rpc.RetryInfo`. Python's client reads it from a trailer of its own, others from
/// the details of the status.
pub fn retry_info(seconds: u64) -> Vec<u8> {
    let (mut duration, mut out) = (Vec::new(), Vec::new());
    put_varint(&mut duration, 1, seconds);
    put_bytes(&mut out, 1, &duration);
    out
}
