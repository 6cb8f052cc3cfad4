//! What becomes of data points.

use wire::otlp::Outcome;

use super::{Arrival, TakeError};
use crate::app::Shared;

/// Stores the data points of a request; see [`super::take`].
pub(super) fn take(_shared: &Shared, _arrival: &Arrival<'_>) -> Result<Outcome, TakeError> {
    Err(TakeError::NotServed("data points"))
}
