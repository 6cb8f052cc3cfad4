//! Steps of a run put together from what its ranks tell, each in its own time.

use std::collections::BTreeMap;

use model::NANOS_PER_SECOND;

use insight::hang::Collective;

use super::inbox::{Point, Sign, What};

/// Most ranks of a run that are watched.
pub(super) const RANKS_MAX: usize = 65_536;
/// Most steps that wait to be complete.
pub(super) const OPEN_MAX: usize = 512;
/// The same of a job of few ranks, and cells of all of them: ranks that catch up come one after another.
const OPEN_FEW_MAX: usize = 4_096;
const OPEN_CELLS_MAX: usize = 1 << 19;
/// Most groups of collectives that a rank is in.
const GROUPS_MAX: usize = 64;
/// How long a step waits for ranks that have not told it, from the first that has, nanoseconds.
const LATE_NS: i64 = 15 * NANOS_PER_SECOND;
/// A rank that told none of the last so many steps is not waited for.
const EXPECTED_STEPS: i64 = 64;

/// What one rank told of a step; NaN is nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) step: f32,
    pub(super) wait: f32,
    pub(super) data: f32,
    pub(super) checkpoint: f32,
    pub(super) eval: f32,
    pub(super) tokens: f64,
    pub(super) end_ns: i64,
}

impl Cell {
    const NOTHING: Self = Self {
        step: f32::NAN,
        wait: f32::NAN,
        data: f32::NAN,
        checkpoint: f32::NAN,
        eval: f32::NAN,
        tokens: 0.0,
        end_ns: i64::MIN,
    };
}

/// A step as far as it was told.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) step: i64,
    /// When its first point came in, by this server's clock, nanoseconds.
    arrived_ns: i64,
    /// By place of the rank.
    pub(super) cells: Vec<Cell>,
    /// Ranks that told how long it took.
    pub(super) told: usize,
}

impl Row {
    fn cell(&mut self, place: usize) -> &mut Cell {
        if self.cells.len() <= place {
            self.cells.resize(place + 1, Cell::NOTHING);
        }
        &mut self.cells[place]
    }

    /// Those that told how long it took.
    pub(super) fn who(&self) -> impl Iterator<Item = (usize, &Cell)> {
        self.cells.iter().enumerate().filter(|(_, cell)| !cell.step.is_nan())
    }

    /// Its length: that of the slowest.
    pub(super) fn seconds(&self) -> f64 {
        self.who().map(|(_, cell)| f64::from(cell.step)).fold(0.0, f64::max)
    }

    /// When it ended by this server's clock, the median of what the ranks say, nanoseconds.
    pub(super) fn end_ns(&self, ranks: &[Rank]) -> i64 {
        let ahead_ns = |place: usize| ranks.get(place).and_then(|rank| rank.ahead_ns).unwrap_or(0);
        let end_ns = |(place, cell): (usize, &Cell)| cell.end_ns.saturating_add(ahead_ns(place));
        let mut ends: Vec<i64> = self.who().map(end_ns).collect();
        let half = ends.len() / 2;
        if ends.is_empty() {
            return i64::MIN;
        }
        *ends.select_nth_unstable(half).1
    }

    /// Tokens of all ranks.
    pub(super) fn tokens(&self) -> f64 {
        self.cells.iter().map(|cell| cell.tokens).sum()
    }
}

/// What is known of one rank.
#[derive(Debug, Clone)]
pub(super) struct Rank {
    pub(super) number: u32,
    pub(super) last_step: Option<i64>,
    /// By its own clock, nanoseconds.
    pub(super) last_step_ns: i64,
    /// When that came in, by this server's clock, nanoseconds.
    step_came_ns: i64,
    /// The latest that it told, by its own clock, and when that came in, by this server's, nanoseconds.
    heard: (i64, i64),
    /// By how much this server's clock is ahead of its own, nanoseconds.
    ahead_ns: Option<i64>,
    /// How far it is in the collectives of each group.
    pub(super) collectives: Vec<Collective>,
    /// What it is in, and since when by its own clock, nanoseconds.
    pub(super) phase: (u8, i64),
    /// When the last of those that are no part of training ended, by its own clock, and when that came in.
    lull_end: (i64, i64),
}

