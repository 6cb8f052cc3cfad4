//! The store as PromQL sees it.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::{Labels, RolledUp, RollupAsk, RollupBucket};
use promql::{Columns, MatchOp, Matcher, Select, Source, SourceError};
use store::{Block, Found, ReadError, Store};

pub(crate) use names::{select, spelled_out};
pub(crate) use round::{Kept, Round};

use crate::app::Shared;
use crate::otlp::Streams;

mod names;
mod round;
#[cfg(test)]
mod tests;

/// Answers selectors from the store; runs that are deleted are not there.
#[derive(Debug)]
pub(crate) struct StoreSource<'s> {
    store: &'s Store,
    /// Knows other spellings of names.
    streams: &'s Streams,
}

impl<'s> StoreSource<'s> {
    /// All that this server holds.
    pub(crate) fn of(shared: &'s Shared) -> Self {
        Self { store: &shared.store, streams: &shared.streams }
    }
}

/// Conditions as the store wants them.
pub(crate) fn conditions(matchers: &[Matcher]) -> Vec<store::Matcher<'_>> {
    matchers.iter().map(condition).collect()
}

fn condition(matcher: &Matcher) -> store::Matcher<'_> {
    let op = match matcher.op {
        MatchOp::Equal => store::MatchOp::Equal,
        MatchOp::NotEqual => store::MatchOp::NotEqual,
        MatchOp::Matches => store::MatchOp::Regex,
        MatchOp::MatchesNot => store::MatchOp::NotRegex,
    };
    if NUMBER_LABELS.contains(&&*matcher.name) {
        // Any number may be meant, so that nothing can be read off what is written.
        return store::Matcher::new(&matcher.name, store::MatchOp::Regex, ".*", |text: &str| {
            fits_number(matcher, text)
        });
    }
    store::Matcher::new(&matcher.name, op, &matcher.value, |text: &str| matcher.fits(text))
}

/// Labels whose values are numbers, which are spelled in several ways: `500` and `500.0`.
const NUMBER_LABELS: [&str; 2] = ["le", "quantile"];

/// Whether a number fits in any of its spellings.
fn fits_number(matcher: &Matcher, text: &str) -> bool {
    if matcher.fits(text) {
        return matches!(matcher.op, MatchOp::Equal | MatchOp::Matches)
            || other_spelling(text).is_none_or(|text| matcher.fits(&text));
    }
    match matcher.op {
        MatchOp::Equal => {
            let number = |text: &str| text.parse::<f64>().ok();
            number(text).is_some_and(|found| number(&matcher.value) == Some(found))
        }
        MatchOp::Matches => other_spelling(text).is_some_and(|text| matcher.fits(&text)),
        MatchOp::NotEqual | MatchOp::MatchesNot => false,
    }
}

/// A whole number without its `.0`, or with it.
fn other_spelling(text: &str) -> Option<String> {
    if let Some(whole) = text.strip_suffix(".0") {
        return Some(whole.to_owned());
    }
    let is_whole =
        !text.is_empty() && text.strip_prefix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit());
    is_whole.then(|| format!("{text}.0"))
}

impl Source for StoreSource<'_> {
    fn select<'s>(&'s self, select: &Select<'_>) -> Result<Vec<Box<dyn promql::Series + 's>>, SourceError> {
        let found = names::select(self.store, self.streams, select.matchers, (select.from_ns, select.to_ns));
        let series = |found: Found| Box::new(Stored { store: self.store, found }) as Box<dyn promql::Series>;
        Ok(found.into_iter().map(series).collect())
    }
}

struct Stored<'s> {
    store: &'s Store,
    found: Found,
}

impl promql::Series for Stored<'_> {
    fn labels(&self) -> Arc<Labels> {
        Arc::clone(&self.found.labels)
    }

    fn chunks(
        &self,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&dyn promql::Chunk) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        let read = self.store.scan(self.found.id, from_ns, to_ns, &mut |block| visit(&Piece(block)));
        read.map_err(failed)
    }

    fn rollups(&self, ask: &RollupAsk, into: &mut Vec<RollupBucket>) -> Result<RolledUp, SourceError> {
        Ok(self.store.rollups(self.found.id, ask, into))
    }
}

fn failed(error: ReadError) -> SourceError {
    tracing::error!(%error, "cannot read points");
    SourceError { reason: error.to_string() }
}

struct Piece<'c, 'b>(&'c Block<'b>);

impl promql::Chunk for Piece<'_, '_> {
    fn summary(&self) -> promql::Summary {
        let of = self.0.summary();
        promql::Summary {
            count: of.count,
            non_finite: of.non_finite,
            time_ns: of.time_ns,
            first: of.first,
            last: of.last,
            min: of.min,
            max: of.max,
        }
    }

    fn decode(&self, into: &mut Columns) -> Result<(), SourceError> {
        self.0.columns(&mut into.times_ns, &mut into.values).map_err(failed)
    }
}
