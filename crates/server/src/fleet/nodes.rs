//! Every node with its cards as counted by PCI, by the driver and as given to jobs.

use std::collections::{BTreeMap, BTreeSet};

use semconv::canonical::{NODE_GPUS, NODE_INFO, NODE_MEMORY_TOTAL_BYTES, NODE_MEMORY_USED_BYTES};
use serde::Serialize;
use utoipa::ToSchema;

use super::cards::{CardState, Cards, REMEMBERED_NS};
use super::reading::{at, lasts_of, ms};
use crate::app::Shared;
use crate::clock::now_ns;
use crate::error::ApiError;
use crate::node::Agent;

/// Share of a machine's time that was not idle.
const CPU: &str = "1 - sum by (host) (rate(tg_node_cpu_seconds_total{mode=~\"idle|iowait\"}[2m])) \
    / sum by (host) (rate(tg_node_cpu_seconds_total[2m]))";

/// Every node, and what they come to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodesAnswer {
    nodes: Vec<NodeRow>,
    totals: Totals,
}

/// A node.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeRow {
    host: String,
    /// `live`, or `silent` when nothing was heard for three intervals.
    state: &'static str,
    /// Milliseconds since the epoch.
    last_seen: i64,
    /// Agents that report it: 0 where an exporter does, 2 where the series of one are refused.
    agents: u32,
    agent_version: Option<String>,
    boot_id: Option<String>,
    gpus: CountsRow,
    /// Cards that were there within a day and are not any more.
    missing: Vec<MissingRow>,
    cpu_ratio: Option<f64>,
    memory_used_bytes: Option<f64>,
    memory_total_bytes: Option<f64>,
    /// Open incidents that ask for something.
    incidents: usize,
}

/// Cards of a node; null where nobody counts them.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct CountsRow {
    pci: Option<u64>,
    driver: Option<u64>,
    allocated: Option<u64>,
}

/// A card that is gone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MissingRow {
    pci_bus_id: Option<String>,
    /// Null for one that PCI has and the driver never told of.
    uuid: Option<String>,
    /// Since when, milliseconds since the epoch; null where it never was there.
    since: Option<i64>,
}

/// What all nodes come to.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Totals {
    hosts: usize,
    silent: usize,
    pci: u64,
    driver: u64,
    allocated: u64,
    missing: usize,
}

/// Every node that was heard of within a day.
pub(crate) fn nodes(shared: &Shared) -> Result<NodesAnswer, ApiError> {
    let now_ns = now_ns();
    let since_ns = now_ns.saturating_sub(REMEMBERED_NS);
    let cards = Cards::of(shared, since_ns, now_ns);
    let agents: BTreeMap<String, Agent> =
        shared.nodes.list().into_iter().map(|agent| (agent.host.clone(), agent)).collect();
    let counts = counts(shared, since_ns);
    let memory = |metric: &str| -> BTreeMap<String, f64> {
        let all = lasts_of(&shared.store, metric, now_ns.saturating_sub(super::owner::OWNED_NS));
        let known = all.into_iter().filter(|last| !last.is_end());
        known.map(|last| (last.label("host").to_owned(), last.value)).collect()
    };
    let (used, total) = (memory(NODE_MEMORY_USED_BYTES.name), memory(NODE_MEMORY_TOTAL_BYTES.name));
    let cpu: BTreeMap<String, f64> = at(shared, CPU, ms(now_ns))?
        .into_iter()
        .filter_map(|(labels, value)| Some((labels.get("host")?.to_owned(), value)))
        .collect();
    let boots = boots(shared, since_ns);
    let incidents = incidents(shared);
    let hosts: BTreeSet<&String> = cards.heard.keys().chain(agents.keys()).collect();
    let rows = hosts.into_iter().map(|host| {
        let agent = agents.get(host);
        let heard = cards.heard_ns(host).into_iter().chain(agent.map(|agent| agent.heard_ns)).max();
        let is_silent = match agent {
            Some(agent) => is_agent_silent(agent, now_ns) && cards.is_silent(host, now_ns),
            None => cards.is_silent(host, now_ns),
        };
        let (counts, missing) = inventory(&cards, host, counts.get(host).copied().unwrap_or_default());
        NodeRow {
            host: host.clone(),
            state: if is_silent { "silent" } else { "live" },
            last_seen: ms(heard.unwrap_or(since_ns)),
            agents: agent.map_or(0, |agent| agent.agents),
            agent_version: agent.map(|agent| agent.version.clone()),
            boot_id: agent.map(|agent| agent.boot_id.clone()).or_else(|| boots.get(host).cloned()),
            gpus: counts,
            missing: if is_silent { Vec::new() } else { missing },
            cpu_ratio: cpu.get(host).copied().filter(|_| !is_silent),
            memory_used_bytes: used.get(host).copied().filter(|_| !is_silent),
            memory_total_bytes: total.get(host).copied(),
            incidents: incidents.get(host).copied().unwrap_or_default(),
        }
    });
    let nodes: Vec<NodeRow> = rows.collect();
    let totals = totals(&nodes);
    Ok(NodesAnswer { nodes, totals })
}

