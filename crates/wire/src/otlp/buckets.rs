//! Histograms as cumulative counts at bounds, whatever way they were sent.
//!
//! Exponential histograms go onto the fixed ladder 2^(n/8): a bound of one sender is a bound of all,
//! and stays one when the sender changes its scale. Scales above 3 lose resolution (a bucket is 9 %
//! wide then), no counts. See `docs/decisions/0012-exponential-ladder.md`.

use super::Refusal;

/// Most bounds of one histogram; an exponential one that needs more keeps its highest.
pub const BOUNDS_MAX: usize = 512;
/// Most buckets of one exponential histogram as sent, empty ones included.
pub const SENT_BUCKETS_MAX: usize = 65_536;
/// Steps of the ladder to a doubling.
const STEPS: i64 = 8;
/// The scale whose buckets are the ladder's: 2^3 of them to a doubling.
const LADDER_SCALE: i32 = 3;
/// 2^(n/8) for n from 0 to 7.
const ROOTS: [f64; STEPS as usize] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];
/// The lowest rung, 2^-1074, and the first that is beyond a double.
const RUNGS: std::ops::Range<i64> = -1_074 * STEPS..1_024 * STEPS;

/// A histogram at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// How many observations.
    pub count: u64,
    /// Their sum, where the sender knows it.
    pub sum: Option<f64>,
    /// The smallest observation since the start, kept outside series.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// Rising finite bounds, each with how many observations are not above it.
    pub buckets: Vec<(f64, u64)>,
    /// Whether bounds are rungs of the ladder, which may come and go, or the sender's own.
    pub ladder: bool,
}

impl Histogram {
    /// How many observations are not above `bound`; none where that can't be told, inside a bucket
    /// that is not empty.
    pub fn at(&self, bound: f64) -> Option<u64> {
        let after = self.buckets.partition_point(|(b, _)| *b < bound);
        let right = self.buckets.get(after);
        if let Some((found, count)) = right
            && *found == bound
        {
            return Some(*count);
        }
        let left = if after == 0 { 0 } else { self.buckets[after - 1].1 };
        (left == right.map_or(self.count, |(_, count)| *count)).then_some(left)
    }
}

/// Cumulative counts of buckets with bounds of the sender's.
pub(crate) fn explicit(bounds: &[f64], counts: &[u64], count: u64) -> Result<Vec<(f64, u64)>, Refusal> {
    // Sum and count alone are a histogram, too.
    if bounds.is_empty() && counts.is_empty() {
        return Ok(Vec::new());
    }
    if counts.len() != bounds.len() + 1 {
        return Err(Refusal::told(
            "buckets",
            format!("{} bounds want {} buckets, {} came", bounds.len(), bounds.len() + 1, counts.len()),
        ));
    }
    if bounds.len() > BOUNDS_MAX {
        return Err(Refusal::told(
            "buckets",
            format!("{} bounds, at most {BOUNDS_MAX} are kept", bounds.len()),
        ));
    }
    if !bounds.is_sorted_by(|a, b| a < b) || bounds.iter().any(|b| b.is_nan()) {
        return Err(Refusal::new("bounds", "its bounds do not rise"));
    }
    let mut sum = 0_u64;
    let mut buckets = Vec::with_capacity(bounds.len());
    for (at, in_bucket) in counts.iter().enumerate() {
        sum = sum.checked_add(*in_bucket).ok_or(OVERFLOW)?;
        if let Some(bound) = bounds.get(at).filter(|bound| bound.is_finite()) {
            buckets.push((*bound, sum));
        }
    }
    if sum == count { Ok(buckets) } else { Err(mismatch(count, sum)) }
}

const OVERFLOW: Refusal = Refusal::new("count", "its counts are larger than 64 bits hold");

fn mismatch(count: u64, sum: u64) -> Refusal {
    Refusal::told("count", format!("its count is {count}, its buckets hold {sum}"))
}

