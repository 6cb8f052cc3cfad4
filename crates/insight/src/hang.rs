//! Whether a run makes no progress any more, and which rank holds it up.
//!
//! A rank that did not enter a collective operation holds up all that did. So the culprit is the rank that
//! got least far and is not waiting itself. Times are of one clock, the server's.

use std::collections::BTreeMap;

use crate::straggler::{Evidence, words};

const LIMIT_MIN: f64 = 30.0;
const LIMIT_MAX: f64 = 120.0;
/// A rank is gone when nothing is heard of it for half the limit, and at least so long, seconds.
const SILENT_MIN: f64 = 20.0;
/// How long a rank may be between two steps, seconds: what it does there is known to nobody.
const BETWEEN_MAX: f64 = 120.0;
/// How long before the last step a fault may be its reason, nanoseconds.
const NEAR_NS: i64 = 120_000_000_000;
/// Ranks that are quoted one by one.
const EVIDENCE_MAX: usize = 8;

/// Operations, each before those whose names are in it; what is called like one of them is that one to NCCL.
const KINDS: [&str; 10] = [
    "allreduce",
    "reducescatter",
    "allgather",
    "alltoall",
    "broadcast",
    "gather",
    "scatter",
    "reduce",
    "send",
    "recv",
];
/// Those in which ranks' sizes differ by intention.
const UNEVEN: [&str; 5] = ["alltoall", "gather", "scatter", "send", "recv"];

/// What a rank is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Steps.
    #[default]
    Training,
    /// It has not done its first step.
    Startup,
    /// It writes or reads a checkpoint.
    Checkpoint,
    /// It evaluates.
    Evaluation,
    /// It has ended a step and has not begun the next.
    Between,
    /// It has ended.
    Finished,
}

/// How far a rank is in the collective operations of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collective {
    /// The group, by a name that no other group of the job has.
    pub group: String,
    /// Number of the last operation that it entered.
    pub entered: i64,
    /// Number of the last one that it completed.
    pub completed: i64,
    /// Which operation; empty if it is not known.
    pub op: String,
    /// Sizes of it; empty if they are not known.
    pub sizes: String,
}

/// A rank, as far as it got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HangInput {
    /// The rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// The last step that it completed.
    pub last_step: Option<i64>,
    /// When that was heard of, nanoseconds.
    pub last_step_time_ns: Option<i64>,
    /// When anything was heard of it, nanoseconds.
    pub last_heartbeat_ns: Option<i64>,
    /// How far it is in each group; empty if that is not known.
    pub collectives: Vec<Collective>,
    /// What it does.
    pub phase: Phase,
    /// When a checkpoint, an evaluation or a time between steps ended, after which it is in a step, nanoseconds.
    pub lull_end_ns: Option<i64>,
}

/// A fault of hardware or of a process near the time in question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fault {
    /// When, nanoseconds.
    pub time_ns: i64,
    /// On which host.
    pub host: String,
    /// Which rank, if it is known.
    pub rank: Option<u32>,
    /// As a person is told, such as `Xid 79, GPU has fallen off the bus`.
    pub text: String,
    /// Whether hardware is at fault rather than a process.
    pub is_hardware: bool,
    /// What the catalogue or the driver says is to be done, such as `reboot_node`; empty for nothing.
    pub action: String,
}

/// The question.
#[derive(Debug, Clone, Copy)]
pub struct HangAsk<'a> {
    /// Now, nanoseconds.
    pub now_ns: i64,
    /// Median of the latest steps, seconds; none before the first.
    pub step_seconds: Option<f64>,
    /// Every rank.
    pub ranks: &'a [HangInput],
    /// Faults of the job's hosts, lately.
    pub faults: &'a [Fault],
}

/// Why nothing goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HangClass {
    /// Ranks did not enter an operation that the others wait in.
    NotEntered,
    /// All entered it and none left.
    Network,
    /// Ranks are in different operations: the program is wrong.
    Desync,
    /// A process or host is gone.
    Dead,
    /// Nothing is known but that no step is done.
    Unknown,
}

impl HangClass {
    /// As the API writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotEntered => "not_entered",
            Self::Network => "network",
            Self::Desync => "desync",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }
}

