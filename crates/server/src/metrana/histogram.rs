//! A client's histograms as classic ones: `NAME_bucket` by `le`, `NAME_sum`, `NAME_count`.
//!
//! Each is the histogram of one step, not a sum over steps. Every bound is a series, so bounds must not
//! move: those of a stream's first histogram of a series stay, and counts that come in other bins are
//! sorted into these, spread evenly over the width of their bin.

use std::collections::HashSet;

use model::Sample;
use store::SeriesInfo;
use wire::metrana::HistogramPoint;

use super::points::time_ns;

/// Behind the name of the series that tells how many.
pub(super) const COUNT: &str = "_count";
/// Behind the name of the series that tells how much.
pub(super) const SUM: &str = "_sum";
/// Behind the name of the series that tell how many up to a bound.
pub(super) const BUCKET: &str = "_bucket";
/// The bound of a bucket.
pub(super) const BOUND: &str = "le";
/// Most bins, as the client has it.
const BINS_MAX: usize = 512;

/// The name of the histogram that a series is a bucket of.
pub(super) fn name_of_buckets(series: &SeriesInfo) -> Option<&str> {
    series.labels.get(BOUND).and_then(|_| series.display.strip_suffix(BUCKET))
}

/// Which of the `histograms` a series is a part of, and which part.
pub(super) fn part_of<'n>(display: &'n str, histograms: &HashSet<&str>) -> Option<(&'n str, &'static str)> {
    [BUCKET, SUM, COUNT].into_iter().find_map(|part| {
        let name = display.strip_suffix(part).filter(|name| histograms.contains(name))?;
        Some((name, part))
    })
}

/// The bounds of a series' buckets, growing; all below the last, which is open, are finite.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bounds(Vec<f64>);

impl Bounds {
    /// Those of a histogram.
    pub(super) fn of(point: &HistogramPoint) -> Self {
        Self(point.bin_edges.clone())
    }

    /// The bounds as the label `le` writes them, the open one last.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|bound| bound_text(*bound)).chain(std::iter::once("+Inf".to_owned()))
    }

    /// How many values lie at or below each bound, the open one last.
    fn cumulative(&self, point: &HistogramPoint) -> Vec<f64> {
        let total = point.counts.iter().map(|count| *count as f64).sum();
        let mut counts: Vec<f64> = self.0.iter().map(|bound| below(point, *bound)).collect();
        counts.push(total);
        counts
    }
}

/// How many values of a histogram lie at or below `bound`.
fn below(point: &HistogramPoint, bound: f64) -> f64 {
    let mut count = 0.0;
    for (edges, in_bin) in point.bin_edges.windows(2).zip(&point.counts) {
        let (from, to) = (edges[0], edges[1]);
        if bound >= to {
            count += *in_bin as f64;
        } else {
            let share = if bound > from { (bound - from) / (to - from) } else { 0.0 };
            return count + *in_bin as f64 * share;
        }
    }
    count
}

/// A histogram's samples: of each bucket, of the sum, of the count.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parts {
    /// In the order of [`Bounds::texts`].
    pub(super) buckets: Vec<Sample>,
    /// Absent where the client did not tell it: from bins it would be a guess.
    pub(super) sum: Option<Sample>,
    /// Of all bins.
    pub(super) count: Sample,
}

/// The samples of a histogram; an error is the reason why it can't be kept, in words too.
pub(super) fn parts(point: &HistogramPoint, bounds: &Bounds, now_ms: i64) -> Parts {
    let time_ns = time_ns(point.timestamp_millis.unwrap_or(now_ms));
    let step = i64::try_from(point.step).ok();
    let sample = |value| Sample { time_ns, value, step };
    let counts = bounds.cumulative(point);
    Parts {
        count: sample(counts.last().copied().unwrap_or_default()),
        buckets: counts.into_iter().map(sample).collect(),
        sum: point.stats.map(|stats| sample(stats.sum)),
    }
}