/// One side of an exponential histogram as it was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Side {
    /// Index of the first bucket.
    pub offset: i32,
    /// What is in each; one more than [`SENT_BUCKETS_MAX`] means that there were more.
    pub counts: Vec<u64>,
}

/// An exponential histogram as it was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exponential {
    pub scale: i32,
    pub zero_count: u64,
    pub zero_threshold: f64,
    pub positive: Side,
    pub negative: Side,
}

impl Exponential {
    /// Cumulative counts at rungs of the ladder: both ends of every bucket that is not empty.
    pub(crate) fn on_ladder(&self, count: u64) -> Result<Vec<(f64, u64)>, Refusal> {
        if !(-10..=20).contains(&self.scale) {
            return Err(Refusal::told("scale", format!("its scale is {}, -10 to 20 are known", self.scale)));
        }
        // (bound, observations between it and the bound before)
        let mut marks: Vec<(f64, u64)> = Vec::new();
        self.rungs(&self.negative, |low, high, count| {
            marks.push((-rung(low), count));
            marks.push((-rung(high), 0));
        })?;
        marks.reverse();
        if self.zero_count > 0 {
            marks.push((zero_bound(self.zero_threshold)?, self.zero_count));
        }
        self.rungs(&self.positive, |low, high, count| {
            marks.push((rung(low), 0));
            marks.push((rung(high), count));
        })?;
        // A zero threshold among the buckets is the one way to be out of order.
        if !marks.is_sorted_by(|a, b| a.0 <= b.0) {
            marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let mut sum = 0_u64;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(marks.len());
        for (bound, between) in marks {
            sum = sum.checked_add(between).ok_or(OVERFLOW)?;
            match buckets.last_mut() {
                Some(last) if last.0 == bound => last.1 = sum,
                _ => buckets.push((bound, sum)),
            }
        }
        if sum != count {
            return Err(mismatch(count, sum));
        }
        buckets.retain(|(bound, _)| bound.is_finite());
        let surplus = buckets.len().saturating_sub(BOUNDS_MAX);
        buckets.drain(..surplus);
        Ok(buckets)
    }

    /// Hands over the rungs below and above each bucket that is not empty, outwards from zero; buckets
    /// between the same rungs come as one.
    fn rungs(&self, side: &Side, mut take: impl FnMut(i64, i64, u64)) -> Result<(), Refusal> {
        if side.counts.len() > SENT_BUCKETS_MAX {
            return Err(Refusal::told("buckets", format!("more than {SENT_BUCKETS_MAX} buckets")));
        }
        let mut open: Option<(i64, i64, u64)> = None;
        let filled = (i64::from(side.offset)..).zip(&side.counts).filter(|(_, count)| **count > 0);
        for (index, count) in filled {
            let (low, high) = self.between(index);
            match &mut open {
                Some(known) if known.1 == high => known.2 = known.2.checked_add(*count).ok_or(OVERFLOW)?,
                _ => {
                    if let Some((low, high, count)) = open.replace((low, high, *count)) {
                        take(low, high, count);
                    }
                }
            }
        }
        if let Some((low, high, count)) = open {
            take(low, high, count);
        }
        Ok(())
    }

    /// The rungs below and above a bucket.
    fn between(&self, index: i64) -> (i64, i64) {
        let finer = self.scale - LADDER_SCALE;
        if finer >= 0 {
            let low = index >> finer;
            (low, low + 1)
        } else {
            (index << -finer, (index + 1) << -finer)
        }
    }
}

/// The bound 2^(n/8).
fn rung(n: i64) -> f64 {
    let n = n.max(RUNGS.start);
    if n >= RUNGS.end {
        return f64::INFINITY;
    }
    let exponent = n.div_euclid(STEPS);
    let power = if exponent >= -1_022 {
        f64::from_bits(((exponent + 1_023) as u64) << 52)
    } else {
        f64::from_bits(1 << (exponent + 1_074))
    };
    ROOTS[n.rem_euclid(STEPS) as usize] * power
}

/// The first rung that is not below the threshold.
fn zero_bound(threshold: f64) -> Result<f64, Refusal> {
    if !threshold.is_finite() || threshold < 0.0 {
        return Err(Refusal::told("bounds", format!("its zero threshold is {threshold}")));
    }
    if threshold == 0.0 {
        return Ok(0.0);
    }
    let near = (threshold.log2() * STEPS as f64).floor() as i64;
    Ok((near - 1..=near + 2).map(rung).find(|rung| *rung >= threshold).unwrap_or(threshold))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ladder(scale: i32, offset: i32, counts: &[u64]) -> Vec<(f64, u64)> {
        let positive = Side { offset, counts: counts.to_vec() };
        Exponential { scale, positive, ..Exponential::default() }.on_ladder(counts.iter().sum()).unwrap()
    }

    #[test]
    fn rungs_are_exact_at_doublings_and_rise() {
        for exponent in -1_074..1_024 {
            let half = exponent as i32 / 2;
            let want = 2_f64.powi(half) * 2_f64.powi(exponent as i32 - half);
            assert_eq!(rung(exponent * 8), want, "{exponent}");
        }
        assert!((RUNGS.start + 400..RUNGS.end).collect::<Vec<_>>().is_sorted_by(|a, b| rung(*a) < rung(*b)));
        assert_eq!(rung(RUNGS.end), f64::INFINITY);
        assert_eq!(rung(i64::MIN), rung(RUNGS.start));
    }

    #[test]
    fn buckets_of_every_scale_end_on_rungs() {
        // Scale 3 is the ladder itself.
        assert_eq!(ladder(3, 8, &[2, 0, 1]), [(2.0, 0), (rung(9), 2), (rung(10), 2), (rung(11), 3)]);
        // Scale 5: four buckets to a rung.
        assert_eq!(ladder(5, 0, &[1, 1, 1, 1, 1]), [(1.0, 0), (rung(1), 4), (rung(2), 5)]);
        // Scale 0: a bucket spans eight rungs, of which only the ends are known.
        assert_eq!(ladder(0, -1, &[3, 4]), [(0.5, 0), (1.0, 3), (2.0, 7)]);
        // Scale -10: everything above 1 lies in one bucket, whose end is no number.
        assert_eq!(ladder(-10, 0, &[5]), [(1.0, 0)]);
        // Scale 20, at 2^1.
        assert_eq!(ladder(20, 1 << 20, &[1, 0, 4]), [(2.0, 0), (rung(9), 5)]);
    }

    #[test]
    fn negative_and_zero_observations_come_first() {
        let sent = Exponential {
            scale: 0,
            zero_count: 4,
            zero_threshold: 0.0,
            positive: Side { offset: 0, counts: vec![1] },
            negative: Side { offset: 0, counts: vec![2, 3] },
        };
        // Three below -2, two between -2 and -1, four zeros, one above 1.
        let want = [(-4.0, 0), (-2.0, 3), (-1.0, 5), (0.0, 9), (1.0, 9), (2.0, 10)];
        assert_eq!(sent.on_ladder(10).unwrap(), want);
        let near = Exponential { zero_threshold: 0.3, ..sent.clone() };
        assert_eq!(near.on_ladder(10).unwrap()[3], (rung(-13), 9), "2^(-13/8) is the first rung above 0.3");
    }

    #[test]
    fn what_can_not_be_a_histogram_is_refused() {
        let reason = |result: Result<Vec<(f64, u64)>, Refusal>| result.unwrap_err().reason;
        assert_eq!(reason(explicit(&[1.0, 2.0], &[1, 1], 2)), "buckets");
        assert_eq!(reason(explicit(&[2.0, 1.0], &[1, 1, 1], 3)), "bounds");
        assert_eq!(reason(explicit(&[f64::NAN], &[1, 1], 2)), "bounds");
        assert_eq!(reason(explicit(&[1.0], &[1, 1], 3)), "count");
        assert_eq!(reason(explicit(&[1.0], &[u64::MAX, 1], 0)), "count");
        assert_eq!(reason(explicit(&[], &[1, 1], 2)), "buckets");
        assert_eq!(explicit(&[], &[], 7).unwrap(), []);
        assert_eq!(explicit(&[], &[7], 7).unwrap(), []);
        assert_eq!(explicit(&[1.0, f64::INFINITY], &[1, 2, 0], 3).unwrap(), [(1.0, 1)]);
        let scale = |scale| Exponential { scale, ..Exponential::default() }.on_ladder(0);
        assert_eq!(reason(scale(21)), "scale");
        assert_eq!(reason(scale(-11)), "scale");
        assert_eq!(reason(Exponential { zero_count: 1, ..Exponential::default() }.on_ladder(0)), "count");
        let threshold = Exponential { zero_count: 1, zero_threshold: f64::NAN, ..Exponential::default() };
        assert_eq!(reason(threshold.on_ladder(1)), "bounds");
    }

    #[test]
    fn very_wide_histograms_keep_their_highest_bounds() {
        let counts = vec![1; 2_000];
        let made = ladder(3, -1_000, &counts);
        assert_eq!(made.len(), BOUNDS_MAX);
        assert_eq!(made.last(), Some(&(rung(1_000), 2_000)));
        assert_eq!(made[0], (rung(1_000 - 511), 2_000 - 511), "what is below counts in the lowest");
    }

    #[test]
    fn counts_inside_a_bucket_are_not_made_up() {
        let buckets = vec![(1.0, 0), (2.0, 3), (4.0, 3)];
        let histogram = Histogram { count: 5, buckets, ..Histogram::default() };
        let check = |bound: f64, want: Option<u64>| assert_eq!(histogram.at(bound), want, "{bound}");
        check(0.5, Some(0));
        check(1.0, Some(0));
        check(1.5, None);
        check(2.0, Some(3));
        check(3.0, Some(3));
        check(5.0, None);
        check(f64::INFINITY, None);
    }

    proptest! {
        /// Each count at a bound is what a look at the observations says.
        #[test]
        fn counts_at_bounds_are_those_of_the_observations(
            scale in -4_i32..12,
            values in prop::collection::vec(0.01_f64..1e4, 1..50),
        ) {
            let index = |value: f64| (value.log2() * 2_f64.powi(scale)).ceil() as i32 - 1;
            let mut indices: Vec<i32> = values.iter().map(|v| index(*v)).collect();
            indices.sort_unstable();
            let mut counts = vec![0_u64; (indices[indices.len() - 1] - indices[0]) as usize + 1];
            prop_assume!(counts.len() <= SENT_BUCKETS_MAX);
            for i in &indices {
                counts[(i - indices[0]) as usize] += 1;
            }
            for (bound, found) in ladder(scale, indices[0], &counts) {
                let log = bound.log2() * 2_f64.powi(scale);
                let want = indices.iter().filter(|i| f64::from(**i) + 1.0 <= log + 1e-6).count();
                prop_assert_eq!(found, want as u64, "at {}", bound);
            }
        }

        #[test]
        fn nothing_panics(
            scale in any::<i32>(), zero_count: u64, zero_threshold: f64, count: u64,
            offset in any::<i32>(), counts in prop::collection::vec(any::<u64>(), 0..20),
        ) {
            for scale in [scale, scale.rem_euclid(31) - 10] {
                let positive = Side { offset, counts: counts.clone() };
                let negative = positive.clone();
                let sent = Exponential { scale, zero_count, zero_threshold, positive, negative };
                let _any = sent.on_ladder(count);
            }
        }
    }
}
