//! What is known of a run and its machines, judged: pure functions over facts that come in as arguments.
//!
//! Layer 1. No I/O, no clock, no formats: catalogues, reports and the time are given, and the same facts
//! always give the same answer. So far: why a chart is missing, where the time of a step and of a run
//! goes, how far clocks are apart, how much of its peak hardware is made use of, which faults of devices
//! have one cause, what a device has burnt, what holds a served model back, what it costs, which rank slows
//! a job down, and which one it hangs on.

pub mod breakdown;
pub mod capacity;
pub mod change;
pub mod clocks;
pub mod counter;
pub mod economics;
pub mod energy;
pub mod ettr;
pub mod goodput;
pub mod hang;
pub mod incidents;
pub mod mfu;
pub mod missing;
pub mod objectives;
pub mod remediation;
pub mod roofline;
pub mod serving;
pub mod straggler;
pub mod stream;
mod sweep;