/// A rank that holds up the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// The rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// The last step that it completed.
    pub last_step: Option<i64>,
    /// When that was heard of, nanoseconds.
    pub last_step_time_ns: Option<i64>,
    /// The last operation that it entered.
    pub sequence: Option<i64>,
    /// The last one that it completed.
    pub completed: Option<i64>,
    /// In words: `has not entered`, `is silent` and so on.
    pub state: String,
}

/// A hang.
#[derive(Debug, Clone, PartialEq)]
pub struct HangVerdict {
    /// Why nothing goes on.
    pub class: HangClass,
    /// Who holds it up; empty if nobody can be named.
    pub culprits: Vec<Culprit>,
    /// When the last step was done, nanoseconds.
    pub since_ns: i64,
    /// After how long this was said, seconds.
    pub limit_seconds: f64,
    /// `hardware`, `process`, `network`, `program` or `unknown`.
    pub cause: &'static str,
    /// What was found.
    pub text: String,
    /// The numbers and faults that speak for it.
    pub evidence: Vec<Evidence>,
    /// What to do, in order, such as `reboot_node` and `restart_from_checkpoint`.
    pub actions: Vec<String>,
    /// The same as a sentence.
    pub advice: String,
    /// No rank is in a step, and nothing says that one waits for another: the loop may have ended.
    pub is_idle: bool,
    /// How sure this is, 0 to 1.
    pub confidence: f64,
}

/// How long no step may be done: ten steps, at least 30 s and at most 120 s, and two steps where that is more.
pub fn limit_seconds(step_seconds: f64) -> f64 {
    if !step_seconds.is_finite() || step_seconds <= 0.0 {
        return LIMIT_MAX;
    }
    (10.0 * step_seconds).clamp(LIMIT_MIN, LIMIT_MAX).max(2.0 * step_seconds)
}

/// The verdict, if the run hangs. While a rank starts, evaluates or is at a checkpoint, it doesn't, unless
/// nothing is heard of that rank any more. Where ranks are between two steps they have the longest limit.
pub fn judge(ask: &HangAsk<'_>) -> Option<HangVerdict> {
    let limit = limit_seconds(ask.step_seconds.unwrap_or(f64::NAN));
    let ranks: Vec<&HangInput> = ask.ranks.iter().filter(|rank| rank.phase != Phase::Finished).collect();
    let since_ns = ranks.iter().filter_map(|rank| rank.last_step_time_ns.max(rank.lull_end_ns)).max()?;
    let mut case = Case { ask, ranks, since_ns, limit };
    if case.seconds_since(since_ns) < limit || case.is_excused() {
        return None;
    }
    if !case.between().is_empty() {
        case.limit = limit.max(BETWEEN_MAX);
        if case.seconds_since(since_ns) < case.limit {
            return None;
        }
    }
    let (class, accused) = case.accused();
    Some(case.verdict(class, &accused))
}

/// What is asked, without the ranks that are done.
struct Case<'a> {
    ask: &'a HangAsk<'a>,
    ranks: Vec<&'a HangInput>,
    since_ns: i64,
    limit: f64,
}

