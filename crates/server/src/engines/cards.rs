//! Which cards serve a model: those of the replica's pod, else those of its host where nobody else can be meant.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use insight::serving::Serving;
use model::Labels;
use promql::notation::pattern_of;
use promql::{QueryError, Select, Series, Source, SourceError};
use semconv::canonical::{
    GPU_BUSY_RATIO, GPU_DRAM_ACTIVE_RATIO, GPU_OWNER_INFO, GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS,
    GPU_TENSOR_ACTIVE_RATIO,
};

use super::gather::{Asker, quoted, selector};
use super::near::{Near, Part};
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

/// The cards of models, by model.
pub(super) type ByModel = BTreeMap<Arc<str>, Cards>;

/// Hosts on which some models may be, as [`host_key`] names them.
pub(super) type Hosts = HashSet<String>;

/// Finds the cards of every model of these replicas, and the hosts that can have some; `all` are those of other
/// models too.
pub(super) fn read(
    asker: &Asker<'_>,
    near: &Near<'_>,
    keys: &BTreeSet<Key>,
    all: &BTreeSet<Key>,
) -> Result<(ByModel, Hosts), QueryError> {
    let pods = pods(asker)?;
    let around = Around {
        near,
        pods: pods.values().map(|(_, pod)| pod.as_str()).collect(),
        hosts: keys.iter().map(|key| host_key(host_of(&key.instance))).collect(),
    };
    let owned = owned(asker, &around)?;
    let places = Places::of(&owned, all);
    let mut of_model: BTreeMap<Arc<str>, (BTreeSet<&str>, Option<String>)> = BTreeMap::new();
    let mut hosts = Hosts::new();
    for key in keys {
        hosts.insert(host_key(host_of(&key.instance)));
        let of_pod = pods.get(key).and_then(|(_, pod)| places.of_pod.get(pod.as_str()));
        hosts.extend(of_pod.into_iter().flatten().map(|one| host_key(&one.host)));
        let (found, reason) = of_model.entry(key.model.clone()).or_default();
        match places.join(key, pods.get(key)) {
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
    Ok((of_model.into_iter().map(|(model, found)| (model, cards(found))).collect(), hosts))
}

/// Owners of cards that can be those of some replicas.
struct Around<'a, 'n> {
    near: &'a Near<'n>,
    pods: HashSet<&'a str>,
    hosts: Hosts,
}

impl Source for Around<'_, '_> {
    fn select<'s>(&'s self, select: &Select<'_>) -> Result<Vec<Box<dyn Series + 's>>, SourceError> {
        let is_near = |labels: &Arc<Labels>| {
            self.pods.contains(labels.get("pod").unwrap_or_default())
                || self.hosts.contains(&host_key(labels.get("host").unwrap_or_default()))
        };
        self.near.select_part(Part::Owners, select, None, &|all| all.iter().map(is_near).collect())
    }
}

fn owned(asker: &Asker<'_>, around: &Around<'_, '_>) -> Result<Vec<Owned>, QueryError> {
    let text = format!("last_over_time({}[{}])", GPU_OWNER_INFO.name, asker.window().range());
    let found = asker.ask_of(around, &text)?;
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
        selector("=~", SIGNS),
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

/// Who has cards and who serves, by pod and by host.
#[derive(Default)]
struct Places<'o> {
    of_pod: HashMap<&'o str, Vec<&'o Owned>>,
    of_host: HashMap<String, Vec<&'o Owned>>,
    engines_of_host: HashMap<String, BTreeSet<&'o str>>,
}

impl<'o> Places<'o> {
    fn of(owned: &'o [Owned], keys: &'o BTreeSet<Key>) -> Self {
        let mut places = Self::default();
        for one in owned {
            places.of_pod.entry(&one.pod).or_default().push(one);
            places.of_host.entry(host_key(&one.host)).or_default().push(one);
        }
        for key in keys {
            let host = host_key(host_of(&key.instance));
            places.engines_of_host.entry(host).or_default().insert(&key.instance);
        }
        places
    }

    /// The cards of a replica in its pod, if it says one, or why they can't be told.
    fn join(&self, key: &Key, pod: Option<&(String, String)>) -> Result<Vec<&'o str>, String> {
        if let Some((namespace, pod)) = pod {
            let is_its = |one: &&&Owned| namespace.is_empty() || one.namespace == *namespace;
            let found = self.of_pod.get(pod.as_str()).into_iter().flatten().filter(is_its);
            let uuids: Vec<&str> = found.map(|one| &*one.uuid).collect();
            return if uuids.is_empty() {
                Err(format!("no card is known to be of the pod {pod}"))
            } else {
                Ok(uuids)
            };
        }
        let host = host_of(&key.instance);
        let name = host_key(host);
        let on_host = self.of_host.get(&name).map(Vec::as_slice).unwrap_or_default();
        let owners: BTreeSet<&str> = on_host.iter().map(|one| &*one.owner).collect();
        let engines = self.engines_of_host.get(&name).map_or(0, BTreeSet::len);
        match (owners.len(), engines) {
            (1, 1) => Ok(on_host.iter().map(|one| &*one.uuid).collect()),
            (0, _) => Err(format!(
                "the series of {} name no pod, and no owner of a card on {host} is known: run the agent there",
                key.instance
            )),
            (owners, engines) => Err(format!(
                "the series of {} name no pod, and {host} has {engines} engines and {owners} owners of cards: add \
                 the labels `namespace` and `pod` to its target",
                key.instance
            )),
        }
    }
}

/// The host of a target's `instance`.
fn host_of(instance: &str) -> &str {
    let host = instance.rsplit_once(':').map_or(instance, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// What all names of a host come to: the first part of a name in a domain is that host too.
pub(super) fn host_key(name: &str) -> String {
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    let first = if is_address { name } else { name.split('.').next().unwrap_or_default() };
    first.to_ascii_lowercase()
}

/// What cards did in the window, by figure and uuid.
type Did = BTreeMap<&'static str, BTreeMap<String, f64>>;

fn did(asker: &Asker<'_>, uuids: &BTreeSet<&str>) -> Result<Did, QueryError> {
    let mut did = Did::new();
    if uuids.is_empty() {
        return Ok(did);
    }
    let named: Vec<String> = uuids.iter().map(|uuid| pattern_of(uuid)).collect();
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
        assert_eq!(host_key(host_of("GPU-1.cluster:8000")), host_key("gpu-1"));
        assert_eq!(host_key(host_of("[::1]:8000")), host_key("::1"));
        assert_ne!(host_key("10.0.0.1"), host_key("10.0.0.2"));
    }
}
