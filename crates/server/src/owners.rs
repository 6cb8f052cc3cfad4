//! Which run has a card: what agents know of a card's owner, completed by what the processes of runs report.
//!
//! An agent sees pods and jobs, and of runs only those whose locks it may read. The processes of a run say
//! themselves which cards they report, by UUID and boot of the machine. Both meet where an agent's push comes
//! in: a row of `tg_gpu_owner_info` gets its `run_id`, and a card that nobody else owns gets a row. As the
//! labels of rows change here, their ends are made here too. All is judged by the time of the look, so that an
//! old spool is told as it would have been then.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{
    CAPTURE_PREFIX, CaptureReport, CaptureState, DeviceRole, Labels, NANOS_PER_SECOND, RunChange, RunId,
    RunRecord, STALE_AFTER_SECONDS, Sample, SeriesIdentity, Session, WriterId, is_stale_marker, stale_marker,
};
use semconv::canonical::{GPU_INFO, GPU_OWNER_INFO, GPU_SAMPLER_INFO};
use store::{MatchOp, Matcher, SeriesBatch, Store};
use wire::push::Node;

use crate::{claims, intake};

/// Most claims of cards that are kept in mind; beyond it those of sessions that ended go.
const CLAIMS_MAX: usize = 1 << 18;
/// Most nodes whose rows are kept in mind; beyond it all are looked up anew.
const NODES_MAX: usize = 1 << 17;
/// How far back the series of a node are looked for that the server knew before it was started anew, and
/// sessions that may still live.
const LOOK_BACK_NS: i64 = 300 * NANOS_PER_SECOND;
/// A session may begin to report before its first word is stamped.
const EARLY_NS: i64 = 60 * NANOS_PER_SECOND;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Owners(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Whether the runs of the store were read.
    is_gathered: bool,
    /// Who reports which card, by its UUID.
    by_card: HashMap<String, Vec<Claim>>,
    /// The cards of each writer.
    of_writer: HashMap<WriterId, Vec<String>>,
    /// The rows that stand, by node.
    written: HashMap<String, HashSet<SeriesIdentity>>,
}

/// A process of a run reports a card.
#[derive(Debug, Clone)]
struct Claim {
    run: RunId,
    writer: WriterId,
    boot_id: String,
    /// The card by the process's own host name and index: the labels of what it samples.
    host: String,
    gpu: u32,
}

/// A run that has a card at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    run: RunId,
    host: String,
    gpu: u32,
    job_token: String,
}

/// The rows of a node once its push is durable.
#[derive(Debug)]
pub(crate) struct Pending {
    host: String,
    rows: HashSet<SeriesIdentity>,
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the cards that a process says it reports.
    pub(crate) fn learn(&self, change: &RunChange, writer: WriterId) {
        let reports = change.attributes.iter().filter(|(key, _)| key.starts_with(CAPTURE_PREFIX));
        let reports: Vec<CaptureReport> =
            reports.filter_map(|(key, value)| claims::report_of(key, value)).collect();
        if let Some(report) = reports.last() {
            self.lock().learn(change.path.id(), writer, report);
        }
    }

    /// Completes what an agent says of owners in the look of a time, and ends the rows that stand no more; cards
    /// and rows are among `series`. What is left to be remembered once all of it is durable.
    pub(crate) fn complete(
        &self,
        store: &Store,
        (node, time_ns): (&Node, i64),
        series: &mut Vec<SeriesBatch>,
    ) -> Pending {
        let mut inner = self.lock();
        if !inner.is_gathered {
            inner.is_gathered = true;
            store.runs().iter().for_each(|run| inner.gather(run, time_ns));
        }
        let cards = cards(series);
        let (rows, ends): (Vec<_>, Vec<_>) = take_rows(series)
            .into_iter()
            .partition(|row| row.samples.iter().all(|s| !is_stale_marker(s.value)));
        let mut look = Look { node, rows: rows.iter().map(|row| &row.identity.labels).collect(), cards };
        let wanted = look.complete(|uuid| inner.holders(store, (node, uuid), time_ns));
        let known = inner.written.get(&node.host);
        // A server that was just started finds what it wrote before, and passes on what the agent ends.
        let (before, passed) = match known {
            Some(known) => (known.clone(), Vec::new()),
            None => (written_before(store, &node.host, time_ns), ends),
        };
        let row = |identity: &SeriesIdentity, value| {
            let samples = vec![Sample { time_ns, value, step: None }];
            SeriesBatch { identity: identity.clone(), samples }
        };
        series.extend(wanted.iter().map(|identity| row(identity, 1.0)));
        series
            .extend(before.iter().filter(|row| !wanted.contains(*row)).map(|gone| row(gone, stale_marker())));
        let is_new = |end: &SeriesBatch| !wanted.contains(&end.identity) && !before.contains(&end.identity);
        series.extend(passed.into_iter().filter(is_new));
        Pending { host: node.host.clone(), rows: wanted }
    }

