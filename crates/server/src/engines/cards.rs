//! Which cards serve a model: those of the replica's pod, else those of its host where nobody else can be meant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use insight::serving::Serving;
use model::Labels;
use promql::QueryError;
use semconv::canonical::{
    GPU_BUSY_RATIO, GPU_DRAM_ACTIVE_RATIO, GPU_OWNER_INFO, GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS,
    GPU_TENSOR_ACTIVE_RATIO,
};

use super::gather::{Asker, quoted};
use super::{KEY_LABELS, Key, SIGNS};

/// Most cards that are asked for by name.
const NAMED_MAX: usize = 2_000;

/// The cards of a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cards {
    /// How many, where that is known.
    pub(crate) count: Option<u32>,
    /// What they did, on average.
    pub(crate) serving: Serving,
    /// Why they are not known.
    pub(crate) reason: String,
}

/// Who has a card.
struct Owned {
    uuid: String,
    host: String,
    namespace: String,
    pod: String,
    /// All that tells one owner from another.
    owner: String,
}

/// Finds the cards of every model.
pub(crate) fn read(asker: &Asker<'_>, keys: &BTreeSet<Key>) -> Result<BTreeMap<Arc<str>, Cards>, QueryError> {
    let owned = owned(asker)?;
    let pods = pods(asker)?;
    let mut of_model: BTreeMap<Arc<str>, (BTreeSet<&str>, Option<String>)> = BTreeMap::new();
    for key in keys {
        let (found, reason) = of_model.entry(key.model.clone()).or_default();
        match join(key, keys, &pods, &owned) {
            Ok(uuids) => found.extend(uuids),
            Err(why) => *reason = reason.take().or(Some(why)),
        }
    }
    let wanted: BTreeSet<&str> = of_model.values().flat_map(|(uuids, _)| uuids.iter().copied()).collect();
    let did = did(asker, &wanted)?;
    let cards = |(uuids, reason): (BTreeSet<&str>, Option<String>)| match reason {
        // Some cards only would be a wrong number of them.
        Some(reason) => Cards { reason, ..Cards::default() },
        None => together(&uuids, &did),
    };
    Ok(of_model.into_iter().map(|(model, found)| (model, cards(found))).collect())
}

fn owned(asker: &Asker<'_>) -> Result<Vec<Owned>, QueryError> {
    let found = asker.ask(&format!("last_over_time({}[{}])", GPU_OWNER_INFO.name, asker.window().range()))?;
    let owned = |labels: &Labels| {
        let text = |name: &str| labels.get(name).unwrap_or_default().to_owned();
        let owner = ["run_id", "job_id", "namespace", "pod"].map(text).join("\n");
        let (uuid, host) = (text("uuid"), text("host"));
        Owned { uuid, host, namespace: text("namespace"), pod: text("pod"), owner }
    };
    Ok(found.iter().map(|(labels, _)| owned(labels)).collect())
}

/// Namespace and pod of the replicas whose series say them.
fn pods(asker: &Asker<'_>) -> Result<BTreeMap<Key, (String, String)>, QueryError> {
    let text = format!(
        "group by ({KEY_LABELS}, namespace, pod) (last_over_time({}[{}]))",
        asker.selector("=~", SIGNS),
        asker.window().range()
    );
    let pod = |labels: &Labels| {
        let text = |name: &str| labels.get(name).unwrap_or_default().to_owned();
        (text("namespace"), text("pod"))
    };
    let found = asker.ask(&text)?;
    let pods = found.iter().map(|(labels, _)| (Key::of(labels), pod(labels)));
    Ok(pods.filter(|(_, (_, pod))| !pod.is_empty()).collect())
}

