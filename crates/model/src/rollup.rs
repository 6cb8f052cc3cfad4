//! What is asked of roll-ups, which stand for samples, and how far they go.

use std::ops::BitOr;

/// A set of facts that a roll-up may hold of its samples. How many there were, the time of the last
/// and a stale marker after it are always told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupParts(u8);

impl RollupParts {
    /// Nothing more.
    pub const NONE: Self = Self(0);
    /// Time and value of the first sample.
    pub const FIRST: Self = Self(1);
    /// Value of the last sample.
    pub const LAST: Self = Self(2);
    /// Least and greatest value.
    pub const EXTREMES: Self = Self(4);
    /// Sum of the values.
    pub const SUM: Self = Self(8);
    /// What is needed for the growth of a counter beside first and last.
    pub const FALLS: Self = Self(16);
    /// How often the value fell and changed.
    pub const STEPS: Self = Self(32);
    /// Everything.
    pub const ALL: Self = Self(63);

    /// Whether all of `parts` are in it.
    pub fn has(self, parts: Self) -> bool {
        self.0 & parts.0 == parts.0
    }
}

impl BitOr for RollupParts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What of a series' roll-ups is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupAsk {
    /// Earliest time of interest, nanoseconds, included.
    pub from_ns: i64,
    /// Latest time of interest, nanoseconds, included.
    pub to_ns: i64,
    /// Where single samples are there as well, roll-ups may stand for them whose width divides this;
    /// none may without it.
    pub align_ns: Option<i64>,
    /// What is asked of each.
    pub parts: RollupParts,
}

/// How far the roll-ups of a series go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolledUp {
    /// From here on single samples are to be read.
    pub raw_from_ns: i64,
    /// Width of the widest of those that stand for samples which are no more, nanoseconds.
    pub gone_width_ns: Option<i64>,
}
