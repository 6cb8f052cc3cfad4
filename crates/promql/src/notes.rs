//! Warnings and infos beside an answer, in Prometheus' words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::error::Span;
use crate::number::{general, general_digits, rfc3339};

/// A remark on an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Note {
    InvalidQuantile(f64),
    InvalidRatio(f64, f64),
    BadBucket {
        metric: String,
        le: String,
    },
    SortInRange,
    PossibleNonCounter(String),
    ForcedMonotonic {
        metric: String,
        repair: Repair,
    },
    /// Single samples are gone; `sampled` when one of each bucket stands for all of them.
    RolledUp {
        width_ns: i64,
        sampled: bool,
    },
}

/// Buckets that had to be raised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Repair {
    pub(crate) times_ns: (i64, i64),
    pub(crate) buckets: (f64, f64),
    pub(crate) largest: f64,
    pub(crate) samples: u64,
}

impl Note {
    fn is_warning(&self) -> bool {
        !matches!(self, Self::PossibleNonCounter(_) | Self::ForcedMonotonic { .. } | Self::RolledUp { .. })
    }

    /// The part by which equal notes are told.
    fn text(&self) -> String {
        let mut out = String::from(if self.is_warning() { "PromQL warning: " } else { "PromQL info: " });
        let done = match self {
            Self::InvalidQuantile(q) => {
                write!(out, "quantile value should be between 0 and 1, got {}", general(*q))
            }
            Self::InvalidRatio(found, capped) => write!(
                out,
                "ratio value should be between -1 and 1, got {}, capping to {}",
                general(*found),
                general(*capped)
            ),
            Self::BadBucket { metric, le } => {
                let name =
                    if metric.is_empty() { String::new() } else { format!(" for metric name {metric:?}") };
                write!(out, "bucket label \"le\" is missing or has a malformed value of {le:?}{name}")
            }
            Self::SortInRange => {
                write!(
                    out,
                    "sort is ineffective for range queries since results are always ordered by labels"
                )
            }
            Self::PossibleNonCounter(metric) => write!(
                out,
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {metric:?}"
            ),
            Self::RolledUp { width_ns, sampled } => {
                let width = crate::number::seconds(*width_ns) / 60.0;
                let what = if *sampled { "a sample of each stands for it" } else { "they are taken" };
                write!(
                    out,
                    "of old samples only roll-ups of up to {} minutes are left: {what}",
                    general(width)
                )
            }
            Self::ForcedMonotonic { metric, .. } => {
                let name =
                    if metric.is_empty() { String::new() } else { format!(" for metric name {metric:?}") };
                write!(
                    out,
                    "input to histogram_quantile needed to be fixed for monotonicity (see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile){name}"
                )
            }
        };
        debug_assert!(done.is_ok());
        out
    }
}

/// Warnings, and likewise infos, that an answer carries; more are counted.
const TOLD_MAX: usize = 10;
/// Different notes that are kept; more are counted.
const KEPT_MAX: usize = 1000;

/// The notes of one query, each text once.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    kept: BTreeMap<String, (Note, Span)>,
    /// Warnings and infos beyond [`KEPT_MAX`].
    beyond: (usize, usize),
}

impl Notes {
    pub(crate) fn add(&mut self, note: Note, span: Span) {
        let text = note.text();
        if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(&text) {
            *(if note.is_warning() { &mut self.beyond.0 } else { &mut self.beyond.1 }) += 1;
            return;
        }
        match self.kept.entry(text) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert((note, span));
            }
            std::collections::btree_map::Entry::Occupied(mut taken) => {
                if let (
                    Note::ForcedMonotonic { repair: had, .. },
                    Note::ForcedMonotonic { repair: new, .. },
                ) = (&mut taken.get_mut().0, note)
                {
                    had.times_ns = (had.times_ns.0.min(new.times_ns.0), had.times_ns.1.max(new.times_ns.1));
                    had.buckets = (had.buckets.0.min(new.buckets.0), had.buckets.1.max(new.buckets.1));
                    had.largest = had.largest.max(new.largest);
                    had.samples += new.samples;
                }
            }
        }
    }

    /// Warnings and infos with their places in `query`.
    pub(crate) fn texts(&self, query: &str) -> (Vec<String>, Vec<String>) {
        let (mut warnings, mut infos) = (Vec::new(), Vec::new());
        for (text, (note, span)) in &self.kept {
            let mut line = text.clone();
            if let Note::ForcedMonotonic { repair, .. } = note {
                let done = write!(
                    line,
                    ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
                    general(repair.buckets.0),
                    general(repair.buckets.1),
                    general_digits(repair.largest, 2),
                    repair.samples,
                    rfc3339(repair.times_ns.0),
                    rfc3339(repair.times_ns.1),
                );
                debug_assert!(done.is_ok());
            }
            line.extend([" (", &span.place(query), ")"]);
            if note.is_warning() { warnings.push(line) } else { infos.push(line) }
        }
        let beyond = [(&mut warnings, self.beyond.0, "warning"), (&mut infos, self.beyond.1, "info")];
        for (texts, beyond, name) in beyond {
            let more = beyond + texts.len().saturating_sub(TOLD_MAX);
            texts.truncate(TOLD_MAX);
            if more > 0 {
                texts.push(format!("{more} more {name} annotations omitted"));
            }
        }
        (warnings, infos)
    }
}
