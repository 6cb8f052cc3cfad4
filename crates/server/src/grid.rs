//! A row of cells over a range of an axis.

use std::sync::Arc;

use model::{NANOS_PER_MILLI, NANOS_PER_SECOND, Sample, is_stale_marker};
use store::Summary;

use crate::otlp::StepLine;

/// What an f64 of milliseconds since the epoch rounds away, and a little more: a point whose x comes
/// back as the end of a range is in it.
const SLACK_NS: i64 = 500;

/// What a chart's x means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Steps on the series' scale.
    Step,
    /// Time since the epoch; milliseconds outside, nanoseconds inside.
    Time,
    /// Time since the run's start; seconds outside, nanoseconds inside.
    Relative,
}

impl Axis {
    /// Reads the word for it.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "step" => Some(Self::Step),
            "time" => Some(Self::Time),
            "relative" => Some(Self::Relative),
            _ => None,
        }
    }

    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Time => "time",
            Self::Relative => "relative",
        }
    }

    fn unit_ns(self) -> f64 {
        match self {
            Self::Step => 1.0,
            Self::Time => NANOS_PER_MILLI as f64,
            Self::Relative => NANOS_PER_SECOND as f64,
        }
    }

    /// A key as the outside writes it.
    pub(crate) fn x(self, key: i64) -> f64 {
        key as f64 / self.unit_ns()
    }

    /// A distance of keys as the outside writes it.
    pub(crate) fn distance(self, keys: f64) -> f64 {
        keys / self.unit_ns()
    }

    /// The least key at or above an x of the outside, within [`SLACK_NS`].
    pub(crate) fn first_key(self, x: f64) -> i64 {
        ((x * self.unit_ns()).ceil() as i64).saturating_sub(self.slack())
    }

    /// The greatest key at or below an x of the outside, within [`SLACK_NS`]. A whole millisecond
    /// holds its nanoseconds.
    pub(crate) fn last_key(self, x: f64) -> i64 {
        let key = (x * self.unit_ns()).floor() as i64;
        let whole = self == Self::Time && x.fract() == 0.0;
        key.saturating_add(if whole { NANOS_PER_MILLI - 1 } else { self.slack() })
    }

    fn slack(self) -> i64 {
        if self == Self::Step { 0 } else { SLACK_NS }
    }
}

/// How samples get their place on an axis.
#[derive(Debug, Clone)]
pub(crate) struct Lens {
    /// The axis.
    pub(crate) axis: Axis,
    /// The run's start, nanoseconds.
    pub(crate) start_ns: i64,
    /// What gives samples a step that have none of their own; none where they have.
    pub(crate) steps: Option<Arc<StepLine>>,
}

impl Lens {
    /// A sample's key; none when the axis is steps and it has no step, or when the sample only says that
    /// its series ended there.
    pub(crate) fn key(&self, sample: &Sample) -> Option<i64> {
        if is_stale_marker(sample.value) {
            return None;
        }
        match self.axis {
            Axis::Step => match &self.steps {
                Some(line) => line.at(sample.time_ns),
                None => sample.step,
            },
            Axis::Time => Some(sample.time_ns),
            Axis::Relative => Some(sample.time_ns.saturating_sub(self.start_ns)),
        }
    }

    /// Least and greatest key of a chunk.
    pub(crate) fn keys(&self, summary: &Summary) -> Option<(i64, i64)> {
        let (from, to) = summary.time_ns;
        match self.axis {
            Axis::Step => match &self.steps {
                Some(line) => line.between(from, to),
                None => summary.steps,
            },
            Axis::Time => Some((from, to)),
            Axis::Relative => Some((from.saturating_sub(self.start_ns), to.saturating_sub(self.start_ns))),
        }
    }

    /// The key of a chunk's last point; none when the axis is steps and not every point of it has one.
    pub(crate) fn last_key(&self, summary: &Summary) -> Option<i64> {
        match self.axis {
            Axis::Step => match &self.steps {
                Some(line) => line.at(summary.time_ns.0).and_then(|_| line.at(summary.time_ns.1)),
                None => summary.last_step,
            },
            Axis::Time | Axis::Relative => self.keys(summary).map(|(_, last)| last),
        }
    }

