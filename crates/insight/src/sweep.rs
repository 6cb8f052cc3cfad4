//! Which of many overlapping spans an instant belongs to.
//!
//! The innermost one: a child goes before its parent, and a span whose parent is not known is the child
//! of the one that it lies in. Of siblings that overlap the one of the smaller share counts, once.

use std::collections::BTreeSet;

/// Open spans that are looked at for the one around a root; a stack of calls is not deeper.
const AROUND_MAX: usize = 64;

/// A span, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Its start, nanoseconds.
    pub start_ns: i64,
    /// Its end, nanoseconds; one before the start takes no time.
    pub end_ns: i64,
    /// Place of its parent in the same list, where that is there.
    pub parent: Option<usize>,
    /// What its time goes to; none leaves it to the span around it.
    pub share: Option<u8>,
}

/// A stretch of time that goes to one share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) share: u8,
}

/// The time that any of `slices` covers, each instant once, in order.
pub(crate) fn stretches(slices: &[Slice]) -> Vec<Stretch> {
    let depths = depths(slices);
    // At one instant ends come before starts.
    let mut edges: Vec<(i64, bool, usize)> = Vec::with_capacity(slices.len() * 2);
    for (at, slice) in slices.iter().enumerate() {
        if slice.share.is_some() && slice.end_ns > slice.start_ns {
            edges.push((slice.start_ns, true, at));
            edges.push((slice.end_ns, false, at));
        }
    }
    edges.sort_unstable();
    let mut out: Vec<Stretch> = Vec::new();
    let mut open: BTreeSet<(u32, u8, usize)> = BTreeSet::new();
    let mut last_ns = i64::MIN;
    for (time_ns, starts, at) in edges {
        if let Some((_, share, _)) = open.first() {
            add(&mut out, Stretch { start_ns: last_ns, end_ns: time_ns, share: *share });
        }
        last_ns = time_ns;
        let key = (u32::MAX - depths[at], slices[at].share.unwrap_or(u8::MAX), at);
        if starts {
            open.insert(key);
        } else {
            open.remove(&key);
        }
    }
    out
}

fn add(out: &mut Vec<Stretch>, stretch: Stretch) {
    if stretch.end_ns <= stretch.start_ns {
        return;
    }
    match out.last_mut() {
        Some(last) if last.end_ns == stretch.start_ns && last.share == stretch.share => {
            last.end_ns = stretch.end_ns;
        }
        _ => out.push(stretch),
    }
}

/// How many spans are around each.
fn depths(slices: &[Slice]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..slices.len()).collect();
    order.sort_by_key(|at| (slices[*at].start_ns, std::cmp::Reverse(slices[*at].end_ns), *at));
    let mut depths = vec![u32::MAX; slices.len()];
    let mut open: Vec<usize> = Vec::new();
    for at in order {
        let slice = slices[at];
        while open.last().is_some_and(|last| slices[*last].end_ns <= slice.start_ns) {
            open.pop();
        }
        let parent = slice.parent.filter(|parent| *parent != at).and_then(|parent| depths.get(parent));
        depths[at] = match parent {
            Some(depth) if *depth != u32::MAX => depth + 1,
            _ => {
                let around = open.iter().rev().take(AROUND_MAX);
                let around = around.filter(|around| slices[**around].end_ns >= slice.end_ns);
                around.map(|around| depths[*around] + 1).max().unwrap_or(0)
            }
        };
        open.push(at);
    }
    depths
}

/// Adds what of `window` goes to each share to `into`, which has a place for every share; the rest is
/// nobody's. `stretches` are in order.
pub(crate) fn within(stretches: &[Stretch], (from_ns, to_ns): (i64, i64), into: &mut [i64]) {
    let first = stretches.partition_point(|stretch| stretch.end_ns <= from_ns);
    for stretch in stretches[first..].iter().take_while(|stretch| stretch.start_ns < to_ns) {
        let length_ns = stretch.end_ns.min(to_ns).saturating_sub(stretch.start_ns.max(from_ns));
        if let Some(sum) = into.get_mut(usize::from(stretch.share)) {
            *sum = sum.saturating_add(length_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slice(start_ns: i64, end_ns: i64, parent: Option<usize>, share: u8) -> Slice {
        Slice { start_ns, end_ns, parent, share: Some(share) }
    }

    fn check(slices: &[Slice], want: [i64; 4]) {
        let mut found = [0; 4];
        within(&stretches(slices), (0, 100), &mut found);
        assert_eq!(found, want, "{slices:?}");
    }

    #[test]
    fn an_instant_goes_to_the_innermost_span() {
        check(
            &[slice(0, 100, None, 3), slice(10, 50, Some(0), 0), slice(20, 30, Some(1), 1)],
            [30, 10, 0, 60],
        );
        // Without parents the same is told by what lies in what.
        check(&[slice(0, 100, None, 3), slice(10, 50, None, 0), slice(20, 30, None, 1)], [30, 10, 0, 60]);
    }

    #[test]
    fn a_child_that_outlasts_its_parent_keeps_its_time() {
        check(&[slice(0, 40, None, 3), slice(30, 60, Some(0), 0)], [30, 0, 0, 30]);
    }

    #[test]
    fn overlapping_siblings_count_once_the_smaller_share_first() {
        check(
            &[slice(0, 100, None, 3), slice(10, 40, Some(0), 1), slice(30, 60, Some(0), 0)],
            [30, 20, 0, 50],
        );
    }

    #[test]
    fn a_span_of_no_share_leaves_its_time_to_the_one_around() {
        let nobody = Slice { share: None, ..slice(20, 30, Some(0), 0) };
        check(&[slice(0, 50, None, 2), nobody], [0, 0, 50, 0]);
    }

    #[test]
    fn spans_in_the_background_do_not_hide_what_is_computed() {
        // A checkpoint written by another thread while two iterations run.
        let save = slice(0, 100, None, 2);
        let iterations = [slice(10, 40, None, 3), slice(50, 90, None, 3)];
        check(&[save, iterations[0], iterations[1]], [0, 0, 30, 70]);
    }

    #[test]
    fn odd_spans_take_no_time() {
        check(&[slice(50, 20, None, 0), slice(70, 70, Some(0), 1), slice(0, 10, Some(99), 2)], [0, 0, 10, 0]);
        check(&[slice(0, 10, Some(0), 1)], [0, 10, 0, 0]);
        check(&[slice(0, 10, Some(1), 1), slice(0, 10, Some(0), 2)], [0, 0, 10, 0]);
    }

    proptest! {
        #[test]
        fn no_instant_counts_twice(
            spans in prop::collection::vec((0..200_i64, -20..200_i64, prop::option::of(0..12_usize), 0..4_u8), 0..12)
        ) {
            let slices: Vec<Slice> = spans
                .iter()
                .map(|(start, length, parent, share)| slice(*start, start + length, *parent, *share))
                .collect();
            let stretches = stretches(&slices);
            prop_assert!(stretches.is_sorted_by(|a, b| a.end_ns <= b.start_ns));
            let covered = (0..500).filter(|t| slices.iter().any(|s| s.start_ns <= *t && *t < s.end_ns)).count();
            let told: i64 = stretches.iter().map(|s| s.end_ns - s.start_ns).sum();
            prop_assert_eq!(covered as i64, told);
        }
    }
}
