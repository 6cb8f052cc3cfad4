//! Who owns what, from what was given and who computes: pure.

use std::collections::{BTreeMap, BTreeSet};

use super::allocation::Allocation;
use super::boards::{Board, Place};

/// How sure an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Confidence {
    /// Sources disagree: somebody else computes there.
    Conflict,
    /// One source says so.
    Likely,
    /// Who gave the card and who computes on it agree.
    Certain,
}

impl Confidence {
    /// As the label has it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Conflict => "conflict",
        }
    }
}

/// Who it is; what is unknown is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Who {
    /// The pod's namespace.
    pub(super) namespace: String,
    /// The pod.
    pub(super) pod: String,
    /// The container: its name in a pod, else its id.
    pub(super) container: String,
    /// The Slurm job.
    pub(super) job_id: String,
    /// The run.
    pub(super) run_id: String,
}

impl Who {
    fn is_nobody(&self) -> bool {
        *self == Self::default()
    }

    /// In words.
    fn describe(&self) -> String {
        let run = || format!("run `{}`", self.run_id);
        if !self.pod.is_empty() {
            format!("pod `{}/{}`", self.namespace, self.pod)
        } else if !self.job_id.is_empty() {
            format!("Slurm job {}", self.job_id)
        } else if !self.container.is_empty() {
            format!("container `{}`", self.container)
        } else if self.run_id.is_empty() {
            "no job".to_owned()
        } else {
            run()
        }
    }
}

/// A process that computes at a place, or that reports a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) place: Place,
    pub(super) pid: u32,
    /// When it began, in ticks since boot.
    pub(super) start_ticks: u64,
    pub(super) name: String,
    pub(super) who: Who,
    /// It is a pod's, whatever its name is.
    pub(super) is_of_pod: bool,
    /// Who gave out the cards has this one for it.
    pub(super) is_given: bool,
    /// Only its lock says that it has to do with the card.
    pub(super) is_by_lock: bool,
}

/// One owner of a card or slice: one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    /// The driver's index of the card.
    pub(super) gpu: u32,
    /// The card or slice.
    pub(super) place: Place,
    /// Who has it.
    pub(super) who: Who,
    /// How many shares the card has, when there are more than one.
    pub(super) shared: Option<usize>,
    /// How sure that is.
    pub(super) confidence: Confidence,
}

/// Somebody computes where somebody else was given the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) gpu: u32,
    pub(super) place: Place,
    pub(super) bus: String,
    /// What it is known by.
    pub(super) key: String,
    pub(super) text: String,
    pub(super) process: Option<(u32, String)>,
    pub(super) uses: Who,
    pub(super) given: Vec<String>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) owners: Vec<Owner>,
    pub(super) mismatches: Vec<Mismatch>,
    /// How many cards are given out; `None` when nobody here gives any.
    pub(super) allocated: Option<usize>,
}

/// What is known at one moment.
pub(super) struct Known<'a> {
    pub(super) boards: &'a [Board],
    /// What the kubelet gave; `None` without one.
    pub(super) allocations: Option<&'a [Allocation]>,
    pub(super) usages: &'a [Usage],
    /// Keys of what was at odds a look ago. What was given and who computes are not read in one moment, so that
    /// a pod that ends looks like a stranger for a while.
    pub(super) confirmed: &'a BTreeSet<String>,
}

/// Programs of the driver and of monitoring that compute on everybody's cards.
const EVERYBODYS: [&str; 6] =
    ["nvidia-cuda-mps", "nvidia-persiste", "nvidia-smi", "nv-hostengine", "dcgm-exporter", "truegauge"];
/// Most owners of one card that become series.
const OWNERS_MAX: usize = 256;

/// Brings all of it together.
pub(super) fn judge(known: &Known<'_>) -> Judgement {
    let mut judgement = Judgement { allocated: allocated(known), ..Judgement::default() };
    for board in known.boards {
        let first = judgement.owners.len();
        for place in places(known, board) {
            Scene::new(known, board, &place).judge(&mut judgement);
        }
        judgement.owners.truncate(first + OWNERS_MAX);
        let shares = judgement.owners.len() - first;
        for owner in &mut judgement.owners[first..] {
            owner.shared = (shares > 1).then_some(shares);
        }
    }
    judgement.mismatches.extend(known.allocations.unwrap_or_default().iter().filter_map(nowhere));
    judgement
}

