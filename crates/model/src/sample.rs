//! One observation.

/// Nanoseconds in a millisecond.
pub const NANOS_PER_MILLI: i64 = 1_000_000;
/// Nanoseconds in a second.
pub const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The bits of the NaN that says "this series ended here", as Prometheus writes it. It is a marker,
/// not a value: PromQL answers nothing for it. Every other NaN is an ordinary value.
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Whether `value` is the marker of [`STALE_NAN_BITS`].
pub fn is_stale_marker(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// The marker of [`STALE_NAN_BITS`] as a value.
pub fn stale_marker() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}

/// A value at a time, with the training step it belongs to where there is one.
///
/// `time_ns` counts nanoseconds since the Unix epoch, UTC. `step` is the integer on the series'
/// scale; a step that goes back is data, not an error. NaN and infinities are ordinary values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// The observed value.
    pub value: f64,
    /// The step on the series' scale, absent for series that have none.
    pub step: Option<i64>,
}
