//! Every card with a signal over time, its peers, its owner and what befell it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use insight::incidents::Action;
use model::{EventAsk, Labels, NANOS_PER_MILLI, NANOS_PER_SECOND, RunId};
use semconv::canonical;
use serde::Serialize;
use serde_json::{Map, Value};
use store::{MatchOp, Matcher};
use utoipa::ToSchema;

use super::bridge;
use super::cards::{Card, CardKey, CardState, Cards, Owner, REMEMBERED_NS, owners_of};
use super::listed::run_row;
use super::reading::{at, lasts, lasts_of, ms, over_time, quoted};
use super::signals::{Agg, SIGNALS, Signal};
use crate::app::Shared;
use crate::clock::now_ns;
use crate::error::ApiError;

/// Xids listed of one card, and of all.
const XIDS_MAX: usize = 50;
const XIDS_OF_ALL_MAX: usize = 10_000;
/// The longest window that a value of now is taken from, milliseconds.
const NOW_MS_MAX: i64 = 300_000;
/// Metrics of others by which a card's source is told, each with the label that names the card.
const OTHERS: [(&str, &str, &str); 5] = [
    ("DCGM_FI_DEV_GPU_TEMP", "UUID", "dcgm"),
    ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "UUID", "dcgm"),
    ("DCGM_FI_DEV_POWER_USAGE", "UUID", "dcgm"),
    ("gpu_package_power", "serial_number", "amd"),
    ("gpu_average_package_power", "serial_number", "amd"),
];

/// What is asked about cards.
#[derive(Debug)]
pub(crate) struct GpuAsk {
    /// Key of a signal.
    pub(crate) signal: Option<String>,
    /// The time that is looked at, milliseconds.
    pub(crate) from_ms: i64,
    /// Its end, milliseconds.
    pub(crate) to_ms: i64,
    /// Into how many parts it is cut.
    pub(crate) bins: i64,
    /// Whether the worst value of a part counts, and not the median.
    pub(crate) worst: bool,
    /// Cards of this run.
    pub(crate) run: Option<RunId>,
    /// Cards of this host.
    pub(crate) host: Option<String>,
    /// One card.
    pub(crate) uuid: Option<String>,
}

/// Cards, coloured by a signal.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GpusAnswer {
    signal: &'static str,
    signals: Vec<SignalRow>,
    /// Milliseconds since the epoch.
    from: i64,
    /// Milliseconds since the epoch.
    to: i64,
    step_ms: i64,
    /// Parts of time that have a value, of all of cards that are listed.
    coverage: Option<f64>,
    gpus: Vec<GpuRow>,
}

/// A signal that cards can be coloured by.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignalRow {
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    /// A a fact, B with its caveat, C a hint, D misleads alone.
    trust: &'static str,
    caveat: &'static str,
    metric: &'static str,
    /// Whether cards that work together should have about the same.
    peers: bool,
}

/// A card.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GpuRow {
    host: String,
    gpu: String,
    uuid: String,
    gpu_model: String,
    driver: String,
    pci_bus_id: String,
    mig: bool,
    slices: Vec<String>,
    /// `ok`, `suspect`, `missing` or `silent`.
    state: &'static str,
    /// Null where it is not known; `reason` says why.
    value: Option<f64>,
    reason: Option<String>,
    bins: Vec<Option<f64>>,
    peers: Option<PeersRow>,
    owner: Option<OwnerRow>,
    /// The open incident that asks for most.
    incident: Option<String>,
    xids: Vec<XidRow>,
    /// Fields that the card or its driver has no value for.
    unsupported: Vec<String>,
    /// Milliseconds since the epoch.
    last_seen: i64,
    /// Who tells of it: `agent`, `dcgm`, `amd`.
    sources: Vec<&'static str>,
    /// Of one card that is asked for: the last value of everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    latest: Option<Map<String, Value>>,
    /// Of one card that is asked for: who had it, in order of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    owners: Option<Vec<OwnedRow>>,
}

/// Cards that do the same work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PeersRow {
    median: f64,
    /// The card's value over the median.
    ratio: Option<f64>,
    /// What they have in common: `run` (or a job), `pod` or `model`.
    of: &'static str,
    /// How many they are, the card among them.
    count: usize,
}

