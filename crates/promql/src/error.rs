//! Why a query has no answer.

use std::time::Duration;

use crate::source::SourceError;

/// A place in a query's text, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One behind the last byte.
    pub end: u32,
}

impl Span {
    /// Line and column of the start in `query`, both from 1, as Prometheus prints them: `1:5`.
    pub fn place(self, query: &str) -> String {
        let before = query.get(..self.start as usize).unwrap_or(query);
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        format!("{line}:{column}")
    }
}

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QueryError {
    /// The text is no PromQL.
    #[error("{place}: parse error: {reason}")]
    Parse {
        /// Line and column, `1:5`.
        place: String,
        /// What is wrong and, where known, what to write instead.
        reason: String,
    },
    /// Valid PromQL that this engine leaves out.
    #[error("{place}: not supported: {what}")]
    Unsupported {
        /// Line and column, `1:5`.
        place: String,
        /// The function or syntax, and what to use instead where there is something.
        what: String,
    },
    /// The question can't be answered for this data or these arguments; the text is Prometheus' own.
    #[error("{0}")]
    Execution(String),
    /// Over [`crate::Limits::samples_max`].
    #[error(
        "query processing would load too many samples into memory in query execution: {found} of at most {limit} (`samples_max`): narrow the selector, the range or the step"
    )]
    TooManySamples {
        /// Samples or values.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Over [`crate::Limits::series_max`].
    #[error("a selector matches {found} series, at most {limit} are read (`series_max`): add label matchers")]
    TooManySeries {
        /// Series.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Over [`crate::Limits::memory_max_bytes`].
    #[error(
        "the query needs {found} bytes, at most {limit} may be used (`memory_max_bytes`): aggregate earlier or use a larger step"
    )]
    TooMuchMemory {
        /// Bytes.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Over what queries may hold together, see [`crate::Memory`].
    #[error(
        "the query holds {found} bytes and others {others}, all together may hold {limit} (`memory_max_bytes`): ask again when they are done, aggregate earlier or use a larger step"
    )]
    MemoryTaken {
        /// Bytes that this query holds.
        found: u64,
        /// Bytes that others hold.
        others: u64,
        /// The limit.
        limit: u64,
    },
    /// Over [`crate::Limits::time_max`].
    #[error("query timed out in expression evaluation: it took longer than {limit:?} (`time_max`)")]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// Stopped from outside.
    #[error("query was canceled in expression evaluation")]
    Canceled,
    /// The source failed.
    #[error("expanding series: {0}")]
    Source(#[from] SourceError),
    /// A mistake of this crate's.
    #[error("internal error: {0}")]
    Internal(String),
}

impl QueryError {
    /// The `errorType` that Prometheus' HTTP API gives such an error; `unavailable` is ours.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Parse { .. } | Self::Unsupported { .. } => "bad_data",
            Self::Execution(_)
            | Self::TooManySamples { .. }
            | Self::TooManySeries { .. }
            | Self::TooMuchMemory { .. }
            | Self::Source(_) => "execution",
            Self::MemoryTaken { .. } => "unavailable",
            Self::Timeout { .. } => "timeout",
            Self::Canceled => "canceled",
            Self::Internal(_) => "internal",
        }
    }
}
