//! Asks PromQL, of the store and of what was asked before.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use model::{Labels, NANOS_PER_MILLI};
use promql::{Data, MemorySource, Options, Query, QueryError, Source};

use super::{Key, Window};

/// Labels and value.
pub(crate) type Vector = Vec<(Arc<Labels>, f64)>;

/// See the module.
pub(crate) struct Asker<'s> {
    source: &'s dyn Source,
    options: &'s Options,
    window: Window,
    /// Results that are asked again, each under a name of its own.
    kept: MemorySource,
    samples: Cell<u64>,
}

/// A selector of engines' series by name.
pub(crate) fn selector(op: &str, name: &str) -> String {
    format!("{{__name__{op}{},engine!=\"\"}}", quoted(name))
}

impl<'s> Asker<'s> {
    pub(crate) fn new(source: &'s dyn Source, options: &'s Options, window: Window) -> Self {
        Self { source, options, window, kept: MemorySource::new(), samples: Cell::default() }
    }

    /// How many samples were read so far.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.get()
    }

    pub(crate) fn window(&self) -> Window {
        self.window
    }

    /// Evaluates at the end of the window.
    pub(crate) fn ask(&self, text: &str) -> Result<Vector, QueryError> {
        self.ask_of(self.source, text)
    }

    /// The same of what was kept.
    pub(crate) fn ask_kept(&self, text: &str) -> Result<Vector, QueryError> {
        self.ask_of(&self.kept, text)
    }

    /// The same of another source.
    pub(crate) fn ask_of(&self, source: &dyn Source, text: &str) -> Result<Vector, QueryError> {
        let answer = Query::parse(text)?.instant(source, self.window.to_ms, self.options)?;
        self.samples.set(self.samples.get() + answer.stats.samples_read);
        Ok(match answer.data {
            Data::Vector { samples, .. } => samples,
            _ => Vec::new(),
        })
    }

    /// Keeps a result under a name, to be asked again.
    pub(crate) fn keep(&mut self, name: &str, vector: Vector) {
        let time_ns = self.window.to_ms.saturating_mul(NANOS_PER_MILLI);
        for (labels, value) in vector {
            let others = labels.iter().filter(|(label, _)| *label != "__name__");
            let labels = Labels::from_pairs(others.chain([("__name__", name)]));
            self.kept.push(labels, time_ns, value);
        }
    }

    /// Values by replica.
    pub(crate) fn by_key(&self, text: &str) -> Result<BTreeMap<Key, f64>, QueryError> {
        Ok(self.ask(text)?.into_iter().map(|(labels, value)| (Key::of(&labels), value)).collect())
    }

    /// Values by model.
    pub(crate) fn by_model(&self, text: &str) -> Result<BTreeMap<Arc<str>, f64>, QueryError> {
        let model = |labels: &Labels| Arc::from(labels.get("model").unwrap_or_default());
        Ok(self.ask(text)?.into_iter().map(|(labels, value)| (model(&labels), value)).collect())
    }
}

/// A text as PromQL writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                // Writing to a String can't fail.
                let _infallible = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
