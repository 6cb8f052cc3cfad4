//! PromQL over a [`Source`] of samples: queries, recording and alerting rules.
//!
//! Layer 1; knows no store, no HTTP, no files. [`Query::parse`] makes a plan (`promql-parser` knows
//! the grammar, `syntax` the places in the text), [`Query::instant`] and [`Query::range`] evaluate
//! it: every node computes all steps at once, one row per series (`eval`). Times are nanoseconds
//! inside and milliseconds at the face. The semantics are those of Prometheus 3: left-open windows,
//! a lookback of 5 minutes, staleness markers, extrapolation, and names dropped at the end.

mod advice;
mod answer;
mod error;
mod eval;
mod functions;
pub mod json;
mod labels;
mod limits;
mod memory;
pub mod notation;
mod notes;
mod number;
mod plan;
mod query;
mod rewrite;
pub mod rules;
mod source;
mod syntax;
mod template;
mod vocabulary;

pub use advice::{Advice, Fix};
pub use answer::{Answer, Data, Run, Stats};
pub use error::{QueryError, Span};
pub use functions::{FunctionHelp, function_help, function_names};
pub use limits::{Cancel, Charge, Held, Limits, Memory};
pub use memory::MemorySource;
pub use query::{Options, Query, ValueType};
pub use rewrite::{Bar, bars, format_query, parse_selector, query_tree, raw_range, rename_metrics, restrict};
pub use source::{
    Chunk, Columns, MatchOp, Matcher, PatternError, Select, Series, Source, SourceError, Summary,
};
pub use syntax::{Place, ValueForm, Wants, place_at, selectors_in, takes_counters};
pub use template::Message;
pub use vocabulary::{WordPlace, aggregation_help, keyword_help};
