//! The readers of `wire` through their public faces.

#![expect(clippy::unwrap_used, reason = "the lint's exemption covers test functions, not their helpers")]

mod capture;
mod exposition;
mod openmetrics;
mod otlp;
mod page;
mod prometheus;
mod remote_write;