/// Cards that somebody was given: by the kubelet, those included that the driver has lost; else by Slurm.
fn allocated(known: &Known<'_>) -> Option<usize> {
    let of_jobs: BTreeSet<&str> =
        known.usages.iter().filter(|u| !u.who.job_id.is_empty()).map(|u| &*u.place.uuid).collect();
    let Some(allocations) = known.allocations else {
        return (!of_jobs.is_empty()).then_some(of_jobs.len());
    };
    let of_pods = allocations.iter().map(|allocation| match &allocation.place {
        Some(place) => &*place.uuid,
        None => allocation.given.id.split("::").next().unwrap_or_default(),
    });
    Some(of_pods.chain(of_jobs).collect::<BTreeSet<_>>().len())
}

/// The card and those of its slices that anything is known of.
fn places(known: &Known<'_>, board: &Board) -> BTreeSet<Place> {
    let given = known.allocations.unwrap_or_default().iter().filter_map(|one| one.place.as_ref());
    let used = known.usages.iter().map(|usage| &usage.place);
    given.chain(used).filter(|place| place.uuid == board.uuid).cloned().collect()
}

/// What is known of one place.
struct Scene<'a> {
    board: &'a Board,
    place: &'a Place,
    has_kubelet: bool,
    confirmed: &'a BTreeSet<String>,
    /// Each container once, however many replicas it has.
    given: Vec<&'a Allocation>,
    usages: Vec<&'a Usage>,
}

impl<'a> Scene<'a> {
    fn new(known: &Known<'a>, board: &'a Board, place: &'a Place) -> Self {
        let mut given: Vec<&Allocation> = Vec::new();
        let here =
            known.allocations.unwrap_or_default().iter().filter(|one| one.place.as_ref() == Some(place));
        for one in here {
            let is_new = |known: &Allocation| !is_same_container(known, one);
            if given.len() < OWNERS_MAX && given.iter().all(|known| is_new(known)) {
                given.push(one);
            }
        }
        let usages = known.usages.iter().filter(|usage| usage.place == *place).collect();
        let (has_kubelet, confirmed) = (known.allocations.is_some(), known.confirmed);
        Self { board, place, has_kubelet, confirmed, given, usages }
    }

    fn judge(&self, judgement: &mut Judgement) {
        let mut owners: BTreeMap<Who, Confidence> = BTreeMap::new();
        let mut claim = |who: Who, confidence: Confidence| {
            let known = owners.entry(who).or_insert(confidence);
            *known = confidence.max(*known);
        };
        let (matched, left): (Vec<&Usage>, Vec<&Usage>) =
            self.usages.iter().partition(|usage| self.given.iter().any(|one| self.is_by(usage, one)));
        let computes = |usage: &&&Usage| !usage.is_by_lock;
        let strangers: Vec<Mismatch> = left
            .iter()
            .filter(computes)
            .filter(|usage| self.is_stranger(usage))
            .map(|usage| self.mismatch(usage))
            .collect();
        let is_disputed = strangers.iter().any(|stranger| self.confirmed.contains(&stranger.key));
        let sure = |confidence| if is_disputed { Confidence::Conflict } else { confidence };
        for one in &self.given {
            let own = || matched.iter().filter(|usage| self.is_by(usage, one));
            let is_seen = own().any(|usage| usage.who.pod == one.given.pod && !usage.is_by_lock);
            let confidence = sure(if is_seen { Confidence::Certain } else { Confidence::Likely });
            for (job_id, run_id) in told(own().copied()) {
                let given = one.given.clone();
                let (namespace, pod, container) = (given.namespace, given.pod, given.container);
                claim(Who { namespace, pod, container, job_id, run_id }, confidence);
            }
        }
        let has_users = self.usages.iter().any(|usage| !usage.is_by_lock);
        for usage in &left {
            // A lock alone is believed where nothing better is known.
            let is_idle_word = usage.is_by_lock && (has_users || !self.given.is_empty());
            if !is_idle_word && !usage.who.is_nobody() {
                claim(
                    usage.who.clone(),
                    sure(if usage.is_given { Confidence::Certain } else { Confidence::Likely }),
                );
            }
        }
        let owners = owners.into_iter().map(|(who, confidence)| Owner {
            gpu: self.board.gpu,
            place: self.place.clone(),
            who,
            shared: None,
            confidence,
        });
        judgement.owners.extend(owners);
        judgement.mismatches.extend(strangers);
    }

