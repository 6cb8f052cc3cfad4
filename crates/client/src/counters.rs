//! What became of the points.

use std::collections::BTreeMap;

/// Counts since the run's start in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Points taken by `log`.
    pub logged: u64,
    /// Points the server has acknowledged.
    pub delivered: u64,
    /// Points that went to the spool; those delivered later are counted there too.
    pub spooled: u64,
    /// Points refused, by this client or by the server, or lost, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Points in memory now.
    pub queued: u64,
    /// Bytes in the spool now.
    pub spool_bytes: u64,
    /// Whether the server answered last.
    pub is_server_up: bool,
}
