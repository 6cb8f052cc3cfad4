//! A cluster that is made up: nodes and their GPUs, training jobs, inference engines and what goes wrong
//! with them, told by a scenario file.
//!
//! Pure: no process, no clock, no socket. Everything is a function of the scenario and of its time, reached
//! in steps of [`TICK_SECONDS`], so that processes which play different parts agree without talking to each
//! other: the node whose card is throttled, the rank on it that falls behind and the ranks that wait.

mod engine;
mod job;
mod node;
mod noise;
mod profile;
mod scenario;

pub use engine::{Engine, Histogram};
pub use job::{Job, Step};
pub use node::{Card, LogLine, Node};
pub use profile::{PROFILES, Profile};
pub use scenario::{
    EngineGroup, Fault, FaultKind, HostRange, JobGroup, NodeGroup, Scenario, ScenarioError, Vocabulary,
};

/// The grid of a scenario's time, seconds.
pub const TICK_SECONDS: f64 = 0.1;
