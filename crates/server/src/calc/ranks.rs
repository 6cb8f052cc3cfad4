//! A step as long as its slowest rank.

use std::collections::BTreeMap;

use super::CalcError;
use super::answer::{Answer, percent};
use super::input::{Column, Given, Input, Kind, NOT_NEGATIVE, SHARE, Table, file, input, needed, number};

const COLUMNS: &[Column] = &[needed("step"), needed("rank"), needed("seconds")];

/// Own seconds of each rank in each step.
pub(crate) const RANKS: Input = file(
    "ranks",
    COLUMNS,
    "Own seconds of each rank in each step, instead of --step-seconds: CSV with the columns step, rank, seconds; or JSON; `-` is stdin",
);
/// What comes on top of the slowest rank.
pub(crate) const COLLECTIVE: Input = number(
    "collective_seconds",
    NOT_NEGATIVE,
    "SECONDS",
    "Of each step of such a file: what all ranks do together after the slowest one has come [default: 0]",
);
/// The rank that is asked about.
pub(crate) const SLOW_RANK: Input = number(
    "slow_rank",
    NOT_NEGATIVE,
    "RANK",
    "A rank of such a file: what if it were slower, by --slow-speed",
);
/// How fast it would be.
pub(crate) const SLOW_SPEED: Input = input(
    "slow_speed",
    Kind::Numbers(SHARE),
    "RATIO",
    "Share of its speed that it would keep, such as 0.8; several for a comparison",
);

/// Steps by what their ranks took.
struct Steps(BTreeMap<u64, Vec<(f64, f64)>>);

impl Steps {
    fn of(table: &Table) -> Self {
        let mut steps: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
        let (names, ranks, seconds) = (table.all("step"), table.all("rank"), table.all("seconds"));
        for ((step, rank), seconds) in names.iter().zip(ranks).zip(seconds) {
            // Any order of steps does, so their bits name them.
            steps.entry(step.to_bits()).or_default().push((rank, seconds));
        }
        Self(steps)
    }

    /// The mean over steps of the slowest rank's seconds, by what a rank takes; none where no rank is left.
    fn mean(&self, own: impl Fn(f64, f64) -> Option<f64>) -> Option<f64> {
        let mut sum = 0.0;
        for ranks in self.0.values() {
            sum += ranks.iter().filter_map(|(rank, seconds)| own(*rank, *seconds)).reduce(f64::max)?;
        }
        Some(sum / self.0.len() as f64)
    }

    /// The rank that most steps waited for, and in how many. A step whose last ranks took equally long waited for none.
    fn last(&self) -> Option<(f64, usize)> {
        let mut waited: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for ranks in self.0.values() {
            let (slowest, most) = *ranks.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            if ranks.iter().all(|(rank, seconds)| *rank == slowest || *seconds < most) {
                waited.entry(slowest.to_bits()).or_insert((slowest, 0)).1 += 1;
            }
        }
        waited.into_values().max_by_key(|(_, steps)| *steps)
    }
}

/// Seconds of a step: as it was, and for each speed that the slow rank would have.
pub(crate) fn step_seconds(given: &Given, answer: &mut Answer) -> Result<Option<Vec<f64>>, CalcError> {
    let Some(table) = given.table(RANKS.name) else { return without_ranks(given).map(|()| None) };
    if let Some(at) = table.all("seconds").iter().position(|seconds| *seconds < 0.0) {
        let text = format!("`ranks`: row {} has less than 0 seconds", at + 1);
        return Err(CalcError::new(text).of(RANKS.name));
    }
    let steps = Steps::of(table);
    let together = given.number(COLLECTIVE.name).unwrap_or(0.0);
    answer.stand_in(COLLECTIVE.name, together);
    answer.assume("a step is as long as its slowest rank, and what all ranks do together comes after that");
    let none = || CalcError::new("`ranks` has no step").of(RANKS.name);
    let mut all = vec![steps.mean(|_, seconds| Some(seconds)).ok_or_else(none)? + together];
    match (given.number(SLOW_RANK.name), given.numbers(SLOW_SPEED.name)) {
        (Some(slow), Some(speeds)) => {
            if !table.all("rank").contains(&slow) {
                let text = format!("`slow_rank` is {slow}, and `ranks` has no such rank");
                return Err(CalcError::new(text).of(SLOW_RANK.name));
            }
            for speed in speeds {
                let own = |rank, seconds| Some(if rank == slow { seconds / speed } else { seconds });
                all.push(steps.mean(own).ok_or_else(none)? + together);
            }
        }
        (None, None) => {}
        (None, _) => return Err(super::input::missing(SLOW_RANK.name)),
        (_, None) => return Err(super::input::missing(SLOW_SPEED.name)),
    }
    if all.iter().any(|seconds| *seconds <= 0.0) {
        return Err(CalcError::new("`ranks`: its steps take no time").of(RANKS.name));
    }
    answer.put("step_seconds", all[0]);
    slowest(&steps, together, answer);
    Ok(Some(all))
}

/// What is asked of ranks is refused where there are none, so that nobody takes the answer for one to it.
fn without_ranks(given: &Given) -> Result<(), CalcError> {
    let asked = [COLLECTIVE.name, SLOW_RANK.name, SLOW_SPEED.name];
    let one = asked.into_iter().find(|name| given.number(name).is_some() || given.numbers(name).is_some());
    one.map_or(Ok(()), |name| {
        Err(CalcError::new(format!("`{name}` is given, and no `ranks` that it could be about"))
            .of(name)
            .hint("give a file with the columns step, rank, seconds"))
    })
}

/// Whom the steps waited for, and what they would take without that rank.
fn slowest(steps: &Steps, together: f64, answer: &mut Answer) {
    answer.put("steps", steps.0.len());
    let Some((last, waited)) = steps.last() else {
        answer.lacks("slowest_rank", "the slowest ranks of every step took equally long");
        return;
    };
    answer.put("slowest_rank", last);
    answer.put("slowest_rank_ratio", waited as f64 / steps.0.len() as f64);
    let without = steps.mean(|rank, seconds| (rank != last).then_some(seconds));
    let reason = "there is no other rank";
    answer.put_or("step_seconds_without_slowest", without.map(|seconds| seconds + together), reason);
}

/// The same for people.
pub(crate) fn words(answer: &Answer) -> Option<String> {
    let rank = answer.figure("slowest_rank")?;
    let share = answer.figure("slowest_rank_ratio")?;
    let (all, without) = (answer.figure("step_seconds")?, answer.figure("step_seconds_without_slowest")?);
    Some(format!(
        "  rank {rank} was the slowest in {} of the steps; without it a step takes {without:.2} s, {} less",
        percent(share, 0),
        percent(1.0 - without / all, 1)
    ))
}
