//! A span that is still open.

use model::AttributeValue;

use super::Attributes;
use super::context::SpanContext;

/// A span from its start to its end. Without export it does nothing; when the last handle goes, it
/// ends as one that was cut short.
#[derive(Debug, Default)]
pub struct Span {
    context: Option<SpanContext>,
}

impl Span {
    /// How others refer to it; none for one that does nothing.
    pub fn context(&self) -> Option<SpanContext> {
        self.context
    }

    /// Whether anything that is said of it is kept.
    pub fn is_recording(&self) -> bool {
        self.context.is_some_and(|context| context.is_sampled)
    }

    /// Sets an attribute; text under one of the redacted keys becomes `[REDACTED]`.
    pub fn set_attribute(&self, key: &str, value: AttributeValue) {
        let _ = (key, value);
    }

    /// Adds something that happened, now or at a time.
    pub fn add_event(&self, name: &str, attributes: Attributes<'_>, time_ns: Option<i64>) {
        let _ = (name, attributes, time_ns);
    }

    /// Points to another span.
    pub fn add_link(&self, to: SpanContext, attributes: Attributes<'_>) {
        let _ = (to, attributes);
    }

    /// Records an exception as an event and sets the status to error.
    pub fn record_exception(&self, kind: &str, message: &str, stacktrace: &str) {
        let _ = (kind, message, stacktrace);
    }

    /// Sets the status: ok, or what went wrong.
    pub fn set_status(&self, result: Result<(), &str>) {
        let _ = result;
    }

    /// Gives it another name.
    pub fn set_name(&self, name: &str) {
        let _ = name;
    }

    /// Ends it, now or at a time. Later calls are no-ops.
    pub fn end(&self, time_ns: Option<i64>) {
        let _ = time_ns;
    }
}
