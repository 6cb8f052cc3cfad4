//! Which series carry which label, so that a selector need not look at each series.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use crate::SeriesId;
use crate::matcher::Matcher;
use crate::record;

/// The label that holds a metric's name.
pub(crate) const METRIC_NAME: &str = "__name__";

/// Series in order of number.
type Posting = Vec<SeriesId>;
/// Values of one label, each with its series.
pub(crate) type Values = BTreeMap<Box<str>, Posting>;

/// Label name, then value, then the series that have it.
#[derive(Debug, Default)]
pub(crate) struct Index {
    all: Posting,
    labels: BTreeMap<Box<str>, Values>,
    /// Series by logged name where that is not the metric's name.
    aliases: HashMap<Box<str>, Posting>,
}

impl Index {
    /// Adds a series; an identity that can't be read is left out.
    pub(crate) fn insert(&mut self, id: SeriesId, identity: &[u8]) {
        let Some((display, labels)) = record::identity_parts(identity) else { return };
        add(&mut self.all, id);
        for (name, value) in &labels {
            if !self.labels.contains_key(*name) {
                self.labels.insert((*name).into(), Values::new());
            }
            let Some(values) = self.labels.get_mut(*name) else { continue };
            match values.get_mut(*value) {
                Some(posting) => add(posting, id),
                None => _ = values.insert((*value).into(), vec![id]),
            }
        }
        if !labels.contains(&(METRIC_NAME, display)) {
            add(self.aliases.entry(display.into()).or_default(), id);
        }
    }

    /// Removes series; each label of theirs is gone through once.
    pub(crate) fn remove<'i>(&mut self, gone: impl Iterator<Item = (SeriesId, &'i [u8])>) {
        let mut ids: HashSet<SeriesId> = HashSet::new();
        let mut pairs: HashSet<(&str, &str)> = HashSet::new();
        let mut names: HashSet<&str> = HashSet::new();
        for (id, identity) in gone {
            ids.insert(id);
            let Some((display, labels)) = record::identity_parts(identity) else { continue };
            pairs.extend(labels);
            names.insert(display);
        }
        self.all.retain(|id| !ids.contains(id));
        for (name, value) in pairs {
            let Some(values) = self.labels.get_mut(name) else { continue };
            if let Some(posting) = values.get_mut(value) {
                posting.retain(|id| !ids.contains(id));
                if posting.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.labels.remove(name);
            }
        }
        for display in names {
            if let Some(posting) = self.aliases.get_mut(display) {
                posting.retain(|id| !ids.contains(id));
                if posting.is_empty() {
                    self.aliases.remove(display);
                }
            }
        }
    }

    /// Every label with its values.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &Values)> {
        self.labels.iter().map(|(name, values)| (&**name, values))
    }

    /// The values of a label.
    pub(crate) fn values(&self, name: &str) -> Option<&Values> {
        self.labels.get(name)
    }

    /// The series that fit all `matchers`, in order of number. `label` tells a series' label.
    pub(crate) fn matching<'s>(
        &self,
        matchers: &[Matcher<'_>],
        label: &dyn Fn(SeriesId, &str) -> Option<&'s str>,
    ) -> Vec<SeriesId> {
        let mut found: Option<Cow<'_, [SeriesId]>> = None;
        // What is looked up comes first, what has to be searched for then meets few series.
        let (direct, searched): (Vec<_>, Vec<_>) = matchers.iter().partition(|m| m.is_direct());
        let mut direct: Vec<_> = direct.into_iter().map(|m| self.equal(m.name, m.value)).collect();
        direct.sort_by_key(|posting| posting.len());
        for posting in direct {
            found = Some(match found {
                None => posting,
                Some(found) => Cow::Owned(intersection(&found, &posting)),
            });
        }
        // Those that a series without the label fits can only take away.
        let (taking, giving): (Vec<_>, Vec<_>) = searched.into_iter().partition(|m| m.fits(""));
        for matcher in giving.into_iter().chain(taking) {
            let values = self.labels.get(matcher.name);
            let few = |found: &Cow<'_, [SeriesId]>| values.is_some_and(|values| found.len() < values.len());
            if let Some(found) = found.as_mut().filter(|found| few(found)) {
                let fits = |id: &SeriesId| matcher.fits(label(*id, matcher.name).unwrap_or_default());
                *found = Cow::Owned(found.iter().copied().filter(fits).collect());
            } else if matcher.fits("") {
                let gone = union(values, matcher, false);
                let from = found.as_deref().unwrap_or(&self.all);
                found = Some(Cow::Owned(difference(from, &gone)));
            } else {
                let those = union(values, matcher, true);
                found = Some(Cow::Owned(match &found {
                    None => those,
                    Some(found) => intersection(found, &those),
                }));
            }
        }
        found.map_or_else(|| self.all.clone(), Cow::into_owned)
    }

    /// The series with this very value; a metric answers to its logged name as well.
    fn equal(&self, name: &str, value: &str) -> Cow<'_, [SeriesId]> {
        let posting =
            self.labels.get(name).and_then(|values| values.get(value)).map_or(&[][..], Vec::as_slice);
        let alias = if name == METRIC_NAME { self.aliases.get(value) } else { None };
        match alias {
            None => Cow::Borrowed(posting),
            Some(alias) if posting.is_empty() => Cow::Borrowed(alias),
            Some(alias) => {
                let mut both = [posting, alias].concat();
                both.sort_unstable();
                both.dedup();
                Cow::Owned(both)
            }
        }
    }
}