impl Rank {
    fn new(number: u32) -> Self {
        Self {
            number,
            last_step: None,
            last_step_ns: i64::MIN,
            step_came_ns: i64::MIN,
            heard: (i64::MIN, i64::MIN),
            ahead_ns: None,
            collectives: Vec::new(),
            phase: (0, i64::MIN),
            lull_end: (i64::MIN, i64::MIN),
        }
    }

    fn hear(&mut self, time_ns: i64, now_ns: i64) {
        if self.here_ns(time_ns, now_ns) >= self.heard_ns() {
            self.heard = (time_ns, now_ns);
        }
    }

    /// One of its times by this server's clock, nanoseconds: as it came, no later.
    fn here_ns(&self, time_ns: i64, came_ns: i64) -> i64 {
        self.ahead_ns.map_or(came_ns, |ahead_ns| time_ns.saturating_add(ahead_ns).min(came_ns))
    }

    /// When it did its last step, by this server's clock, nanoseconds.
    pub(super) fn step_heard_ns(&self) -> i64 {
        self.here_ns(self.last_step_ns, self.step_came_ns)
    }

    /// When its last checkpoint, evaluation or time between steps ended, by this server's clock, nanoseconds.
    pub(super) fn lull_end_ns(&self) -> Option<i64> {
        (self.lull_end.1 > i64::MIN).then(|| self.here_ns(self.lull_end.0, self.lull_end.1))
    }

    /// Since when it can be expected to be in a step, by this server's clock, nanoseconds.
    pub(super) fn going_ns(&self) -> i64 {
        self.step_heard_ns().max(self.lull_end_ns().unwrap_or(i64::MIN))
    }

    /// When anything came from it, by this server's clock, nanoseconds.
    pub(super) fn heard_ns(&self) -> i64 {
        self.here_ns(self.heard.0, self.heard.1)
    }

    /// Whether it has said what its clock shows.
    pub(super) fn knows_clock(&self) -> bool {
        self.ahead_ns.is_some()
    }

    /// One of this server's times by its clock, nanoseconds.
    pub(super) fn there_ns(&self, time_ns: i64) -> i64 {
        time_ns.saturating_sub(self.ahead_ns.unwrap_or(0))
    }
}

/// What came of points.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// Steps that are put together, in order.
    pub(super) rows: Vec<Row>,
    /// Whether the run went back to an earlier step before these.
    pub(super) went_back: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Steps {
    places: BTreeMap<u32, usize>,
    pub(super) ranks: Vec<Rank>,
    open: BTreeMap<i64, Row>,
    /// The last step that was handed over.
    done: Option<i64>,
    went_back: bool,
    /// Whether ranks of which nothing was ever told are waited for no more.
    knows_all: bool,
}

impl Steps {
    /// What is known of a rank.
    pub(super) fn rank(&self, number: u32) -> Option<&Rank> {
        self.places.get(&number).map(|place| &self.ranks[*place])
    }

    /// Takes points that came in at `now_ns`.
    pub(super) fn take(&mut self, points: &[Point], now_ns: i64) {
        for point in points {
            let Some(place) = self.place(point.rank) else { continue };
            let rank = &mut self.ranks[place];
            if point.what == What::Step {
                let goes_back =
                    rank.last_step.is_some_and(|last| point.step < last) && point.time_ns > rank.last_step_ns;
                if point.time_ns >= rank.last_step_ns {
                    (rank.last_step, rank.last_step_ns) = (Some(point.step), point.time_ns);
                    rank.step_came_ns = now_ns;
                    rank.hear(point.time_ns, now_ns);
                }
                if goes_back && self.done.is_some_and(|done| point.step <= done) {
                    self.go_back(point.step);
                }
            }
            if self.done.is_none_or(|done| point.step > done) {
                self.put(place, point, now_ns);
            }
        }
    }