/// Who has a card.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OwnerRow {
    run_id: Option<String>,
    /// The run's name, where this server knows it.
    run: Option<String>,
    job_id: Option<String>,
    namespace: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    /// How many share it; null where one has it alone.
    shared: Option<u32>,
    confidence: Option<String>,
}

/// Who had a card, and when.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OwnedRow {
    from: i64,
    to: i64,
    owner: OwnerRow,
}

/// An Xid on the time axis.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct XidRow {
    time: i64,
    xid: u64,
    /// A process wrote the line: it is shown, and no fault.
    userspace: bool,
}

/// Values by card.
type Values = HashMap<CardKey, f64>;
/// Values over time by card.
type Lanes = HashMap<CardKey, Vec<Option<f64>>>;

/// The cards that are asked for.
pub(crate) fn gpus(shared: &Shared, ask: &GpuAsk) -> Result<GpusAnswer, ApiError> {
    let signal = match &ask.signal {
        None => &SIGNALS[0],
        Some(key) => Signal::named(key).ok_or_else(|| unknown(key))?,
    };
    let now_ns = now_ns();
    let step_ms = ((ask.to_ms - ask.from_ms) / ask.bins).max(1);
    let since_ns = (ask.from_ms.saturating_mul(NANOS_PER_MILLI)).min(now_ns.saturating_sub(REMEMBERED_NS));
    let mut cards = Cards::of(shared, since_ns, now_ns);
    let incidents = incidents(shared, &mut cards);
    let values = values(shared, ask, signal, step_ms)?;
    let groups = Groups::of(&cards, &values, signal);
    let lanes = lanes(shared, ask, signal, step_ms, &cards)?;
    let mut xids = xids(shared, ask)?;
    let sources = sources(shared, since_ns);
    let agents: HashSet<String> = shared.nodes.list().into_iter().map(|agent| agent.host).collect();
    let mut rows = Vec::new();
    let (mut filled, mut all) = (0_usize, 0_usize);
    for (key, card) in cards.all.iter().filter(|(key, card)| is_asked(ask, key, card)) {
        let bins =
            lanes.get(key).cloned().unwrap_or_else(|| vec![None; usize::try_from(ask.bins).unwrap_or(0)]);
        filled += bins.iter().flatten().count();
        all += bins.len();
        let value = groups.value(key, signal).filter(|_| card.state < CardState::Missing);
        let is_agent = agents.contains(&key.0);
        let of = is_agent.then_some("agent").into_iter().chain(sources.get(&key.1).copied());
        rows.push(GpuRow {
            reason: value.is_none().then(|| reason(signal, card, now_ns)),
            peers: value.and_then(|value| groups.peers(key, value, signal)),
            owner: card.owners.first().map(|owner| owner_row(shared, owner)),
            incident: incidents.get(key).cloned(),
            xids: xids.remove(key).unwrap_or_default(),
            latest: ask.uuid.is_some().then(|| latest(shared, key, since_ns)),
            owners: ask.uuid.is_some().then(|| owners(shared, key, ask)),
            sources: of.collect(),
            ..gpu_row(key, card, value, bins)
        });
    }
    Ok(GpusAnswer {
        signal: signal.key,
        signals: SIGNALS.iter().map(signal_row).collect(),
        from: ask.from_ms,
        to: ask.to_ms,
        step_ms,
        coverage: (all > 0).then(|| rounded(filled as f64 / all as f64)),
        gpus: rows,
    })
}

fn unknown(key: &str) -> ApiError {
    let keys: Vec<&str> = SIGNALS.iter().map(|signal| signal.key).collect();
    ApiError::bad(format!("`signal` is `{}`", crate::api::shown(key)))
        .hint(format!("signals are `{}`", keys.join("`, `")))
}

fn is_asked(ask: &GpuAsk, (host, uuid): &CardKey, card: &Card) -> bool {
    let is_of_run = |run: RunId| {
        let id = run.to_string();
        card.owners.iter().any(|owner| owner.run_id == id)
    };
    ask.host.as_ref().is_none_or(|wanted| wanted == host)
        && ask.uuid.as_ref().is_none_or(|wanted| wanted == uuid)
        && ask.run.is_none_or(is_of_run)
}

