//! One look at the node.

use std::time::Duration;

use model::{Desc, Event};

/// When and where a look is taken.
#[derive(Debug, Clone, Copy)]
pub struct Tick<'a> {
    /// By the wall clock, nanoseconds since the epoch.
    pub time_ns: i64,
    /// Since the agent's start, by a clock that is never set.
    pub elapsed: Duration,
    /// Name of the node, the label `host` of everything.
    pub host: &'a str,
}

/// A value of a metric. The label `host` is added by the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The metric.
    pub desc: &'static Desc,
    /// Its labels beside `host`.
    pub labels: Vec<(&'static str, String)>,
    /// The value, in the metric's unit.
    pub value: f64,
}

/// What a look found. A series that the next one has not is over.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Values.
    pub readings: Vec<Reading>,
    /// What happened since the look before.
    pub events: Vec<Event>,
}

/// A part of the node that can be looked at.
pub trait Source: Send {
    /// Its name in the agent's own telemetry.
    fn name(&self) -> &'static str;

    /// Adds what it sees. It does not block for long: what may hang has a thread and a deadline of its own.
    fn read(&mut self, tick: &Tick<'_>, out: &mut Snapshot);

    /// What the last [`read`](Self::read) gave is on disk, or taken by whoever wanted it: a place up to which
    /// something was read may be remembered. Not called for a look that could not be kept; its events are
    /// then tried again with the next.
    fn kept(&mut self) {}

    /// The agent ends, or is told to let go of devices: gives up what keeps a device from being reset.
    fn release(&mut self) {}

    /// Whether it keeps devices open: then it is released, and not read, while the agent is told to let go of
    /// them for a reset.
    fn holds_devices(&self) -> bool {
        false
    }
}
