//! In which order groups are evaluated, so that one round is enough for what they read of each other.

use std::collections::{BTreeMap, BTreeSet};

use super::file::RuleKind;
use super::group::Group;
use crate::labels::METRIC_NAME;
use crate::source::{MatchOp, Matcher};

/// Series that alerting rules write.
const OF_ALERTS: [&str; 2] = ["ALERTS", "ALERTS_FOR_STATE"];
/// The label that holds an alert's name.
const ALERT_NAME: &str = "alertname";

/// Places in `groups`, in the order in which to evaluate them: a group comes after those whose series it
/// reads. Groups that read each other in a circle keep the order that they have among themselves, as do
/// those that have nothing to do with each other.
pub fn order(groups: &[&Group]) -> Vec<usize> {
    let read = reads(groups);
    let circle = circles(&read);
    let mut members = vec![Vec::new(); groups.len()];
    let mut open = vec![BTreeSet::new(); groups.len()];
    let mut readers = vec![BTreeSet::new(); groups.len()];
    for (at, sources) in read.iter().enumerate() {
        members[circle[at]].push(at);
        for source in sources.iter().filter(|source| circle[**source] != circle[at]) {
            open[circle[at]].insert(circle[*source]);
            readers[circle[*source]].insert(circle[at]);
        }
    }
    let is_ready =
        |circle: &usize, open: &[BTreeSet<usize>]| !members[*circle].is_empty() && open[*circle].is_empty();
    // A circle is known by its first group, so that the first one that is ready is the first in the file.
    let mut ready: BTreeSet<usize> = (0..groups.len()).filter(|circle| is_ready(circle, &open)).collect();
    let mut order = Vec::with_capacity(groups.len());
    while let Some(next) = ready.pop_first() {
        order.extend(&members[next]);
        for reader in &readers[next] {
            open[*reader].remove(&next);
            if is_ready(reader, &open) {
                ready.insert(*reader);
            }
        }
    }
    order
}

/// For each group the others that write what it reads.
fn reads(groups: &[&Group]) -> Vec<BTreeSet<usize>> {
    let mut writers: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    let mut alerts: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate() {
        for rule in group.rules() {
            let by = if rule.kind == RuleKind::Recording { &mut writers } else { &mut alerts };
            by.entry(&rule.name).or_default().insert(at);
        }
    }
    let read_of = |group: &Group| {
        let mut found = BTreeSet::new();
        for matchers in group.selectors() {
            // One that names no metric may read anything, which says nothing of an order.
            let named = |matcher: &&Matcher| &*matcher.name == METRIC_NAME && matcher.op != MatchOp::NotEqual;
            let Some(name) = matchers.iter().find(named) else { continue };
            found.extend(fitting(&writers, Some(name)));
            if OF_ALERTS.iter().any(|of_alerts| name.fits(of_alerts)) {
                let alert = matchers.iter().find(|matcher| &*matcher.name == ALERT_NAME);
                found.extend(fitting(&alerts, alert));
            }
        }
        found
    };
    let without_itself = |(at, group): (usize, &&Group)| {
        let mut found: BTreeSet<usize> = read_of(group);
        found.remove(&at);
        found
    };
    groups.iter().enumerate().map(without_itself).collect()
}

/// Who writes what fits; everybody where nothing is asked for.
fn fitting(by: &BTreeMap<&str, BTreeSet<usize>>, matcher: Option<&Matcher>) -> BTreeSet<usize> {
    match matcher {
        Some(one) if one.op == MatchOp::Equal => by.get(&*one.value).cloned().unwrap_or_default(),
        some => {
            let fits = |name: &str| some.is_none_or(|matcher| matcher.fits(name));
            by.iter().filter(|(name, _)| fits(name)).flat_map(|(_, at)| at).copied().collect()
        }
    }
}

/// For each group the first one of its circle, which may be itself.
fn circles(read: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut readers = vec![BTreeSet::new(); read.len()];
    for (at, sources) in read.iter().enumerate() {
        for source in sources {
            readers[*source].insert(at);
        }
    }
    let mut circle = vec![None; read.len()];
    for at in 0..read.len() {
        if circle[at].is_some() {
            continue;
        }
        // A circle is what reaches a group and is reached by it.
        let behind = reached(&readers, at);
        for member in reached(read, at).intersection(&behind) {
            circle[*member] = Some(at);
        }
    }
    circle.into_iter().enumerate().map(|(at, first)| first.unwrap_or(at)).collect()
}

/// All that can be reached from `start`, itself included.
fn reached(edges: &[BTreeSet<usize>], start: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::from([start]);
    let mut todo = vec![start];
    while let Some(at) = todo.pop() {
        todo.extend(edges[at].iter().filter(|next| found.insert(**next)));
    }
    found
}