    /// The times that can hold keys of `from..=to`.
    pub(crate) fn times(&self, from: i64, to: i64) -> (i64, i64) {
        match self.axis {
            Axis::Step => (i64::MIN, i64::MAX),
            Axis::Time => (from, to),
            Axis::Relative => (from.saturating_add(self.start_ns), to.saturating_add(self.start_ns)),
        }
    }
}

/// `count` cells of equal width, give or take one key, over `from..=to`.
///
/// Cell `i` holds the keys from `edge(i)` to `edge(i + 1) - 1`, `edge(i)` being `from` plus the
/// rounded down `i / count` of the width. A range with no more keys than cells gets a cell per key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cells {
    from: i64,
    to: i64,
    width: u128,
    count: u32,
}

impl Cells {
    /// Cells over `from..=to`; the ends are swapped if need be, and there is at least one cell.
    pub(crate) fn new(from: i64, to: i64, count: u32) -> Self {
        let (from, to) = (from.min(to), from.max(to));
        let width = (i128::from(to) - i128::from(from)) as u128 + 1;
        let count = u32::try_from(width).unwrap_or(u32::MAX).min(count.max(1));
        Self { from, to, width, count }
    }

    /// How many cells.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// First and last key.
    pub(crate) fn range(self) -> (i64, i64) {
        (self.from, self.to)
    }

    /// The cell of a key within the range.
    pub(crate) fn index(self, key: i64) -> Option<u32> {
        if key < self.from || key > self.to {
            return None;
        }
        let above = (i128::from(key) - i128::from(self.from)) as u128 + 1;
        Some(((above * u128::from(self.count) - 1) / self.width) as u32)
    }

    /// The first key of a cell.
    pub(crate) fn first_key(self, cell: u32) -> i64 {
        let offset = u128::from(cell) * self.width / u128::from(self.count);
        (i128::from(self.from) + offset as i128) as i64
    }

    /// The last key of a cell.
    pub(crate) fn last_key(self, cell: u32) -> i64 {
        let next = u128::from(cell + 1) * self.width / u128::from(self.count);
        (i128::from(self.from) + next as i128 - 1) as i64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_key_lies_in_the_cell_that_its_edges_say(
            a: i64, b: i64, count in 1u32..3_000, at in 0.0f64..=1.0,
        ) {
            let cells = Cells::new(a, b, count);
            let (from, to) = cells.range();
            let key = (i128::from(from) + ((i128::from(to) - i128::from(from)) as f64 * at) as i128)
                .clamp(i128::from(from), i128::from(to)) as i64;
            let cell = cells.index(key).unwrap();
            prop_assert!(cell < cells.count());
            prop_assert!(cells.first_key(cell) <= key && key <= cells.last_key(cell));
        }

        #[test]
        fn cells_follow_each_other_without_a_gap(a in -10_000i64..10_000, len in 0i64..5_000, count in 1u32..300) {
            let cells = Cells::new(a, a + len, count);
            prop_assert_eq!(cells.first_key(0), a);
            prop_assert_eq!(cells.last_key(cells.count() - 1), a + len);
            for cell in 1..cells.count() {
                prop_assert_eq!(cells.last_key(cell - 1) + 1, cells.first_key(cell));
            }
        }
    }

    #[test]
    fn a_point_lies_in_the_range_that_its_own_x_ends() {
        let times = [1_700_000_000_123_456_789i64, 1_700_000_000_000_000_001, 987_654_321, 1];
        for (axis, key) in
            [Axis::Step, Axis::Time, Axis::Relative].iter().flat_map(|a| times.map(|t| (*a, t)))
        {
            let key = if axis == Axis::Step { key % 1_000_000 } else { key };
            let x = axis.x(key);
            assert!(axis.first_key(x) <= key && key <= axis.last_key(x), "{axis:?} {key}");
        }
        assert_eq!((Axis::Step.first_key(9.5), Axis::Step.last_key(9.5)), (10, 9));
        assert_eq!(Axis::Time.last_key(7.0), 7_999_999);
    }

    #[test]
    fn a_narrow_range_has_a_cell_per_key() {
        let cells = Cells::new(5, 9, 100);
        assert_eq!(cells.count(), 5);
        assert_eq!((5..=9).map(|k| cells.index(k).unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!((cells.index(4), cells.index(10)), (None, None));
    }
}
