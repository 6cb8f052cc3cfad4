//! Recording and alerting rules in Prometheus' file format: reading, checking, evaluating, testing.

mod alert;
mod file;
mod group;
mod unit;

pub use alert::{Alert, AlertRecord, AlertState, Notice};
pub use file::{Finding, GroupFile, RuleFile, RuleKind, RuleText, check, parse};
pub use group::{Group, GroupState, Moment, Outcome, RuleState, Setting, Write};
pub use unit::{ReadFiles, Verdict, test};
