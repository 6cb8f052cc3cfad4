//! The public face of `agent`, on folders that stand for machines, fake drivers and this machine.
#![expect(clippy::unwrap_used, reason = "the lints know test functions, not what they call")]

mod driver_events;
mod kubelet;
mod log;
mod log_rotation;
mod machine;
mod owners;
