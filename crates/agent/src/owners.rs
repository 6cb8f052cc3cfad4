//! Who owns the GPUs of the node: the kubelet's allocations, the control groups of the processes that the
//! driver lists, Slurm's environment and the locks of our own clients, brought together.
//!
//! A thread of its own looks once for each look of the agent: reading another process's files or asking the
//! kubelet may hang. What it found last is what a look gives. How it is judged: `docs/concepts/ownership.md`.

mod allocation;
mod boards;
mod claims;
mod device_id;
mod files;
mod judge;
mod kubelet;
mod membership;
mod pods;
mod process;
mod told;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use self::boards::{Board, Finder, Place, place_of};
use self::claims::{Claims, Holder};
use self::judge::{Judgement, Known, Owner, Usage, Who, judge};
use self::kubelet::Kubelet;
use self::process::{Process, Processes};
use self::told::Telling;
use crate::cards::SharedCards;
use crate::tick::{Reading, Snapshot, Source, Tick};

/// What was found longer ago is not told any more.
const BELIEVED: Duration = Duration::from_mins(1);

/// Where owners are looked for.
#[derive(Debug, Clone)]
pub struct OwnersOptions {
    /// The kubelet's socket.
    pub kubelet: PathBuf,
    /// Between two questions to the kubelet at least: it answers about 100 a second to all who ask.
    pub kubelet_every: Duration,
    /// `/proc` of the machine.
    pub proc: PathBuf,
    /// `/sys` of the machine.
    pub sys: PathBuf,
    /// The folder in which the kubelet keeps the logs of pods.
    pub pod_logs: PathBuf,
    /// Places that hold the locks of our own clients.
    pub claims: Vec<PathBuf>,
    /// The kernel's id of this boot.
    pub boot_id: String,
}

impl Default for OwnersOptions {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl OwnersOptions {
    /// A machine whose root lies in a folder: `/` for the own one, `/host` in a container that has it there.
    pub fn at(root: &Path) -> Self {
        Self {
            kubelet: root.join("var/lib/kubelet/pod-resources/kubelet.sock"),
            kubelet_every: Duration::from_secs(5),
            proc: root.join("proc"),
            sys: root.join("sys"),
            pod_logs: root.join("var/log/pods"),
            claims: vec![root.join("dev/shm"), root.join("tmp")],
            boot_id: collect::Host::at(root).boot_id(),
        }
    }
}

/// What was found at one moment.
#[derive(Debug)]
struct Found {
    at: Instant,
    judgement: Judgement,
    /// Why the kubelet doesn't tell.
    trouble: Option<String>,
    /// Cards that the kubelet leaves out of what it gives: index and UUID.
    left_out: Vec<(u32, String)>,
    /// Which look it was.
    round: u64,
}

/// The part of an agent that tells who owns the GPUs.
#[derive(Debug)]
pub struct Owners {
    found: Arc<Mutex<Option<Found>>>,
    telling: Telling,
    thread: Thread,
    is_over: Arc<AtomicBool>,
}

impl Owners {
    /// Starts the thread that looks for owners of these cards.
    pub fn start(options: OwnersOptions, cards: SharedCards) -> std::io::Result<Self> {
        let found = Arc::new(Mutex::new(None));
        let is_over = Arc::new(AtomicBool::new(false));
        let telling = Telling::new(&options.boot_id);
        let (theirs, end) = (Arc::clone(&found), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("owners".into()).spawn(move || {
            let mut look = Look::new(options, cards);
            while !end.load(Ordering::Acquire) {
                let found = look.take();
                *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                std::thread::park();
            }
        })?;
        // Nobody waits for its end: it may hang in a read of the kernel's.
        Ok(Self { found, telling, thread: thread.thread().clone(), is_over })
    }
}

impl Source for Owners {
    fn name(&self) -> &'static str {
        "owners"
    }

    fn read(&mut self, tick: &Tick<'_>, out: &mut Snapshot) {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = found.as_ref().filter(|found| found.at.elapsed() < BELIEVED) {
            out.readings.extend(readings(&found.judgement));
            self.telling.take(tick, found);
        }
        drop(found);
        out.events.extend(self.telling.pending().iter().cloned());
        self.thread.unpark();
    }

