//! A source that shows a caller's part only.

use promql::{Matcher, Select, Series, Source, SourceError};

use super::Caller;

/// Adds the caller's conditions to every selector, where nothing that a query says can take them
/// away again.
pub(crate) struct Within<S> {
    source: S,
    matchers: Vec<Matcher>,
}

impl<S> Within<S> {
    /// What `caller` sees of `source`.
    pub(crate) fn new(source: S, caller: &Caller) -> Self {
        Self { source, matchers: caller.matchers() }
    }
}

impl<S: Source> Source for Within<S> {
    fn select<'s>(&'s self, select: &Select<'_>) -> Result<Vec<Box<dyn Series + 's>>, SourceError> {
        if self.matchers.is_empty() {
            return self.source.select(select);
        }
        let matchers = [select.matchers, &self.matchers].concat();
        self.source.select(&Select { matchers: &matchers, ..select.clone() })
    }
}
