//! The program as a user meets it: real processes on loopback, asked from outside.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test itself does"
)]

mod access;
mod access_isolation;
mod access_questions;
mod access_tls;
mod access_world;
mod agent;
mod api;
mod autoscaling;
mod backup;
mod calc;
mod calc_recorded;
mod compare;
mod complete;
mod crash;
mod dashboards;
mod deploy;
mod doctor;
mod doors;
mod durability;
mod exemplars;
mod export;
mod far_cluster;
mod far_reading;
mod far_sending;
mod far_tls;
mod incidents;
mod intake;
mod missing;
mod notify;
mod otlp;
mod otlp_doors;
mod owners;
mod peers;
mod points;
mod process;
mod prometheus;
mod receivers;
mod remediation;
mod remediation_failures;
mod retention;
mod rules;
mod run;
mod saved_rules;
mod simulate;
mod stream;
mod terminal;
mod top;
mod verdict_restarts;
mod words;
