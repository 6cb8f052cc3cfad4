//! The server by its public face, in this process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail as the test itself does")]

mod calc_tools;
mod canonical;
mod canonical_rules;
mod engine_events;
mod engines;
mod fleet;
mod fleet_peer;
mod grpc;
mod incidents;
mod metrana;
mod metrana_hostile;
mod node_series;
mod otlp_captures;
mod otlp_doors;
mod otlp_forward;
mod otlp_logs;
mod otlp_metrics;
mod otlp_names;
mod otlp_peer;
mod otlp_points;
mod otlp_restarts;
mod otlp_training;
mod owners;
mod pages;
mod site;
mod slow_machine;
mod trainer;
mod verdicts;
mod verdicts_fed;
mod verdicts_hostile;
mod verdicts_odd;
mod verdicts_reference;
