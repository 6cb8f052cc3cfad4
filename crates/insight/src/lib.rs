//! What is known of a run and its machines, judged: pure functions over facts that come in as arguments.
//!
//! Layer 1. No I/O, no clock, no formats: catalogues, reports and the time are given, and the same facts
//! always give the same answer. So far: why a chart is missing.

pub mod missing;
