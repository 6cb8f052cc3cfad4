//! Recording and alerting rules in Prometheus' file format: reading, checking, evaluating, testing.

mod file;
mod group;
mod unit;

pub use file::{Finding, GroupFile, RuleFile, RuleKind, RuleText, check, parse};
pub use group::{
    Alert, AlertRecord, AlertState, Group, GroupState, Moment, Outcome, RuleState, Setting, Write,
};
pub use unit::{ReadFiles, Verdict, test};