impl Case<'_> {
    fn seconds_since(&self, time_ns: i64) -> f64 {
        self.ask.now_ns.saturating_sub(time_ns) as f64 / 1e9
    }

    /// Whether nothing was heard of a rank for so long that it is gone.
    fn is_silent(&self, rank: &HangInput) -> bool {
        let heard = rank.last_heartbeat_ns.max(rank.last_step_time_ns);
        rank.last_heartbeat_ns.is_some()
            && heard.is_some_and(|heard| self.seconds_since(heard) >= SILENT_MIN.max(0.5 * self.limit))
    }

    fn is_excused(&self) -> bool {
        let is_away =
            |rank: &&&HangInput| matches!(rank.phase, Phase::Startup | Phase::Checkpoint | Phase::Evaluation);
        self.ranks.iter().filter(is_away).any(|rank| !self.is_silent(rank))
    }

    /// Ranks that live, and have not begun the step that others are in.
    fn between(&self) -> Vec<&HangInput> {
        let is_there = |rank: &&HangInput| rank.phase == Phase::Between && !self.is_silent(rank);
        self.ranks.iter().copied().filter(is_there).collect()
    }

    /// Whether all ranks live and are between two steps.
    fn is_idle(&self) -> bool {
        !self.ranks.is_empty() && self.between().len() == self.ranks.len()
    }

    /// Who holds up the others, by what is known of them.
    fn accused(&self) -> (HangClass, Vec<&HangInput>) {
        let silent: Vec<&HangInput> =
            self.ranks.iter().copied().filter(|rank| self.is_silent(rank)).collect();
        if !silent.is_empty() && silent.len() < self.ranks.len() {
            return (HangClass::Dead, silent);
        }
        if silent.len() == self.ranks.len() {
            return (HangClass::Unknown, Vec::new());
        }
        let between = self.between();
        if self.is_idle() {
            return self.by_operation().unwrap_or((HangClass::Unknown, Vec::new()));
        }
        if !between.is_empty() {
            return (HangClass::NotEntered, between);
        }
        self.by_operation().or_else(|| self.by_step()).unwrap_or((HangClass::Unknown, Vec::new()))
    }

    fn by_operation(&self) -> Option<(HangClass, Vec<&HangInput>)> {
        let farthest = self.farthest();
        if farthest.is_empty() {
            return None;
        }
        let different = self.different();
        if !different.is_empty() {
            return Some((HangClass::Desync, different));
        }
        let behind = self.behind(&farthest);
        let free: Vec<&HangInput> =
            behind.iter().copied().filter(|rank| !rank.collectives.iter().any(waits)).collect();
        if !free.is_empty() {
            return Some((HangClass::NotEntered, free));
        }
        let in_ring =
            |rank: &&HangInput| rank.collectives.iter().any(|one| waits(one) && is_farthest(one, &farthest));
        if !behind.is_empty() && behind.iter().all(in_ring) {
            return Some((HangClass::Desync, behind));
        }
        if let Some(found) = self.left_alone(&farthest, &behind) {
            return Some(found);
        }
        let is_waiting =
            |rank: &&HangInput| rank.collectives.is_empty() || rank.collectives.iter().any(waits);
        self.ranks.iter().all(is_waiting).then_some((HangClass::Network, Vec::new()))
    }

    /// Ranks that are at the least operation of some group of which others are at a later one. Those in between
    /// wait for these themselves.
    fn behind(&self, farthest: &BTreeMap<&str, i64>) -> Vec<&HangInput> {
        let mut least = farthest.clone();
        for one in self.ranks.iter().flat_map(|rank| &rank.collectives) {
            let entered = least.entry(one.group.as_str()).or_insert(one.entered);
            *entered = one.entered.min(*entered);
        }
        let is_behind = |one: &Collective| {
            !is_farthest(one, farthest) && Some(&one.entered) == least.get(one.group.as_str())
        };
        self.ranks.iter().copied().filter(|rank| rank.collectives.iter().any(is_behind)).collect()
    }

    /// All of a group entered an operation, and some have left it: where they are few and in another operation
    /// now, they did not take part in it. Where most have left it, the others are held up alone.
    fn left_alone(
        &self,
        farthest: &BTreeMap<&str, i64>,
        behind: &[&HangInput],
    ) -> Option<(HangClass, Vec<&HangInput>)> {
        let is_stuck = |one: &&Collective| waits(one) && !is_farthest(one, farthest);
        let stuck = behind.iter().flat_map(|rank| &rank.collectives).find(is_stuck)?;
        let has_left = |rank: &&HangInput| {
            in_group(rank, &stuck.group).is_some_and(|one| one.completed >= stuck.entered)
        };
        let is_held =
            |rank: &&HangInput| in_group(rank, &stuck.group).is_some_and(|one| one.entered == stuck.entered);
        let left: Vec<&HangInput> = self.ranks.iter().copied().filter(has_left).collect();
        let held: Vec<&HangInput> = self.ranks.iter().copied().filter(is_held).collect();
        let is_other = |rank: &&HangInput| {
            let now = in_group(rank, &stuck.group).and_then(signature);
            now.is_none() || now != signature(stuck)
        };
        if left.is_empty() {
            return None;
        }
        if left.len() >= held.len() {
            return Some((HangClass::NotEntered, held));
        }
        left.iter().all(is_other).then_some((HangClass::Desync, left))
    }

    /// The last operation that anybody entered, of each group.
    fn farthest(&self) -> BTreeMap<&str, i64> {
        let mut farthest: BTreeMap<&str, i64> = BTreeMap::new();
        for one in self.ranks.iter().flat_map(|rank| &rank.collectives) {
            let entered = farthest.entry(one.group.as_str()).or_insert(one.entered);
            *entered = one.entered.max(*entered);
        }
        farthest
    }

    /// Ranks whose operation is not the one that most have at the same number.
    fn different(&self) -> Vec<&HangInput> {
        let mut votes: BTreeMap<(&str, i64), BTreeMap<String, usize>> = BTreeMap::new();
        for one in self.ranks.iter().flat_map(|rank| &rank.collectives) {
            if let Some(what) = signature(one) {
                *votes.entry((one.group.as_str(), one.entered)).or_default().entry(what).or_default() += 1;
            }
        }
        let usual: BTreeMap<(&str, i64), String> = votes
            .into_iter()
            .filter_map(|(at, votes)| Some((at, votes.into_iter().max_by_key(|(_, count)| *count)?.0)))
            .collect();
        let is_different = |rank: &&HangInput| {
            rank.collectives.iter().any(|one| {
                let what = signature(one);
                what.is_some() && what.as_ref() != usual.get(&(one.group.as_str(), one.entered))
            })
        };
        self.ranks.iter().copied().filter(is_different).collect()
    }

    /// Without operations, who has done fewer steps than the others.
    fn by_step(&self) -> Option<(HangClass, Vec<&HangInput>)> {
        let most = self.ranks.iter().filter_map(|rank| rank.last_step).max()?;
        let behind: Vec<&HangInput> = self
            .ranks
            .iter()
            .copied()
            .filter(|rank| rank.last_step.is_some_and(|step| step < most))
            .collect();
        (!behind.is_empty()).then_some((HangClass::NotEntered, behind))
    }

    fn verdict(&self, class: HangClass, accused: &[&HangInput]) -> HangVerdict {
        let fault = self.fault(accused);
        let cause = match (fault, class) {
            (Some(fault), _) if fault.is_hardware => "hardware",
            (Some(_), _) | (None, HangClass::Dead) => "process",
            (None, HangClass::Network) => "network",
            (None, HangClass::Desync) => "program",
            (None, HangClass::NotEntered | HangClass::Unknown) => "unknown",
        };
        let culprits: Vec<Culprit> = accused.iter().map(|rank| self.culprit(class, rank)).collect();
        let is_idle = class == HangClass::Unknown && fault.is_none() && self.is_idle();
        let (actions, advice) = if is_idle {
            let advice =
                "End the processes if the training is over; else look at what they do between two steps.";
            (vec!["inspect".to_owned()], advice.to_owned())
        } else {
            advise(class, cause, fault, &culprits)
        };
        let known = if fault.is_some() { 0.1 } else { 0.0 };
        let sure = match class {
            HangClass::NotEntered | HangClass::Dead | HangClass::Desync => 0.85,
            HangClass::Network => 0.75,
            HangClass::Unknown => 0.5,
        };
        HangVerdict {
            class,
            since_ns: self.since_ns,
            limit_seconds: self.limit,
            cause,
            text: self.text(class, accused, fault),
            evidence: self.evidence(accused, fault),
            culprits,
            actions,
            advice,
            is_idle,
            confidence: sure + known,
        }
    }

    /// The fault nearest to the last step, on the hosts of the accused or, if there is nobody accused, of the
    /// job; hardware first, for it is what processes die of.
    fn fault(&self, accused: &[&HangInput]) -> Option<&Fault> {
        let suspects: &[&HangInput] = if accused.is_empty() { &self.ranks } else { accused };
        let is_theirs = |fault: &&Fault| {
            let of_rank = suspects.iter().any(|rank| Some(rank.rank) == fault.rank);
            let of_host = suspects.iter().any(|rank| !rank.host.is_empty() && rank.host == fault.host);
            of_rank || (of_host && fault.rank.is_none_or(|rank| suspects.iter().any(|one| one.rank == rank)))
        };
        let first_ns = self.since_ns.saturating_sub(NEAR_NS);
        let is_near = |fault: &&Fault| (first_ns..=self.ask.now_ns).contains(&fault.time_ns);
        self.ask
            .faults
            .iter()
            .filter(is_near)
            .filter(is_theirs)
            .min_by_key(|fault| (!fault.is_hardware, fault.time_ns.abs_diff(self.since_ns)))
    }

    fn culprit(&self, class: HangClass, rank: &HangInput) -> Culprit {
        let least = self.least(rank);
        let state = match class {
            HangClass::Dead => {
                let heard = rank.last_heartbeat_ns.map_or(0.0, |heard| self.seconds_since(heard));
                format!("is silent for {heard:.0} s")
            }
            HangClass::Desync => match least.filter(|one| !one.op.is_empty()) {
                Some(one) => format!("is in {} {}", one.op, one.sizes).trim_end().to_owned(),
                None => "is in another operation".to_owned(),
            },
            _ if rank.phase == Phase::Between => "has not begun the step".to_owned(),
            _ => "has not entered".to_owned(),
        };
        Culprit {
            rank: rank.rank,
            host: rank.host.clone(),
            last_step: rank.last_step,
            last_step_time_ns: rank.last_step_time_ns,
            sequence: least.map(|one| one.entered),
            completed: least.map(|one| one.completed),
            state,
        }
    }

    /// The group in which a rank is farthest behind.
    fn least<'b>(&self, rank: &'b HangInput) -> Option<&'b Collective> {
        let farthest = self.farthest();
        let behind = |one: &&Collective| {
            farthest.get(one.group.as_str()).map_or(0, |most| most.saturating_sub(one.entered))
        };
        rank.collectives.iter().max_by_key(behind)
    }

    fn text(&self, class: HangClass, accused: &[&HangInput], fault: Option<&Fault>) -> String {
        let who = words::ranks(&accused.iter().map(|rank| rank.rank).collect::<Vec<_>>());
        let has = if accused.len() == 1 { "has" } else { "have" };
        let is = if accused.len() == 1 { "is" } else { "are" };
        let others = self.ranks.len() - accused.len();
        let found = match class {
            HangClass::NotEntered if accused.iter().all(|rank| rank.phase == Phase::Between) => {
                format!("{who} {has} not begun the step that {others} others are in")
            }
            HangClass::NotEntered => match accused.first().and_then(|rank| self.least(rank)) {
                Some(least) => {
                    let at = self.farthest().get(least.group.as_str()).copied().unwrap_or_default();
                    format!(
                        "{who} {has} not entered collective {} of group {}, in which {others} others wait",
                        words::count(at),
                        least.group
                    )
                }
                None => format!("{who} {is} behind the {others} others"),
            },
            HangClass::Dead => format!("nothing is heard of {who} any more; {others} others are alive"),
            HangClass::Desync if others == 0 => format!("{who} wait for each other in a ring"),
            HangClass::Desync => format!("{who} {is} in another operation than the {others} others"),
            HangClass::Network => {
                format!("all {others} ranks entered the same collective, and it does not end")
            }
            HangClass::Unknown if self.is_idle() => {
                "no rank has begun another, and the processes live: the loop may have ended".to_owned()
            }
            HangClass::Unknown => "no rank can be told from the others".to_owned(),
        };
        let silent = self.seconds_since(self.since_ns);
        let step = self.ranks.iter().filter_map(|rank| rank.last_step).max();
        let step = step.map(|step| format!(" since step {}", words::count(step))).unwrap_or_default();
        let fault = fault.map(|fault| format!(" {}.", self.beside(fault))).unwrap_or_default();
        format!("No step is done for {silent:.0} s{step}: {found}.{fault}")
    }

    /// A fault with when it was.
    fn beside(&self, fault: &Fault) -> String {
        let apart = fault.time_ns.abs_diff(self.since_ns) as f64 / 1e9;
        let side = if fault.time_ns <= self.since_ns { "before" } else { "after" };
        let on = if fault.host.is_empty() { String::new() } else { format!(" on {}", fault.host) };
        format!("{}{on}, {apart:.0} s {side} the last step", fault.text)
    }

    fn evidence(&self, accused: &[&HangInput], fault: Option<&Fault>) -> Vec<Evidence> {
        let silent = self.seconds_since(self.since_ns);
        let text = format!("no step is done for {silent:.0} s; {:.0} s is too long", self.limit);
        let mut evidence =
            vec![Evidence { text, name: "silent", value: silent, peers: self.limit, unit: "seconds" }];
        for rank in accused.iter().take(EVIDENCE_MAX) {
            let Some(least) = self.least(rank) else { continue };
            let is_other = |other: &&&HangInput| !accused.iter().any(|one| one.rank == other.rank);
            let others = self.ranks.iter().filter(is_other).filter_map(|other| in_group(other, &least.group));
            let most = others.map(|one| one.entered).max().unwrap_or(least.entered);
            let text = format!(
                "rank {} is at collective {} of group {}, others at {}",
                rank.rank,
                words::count(least.entered),
                least.group,
                words::count(most)
            );
            let (value, peers) = (least.entered as f64, most as f64);
            evidence.push(Evidence { text, name: "sequence", value, peers, unit: "" });
        }
        if let Some(fault) = fault {
            let value = fault.time_ns.saturating_sub(self.since_ns) as f64 / 1e9;
            let text = self.beside(fault);
            evidence.push(Evidence { text, name: "fault", value, peers: f64::NAN, unit: "seconds" });
        }
        evidence
    }
}