/// Says whether a histogram can be kept; an error is the reason, and what was found.
pub(super) fn check(point: &HistogramPoint) -> Result<(), (&'static str, String)> {
    let (edges, counts) = (&point.bin_edges, &point.counts);
    if counts.is_empty() && !point.densities.is_empty() {
        return Err(("histogram_density", "densities have no counts to keep: log `counts`".into()));
    }
    if counts.is_empty() || edges.len() != counts.len() + 1 || counts.len() > BINS_MAX {
        let (bounds, bins) = (edges.len(), counts.len());
        let words = format!("{bins} counts in {bounds} bounds, wanted 1 to {BINS_MAX} and one bound more");
        return Err(("histogram_shape", words));
    }
    if !edges.is_sorted_by(|a, b| a < b) || edges.iter().any(|edge| !edge.is_finite()) {
        return Err(("histogram_shape", "its bounds do not grow".into()));
    }
    if i64::try_from(point.step).is_err() {
        return Err(("step", format!("step {} is too large", point.step)));
    }
    Ok(())
}

/// A bound, short enough for a label's value.
fn bound_text(bound: f64) -> String {
    const PLAIN: std::ops::Range<f64> = 1e-6..1e15;
    if bound == 0.0 || PLAIN.contains(&bound.abs()) { format!("{bound}") } else { format!("{bound:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(edges: &[f64], counts: &[u64]) -> HistogramPoint {
        HistogramPoint {
            step: 3,
            bin_edges: edges.to_vec(),
            counts: counts.to_vec(),
            ..HistogramPoint::default()
        }
    }

    fn counts(point: &HistogramPoint, bounds: &Bounds) -> Vec<f64> {
        parts(point, bounds, 0).buckets.iter().map(|sample| sample.value).collect()
    }

    #[test]
    fn counts_add_up_from_bound_to_bound() {
        let point = point(&[0.0, 1.0, 2.0], &[3, 4]);
        let bounds = Bounds::of(&point);
        assert_eq!(counts(&point, &bounds), [0.0, 3.0, 7.0, 7.0]);
        assert_eq!(bounds.texts().collect::<Vec<_>>(), ["0", "1", "2", "+Inf"]);
        let parts = parts(&point, &bounds, 1_700_000_000_000);
        assert_eq!((parts.count.value, parts.count.step, parts.sum), (7.0, Some(3), None));
        assert_eq!(parts.count.time_ns, 1_700_000_000_000_000_000);
    }

    #[test]
    fn bins_that_moved_are_sorted_into_those_that_stay() {
        let bounds = Bounds::of(&point(&[0.0, 1.0, 2.0], &[1, 1]));
        assert_eq!(counts(&point(&[0.5, 1.5, 2.5], &[4, 8]), &bounds), [0.0, 2.0, 8.0, 12.0]);
        assert_eq!(counts(&point(&[-9.0, -8.0], &[5]), &bounds), [5.0, 5.0, 5.0, 5.0]);
        assert_eq!(counts(&point(&[8.0, 9.0], &[5]), &bounds), [0.0, 0.0, 0.0, 5.0]);
    }

    #[test]
    fn what_is_no_histogram_of_counts_is_refused_by_name() {
        let reason = |point: &HistogramPoint| check(point).err().map(|(reason, _)| reason);
        assert_eq!(reason(&point(&[0.0, 1.0], &[1])), None);
        assert_eq!(reason(&point(&[0.0], &[1])), Some("histogram_shape"));
        assert_eq!(reason(&point(&[], &[])), Some("histogram_shape"));
        assert_eq!(reason(&point(&[1.0, 1.0], &[1])), Some("histogram_shape"));
        assert_eq!(reason(&point(&[0.0, f64::NAN], &[1])), Some("histogram_shape"));
        assert_eq!(reason(&point(&[0.0, f64::INFINITY], &[1])), Some("histogram_shape"));
        let mut dense = point(&[0.0, 1.0], &[]);
        dense.densities = vec![1.0];
        assert_eq!(reason(&dense), Some("histogram_density"));
    }

    #[test]
    fn bounds_fit_a_labels_value() {
        let check = |bound: f64, want: &str| assert_eq!(bound_text(bound), want);
        check(0.1, "0.1");
        check(-2.0, "-2");
        check(0.0, "0");
        check(1e300, "1e300");
        check(-1e-300, "-1e-300");
        assert!(bound_text(f64::MIN).len() <= model::LOGGED_LABEL_BYTES_MAX);
    }
}
