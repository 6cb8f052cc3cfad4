//! The store through its public face.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that can't go on fails its test")]
#![expect(clippy::print_stdout, reason = "a child process tells its parent what was acknowledged")]

mod support;

mod backup;
mod crash;
mod damage;
mod deletion;
mod events;
mod fixture;
mod full_disk;
mod laws;
mod maintenance;
mod replacing;
mod rollup_files;
mod rollups;
mod selection;
mod semantics;
mod telemetry;
mod telemetry_files;
