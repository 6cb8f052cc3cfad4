//! The `truegauge` command: a thin rim over the server and the client.
//!
//! Data goes to stdout, everything else to stderr. Exit code 0 is fine, 1 means findings, 2 a usage
//! or tool error.

mod agent;
mod alerts;
mod args;
mod backup;
mod calc;
mod chart;
mod compare;
mod doctor;
mod export;
mod export_file;
mod http;
mod output;
mod query;
mod reference;
mod remediation;
mod rules;
#[cfg(target_os = "linux")]
mod run;
mod runs;
mod saved_rules;
#[cfg(target_os = "linux")]
mod simulate;
mod sync;
mod table;
mod token;
#[cfg(target_os = "linux")]
mod top;
mod up;

use std::process::ExitCode;

fn main() -> ExitCode {
    args::main()
}
