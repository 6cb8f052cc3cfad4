//! A node: what its GPUs, its machine and its kernel's log say, who owns a GPU, and the way all of that goes
//! to a server or to whoever asks for `/metrics`.
//!
//! Layer 2; knows nothing of the server. Every part is a [`Source`] that adds to the [`Snapshot`] of a tick.

mod cards;
mod config;
mod dcgm;
mod driver_events;
mod expose;
mod gpu;
mod http;
mod kept;
mod log;
mod machine;
mod outbox;
pub mod own;
mod owners;
mod parts;
mod push;
mod run;
mod shown;
mod state;
mod tick;

pub use cards::{Card, Cards, SharedCards};
pub use config::{Config, ConfigError, FIELDS, Field, Given, Names, Secret, Shape};
pub use driver_events::DriverEvents;
pub use gpu::GpuSource;
pub use log::{KernelLog, LogInput, LogOptions, SharedHeard};
pub use machine::Machine;
pub use owners::{Owners, OwnersOptions};
pub use push::ServerError;
pub use run::{AgentError, Running, spool_dir, start, start_with};
pub use state::StateError;
pub use tick::{Reading, Snapshot, Source, Tick};