    fn kept(&mut self) {
        self.telling.kept();
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The series of a judgement.
fn readings(judgement: &Judgement) -> impl Iterator<Item = Reading> {
    let allocated = judgement.allocated.map(|count| Reading {
        desc: &semconv::canonical::NODE_GPUS,
        labels: vec![("source", "allocated".to_owned())],
        value: count as f64,
    });
    let owners = judgement.owners.iter().map(|owner| {
        let Owner { gpu, place, who, shared, confidence } = owner;
        let labels = [
            ("gpu", gpu.to_string()),
            ("uuid", place.uuid.clone()),
            ("gi", place.gi.map(|gi| gi.to_string()).unwrap_or_default()),
            ("run_id", who.run_id.clone()),
            ("job_id", who.job_id.clone()),
            ("namespace", who.namespace.clone()),
            ("pod", who.pod.clone()),
            ("container", who.container.clone()),
            ("shared", shared.map(|shares| shares.to_string()).unwrap_or_default()),
            ("confidence", confidence.as_str().to_owned()),
        ];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        Reading { desc: &semconv::canonical::GPU_OWNER_INFO, labels, value: 1.0 }
    });
    allocated.into_iter().chain(owners)
}

/// What one look after the other needs.
struct Look {
    options: OwnersOptions,
    cards: SharedCards,
    finder: Finder,
    processes: Processes,
    claims: Claims,
    kubelet: Kubelet,
    /// What was at odds at the look before: only what stays so is believed.
    at_odds: BTreeSet<String>,
    round: u64,
}

impl Look {
    fn new(options: OwnersOptions, cards: SharedCards) -> Self {
        Self {
            finder: Finder::new(&options.proc, &options.sys),
            processes: Processes::new(&options.proc),
            claims: Claims::new(&options.claims, &options.proc, &options.boot_id),
            kubelet: Kubelet::new(&options.kubelet, options.kubelet_every),
            at_odds: BTreeSet::new(),
            round: 0,
            options,
            cards,
        }
    }

    fn take(&mut self) -> Found {
        let at = Instant::now();
        self.kubelet.poll(at);
        let cards = self.cards.lock().clone();
        let boards = self.finder.find(&cards);
        let usages = self.usages(&boards);
        let allocations = self.kubelet.given().map(|given| allocation::placed(given, &boards));
        let confirmed = std::mem::take(&mut self.at_odds);
        let known = Known {
            boards: &boards,
            allocations: allocations.as_deref(),
            usages: &usages,
            confirmed: &confirmed,
        };
        let mut judgement = judge(&known);
        self.at_odds = judgement.mismatches.iter().map(|mismatch| mismatch.key.clone()).collect();
        judgement.mismatches.retain(|mismatch| confirmed.contains(&mismatch.key));
        self.round += 1;
        let trouble = self.kubelet.trouble().map(str::to_owned);
        Found { at, judgement, trouble, left_out: self.left_out(&boards), round: self.round }
    }

    /// Every process that computes on a card or holds a lock of one.
    fn usages(&mut self, boards: &[Board]) -> Vec<Usage> {
        if boards.is_empty() {
            return Vec::new();
        }
        let pods = pods::names(&self.options.pod_logs);
        let holders = self.claims.holders();
        let mut seen: HashMap<u32, Option<Process>> = HashMap::new();
        let mut found = Vec::new();
        let mut add = |place: Place, board: &Board, pid: u32, is_by_lock: bool| {
            let process = seen.entry(pid).or_insert_with(|| self.processes.look(pid));
            let Some(process) = process else { return };
            let usage = Usage { place, pid, is_by_lock, ..Usage::default() };
            found.push(usage_of(usage, process, board, (&pods, &holders)));
        };
        for board in boards {
            for (pid, gi) in board.users.iter().flatten() {
                add(Place { uuid: board.uuid.clone(), gi: *gi }, board, *pid, false);
            }
            for holder in holders.iter().filter(|holder| holder.uuid.as_ref() == Some(&board.uuid)) {
                add(Place { uuid: board.uuid.clone(), gi: None }, board, holder.pid, true);
            }
        }
        found
    }

    /// Whole cards that the kubelet doesn't give though it gives others.
    fn left_out(&self, boards: &[Board]) -> Vec<(u32, String)> {
        let Some(offered) = self.kubelet.offered().filter(|offered| !offered.is_empty()) else {
            return Vec::new();
        };
        let ids = offered.iter().filter_map(|id| device_id::DeviceId::read(id));
        let places: Vec<Place> = ids.filter_map(|id| place_of(boards, &id)).collect();
        // An answer that names no card of ours tells nothing of them.
        let is_left = |board: &&Board| board.slices.is_empty() && places.iter().all(|p| p.uuid != board.uuid);
        let left = boards.iter().filter(is_left).filter(|_| !places.is_empty());
        left.map(|board| (board.gpu, board.uuid.clone())).collect()
    }
}

type Names = BTreeMap<String, (String, String)>;

/// What a process says of whose it is.
fn usage_of(usage: Usage, process: &Process, board: &Board, (pods, holders): (&Names, &[Holder])) -> Usage {
    let Process { name, start_ticks, membership, environment, line } = process;
    let is_of_pod = membership.pod_uid.is_some();
    let (namespace, pod) =
        membership.pod_uid.as_ref().and_then(|uid| pods.get(uid)).cloned().unwrap_or_default();
    // What the user may write counts only where the kernel's groups say nothing.
    let from_environment = environment.job.clone().filter(|_| !is_of_pod);
    let job_id = membership.job.clone().or(from_environment).unwrap_or_default();
    let run = line.iter().find_map(|pid| holders.iter().find(|holder| holder.pid == *pid));
    let run_id = run.map(|holder| holder.run_id.clone()).or_else(|| environment.run_id.clone());
    let is_given = !job_id.is_empty()
        && environment.job.as_ref() == Some(&job_id)
        && environment.given.contains(&board.file.unwrap_or(board.gpu));
    let container = membership.container.clone().filter(|_| pod.is_empty() && job_id.is_empty());
    let who = Who {
        namespace,
        pod,
        container: container.unwrap_or_default(),
        job_id,
        run_id: run_id.unwrap_or_default(),
    };
    Usage { name: name.clone(), start_ticks: *start_ticks, who, is_of_pod, is_given, ..usage }
}