/// Numbers only grow, so this is an append but for a damaged catalogue.
fn add(posting: &mut Posting, id: SeriesId) {
    if posting.last().is_none_or(|last| *last < id) {
        posting.push(id);
    } else if let Err(at) = posting.binary_search(&id) {
        posting.insert(at, id);
    }
}

/// The series with a value of which `matcher.fits` says `wanted`.
fn union(values: Option<&Values>, matcher: &Matcher<'_>, wanted: bool) -> Vec<SeriesId> {
    let Some(values) = values else { return Vec::new() };
    let mut ids: Vec<SeriesId> = Vec::new();
    if let Some(texts) = matcher.listed().filter(|_| wanted != matcher.is_negative()) {
        ids.extend(texts.iter().filter_map(|text| values.get(&**text)).flatten());
        ids.sort_unstable();
        ids.dedup();
        return ids;
    }
    let prefix = if wanted == matcher.is_negative() { String::new() } else { matcher.prefix() };
    let range = values.range::<str, _>((Bound::Included(&*prefix), Bound::Unbounded));
    let range = range.take_while(|(value, _)| value.starts_with(&*prefix));
    ids.extend(range.filter(|(value, _)| matcher.fits(value) == wanted).flat_map(|(_, posting)| posting));
    ids.sort_unstable();
    ids
}

fn intersection(a: &[SeriesId], b: &[SeriesId]) -> Vec<SeriesId> {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut rest = many;
    let both = |id: &SeriesId| {
        rest = &rest[before(rest, *id)..];
        rest.first() == Some(id)
    };
    few.iter().copied().filter(both).collect()
}

/// How many series two lists share.
pub(crate) fn common(a: &[SeriesId], b: &[SeriesId]) -> usize {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut rest = many;
    let both = |id: &&SeriesId| {
        rest = &rest[before(rest, **id)..];
        rest.first() == Some(*id)
    };
    few.iter().filter(both).count()
}

fn difference(a: &[SeriesId], gone: &[SeriesId]) -> Vec<SeriesId> {
    let mut rest = gone;
    let stays = |id: &SeriesId| {
        rest = &rest[before(rest, *id)..];
        rest.first() != Some(id)
    };
    a.iter().copied().filter(stays).collect()
}

/// How many of `ids` are less than `id`, found in steps that double: cheap when it is few.
fn before(ids: &[SeriesId], id: SeriesId) -> usize {
    let mut step = 1;
    while step < ids.len() && ids[step] < id {
        step *= 2;
    }
    let (from, to) = (step / 2, ids.len().min(step + 1));
    from + ids[from..to].partition_point(|other| *other < id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_are_cut_as_sets_are(a in prop::collection::btree_set(0..200_u64, 0..60), b in prop::collection::btree_set(0..200_u64, 0..60)) {
            let list = |set: &std::collections::BTreeSet<u64>| set.iter().copied().collect::<Vec<_>>();
            prop_assert_eq!(intersection(&list(&a), &list(&b)), a.intersection(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(common(&list(&a), &list(&b)), a.intersection(&b).count());
            prop_assert_eq!(difference(&list(&a), &list(&b)), a.difference(&b).copied().collect::<Vec<_>>());
        }
    }
}
