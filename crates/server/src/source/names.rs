//! What an equality on a metric's name selects: besides the series of that name those of an OpenTelemetry
//! metric that is spelled so somewhere, under the names that they have here.

use std::collections::BTreeSet;

use promql::{MatchOp, Matcher};
use store::{Found, Known, Store};
use wire::otlp::{Meant, settled};

use super::conditions;
use crate::otlp::Streams;

/// The label that holds a metric's name.
pub(super) const METRIC_NAME: &str = "__name__";

/// The series that fit `matchers` and may have points from the one time to the other, by number.
pub(crate) fn select(
    store: &Store,
    streams: &Streams,
    matchers: &[Matcher],
    range: (i64, i64),
) -> Vec<Found> {
    select_known(store, streams, matchers, range, &|_| None)
}

/// As [`select`]; labels that are `known` are not made again.
pub(super) fn select_known(
    store: &Store,
    streams: &Streams,
    matchers: &[Matcher],
    range: (i64, i64),
    known: &Known<'_>,
) -> Vec<Found> {
    let find = |matchers: &[Matcher]| store.select_known(&conditions(matchers), range, known);
    let mut found = find(matchers);
    let Some((at, meant)) = others(streams, matchers) else { return found };
    let mut extra = Vec::new();
    for canonical in canonical_names(&meant) {
        extra.extend(find(&renamed(matchers, at, canonical)));
    }
    let name = &*matchers[at].value;
    let names: BTreeSet<&str> = found.iter().chain(&extra).map(|one| one.labels.metric()).collect();
    let stays = those_that_stay(name, &meant, |canonical| names.contains(canonical));
    let stays: BTreeSet<&str> = stays.into_iter().collect();
    let extra: Vec<Found> = extra.iter().filter(|one| stays.contains(one.labels.metric())).cloned().collect();
    found.extend(extra);
    found.sort_by_key(|one| one.id);
    found.dedup_by_key(|one| one.id);
    found
}

/// Lists of matchers whose series together are those that [`select`] finds.
pub(crate) fn spelled_out(
    store: &Store,
    streams: &Streams,
    matchers: &[Matcher],
    (from_ns, to_ns): (i64, i64),
) -> Vec<Vec<Matcher>> {
    let mut all = vec![matchers.to_vec()];
    let Some((at, meant)) = others(streams, matchers) else { return all };
    let has = |canonical: &str| {
        let matchers = renamed(matchers, at, canonical);
        let found = store.select(&conditions(&matchers), from_ns, to_ns);
        found.iter().any(|one| one.labels.metric() == canonical)
    };
    let name = &*matchers[at].value;
    let stays = those_that_stay(name, &meant, has);
    let others = stays.into_iter().filter(|canonical| *canonical != name);
    all.extend(others.map(|canonical| renamed(matchers, at, canonical)));
    all
}

/// Whether the name may mean series of other names.
pub(super) fn has_others(streams: &Streams, matchers: &[Matcher]) -> bool {
    others(streams, matchers).is_some()
}

/// The place of an equality on the name, and what it may mean beside the series of that very name.
fn others(streams: &Streams, matchers: &[Matcher]) -> Option<(usize, Vec<Meant>)> {
    let is_name = |m: &Matcher| &*m.name == METRIC_NAME && m.op == MatchOp::Equal && !m.value.is_empty();
    let at = matchers.iter().position(is_name)?;
    let name = &*matchers[at].value;
    let meant = streams.meant(name);
    meant.iter().any(|one| one.canonical != *name).then_some((at, meant))
}

fn canonical_names(meant: &[Meant]) -> BTreeSet<&str> {
    meant.iter().map(|one| one.canonical.as_str()).collect()
}

fn renamed(matchers: &[Matcher], at: usize, canonical: &str) -> Vec<Matcher> {
    let mut matchers = matchers.to_vec();
    // An equality has no pattern that would have to follow.
    matchers[at].value = canonical.into();
    matchers
}

/// Of what a name may mean, what it does mean, given which canonical names have series: series whose
/// name it is go before those of other metrics that are only spelled so.
fn those_that_stay<'m>(name: &str, meant: &'m [Meant], has: impl Fn(&str) -> bool) -> Vec<&'m str> {
    if has(name) && !meant.iter().any(|one| one.canonical == name) {
        return Vec::new();
    }
    let there: Vec<&Meant> = meant.iter().filter(|one| has(&one.canonical)).collect();
    settled(name, there.into_iter())
}