/// The cards of a replica, or why they can't be told.
fn join<'o>(
    key: &Key,
    keys: &BTreeSet<Key>,
    pods: &BTreeMap<Key, (String, String)>,
    owned: &'o [Owned],
) -> Result<Vec<&'o str>, String> {
    if let Some((namespace, pod)) = pods.get(key) {
        let of_pod = |one: &&Owned| one.pod == *pod && (namespace.is_empty() || one.namespace == *namespace);
        let uuids: Vec<&str> = owned.iter().filter(of_pod).map(|one| &*one.uuid).collect();
        return if uuids.is_empty() {
            Err(format!("no card is known to be of the pod {pod}"))
        } else {
            Ok(uuids)
        };
    }
    let host = host_of(&key.instance);
    let on_host: Vec<&Owned> = owned.iter().filter(|one| is_same_host(&one.host, host)).collect();
    let owners: BTreeSet<&str> = on_host.iter().map(|one| &*one.owner).collect();
    let engines: BTreeSet<&str> = keys
        .iter()
        .map(|key| &*key.instance)
        .filter(|instance| is_same_host(host_of(instance), host))
        .collect();
    match (owners.len(), engines.len()) {
        (1, 1) => Ok(on_host.iter().map(|one| &*one.uuid).collect()),
        (0, _) => Err(format!(
            "the series of {} name no pod, and no owner of a card on {host} is known: run the agent there",
            key.instance
        )),
        _ => Err(format!(
            "the series of {} name no pod, and {host} has {} engines and {} owners of cards: add the labels \
             `namespace` and `pod` to its target",
            key.instance,
            engines.len(),
            owners.len()
        )),
    }
}

/// The host of a target's `instance`.
fn host_of(instance: &str) -> &str {
    let host = instance.rsplit_once(':').map_or(instance, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether two names are of one host: the first part of a name in a domain is that host too.
fn is_same_host(a: &str, b: &str) -> bool {
    let is_address = |host: &str| host.parse::<std::net::IpAddr>().is_ok();
    let first = |host: &str| host.split('.').next().unwrap_or_default().to_ascii_lowercase();
    !a.is_empty() && (a.eq_ignore_ascii_case(b) || (!is_address(a) && !is_address(b) && first(a) == first(b)))
}

/// What cards did in the window, by figure and uuid.
type Did = BTreeMap<&'static str, BTreeMap<String, f64>>;

fn did(asker: &Asker<'_>, uuids: &BTreeSet<&str>) -> Result<Did, QueryError> {
    let mut did = Did::new();
    if uuids.is_empty() {
        return Ok(did);
    }
    let named: Vec<String> = uuids.iter().map(|uuid| escaped(uuid)).collect();
    let matcher = if named.len() > NAMED_MAX {
        "uuid!=\"\"".to_owned()
    } else {
        format!("uuid=~{}", quoted(&named.join("|")))
    };
    let range = asker.window().range();
    let mean = |name: &str| format!("avg by (uuid) (avg_over_time({name}{{{matcher}}}[{range}]))");
    let power = format!("{} / {}", mean(GPU_POWER_WATTS.name), mean(GPU_POWER_LIMIT_WATTS.name));
    for (figure, text) in [
        ("busy", mean(GPU_BUSY_RATIO.name)),
        ("tensor", mean(GPU_TENSOR_ACTIVE_RATIO.name)),
        ("dram", mean(GPU_DRAM_ACTIVE_RATIO.name)),
        ("power", power),
    ] {
        let found = asker.ask(&text)?;
        let value =
            |(labels, value): (Arc<Labels>, f64)| (labels.get("uuid").unwrap_or_default().to_owned(), value);
        did.insert(figure, found.into_iter().map(value).collect());
    }
    Ok(did)
}

/// A text as a regular expression that fits it only.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if !c.is_alphanumeric() && c != '-' {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn together(uuids: &BTreeSet<&str>, did: &Did) -> Cards {
    let mean = |figure: &str| {
        let of = did.get(figure)?;
        let values: Vec<f64> = uuids
            .iter()
            .filter_map(|uuid| of.get(*uuid))
            .copied()
            .filter(|value| value.is_finite())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let count = u32::try_from(uuids.len()).ok();
    let serving = Serving {
        cards: count,
        busy: mean("busy"),
        tensor: mean("tensor"),
        dram: mean("dram"),
        power: mean("power"),
        ..Serving::default()
    };
    let reason = if serving.tensor.is_none() || serving.dram.is_none() {
        "its cards report no activity of tensor cores and memory".to_owned()
    } else {
        String::new()
    };
    Cards { count, serving, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_the_same_by_their_first_part_unless_they_are_addresses() {
        assert!(is_same_host(host_of("gpu-1.cluster:8000"), "gpu-1"));
        assert!(is_same_host(host_of("[::1]:8000"), "::1"));
        assert!(!is_same_host("10.0.0.1", "10.0.0.2"));
        assert!(!is_same_host("", ""));
    }
}
