//! Points of a group that come after all others of their series: most of what arrives, so they lie in
//! one list and nothing is allocated for a series.

use model::Sample;

use crate::SeriesId;

/// Points by series, in order of number and time.
#[derive(Debug, Default)]
pub(crate) struct Appended {
    samples: Vec<Sample>,
    /// A series and where its samples end.
    parts: Vec<(SeriesId, usize)>,
}

impl Appended {
    pub(crate) fn with_capacity(samples: usize) -> Self {
        Self { samples: Vec::with_capacity(samples), parts: Vec::with_capacity(samples) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Adds samples of the series behind all others.
    pub(crate) fn push(&mut self, series: SeriesId, samples: impl Iterator<Item = Sample>) {
        self.samples.extend(samples);
        self.parts.push((series, self.samples.len()));
    }

    fn samples(&self, part: usize) -> &[Sample] {
        let start = part.checked_sub(1).map_or(0, |before| self.parts[before].1);
        &self.samples[start..self.parts[part].1]
    }

    /// The samples of a series, none when there are none.
    pub(crate) fn of(&self, series: SeriesId) -> &[Sample] {
        let found = self.parts.binary_search_by_key(&series, |(series, _)| *series);
        found.map_or(&[], |part| self.samples(part))
    }

    /// Every series with its samples.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SeriesId, &[Sample])> {
        self.parts.iter().enumerate().map(|(part, (series, _))| (*series, self.samples(part)))
    }

    /// Takes in what came later. A series that both have gets its samples one after the other.
    pub(crate) fn merge(&mut self, later: Self) {
        if self.is_empty() {
            *self = later;
            return;
        }
        let before = std::mem::replace(self, Self::with_capacity(self.samples.len() + later.samples.len()));
        let (mut a, mut b) = (before.iter().peekable(), later.iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return,
            };
            let first = if order.is_le() { a.next() } else { b.next() };
            let second = if order.is_eq() { b.next() } else { None };
            let series = first.map_or(0, |(series, _)| series);
            let samples = first.into_iter().chain(second).flat_map(|(_, samples)| samples.iter().copied());
            self.push(series, samples);
        }
    }

    /// Leaves out series that `gone` names.
    pub(crate) fn without(self, gone: impl Fn(SeriesId) -> bool) -> Self {
        if !self.parts.iter().any(|(series, _)| gone(*series)) {
            return self;
        }
        let mut kept = Self::with_capacity(self.samples.len());
        for (series, samples) in self.iter().filter(|(series, _)| !gone(*series)) {
            kept.push(series, samples.iter().copied());
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn sample(time_ns: i64) -> Sample {
        Sample { time_ns, value: time_ns as f64, step: None }
    }

    proptest! {
        #[test]
        fn lists_become_one_in_order(
            lists in prop::collection::vec(prop::collection::btree_map(0..30_u64, 1..4_usize, 0..20), 0..5),
            gone in 0..30_u64,
        ) {
            let (mut all, mut want, mut time) = (Appended::default(), BTreeMap::<u64, Vec<i64>>::new(), 0);
            for list in lists {
                let mut one = Appended::with_capacity(list.len());
                for (series, count) in list {
                    let times: Vec<i64> = (time..time + count as i64).collect();
                    time += count as i64;
                    one.push(series, times.iter().map(|time| sample(*time)));
                    want.entry(series).or_default().extend(times);
                }
                all.merge(one);
            }
            let times = |samples: &[Sample]| samples.iter().map(|s| s.time_ns).collect::<Vec<_>>();
            for series in 0..30 {
                prop_assert_eq!(times(all.of(series)), want.get(&series).cloned().unwrap_or_default());
            }
            let held: Vec<_> = all.iter().map(|(series, samples)| (series, times(samples))).collect();
            prop_assert_eq!(held, want.clone().into_iter().collect::<Vec<_>>());
            want.remove(&gone);
            let kept = all.without(|series| series == gone);
            let held: Vec<_> = kept.iter().map(|(series, samples)| (series, times(samples))).collect();
            prop_assert_eq!(held, want.into_iter().collect::<Vec<_>>());
        }
    }
}
