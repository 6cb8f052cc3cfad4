//! Roll-ups: the samples of a stretch of time as one bucket, so that wide and old questions need no
//! single samples.
//!
//! A bucket is open to the left and closed to the right, as PromQL's windows are: a window whose
//! edges are multiples of the bucket's width is made of whole buckets, and what counters did in it
//! is the same to the sample. Bytes on disk: `docs/format/segment.md` ("Roll-up chunk").

use model::{NANOS_PER_SECOND, RollupBucket};

/// Width of the finer roll-ups.
pub(crate) const MINUTE_NS: i64 = 60 * NANOS_PER_SECOND;
/// Width of the coarser roll-ups, a multiple of the finer ones'.
pub(crate) const QUARTER_NS: i64 = 15 * MINUTE_NS;
const DAY_NS: i64 = 86_400 * NANOS_PER_SECOND;

/// The day that a sample belongs to; one at midnight is the last of a day, as in buckets.
pub(crate) fn day_of(time_ns: i64) -> i64 {
    time_ns.saturating_sub(1).div_euclid(DAY_NS)
}

/// The midnight before a day's first sample.
pub(crate) fn day_start(day: i64) -> i64 {
    day.saturating_mul(DAY_NS)
}

/// The latest time of a day, included.
pub(crate) fn day_end(day: i64) -> i64 {
    day.saturating_add(1).saturating_mul(DAY_NS)
}

/// The end of the stretch of `width_ns` that `time_ns` lies in.
pub(crate) fn end_of(time_ns: i64, width_ns: i64) -> i64 {
    (time_ns - 1).div_euclid(width_ns).saturating_mul(width_ns).saturating_add(width_ns)
}

/// The buckets of samples in order of time.
pub(crate) fn roll(times_ns: &[i64], values: &[f64], width_ns: i64) -> Vec<RollupBucket> {
    let mut buckets = Vec::new();
    let mut from = 0;
    while let Some(first) = times_ns.get(from) {
        let end_ns = end_of(*first, width_ns);
        // Most buckets are short: a search would cost more than it saves.
        let within = times_ns[from..].iter().take_while(|time_ns| **time_ns <= end_ns).count();
        let to = from + within.max(1);
        buckets.push(RollupBucket::of(end_ns, &times_ns[from..to], &values[from..to]));
        from = to;
    }
    buckets
}

/// The same samples in buckets of `width_ns`, a multiple of their width.
pub(crate) fn coarsen(buckets: &[RollupBucket], width_ns: i64) -> Vec<RollupBucket> {
    let mut coarse: Vec<RollupBucket> = Vec::new();
    for bucket in buckets {
        let end_ns = end_of(bucket.end_ns, width_ns);
        match coarse.last_mut() {
            Some(last) if last.end_ns == end_ns => {
                last.follow(bucket);
                last.end_ns = end_ns;
            }
            _ => coarse.push(RollupBucket { end_ns, ..*bucket }),
        }
    }
    coarse
}

/// Puts buckets, of which later ones count, in order of time, one for each stretch.
pub(crate) fn settle(buckets: &mut Vec<RollupBucket>) {
    if buckets.is_sorted_by(|a, b| a.end_ns < b.end_ns) {
        return;
    }
    buckets.sort_by_key(|bucket| bucket.end_ns);
    buckets.dedup_by(|later, kept| {
        let same = later.end_ns == kept.end_ns;
        if same {
            *kept = *later;
        }
        same
    });
}

/// Takes `new` samples into `kept`, both in order of time, and returns what changed. A stretch of
/// which as many samples are there as were ever rolled up is rolled up anew: then they are all of it.
pub(crate) fn take_in(kept: &[RollupBucket], new: &[RollupBucket]) -> Vec<RollupBucket> {
    let merged = new.iter().map(|new| {
        let known = kept.binary_search_by_key(&new.end_ns, |bucket| bucket.end_ns);
        match known.map(|at| kept[at]) {
            Ok(mut known) if known.count > new.count => {
                known.take_in(new);
                known
            }
            _ => *new,
        }
    });
    merged.collect()
}

#[cfg(test)]
mod tests {
    use model::stale_marker;
    use proptest::prelude::*;