fn signal_row(signal: &Signal) -> SignalRow {
    SignalRow {
        key: signal.key,
        title: signal.title,
        unit: signal.unit,
        trust: signal.trust().letter(),
        caveat: signal.desc.caveat,
        metric: signal.desc.name,
        peers: signal.peers,
    }
}

fn gpu_row((host, uuid): &CardKey, card: &Card, value: Option<f64>, bins: Vec<Option<f64>>) -> GpuRow {
    GpuRow {
        host: host.clone(),
        gpu: card.gpu.clone(),
        uuid: uuid.clone(),
        gpu_model: card.model.clone(),
        driver: card.driver.clone(),
        pci_bus_id: card.place.clone(),
        mig: card.is_mig || !card.slices.is_empty(),
        slices: card.slices.iter().cloned().collect(),
        state: card.state.name(),
        value: value.map(rounded),
        reason: None,
        bins: bins.into_iter().map(|bin| bin.map(rounded)).collect(),
        peers: None,
        owner: None,
        incident: None,
        xids: Vec::new(),
        unsupported: card.unsupported.clone(),
        last_seen: ms(card.seen_ns()),
        sources: Vec::new(),
        latest: None,
        owners: None,
    }
}

/// Five digits: what is drawn needs no more, and a fleet has many.
fn rounded(value: f64) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let digits = 4 - value.abs().log10().floor() as i32;
    let scale = 10_f64.powi(digits.clamp(-15, 15));
    (value * scale).round() / scale
}

/// Marks cards of open incidents; returns the worst of each.
fn incidents(shared: &Shared, cards: &mut Cards) -> HashMap<CardKey, String> {
    let keeper = shared.fleet.keeper();
    let mut worst: HashMap<CardKey, (Action, String)> = HashMap::new();
    let mut by_place: HashMap<(&str, &str), &String> = HashMap::new();
    for ((host, uuid), card) in &cards.all {
        by_place.insert((host, &card.place), uuid);
    }
    for incident in keeper.all().iter().filter(|incident| incident.cleared.is_none()) {
        let device = &incident.device;
        let place = device.place.as_deref().unwrap_or_default();
        let of_place = || by_place.get(&(device.host.as_str(), place)).map(|uuid| (*uuid).clone());
        let Some(uuid) = device.uuid.clone().or_else(of_place) else { continue };
        let action = incident.verdict.action;
        let entry = worst.entry((device.host.clone(), uuid)).or_insert((action, String::new()));
        if entry.1.is_empty() || action > entry.0 {
            *entry = (action, keeper.id_of(incident).to_owned());
        }
    }
    drop(keeper);
    for (key, (action, _)) in &worst {
        if let Some(card) = cards.all.get_mut(key)
            && card.state == CardState::Ok
            && *action > Action::None
        {
            card.state = CardState::Suspect;
        }
    }
    worst.into_iter().map(|(key, (_, id))| (key, id)).collect()
}

fn key_of(labels: &Labels) -> Option<CardKey> {
    Some((labels.get("host")?.to_owned(), labels.get("uuid")?.to_owned()))
}

/// Takes a value of a card. That of the board counts; of slices the greatest.
fn put(values: &mut HashMap<CardKey, (bool, f64)>, labels: &Labels, value: f64) {
    let Some(key) = key_of(labels) else { return };
    let is_board = labels.get("gi").is_none();
    let entry = values.entry(key).or_insert((is_board, value));
    if (is_board && !entry.0) || (is_board == entry.0 && value > entry.1) {
        *entry = (is_board, value);
    }
}

fn at_time(shared: &Shared, query: &str, time_ms: i64) -> Result<Values, ApiError> {
    let mut values = HashMap::new();
    for (labels, value) in at(shared, query, time_ms)? {
        put(&mut values, &labels, value);
    }
    Ok(values.into_iter().map(|(key, (_, value))| (key, value)).collect())
}