fn is_agent_silent(agent: &Agent, now_ns: i64) -> bool {
    let patience = i64::try_from(agent.patience().as_nanos()).unwrap_or(i64::MAX);
    agent.has_left || now_ns.saturating_sub(agent.heard_ns) > patience
}

fn totals(nodes: &[NodeRow]) -> Totals {
    let sum = |of: fn(&CountsRow) -> Option<u64>| nodes.iter().filter_map(|node| of(&node.gpus)).sum();
    Totals {
        hosts: nodes.len(),
        silent: nodes.iter().filter(|node| node.state == "silent").count(),
        pci: sum(|gpus| gpus.pci),
        driver: sum(|gpus| gpus.driver),
        allocated: sum(|gpus| gpus.allocated),
        missing: nodes.iter().map(|node| node.missing.len()).sum(),
    }
}

/// What nodes say of the number of their cards.
fn counts(shared: &Shared, since_ns: i64) -> BTreeMap<String, CountsRow> {
    let mut counts: BTreeMap<String, CountsRow> = BTreeMap::new();
    for last in lasts_of(&shared.store, NODE_GPUS.name, since_ns).iter().filter(|last| !last.is_end()) {
        let row = counts.entry(last.label("host").to_owned()).or_default();
        let value = Some(last.value.max(0.0) as u64);
        match last.label("source") {
            "pci" => row.pci = value,
            "driver" => row.driver = value,
            "allocated" => row.allocated = value,
            _ => {}
        }
    }
    counts
}

fn boots(shared: &Shared, since_ns: i64) -> BTreeMap<String, String> {
    let all = lasts_of(&shared.store, NODE_INFO.name, since_ns);
    let known = all.into_iter().filter(|last| !last.is_end());
    known.map(|last| (last.label("host").to_owned(), last.label("boot_id").to_owned())).collect()
}

/// Cards as counted, with what an exporter alone lets one count, and those that are not there.
fn inventory(cards: &Cards, host: &str, mut counts: CountsRow) -> (CountsRow, Vec<MissingRow>) {
    let of_host = cards.all.iter().filter(|((of, _), _)| of == host);
    let (mut there, mut silent, mut missing) = (0_u64, 0_u64, Vec::new());
    for ((_, uuid), card) in of_host {
        match card.state {
            CardState::Missing => {}
            CardState::Silent => {
                silent += u64::from(cards.was_there(host, card));
                continue;
            }
            CardState::Ok | CardState::Suspect => {
                there += 1;
                continue;
            }
        }
        missing.push(MissingRow {
            pci_bus_id: Some(card.place.clone()).filter(|place| !place.is_empty()),
            uuid: Some(uuid.clone()),
            since: Some(ms(card.seen_ns())),
        });
    }
    // Cards of a maker whose driver nobody asks are told of by an exporter.
    if there > 0 || !missing.is_empty() {
        counts.driver = counts.driver.max(Some(there));
    } else if silent > 0 {
        // A silent node is as it was counted last, without cards that were gone before.
        counts.driver = counts.driver.or(Some(silent));
    }
    let short = counts.pci.unwrap_or(0).saturating_sub(counts.driver.unwrap_or(0));
    let unnamed = usize::try_from(short).unwrap_or(0).saturating_sub(missing.len());
    missing.extend((0..unnamed).map(|_| MissingRow { pci_bus_id: None, uuid: None, since: None }));
    (counts, missing)
}

/// Open incidents that ask for something, by host.
fn incidents(shared: &Shared) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let keeper = shared.fleet.keeper();
    let open = keeper.all().iter().filter(|incident| incident.cleared.is_none() && incident.is_actionable());
    for incident in open {
        *counts.entry(incident.device.host.clone()).or_default() += 1;
    }
    counts
}