    /// A push is durable.
    pub(crate) fn settle(&self, pending: Pending) {
        let mut inner = self.lock();
        if inner.written.len() >= NODES_MAX {
            inner.written.clear();
        }
        inner.written.insert(pending.host, pending.rows);
    }
}

impl Inner {
    fn learn(&mut self, run: RunId, writer: WriterId, report: &CaptureReport) {
        for uuid in self.of_writer.remove(&writer).unwrap_or_default() {
            if let Some(claims) = self.by_card.get_mut(&uuid) {
                claims.retain(|claim| claim.writer != writer);
            }
        }
        self.by_card.retain(|_, claims| !claims.is_empty());
        if report.state != CaptureState::Sampling || self.of_writer.len() >= CLAIMS_MAX {
            return;
        }
        let owned = report.devices.iter().filter(|device| device.role == DeviceRole::Owned);
        let mut uuids = Vec::new();
        for device in owned.filter(|device| !device.uuid.is_empty()) {
            let (boot_id, host, gpu) = (report.boot_id.clone(), report.host.clone(), device.gpu);
            self.by_card.entry(device.uuid.clone()).or_default().push(Claim {
                run,
                writer,
                boot_id,
                host,
                gpu,
            });
            uuids.push(device.uuid.clone());
        }
        if !uuids.is_empty() {
            self.of_writer.insert(writer, uuids);
        }
    }

    /// What the reports of a run say whose sessions may still live.
    fn gather(&mut self, run: &RunRecord, time_ns: i64) {
        let from_ns = time_ns.saturating_sub(LOOK_BACK_NS);
        if run.deleted_ns.is_some() || run.sessions.iter().all(|session| until_ns(session) < from_ns) {
            return;
        }
        for report in claims::reports(run) {
            let of_report =
                |session: &&Session| session.facts.host == report.host && session.facts.pid == report.pid;
            if let Some(session) = run.sessions.iter().rev().find(of_report) {
                self.learn(run.path.id(), session.writer, &report);
            }
        }
    }

    /// The runs whose processes had a card of a node at a time, each once.
    fn holders(&self, store: &Store, (node, uuid): (&Node, &str), time_ns: i64) -> Vec<Holder> {
        let mut found: Vec<Holder> = Vec::new();
        for claim in self.by_card.get(uuid).into_iter().flatten() {
            // The id of a card may have been heard elsewhere; that of the boot is read on the machine.
            let is_here = node.boot_id.is_empty() || node.boot_id == claim.boot_id;
            let Some(record) = store.run(claim.run).filter(|_| is_here) else { continue };
            let Some(session) = record.sessions.iter().rev().find(|s| s.writer == claim.writer) else {
                continue;
            };
            let lived = session.started_ns.saturating_sub(EARLY_NS)..=until_ns(session);
            if lived.contains(&time_ns) && found.iter().all(|known| known.run != claim.run) {
                let (run, host, gpu) = (claim.run, claim.host.clone(), claim.gpu);
                found.push(Holder { run, host, gpu, job_token: session.facts.job_token.clone() });
            }
        }
        found
    }
}

/// Until when a session is taken to have lived: its end, or a while after its last word.
fn until_ns(session: &Session) -> i64 {
    let patience = i64::from(session.facts.silent_after_seconds).max(STALE_AFTER_SECONDS as i64);
    session.ended_ns.unwrap_or_else(|| session.heartbeat_ns.saturating_add(patience * NANOS_PER_SECOND))
}

/// The driver's index of each whole card that a look has, by UUID.
fn cards(series: &[SeriesBatch]) -> BTreeMap<String, String> {
    let of = series.iter().filter(|one| one.identity.display == GPU_INFO.name);
    let alive = of.filter(|one| one.samples.iter().all(|sample| !is_stale_marker(sample.value)));
    let named = alive.filter_map(|one| {
        let labels = &one.identity.labels;
        labels
            .get("gi")
            .is_none()
            .then(|| Some((labels.get("uuid")?.to_owned(), labels.get("gpu")?.to_owned())))?
    });
    named.collect()
}

/// Takes the rows of owners out of a look.
fn take_rows(series: &mut Vec<SeriesBatch>) -> Vec<SeriesBatch> {
    let (rows, rest) = std::mem::take(series)
        .into_iter()
        .partition(|one| one.identity.display == GPU_OWNER_INFO.name && !one.samples.is_empty());
    *series = rest;
    rows
}

/// The rows of a node that stood a while ago.
fn written_before(store: &Store, host: &str, time_ns: i64) -> HashSet<SeriesIdentity> {
    let is = |name, value| Matcher::new(name, MatchOp::Equal, value, |_: &str| true);
    let of = |metric: &'static str, label| {
        let matchers = [is("__name__", metric), is(label, host)];
        let found = store.select(&matchers, time_ns.saturating_sub(LOOK_BACK_NS), time_ns);
        found.into_iter().filter_map(move |found| identity(metric, &pairs(&found.labels)))
    };
    of(GPU_OWNER_INFO.name, "host").chain(of(GPU_SAMPLER_INFO.name, "node")).collect()
}