/// The value of every card, of the end of the time that is asked for.
fn values(shared: &Shared, ask: &GpuAsk, signal: &Signal, step_ms: i64) -> Result<Values, ApiError> {
    let least = signal.window_min_ms();
    let window =
        if signal.is_of_all_time() { ask.to_ms - ask.from_ms } else { step_ms.min(NOW_MS_MAX) }.max(least);
    let agg = if ask.worst { Agg::Worst } else { Agg::Median };
    // The last part of a time that ends on a whole one has hardly begun: what counts is what is known now.
    let at_ms = ask.to_ms.min(ms(now_ns()));
    let mut values = at_time(shared, &signal.query(agg, window, ""), at_ms)?;
    if let Some(query) = signal.query_over(window.max(NOW_MS_MAX), "") {
        let over = at_time(shared, &query, at_ms)?;
        values = divided(values, &over);
    }
    Ok(values)
}

fn divided(values: Values, over: &Values) -> Values {
    let ratio = |(key, value): (CardKey, f64)| {
        let over = over.get(&key).copied().filter(|over| *over > 0.0)?;
        Some((key, value / over))
    };
    values.into_iter().filter_map(ratio).collect()
}

fn query_lanes(shared: &Shared, query: &str, ask: &GpuAsk, step_ms: i64) -> Result<Lanes, ApiError> {
    let bins = usize::try_from(ask.bins).unwrap_or(0);
    let mut lanes: HashMap<CardKey, (bool, Vec<Option<f64>>)> = HashMap::new();
    for run in over_time(shared, query, (ask.from_ms, ask.to_ms, step_ms))? {
        let Some(key) = key_of(&run.labels) else { continue };
        let is_board = run.labels.get("gi").is_none();
        let lane = lanes.entry(key).or_insert_with(|| (is_board, vec![None; bins]));
        if is_board && !lane.0 {
            *lane = (true, vec![None; bins]);
        } else if lane.0 && !is_board {
            continue;
        }
        for (time_ms, value) in run.points() {
            let at = usize::try_from((time_ms - ask.from_ms) / step_ms - 1).unwrap_or(usize::MAX);
            if let Some(bin) = lane.1.get_mut(at) {
                *bin = Some(bin.map_or(value, |known| known.max(value)));
            }
        }
    }
    Ok(lanes.into_iter().map(|(key, (_, lane))| (key, lane)).collect())
}

/// The signal over time: of the cards that are asked for, and of their peers where these are the measure.
fn lanes(
    shared: &Shared,
    ask: &GpuAsk,
    signal: &Signal,
    step_ms: i64,
    cards: &Cards,
) -> Result<Lanes, ApiError> {
    let window = step_ms.max(signal.window_min_ms());
    let named = [("host", &ask.host), ("uuid", &ask.uuid)];
    let conditions: Vec<String> = named
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", quoted(value.as_ref()?))))
        .collect();
    let conditions = if signal.is_of_peers { String::new() } else { conditions.join(",") };
    let agg = if ask.worst { Agg::Worst } else { Agg::Median };
    let mut lanes = query_lanes(shared, &signal.query(agg, window, &conditions), ask, step_ms)?;
    if let Some(query) = signal.query_over(window.max(NOW_MS_MAX), &conditions) {
        let over = query_lanes(shared, &query, ask, step_ms)?;
        for (key, lane) in &mut lanes {
            let over = over.get(key);
            for (at, bin) in lane.iter_mut().enumerate() {
                let over = over.and_then(|lane| lane.get(at).copied().flatten()).filter(|over| *over > 0.0);
                *bin = bin.zip(over).map(|(value, over)| value / over);
            }
        }
    }
    if signal.is_of_peers {
        against_peers(&mut lanes, cards);
    }
    Ok(lanes)
}

/// Divides every part of time by the median of the cards of the same group.
fn against_peers(lanes: &mut Lanes, cards: &Cards) {
    let mut groups: BTreeMap<Group, Vec<&CardKey>> = BTreeMap::new();
    for key in lanes.keys() {
        if let Some(card) = cards.all.get(key) {
            groups.entry(Group::of(card)).or_default().push(key);
        }
    }
    let mut medians: HashMap<CardKey, Vec<Option<f64>>> = HashMap::new();
    for members in groups.into_values().filter(|members| members.len() > 1) {
        let bins = lanes[members[0]].len();
        let median_at = |at: usize| median(members.iter().filter_map(|key| lanes[*key][at]).collect());
        let lane: Vec<Option<f64>> = (0..bins).map(median_at).collect();
        medians.extend(members.into_iter().map(|key| (key.clone(), lane.clone())));
    }
    for (key, lane) in lanes.iter_mut() {
        let median = medians.get(key);
        for (at, bin) in lane.iter_mut().enumerate() {
            let median = median.and_then(|lane| lane[at]).filter(|median| *median > 0.0);
            *bin = bin.zip(median).map(|(value, median)| value / median);
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| !value.is_nan());
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    Some(if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) })
}

