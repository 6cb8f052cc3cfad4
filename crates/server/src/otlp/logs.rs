//! What becomes of log records.

use wire::otlp::Outcome;

use super::{Arrival, TakeError};
use crate::app::Shared;

/// Stores the log records of a request; see [`super::take`].
pub(super) fn take(_shared: &Shared, _arrival: &Arrival<'_>) -> Result<Outcome, TakeError> {
    Err(TakeError::NotServed("log records"))
}
