//! OTLP: metrics, traces and logs of any OpenTelemetry client, read from protobuf or JSON.
//!
//! A body becomes points, spans or log records, one at a time and borrowed from the body. What can't
//! be taken is refused alone, counted and named in the answer; only a body that can't be read is
//! refused whole. Nothing is allocated by a length that the body claims.

pub mod names;
