//! What goes by age or size.
//!
//! Samples of no run go by whole days, oldest first, and only once they are in roll-ups; roll-ups
//! go by file. Points of runs stay until their run is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::SeriesId;
use crate::batch::{AppendError, Options};
use crate::catalogue::Change;
use crate::rollup::{day_end, day_of, day_start};
use crate::segment::{Class, Manifest, Segment};
use crate::series::State;
use crate::store::{Inner, remove_files};

impl Options {
    /// How long the segments of a class are kept, nanoseconds; 0 when none are made.
    pub(crate) fn retention_ns(&self, class: Class) -> i64 {
        match class {
            Class::Run => i64::MAX,
            Class::Fleet => self.fleet_retention_ns,
            Class::Minute => self.minute_retention_ns,
            Class::Quarter => self.quarter_retention_ns,
        }
    }

    pub(crate) fn makes_rollups(&self) -> bool {
        self.minute_retention_ns > 0 || self.quarter_retention_ns > 0
    }
}

impl Inner {
    /// Drops what is too old or too much.
    pub(crate) fn expire(&self, now_ns: i64) -> Result<(), AppendError> {
        let old = self.expired(now_ns);
        if old.is_empty() {
            return Ok(());
        }
        let mut change = Self::dropping(&old);
        let raw = || old.iter().filter(|segment| segment.class == Class::Fleet);
        let gone_until = raw().map(|segment| day_end(day_of(segment.time_ns.1)).saturating_add(1)).max();
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        let (gone, raw_from_ns, exemplars) = {
            let state = self.read_state();
            let gone = state.only_in(&old);
            let raw_from_ns = state.raw_from_ns.max(gone_until.unwrap_or(i64::MIN));
            let is_of_none = |id| state.series.get(id).is_some_and(|series| series.run.is_none());
            let mut exemplars = state.exemplars.numbers_of(|id| gone.binary_search(&id).is_ok());
            exemplars.extend(state.exemplars.numbers_before(raw_from_ns, is_of_none));
            (gone, raw_from_ns, exemplars)
        };
        change.exemplars.extend(exemplars.iter().map(|number| (*number, None)));
        change.series.extend(gone.iter().map(|id| (*id, None)));
        change.raw_from_ns = gone_until.map(|_| raw_from_ns);
        let counters = writer.counters;
        self.commit(&mut writer, &change, counters, |state| {
            for listed in raw().flat_map(|segment| segment.listed()) {
                if let Some(series) = state.series.get_mut(listed.series) {
                    let points = &mut series.totals.points;
                    *points = points.saturating_sub(u64::from(listed.points));
                }
            }
            state.raw_from_ns = raw_from_ns;
            state.exemplars.forget(&exemplars);
            state.forget_series(&gone);
            state.forget_segments(&old);
        })?;
        remove_files(old.iter().map(|segment| &segment.path));
        Ok(())
    }

    /// The segments that may go now.
    fn expired(&self, now_ns: i64) -> Vec<Arc<Segment>> {
        let state = self.read_state();
        let mut old = overdue(&state, &self.options, now_ns);
        if self.options.makes_rollups() {
            old.retain(|segment| segment.is_rolled());
        }
        let is_old = |segment: &&Arc<Segment>| {
            let kept_ns = self.options.retention_ns(segment.class);
            !segment.class.is_raw() && segment.time_ns.1 < now_ns.saturating_sub(kept_ns)
        };
        old.extend(state.segments.iter().filter(is_old).cloned());
        old
    }
}

/// The files of samples of no run whose time has come: whole days, oldest first.
pub(crate) fn overdue(state: &State, options: &Options, now_ns: i64) -> Vec<Arc<Segment>> {
    let before_ns = now_ns.saturating_sub(options.fleet_retention_ns);
    let mut days: BTreeMap<i64, Vec<&Arc<Segment>>> = BTreeMap::new();
    let mut bytes = 0;
    for segment in state.segments.iter().filter(|segment| segment.class == Class::Fleet) {
        days.entry(day_of(segment.time_ns.1)).or_default().push(segment);
        bytes += segment.bytes;
    }
    let mut is_due = |(day, segments): &(&i64, &Vec<&Arc<Segment>>)| {
        let old = day_end(**day) < before_ns.max(state.raw_from_ns);
        let due = old || bytes > options.fleet_bytes_max;
        bytes -= segments.iter().map(|segment| segment.bytes).sum::<u64>();
        due
    };
    let due = days.iter().take_while(|day| is_due(day));
    due.flat_map(|(_, segments)| segments.iter().map(|segment| Arc::clone(segment))).collect()
}

impl State {
    /// Counts series that files of roll-ups hold.
    pub(crate) fn count_rolled(&mut self, segments: &[Arc<Segment>]) {
        for listed in segments.iter().filter(|s| !s.class.is_raw()).flat_map(|s| s.listed()) {
            if let Some(series) = self.series.get_mut(listed.series) {
                series.rolled += 1;
            }
        }
    }

    /// Forgets files that are no more.
    pub(crate) fn forget_segments(&mut self, gone: &[Arc<Segment>]) {
        let rolled: Vec<SeriesId> = gone
            .iter()
            .filter(|segment| !segment.class.is_raw())
            .flat_map(|segment| segment.listed())
            .map(|listed| listed.series)
            .collect();
        for id in rolled {
            if let Some(series) = self.series.get_mut(id) {
                series.rolled = series.rolled.saturating_sub(1);
            }
        }
        self.segments.retain(|segment| gone.iter().all(|gone| gone.id != segment.id));
    }
}

/// Where single samples begin when the catalogue that knew it is lost: with the first of them that is
/// kept, if there are roll-ups at all.
pub(crate) fn guessed_raw_from_ns(manifests: &[Manifest]) -> Option<i64> {
    let rolled = manifests.iter().filter(|manifest| !manifest.class.is_raw());
    let last_ns = rolled.map(|manifest| manifest.time_ns.1).max()?;
    let raw = manifests.iter().filter(|manifest| manifest.class == Class::Fleet);
    let first = raw.map(|manifest| day_start(day_of(manifest.time_ns.0)).saturating_add(1)).min();
    Some(first.unwrap_or(last_ns.saturating_add(1)))
}

impl Inner {
    /// The change of the manifest that drops `segments`.
    pub(crate) fn dropping(segments: &[Arc<Segment>]) -> Change {
        Change { segments: segments.iter().map(|segment| (segment.id, None)).collect(), ..Change::default() }
    }
}