/// A series of these labels; none where they can't be a series'.
fn identity(metric: &str, labels: &Row) -> Option<SeriesIdentity> {
    let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    intake::own_identity(pairs.chain([("__name__", metric)])).ok()
}

/// What an agent says of owners in one look.
struct Look<'a> {
    node: &'a Node,
    rows: Vec<&'a Labels>,
    cards: BTreeMap<String, String>,
}

type Row = BTreeMap<String, String>;

impl Look<'_> {
    /// The rows as they are to be.
    fn complete(&mut self, holders: impl Fn(&str) -> Vec<Holder>) -> HashSet<SeriesIdentity> {
        let uuids: BTreeSet<&str> = self
            .rows
            .iter()
            .filter_map(|row| row.get("uuid"))
            .chain(self.cards.keys().map(String::as_str))
            .collect();
        let mut wanted = HashSet::new();
        for uuid in uuids {
            let own = self.rows.iter().filter(|row| row.get("uuid") == Some(uuid));
            let own: Vec<Row> = own.map(|row| pairs(row)).collect();
            let holders = holders(uuid);
            let rows = match (own.is_empty(), self.cards.get(uuid)) {
                (true, Some(gpu)) => self.new_rows((gpu, uuid), &holders),
                _ => named(own, &holders),
            };
            wanted.extend(rows.iter().filter_map(|row| identity(GPU_OWNER_INFO.name, row)));
            let names = holders.iter().filter_map(|holder| self.other_name((uuid, holder)));
            wanted.extend(names.filter_map(|row| identity(GPU_SAMPLER_INFO.name, &row)));
        }
        wanted
    }

    /// Rows of a card that only runs know an owner of.
    fn new_rows(&self, (gpu, uuid): (&str, &str), holders: &[Holder]) -> Vec<Row> {
        let row = |holder: &Holder| {
            let labels = [
                ("host", self.node.host.clone()),
                ("gpu", gpu.to_owned()),
                ("uuid", uuid.to_owned()),
                ("run_id", holder.run.to_string()),
                ("confidence", "likely".to_owned()),
            ];
            let shares = (holders.len() > 1).then(|| ("shared", holders.len().to_string()));
            labels.into_iter().chain(shares).map(|(name, value)| (name.to_owned(), value)).collect()
        };
        holders.iter().map(row).collect()
    }
}

impl Look<'_> {
    /// The card by the host name and index of the process that samples it, where these are others than the
    /// agent's: a pod has a host name of its own. Without it nobody could tell that it is one card.
    fn other_name(&self, (uuid, holder): (&str, &Holder)) -> Option<Row> {
        let gpu = holder.gpu.to_string();
        let is_same = holder.host == self.node.host && self.cards.get(uuid).is_none_or(|own| *own == gpu);
        let labels = [
            ("host", holder.host.clone()),
            ("gpu", gpu),
            ("uuid", uuid.to_owned()),
            ("node", self.node.host.clone()),
            ("run_id", holder.run.to_string()),
        ];
        (!is_same).then(|| labels.map(|(name, value)| (name.to_owned(), value)).into())
    }
}

fn pairs(labels: &Labels) -> Row {
    labels
        .iter()
        .filter(|(name, _)| *name != "__name__")
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Rows with their runs, where it is clear which run is which row's.
fn named(mut rows: Vec<Row>, holders: &[Holder]) -> Vec<Row> {
    let is_known = |holder: &Holder, rows: &[Row]| {
        rows.iter().any(|row| row.get("run_id").is_some_and(|id| *id == holder.run.to_string()))
    };
    let left: Vec<&Holder> = holders.iter().filter(|holder| !is_known(holder, &rows)).collect();
    let count = rows.len();
    for row in &mut rows {
        if row.contains_key("run_id") || row.contains_key("gi") {
            continue;
        }
        let of = |wanted: Fit| left.iter().copied().filter(|holder| fit(holder, row) == wanted).collect();
        let mut found: Vec<&Holder> = of(Fit::Sure);
        if found.is_empty() && count == 1 {
            found = of(Fit::Possible);
        }
        let [holder] = found.as_slice() else { continue };
        row.insert("run_id".into(), holder.run.to_string());
        // The run's own word and whoever gave the card agree.
        if row.get("confidence").is_some_and(|confidence| confidence == "likely") {
            row.insert("confidence".into(), "certain".into());
        }
    }
    rows
}

/// Whether a run may be what a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Sure,
    /// Nothing speaks against it: enough where the card has one owner.
    Possible,
    No,
}

/// A pod's processes have its name for their host as a rule, a job's have its number for their token.
fn fit(holder: &Holder, row: &Row) -> Fit {
    let label = |name: &str| row.get(name).map_or("", String::as_str);
    let (job, pod, token) = (label("job_id"), label("pod"), &*holder.job_token);
    let is_number = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    if !job.is_empty() && token == job || !pod.is_empty() && holder.host == pod {
        Fit::Sure
    } else if !job.is_empty() && is_number {
        Fit::No
    } else {
        Fit::Possible
    }
}
