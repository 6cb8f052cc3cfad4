//! What becomes of spans.

use wire::otlp::Outcome;

use super::{Arrival, TakeError};
use crate::app::Shared;

/// Stores the spans of a request; see [`super::take`].
pub(super) fn take(_shared: &Shared, _arrival: &Arrival<'_>) -> Result<Outcome, TakeError> {
    Err(TakeError::NotServed("spans"))
}