fn is_farthest(one: &Collective, farthest: &BTreeMap<&str, i64>) -> bool {
    Some(&one.entered) == farthest.get(one.group.as_str())
}

fn in_group<'r>(rank: &'r HangInput, group: &str) -> Option<&'r Collective> {
    rank.collectives.iter().find(|one| one.group == group)
}

/// Whether a rank is in an operation, and not through it. One that is known to have completed nothing is known to
/// wait in its first operation only.
fn waits(one: &Collective) -> bool {
    one.entered > one.completed && (one.completed > 0 || one.entered <= 1)
}

/// What tells an operation from another; none if nothing is known of it. Sizes differ by intention where each
/// rank sends as much as it likes, or one has what the others send.
fn signature(one: &Collective) -> Option<String> {
    // NCCL's watchdog writes `_ALLGATHER_BASE` of `512`, the flight recorder `all_gather` of `16x32`.
    let op = one.op.to_lowercase().replace('_', "");
    let op = KINDS.iter().find(|kind| op.contains(**kind)).map_or(op.as_str(), |kind| *kind);
    let sizes = if UNEVEN.contains(&op) { String::new() } else { elements(&one.sizes) };
    (!op.is_empty() || !sizes.is_empty()).then(|| format!("{op} {sizes}"))
}

/// Sizes with the number of their elements in place of their shape.
fn elements(sizes: &str) -> String {
    let count = |word: &str| {
        let mut sides = word.split('x').map(str::parse::<u64>);
        let product = sides.try_fold(1_u64, |product, side| product.checked_mul(side.ok()?));
        product.map_or_else(|| word.to_owned(), |product| product.to_string())
    };
    sizes.split_whitespace().map(count).collect::<Vec<_>>().join(" ")
}