    /// Whether a process is of the pod that was given this.
    fn is_by(&self, usage: &Usage, one: &Allocation) -> bool {
        if !usage.who.pod.is_empty() {
            return usage.who.pod == one.given.pod && usage.who.namespace == one.given.namespace;
        }
        // A pod whose name isn't known is the one that was given the card, where that is one.
        usage.is_of_pod && self.given.iter().all(|other| is_same_pod(other, one))
    }

    /// Whether a process that no allocation explains is at odds with who gives out the cards.
    fn is_stranger(&self, usage: &Usage) -> bool {
        if EVERYBODYS.iter().any(|name| usage.name.starts_with(name)) {
            return false;
        }
        match (usage.is_of_pod, self.given.is_empty()) {
            // Which of several pods it is can't be told.
            (true, false) => !usage.who.pod.is_empty(),
            // The kubelet gave the card to nobody, and a pod that it has computes there.
            (true, true) => self.has_kubelet && !usage.who.pod.is_empty(),
            (false, is_free) => !is_free,
        }
    }

    fn mismatch(&self, usage: &Usage) -> Mismatch {
        let given: Vec<String> =
            self.given.iter().map(|one| format!("{}/{}", one.given.namespace, one.given.pod)).collect();
        let owner = match &given[..] {
            [] => "the kubelet gave to nobody".to_owned(),
            [one] => format!("the kubelet gave to pod `{one}`"),
            [one, rest @ ..] => format!("the kubelet gave to pod `{one}` and {} more", rest.len()),
        };
        let slice = self.place.gi.map(|gi| format!(" slice {gi}")).unwrap_or_default();
        let (gpu, pid, name) = (self.board.gpu, usage.pid, &usage.name);
        let who = usage.who.describe();
        Mismatch {
            gpu,
            place: self.place.clone(),
            bus: self.board.bus.clone(),
            key: format!(
                "{}/{}:{pid}:{}",
                self.place.uuid,
                self.place.gi.unwrap_or_default(),
                usage.start_ticks
            ),
            text: format!("process {pid} (`{name}`) of {who} computes on GPU {gpu}{slice}, which {owner}"),
            process: Some((pid, name.clone())),
            uses: usage.who.clone(),
            given,
        }
    }
}

/// Jobs and runs of the processes of a pod, each pair once; one that is empty where nobody told any.
fn told<'a>(usages: impl Iterator<Item = &'a Usage>) -> BTreeSet<(String, String)> {
    let all: BTreeSet<_> = usages.map(|usage| (usage.who.job_id.clone(), usage.who.run_id.clone())).collect();
    let unknown = (String::new(), String::new());
    // A helper without a run of its own is part of what the others do.
    let known: BTreeSet<_> = all.into_iter().filter(|pair| *pair != unknown).collect();
    if known.is_empty() { BTreeSet::from([unknown]) } else { known }
}

fn is_same_pod(one: &Allocation, other: &Allocation) -> bool {
    (&one.given.namespace, &one.given.pod) == (&other.given.namespace, &other.given.pod)
}

fn is_same_container(one: &Allocation, other: &Allocation) -> bool {
    is_same_pod(one, other) && one.given.container == other.given.container
}

/// A device that was given and that no card of the node has the name of.
fn nowhere(one: &Allocation) -> Option<Mismatch> {
    if one.place.is_some() {
        return None;
    }
    let given = &one.given;
    let (pod, id) = (format!("{}/{}", given.namespace, given.pod), &given.id);
    Some(Mismatch {
        gpu: 0,
        place: Place::default(),
        bus: String::new(),
        key: format!("{pod}:{id}"),
        text: format!(
            "the kubelet gave `{}` to pod `{pod}`, and the driver has no such card",
            id.escape_debug()
        ),
        process: None,
        uses: Who::default(),
        given: vec![pod],
    })
}

#[cfg(test)]
mod tests;