    use super::*;

    const WIDTH: i64 = 60;

    fn any_samples() -> impl Strategy<Value = Vec<(i64, f64)>> {
        let value = prop_oneof![
            8 => (0..50).prop_map(f64::from),
            1 => Just(f64::NAN),
            1 => Just(stale_marker()),
        ];
        let gap = prop_oneof![8 => 1..30_i64, 1 => 1..500_i64];
        prop::collection::vec((gap, value), 1..120).prop_map(|steps| {
            let mut time_ns = -700;
            let mut place = |(gap, value)| {
                time_ns += gap;
                (time_ns, value)
            };
            steps.into_iter().map(&mut place).collect()
        })
    }

    fn rolled(samples: &[(i64, f64)], width_ns: i64) -> Vec<RollupBucket> {
        let (times, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
        roll(&times, &values, width_ns)
    }

    /// Text, since NaN is not itself.
    fn text(buckets: &[RollupBucket]) -> String {
        format!("{buckets:#?}")
    }

    #[test]
    fn a_bucket_ends_with_the_sample_at_its_end() {
        let buckets = rolled(&[(60, 1.0), (61, 2.0), (120, 1.5), (121, 4.0)], WIDTH);
        let ends: Vec<_> = buckets.iter().map(|b| (b.end_ns, b.count)).collect();
        assert_eq!(ends, [(60, 1), (120, 2), (180, 1)]);
        let b = buckets[1];
        assert_eq!((b.first, b.last, b.min, b.max, b.sum), ((61, 2.0), (120, 1.5), 1.5, 2.0, 3.5));
        assert_eq!((b.falls, b.resets, b.changes, b.ended_ns), (2.0, 1, 1, None));
    }

    #[test]
    fn a_marker_counts_when_nothing_comes_after_it() {
        let ended = rolled(&[(1, 5.0), (2, stale_marker())], WIDTH)[0];
        assert_eq!((ended.count, ended.last, ended.ended_ns), (1, (1, 5.0), Some(2)));
        let again = rolled(&[(1, 5.0), (2, stale_marker()), (3, 4.0)], WIDTH)[0];
        assert_eq!((again.count, again.resets, again.ended_ns), (2, 1, None));
        let nothing = rolled(&[(2, stale_marker())], WIDTH)[0];
        assert_eq!((nothing.count, nothing.sum, nothing.ended_ns), (0, 0.0, Some(2)));
    }

    #[test]
    fn samples_between_others_count_and_do_not_invent_resets() {
        let mut known = rolled(&[(10, 10.0), (20, 20.0), (40, 40.0)], WIDTH)[0];
        known.take_in(&rolled(&[(30, 30.0)], WIDTH)[0]);
        assert_eq!((known.count, known.sum, known.resets, known.last), (4, 100.0, 0, (40, 40.0)));
        known.take_in(&rolled(&[(50, 5.0)], WIDTH)[0]);
        assert_eq!((known.count, known.falls, known.resets, known.last), (5, 40.0, 1, (50, 5.0)));
    }

    proptest! {
        #[test]
        fn buckets_of_buckets_are_buckets_of_samples(samples in any_samples()) {
            prop_assert_eq!(text(&coarsen(&rolled(&samples, WIDTH), 15 * WIDTH)), text(&rolled(&samples, 15 * WIDTH)));
        }

        #[test]
        fn samples_that_come_later_than_all_others_are_taken_in_as_if_in_time(samples in any_samples(), at in any::<prop::sample::Index>()) {
            let at = at.index(samples.len());
            let mut kept = rolled(&samples[..at], WIDTH);
            let new = rolled(&samples[at..], WIDTH);
            let changed: Vec<RollupBucket> = new.iter().map(|new| {
                let mut bucket = kept.iter().find(|b| b.end_ns == new.end_ns).copied();
                if let Some(known) = &mut bucket {
                    known.take_in(new);
                }
                bucket.unwrap_or(*new)
            }).collect();
            kept.extend(changed);
            settle(&mut kept);
            prop_assert_eq!(text(&kept), text(&rolled(&samples, WIDTH)));
        }
    }
}
