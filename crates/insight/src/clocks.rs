//! How far the clocks of hosts are apart, told from what all ranks finish together.
//!
//! The ranks of a synchronous run end an iteration at nearly the same moment, since its last exchange
//! holds all of them. A host whose ends lie apart from those of the others by the same time in every
//! iteration has another clock. What differs from iteration to iteration is no clock: it bounds the
//! estimate.

use std::collections::BTreeMap;

/// Least iterations that a host shares with others.
const ITERATIONS_MIN: usize = 5;

/// The end of an iteration on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End<'a> {
    /// The host.
    pub host: &'a str,
    /// Iteration, or another number that is the same on all hosts.
    pub number: i64,
    /// When it ended there, nanoseconds.
    pub end_ns: i64,
}

/// How far a host's clock is from the median of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shift {
    /// What it is ahead, nanoseconds; below 0 it is behind.
    pub ahead_ns: i64,
    /// Half of the ends lie within this of the estimate, nanoseconds.
    pub bound_ns: i64,
}

/// The shifts that can be told, by host: those of hosts with at least five iterations in common with others, and larger
/// than their bound. A shift that is no larger than its bound may as well be none.
pub fn shifts<'a>(ends: &[End<'a>]) -> BTreeMap<&'a str, Shift> {
    let mut of_number: BTreeMap<i64, BTreeMap<&str, Vec<i64>>> = BTreeMap::new();
    for end in ends {
        of_number.entry(end.number).or_default().entry(end.host).or_default().push(end.end_ns);
    }
    let mut apart: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for hosts in of_number.into_values().filter(|hosts| hosts.len() > 1) {
        let medians: Vec<(&str, i64)> =
            hosts.into_iter().map(|(host, mut ends)| (host, median(&mut ends))).collect();
        let middle_ns = median(&mut medians.iter().map(|(_, end_ns)| *end_ns).collect::<Vec<_>>());
        for (host, end_ns) in medians {
            apart.entry(host).or_default().push(end_ns.saturating_sub(middle_ns));
        }
    }
    let shift = |(host, mut apart): (&'a str, Vec<i64>)| {
        if apart.len() < ITERATIONS_MIN {
            return None;
        }
        let ahead_ns = median(&mut apart);
        let mut off: Vec<i64> = apart.iter().map(|one| one.abs_diff(ahead_ns).cast_signed()).collect();
        let bound_ns = median(&mut off);
        (ahead_ns.saturating_abs() > bound_ns).then_some((host, Shift { ahead_ns, bound_ns }))
    };
    apart.into_iter().filter_map(shift).collect()
}

/// The lower of the two in the middle where there are two; 0 of none.
fn median(values: &mut [i64]) -> i64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}