/// Cards that are compared: those of one run, job or pod, else those of one model that nobody has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Group {
    Run(String, String),
    Pod(String, String, String),
    Model(String),
    /// Of several owners, or of one without a name.
    Owned(String),
}

impl Group {
    fn of(card: &Card) -> Self {
        let sole = card.owners.first().filter(|_| card.owners.len() == 1);
        let model = card.model.clone();
        if let Some(group) = sole.and_then(Owner::group) {
            return Self::Run(group.to_owned(), model);
        }
        if let Some((namespace, pod)) = sole.and_then(Owner::pod) {
            return Self::Pod(namespace.to_owned(), pod.to_owned(), model);
        }
        // A card at work says nothing of one that rests.
        if card.owners.is_empty() { Self::Model(model) } else { Self::Owned(model) }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Run(..) => "run",
            Self::Pod(..) => "pod",
            Self::Model(_) | Self::Owned(_) => "model",
        }
    }
}

/// The groups of all cards with the medians of their values.
struct Groups<'v> {
    of: HashMap<CardKey, Group>,
    medians: HashMap<Group, (f64, usize)>,
    values: &'v Values,
}

impl<'v> Groups<'v> {
    fn of(cards: &Cards, values: &'v Values, _signal: &Signal) -> Self {
        let mut of = HashMap::new();
        let mut members: HashMap<Group, Vec<f64>> = HashMap::new();
        for (key, card) in &cards.all {
            let group = Group::of(card);
            if let Some(value) = values.get(key).filter(|_| card.state < CardState::Missing) {
                members.entry(group.clone()).or_default().push(*value);
            }
            of.insert(key.clone(), group);
        }
        let with_median = |(group, values): (Group, Vec<f64>)| {
            let count = values.len();
            Some((group, (median(values)?, count)))
        };
        Self { of, medians: members.into_iter().filter_map(with_median).collect(), values }
    }

    fn median(&self, key: &CardKey) -> Option<(f64, usize)> {
        self.medians.get(self.of.get(key)?).copied().filter(|(_, count)| *count > 1)
    }

    /// A card's value of the signal.
    fn value(&self, key: &CardKey, signal: &Signal) -> Option<f64> {
        let value = self.values.get(key).copied()?;
        if !signal.is_of_peers {
            return Some(value);
        }
        let (median, _) = self.median(key).filter(|(median, _)| *median > 0.0)?;
        Some(value / median)
    }

    fn peers(&self, key: &CardKey, value: f64, signal: &Signal) -> Option<PeersRow> {
        let (median, count) = self.median(key).filter(|_| signal.peers)?;
        let of = self.of.get(key)?.word();
        // A signal against peers is their ratio already.
        let median = if signal.is_of_peers { 1.0 } else { median };
        let ratio = (median > 0.0).then(|| rounded(value / median));
        Some(PeersRow { median: rounded(median), ratio, of, count })
    }
}

/// Why a card has no value.
fn reason(signal: &Signal, card: &Card, now_ns: i64) -> String {
    let seconds = now_ns.saturating_sub(card.seen_ns()) / NANOS_PER_SECOND;
    let field = signal.desc.name.trim_start_matches("tg_gpu_");
    match card.state {
        CardState::Silent => format!("its node has said nothing for {seconds} s"),
        CardState::Missing => format!("its node is there, the card was seen {seconds} s ago"),
        _ if card.unsupported.iter().any(|known| known == field) => {
            "the card or its driver has no value for it".to_owned()
        }
        _ if signal.is_of_peers => {
            "it is idle or has no peers at work: clocks are compared under load only".to_owned()
        }
        _ => match signal.over {
            Some(over) => format!("nobody reports `{}` and `{}`", signal.desc.name, over.name),
            None => format!("nobody reports `{}`", signal.desc.name),
        },
    }
}

