//! Bytes to model and back. Layer 1; knows no sockets and no files.
//!
//! The push protocol (`docs/format/push.md`), scraped pages in Prometheus' text format and OpenMetrics,
//! remote write, OTLP, the `metrana` client's messages, reports of autocapture, and what PyTorch tells of a job that
//! hangs. Every reader borrows
//! from its input, has bounds with names and allocates nothing by a length that the input claims.

pub mod capture;
pub mod exposition;
mod fields;
pub mod metrana;
pub mod nccl;
pub mod openmetrics;
pub mod otlp;
pub mod page;
pub mod push;
pub mod remote_write;
