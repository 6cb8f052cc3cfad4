//! A node: what its GPUs, its machine and its kernel's log say, who owns a GPU, and the way all of that goes
//! to a server or to whoever asks for `/metrics`.
//!
//! Layer 2; knows nothing of the server. Every part is a [`Source`] that adds to the [`Snapshot`] of a tick.

mod cards;
mod log;
mod tick;

pub use cards::{Card, Cards, SharedCards};
pub use log::{KernelLog, LogInput, LogOptions, SharedHeard};
pub use tick::{Reading, Snapshot, Source, Tick};
