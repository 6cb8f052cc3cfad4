//! Recording and alerting rules in Prometheus' file format: reading, checking, evaluating, testing.

mod alert;
mod file;
mod group;
mod order;
mod replay;
mod unit;

pub use alert::{Alert, AlertRecord, AlertState, Notice};
pub use file::{Finding, GroupFile, RuleFile, RuleKind, RuleText, check, parse};
pub use group::{Group, GroupState, GroupTimes, Moment, Outcome, RuleState, Setting, Write};
pub use order::order;
pub use replay::{Episode, Moments, replay};
pub use unit::{Bounds, ReadFiles, Verdict, test, test_within};