    /// Takes what ranks told beside, in the order that it came.
    pub(super) fn note(&mut self, signs: Vec<(u32, i64, Sign)>, now_ns: i64) {
        for (rank, time_ns, sign) in signs {
            let Some(place) = self.place(rank) else { continue };
            let rank = &mut self.ranks[place];
            match sign {
                // What came late makes the clock look further off than it is.
                Sign::Clock { ahead_ns } => {
                    rank.ahead_ns = Some(rank.ahead_ns.map_or(ahead_ns, |known| known.min(ahead_ns)));
                }
                Sign::Phase(phase) if time_ns >= rank.phase.1 => {
                    // What was known of it before this server's start may be its end alone.
                    if phase == 0 {
                        rank.lull_end = (time_ns, now_ns);
                    }
                    rank.phase = (phase, time_ns);
                }
                Sign::Phase(_) => {}
                Sign::Collective { group, number, is_completed } => {
                    note_collective(&mut rank.collectives, group, number, is_completed);
                }
            }
            rank.hear(time_ns, now_ns);
        }
    }

    fn place(&mut self, rank: u32) -> Option<usize> {
        if let Some(place) = self.places.get(&rank) {
            return Some(*place);
        }
        if self.ranks.len() >= RANKS_MAX {
            return None;
        }
        let place = self.ranks.len();
        self.places.insert(rank, place);
        self.ranks.push(Rank::new(rank));
        Some(place)
    }

    /// Steps from `step` on come again.
    fn go_back(&mut self, step: i64) {
        self.open.retain(|open, _| *open < step);
        // No step is before the first that there can be.
        self.done = step.checked_sub(1);
        self.went_back = true;
        for rank in &mut self.ranks {
            rank.last_step = rank.last_step.map(|last| last.min(step));
        }
    }

    fn put(&mut self, place: usize, point: &Point, now_ns: i64) {
        let most = (OPEN_CELLS_MAX / self.ranks.len().max(1)).clamp(OPEN_MAX, OPEN_FEW_MAX);
        if self.open.len() >= most && !self.open.contains_key(&point.step) {
            self.open.pop_first();
        }
        let row = self.open.entry(point.step).or_insert_with(|| Row {
            step: point.step,
            arrived_ns: now_ns,
            cells: Vec::new(),
            told: 0,
        });
        let is_new = point.what == What::Step && row.cell(place).step.is_nan();
        row.told += usize::from(is_new);
        let cell = row.cell(place);
        let value = point.value as f32;
        let part = match point.what {
            What::Step => {
                cell.end_ns = point.time_ns;
                &mut cell.step
            }
            What::Wait => &mut cell.wait,
            What::Data => &mut cell.data,
            What::Checkpoint => &mut cell.checkpoint,
            What::Eval => &mut cell.eval,
            What::Tokens => {
                cell.tokens = point.value;
                return;
            }
        };
        *part = if point.adds && !part.is_nan() { *part + value } else { value };
    }

    /// Hands over the steps that every rank has told that is expected to, and those that have waited too long. A
    /// job of `world` processes has that many ranks to begin with.
    pub(super) fn ready(&mut self, world: usize, now_ns: i64) -> Came {
        let mut came = Came { rows: Vec::new(), went_back: std::mem::take(&mut self.went_back) };
        while let Some(entry) = self.open.first_entry() {
            let row = entry.get();
            let is_late = now_ns.saturating_sub(row.arrived_ns) >= LATE_NS;
            let known = self.ranks.iter().filter(|rank| is_expected(rank, row.step)).count();
            let expected = if self.knows_all { known } else { known.max(world) };
            if !(is_late || (row.told >= expected && row.told > 0)) {
                break;
            }
            self.knows_all |= is_late || row.told >= world;
            let (step, row) = entry.remove_entry();
            self.done = Some(step);
            if row.told > 0 {
                came.rows.push(row);
            }
        }
        came
    }

