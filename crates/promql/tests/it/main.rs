//! Tests of PromQL through its public face.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that can't go on fails its test")]

#[path = "../runner/mod.rs"]
mod runner;

mod advice;
mod cases;
mod hostile;
mod info;
mod laws;
mod places;
mod promtool;
mod queries;
mod restrict;
mod rules;
mod sources;
mod tree;