fn advise(
    class: HangClass,
    cause: &str,
    fault: Option<&Fault>,
    culprits: &[Culprit],
) -> (Vec<String>, String) {
    let host = fault.map(|fault| fault.host.as_str()).filter(|host| !host.is_empty());
    let host = host.or_else(|| culprits.first().map(|one| one.host.as_str())).unwrap_or_default();
    let host = if host.is_empty() { "its host" } else { host };
    let restart = "restart_from_checkpoint";
    if let Some(fault) = fault.filter(|fault| fault.is_hardware) {
        let action = if fault.action.is_empty() { "drain" } else { fault.action.as_str() };
        let advice =
            format!("{}: {action} on {host}, then restart the job from its last checkpoint.", fault.text);
        return (vec![action.to_owned(), restart.to_owned()], advice);
    }
    let (actions, advice): (&[&str], String) = match (class, cause) {
        (HangClass::Network, _) => (
            &["check_links", restart],
            "Look at NVLink, the network cards and the switches, then restart the job from its last checkpoint."
                .to_owned(),
        ),
        (HangClass::Desync, "program") => {
            (&["inspect"], "Compare what the ranks run: a restart would end the same way.".to_owned())
        }
        (HangClass::Dead, _) | (_, "process") => (
            &["check_host", restart],
            format!("Look at {host} for why the process ended, and restart the job from its last checkpoint."),
        ),
        _ => (
            &["inspect", restart],
            format!("Take the stacks of the process on {host} before the job is restarted from its checkpoint."),
        ),
    };
    (actions.iter().map(|action| (*action).to_owned()).collect(), advice)
}