    /// Whether any rank has told a step.
    pub(super) fn has_steps(&self) -> bool {
        self.ranks.iter().any(|rank| rank.last_step.is_some())
    }

    /// The last step that was handed over.
    pub(super) fn done(&self) -> Option<i64> {
        self.done
    }
}

/// Whether a rank is waited for: it told a step not long before.
fn is_expected(rank: &Rank, step: i64) -> bool {
    rank.last_step.is_some_and(|last| last >= step.saturating_sub(EXPECTED_STEPS))
}

fn note_collective(all: &mut Vec<Collective>, group: String, number: i64, is_completed: bool) {
    let place = all.iter().position(|known| known.group == group);
    if place.is_none() && all.len() >= GROUPS_MAX {
        return;
    }
    let place = place.unwrap_or_else(|| {
        all.push(Collective { group, ..Collective::default() });
        all.len() - 1
    });
    let of = &mut all[place];
    if is_completed {
        of.completed = number;
        of.entered = of.entered.max(number);
    } else {
        of.entered = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = NANOS_PER_SECOND;

    fn step(rank: u32, step: i64, at: i64) -> Point {
        Point { what: What::Step, rank, step, time_ns: at * S, value: 1.0, adds: false }
    }

    fn numbers(came: &Came) -> Vec<(i64, usize)> {
        came.rows.iter().map(|row| (row.step, row.told)).collect()
    }

    #[test]
    fn a_step_is_handed_over_when_all_told_it_or_it_has_waited() {
        let mut steps = Steps::default();
        steps.take(&[step(0, 0, 0)], 0);
        assert_eq!(numbers(&steps.ready(2, 0)), [], "the job has two");
        steps.take(&[step(1, 0, 0)], 0);
        assert_eq!(numbers(&steps.ready(2, 0)), [(0, 2)]);
        steps.take(&[step(0, 1, 1), step(0, 2, 2)], S);
        assert_eq!(numbers(&steps.ready(2, S)), []);
        steps.take(&[step(1, 1, 1)], 2 * S);
        assert_eq!(numbers(&steps.ready(2, 2 * S)), [(1, 2)]);
        assert_eq!(numbers(&steps.ready(2, S + LATE_NS)), [(2, 1)]);
        steps.take(&[step(1, 2, 2)], 40 * S);
        assert_eq!(numbers(&steps.ready(2, 40 * S)), [], "too late");
    }

    #[test]
    fn a_run_that_goes_back_does_its_steps_again() {
        let mut steps = Steps::default();
        steps.take(&[step(0, 7, 7), step(0, 8, 8), step(0, 9, 9)], 0);
        assert_eq!(steps.ready(1, 0).rows.len(), 3);
        steps.take(&[step(0, 8, 20)], S);
        let came = steps.ready(1, S);
        assert!(came.went_back);
        assert_eq!(numbers(&came), [(8, 1)]);
    }

    #[test]
    fn a_run_can_go_back_to_the_first_step_that_there_can_be() {
        let mut steps = Steps::default();
        steps.take(&[step(0, i64::MAX, 7)], 0);
        assert_eq!(numbers(&steps.ready(1, 0)), [(i64::MAX, 1)]);
        steps.take(&[step(0, i64::MIN, 20), step(0, i64::MIN + 1, 21)], S);
        assert_eq!(numbers(&steps.ready(1, S)), [(i64::MIN, 1), (i64::MIN + 1, 1)]);
    }

    #[test]
    fn what_comes_late_by_its_own_clock_is_not_going_back() {
        let mut steps = Steps::default();
        steps.take(&[step(0, 7, 7), step(0, 9, 9)], 0);
        steps.ready(1, 0);
        steps.take(&[step(0, 8, 8)], S);
        let came = steps.ready(1, S);
        assert!(!came.went_back && came.rows.is_empty());
    }
}