fn owner_row(shared: &Shared, owner: &Owner) -> OwnerRow {
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let run = some(&owner.run_id).map(|id| run_row(shared, &id));
    OwnerRow {
        run_id: some(&owner.run_id),
        run: run.and_then(super::listed::RunRow::into_name),
        job_id: some(&owner.job_id),
        namespace: some(&owner.namespace),
        pod: some(&owner.pod),
        container: some(&owner.container),
        shared: owner.shared,
        confidence: some(&owner.confidence),
    }
}

fn owners(shared: &Shared, (host, uuid): &CardKey, ask: &GpuAsk) -> Vec<OwnedRow> {
    let range = (ask.from_ms.saturating_mul(NANOS_PER_MILLI), ask.to_ms.saturating_mul(NANOS_PER_MILLI));
    let all = owners_of(&shared.store, (host, uuid), range);
    let row = |(from, to, owner): (i64, i64, Owner)| OwnedRow {
        from: ms(from),
        to: ms(to),
        owner: owner_row(shared, &owner),
    };
    all.into_iter().map(row).collect()
}

/// The last value of every series of a card.
fn latest(shared: &Shared, (host, uuid): &CardKey, since_ns: i64) -> Map<String, Value> {
    let is_ours = |name: &str| name.starts_with("tg_gpu_");
    let matchers = [
        Matcher::equal("host", host),
        Matcher::equal("uuid", uuid),
        Matcher::new("__name__", MatchOp::Regex, "tg_gpu_.*", is_ours),
    ];
    let mut all = Map::new();
    for last in lasts(&shared.store, &matchers, since_ns).into_iter().filter(|last| !last.is_end()) {
        let name = last.label("__name__");
        let desc = canonical::find(name);
        if name.ends_with("_info") {
            continue;
        }
        let own = ["__name__", "host", "gpu", "uuid"];
        let rest: Vec<String> = last
            .labels
            .iter()
            .filter(|(label, _)| !own.contains(label))
            .map(|(label, value)| format!("{label}={}", quoted(value)))
            .collect();
        let key = if rest.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", rest.join(",")) };
        let unit = desc.map_or("", |desc| desc.unit.symbol());
        let row = serde_json::json!({
            "value": crate::api::json_number(last.value), "unit": unit, "time": ms(last.time_ns),
        });
        all.insert(key, row);
    }
    all
}

/// The Xids of the time that is asked for, by card, in order of time.
fn xids(shared: &Shared, ask: &GpuAsk) -> Result<HashMap<CardKey, Vec<XidRow>>, ApiError> {
    let from = ask.from_ms.saturating_mul(NANOS_PER_MILLI);
    let asked = EventAsk {
        time_ns: from..=ask.to_ms.saturating_mul(NANOS_PER_MILLI),
        kinds: Some(vec!["xid".to_owned()]),
        host: ask.host.clone(),
        uuid: ask.uuid.clone(),
        ..EventAsk::default()
    };
    let mut all: HashMap<CardKey, Vec<XidRow>> = HashMap::new();
    let mut count = 0;
    let read = shared.store.events(&asked, &mut |event| {
        let (host, uuid) = (event.label("host"), event.label("uuid"));
        let xid = bridge::body(&event).get("xid").and_then(Value::as_u64);
        if let (Some(host), Some(uuid), Some(xid)) = (host, uuid, xid) {
            let rows = all.entry((host.to_owned(), uuid.to_owned())).or_default();
            if rows.len() < XIDS_MAX {
                rows.push(XidRow { time: ms(event.time_ns), xid, userspace: bridge::is_userspace(&event) });
            }
        }
        count += 1;
        if count < XIDS_OF_ALL_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    read.map_err(|error| ApiError::internal(error.to_string()))?;
    for rows in all.values_mut() {
        rows.reverse();
    }
    Ok(all)
}

/// Which exporters tell of which card.
fn sources(shared: &Shared, since_ns: i64) -> HashMap<String, &'static str> {
    let mut sources = HashMap::new();
    for (metric, label, source) in OTHERS {
        for last in lasts_of(&shared.store, metric, since_ns) {
            sources.insert(last.label(label).to_owned(), source);
        }
    }
    sources
}
