//! Where the time of a training step goes.
//!
//! The wall of an iteration reaches from the end of the one before to its own end, so that what lies
//! between two iterations (checkpoints, evaluation, logging) belongs to the later one, and the walls of
//! all iterations are the time that passed. Where the one before is not known, as at the first iteration
//! and after a restart, the wall is the iteration's own span. Within the wall every instant goes to the
//! phase of the innermost span, see [`Slice`]; what no span of a phase covers is unattributed.

use std::collections::BTreeMap;

use crate::sweep::{stretches, within};

pub use crate::sweep::Slice;

/// Phases, in the order of their shares. Of two that overlap beside each other the earlier one counts:
/// what hides behind computation costs nothing.
pub const PHASES: [&str; 8] = [
    "forward_backward",
    "optimizer",
    "communication",
    "data_loading",
    "checkpoint",
    "evaluation",
    "housekeeping",
    "unattributed",
];

/// The share that is unattributed.
pub const UNATTRIBUTED: u8 = 7;

/// An iteration of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iteration {
    /// Its number.
    pub number: i64,
    /// Its start, nanoseconds.
    pub start_ns: i64,
    /// Its end, nanoseconds.
    pub end_ns: i64,
}

/// An iteration of one rank, with its time told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The iteration.
    pub number: i64,
    /// Its wall, nanoseconds.
    pub wall_ns: i64,
    /// What of it went to each of [`PHASES`], nanoseconds.
    pub phases_ns: [i64; PHASES.len()],
}

/// The walls of a rank's iterations, which are in order of time. No wall reaches over one of `breaks`, the
/// times, in order, at which the run was started anew.
pub fn walls(iterations: &[Iteration], breaks: &[i64]) -> Vec<(i64, i64)> {
    let mut before: Option<&Iteration> = None;
    let mut walls = Vec::with_capacity(iterations.len());
    for iteration in iterations {
        let joined = before.filter(|before| {
            let broken = breaks.partition_point(|at| *at <= before.end_ns);
            before.number.checked_add(1) == Some(iteration.number)
                && before.end_ns <= iteration.start_ns
                && breaks.get(broken).is_none_or(|at| *at > iteration.start_ns)
        });
        let start_ns = joined.map_or(iteration.start_ns, |before| before.end_ns);
        walls.push((start_ns, iteration.end_ns.max(start_ns)));
        before = Some(iteration);
    }
    walls
}

/// Tells the time of a rank's iterations apart by the spans of the rank.
pub fn of_rank(iterations: &[Iteration], breaks: &[i64], slices: &[Slice]) -> Vec<Row> {
    let stretches = stretches(slices);
    let rows = iterations.iter().zip(walls(iterations, breaks)).map(|(iteration, wall)| {
        let mut phases_ns = [0; PHASES.len()];
        within(&stretches, wall, &mut phases_ns);
        let wall_ns = wall.1.saturating_sub(wall.0);
        let told: i64 = phases_ns[..usize::from(UNATTRIBUTED)].iter().sum();
        phases_ns[usize::from(UNATTRIBUTED)] = wall_ns - told;
        Row { number: iteration.number, wall_ns, phases_ns }
    });
    rows.collect()
}

/// Iterations of one or several ranks in columns, one entry a bucket.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    /// The first iteration of the bucket.
    pub x: Vec<i64>,
    /// How many iterations it holds.
    pub count: Vec<u64>,
    /// Mean wall of an iteration, seconds.
    pub wall_seconds: Vec<f64>,
    /// Mean time of an iteration that went to each of [`PHASES`], seconds.
    pub seconds: [Vec<f64>; PHASES.len()],
    /// Iterations of all buckets.
    pub iterations: u64,
    /// The largest difference of the phases' sum from the wall, as a ratio of the wall.
    pub sum_error_ratio: f64,
}

/// Merges ranks by their mean and iterations into at most `buckets` of equally many numbers. Of an
/// iteration that a rank did twice, as after a restart, the later counts.
pub fn merge(ranks: &[Vec<Row>], buckets: usize) -> Columns {
    let mut of_number: BTreeMap<i64, Sum> = BTreeMap::new();
    for rows in ranks {
        let latest: BTreeMap<i64, &Row> = rows.iter().map(|row| (row.number, row)).collect();
        for (number, row) in latest {
            of_number.entry(number).or_default().add_row(row);
        }
    }
    let mut columns = Columns { iterations: of_number.len() as u64, ..Columns::default() };
    let (Some((first, _)), Some((last, _))) = (of_number.first_key_value(), of_number.last_key_value())
    else {
        return columns;
    };
    let first = *first;
    let width = (last.abs_diff(first) / buckets.max(1) as u64).saturating_add(1);
    let mut bucket: Option<(u64, i64, Sum)> = None;
    for (number, sum) in of_number {
        let place = number.abs_diff(first) / width;
        match &mut bucket {
            Some((at, _, all)) if *at == place => all.add_mean(&sum),
            _ => {
                if let Some((_, x, all)) = bucket.take() {
                    columns.push(x, &all);
                }
                let mut all = Sum::default();
                all.add_mean(&sum);
                bucket = Some((place, number, all));
            }
        }
    }
    if let Some((_, x, all)) = bucket {
        columns.push(x, &all);
    }
    columns
}

#[derive(Default)]
struct Sum {
    count: u64,
    wall: f64,
    phases: [f64; PHASES.len()],
}

impl Sum {
    fn add_row(&mut self, row: &Row) {
        self.count += 1;
        self.wall += row.wall_ns as f64 / 1e9;
        for (sum, ns) in self.phases.iter_mut().zip(row.phases_ns) {
            *sum += ns as f64 / 1e9;
        }
    }

    /// Adds the mean of the ranks of one iteration.
    fn add_mean(&mut self, other: &Self) {
        let count = other.count.max(1) as f64;
        self.count += 1;
        self.wall += other.wall / count;
        for (sum, phase) in self.phases.iter_mut().zip(other.phases) {
            *sum += phase / count;
        }
    }
}

impl Columns {
    fn push(&mut self, x: i64, sum: &Sum) {
        let count = sum.count.max(1) as f64;
        let wall = sum.wall / count;
        self.x.push(x);
        self.count.push(sum.count);
        self.wall_seconds.push(wall);
        let mut told = 0.0;
        for (column, phase) in self.seconds.iter_mut().zip(sum.phases) {
            column.push(phase / count);
            told += phase / count;
        }
        if wall > 0.0 {
            self.sum_error_ratio = self.sum_error_ratio.max((told - wall).abs() / wall);
        }
    }
}
