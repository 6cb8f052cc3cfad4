//! From findings that last to verdicts.

use super::cards::{self, Busy};
use super::detector::Detector;
use super::hold::{Hold, WINDOWS};
use super::job::Sign;
use super::lates::Late;
use super::ring::{SLIDE, median_of};
use super::window::{Findings, HOST_RANKS, Suspect, View};
use super::{Action, Cause, Class, Evidence, Level, Verdict, words};

/// Who costs less than this share of a step wakes nobody.
const PAGE_GAIN: f64 = 0.01;

/// What the latest window found.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) found: &'a Findings,
    pub(super) signs: &'a [Sign],
}

/// The verdicts now, the worst first. What the latest window did not find stays as it was until it is over.
pub(super) fn verdicts(
    detector: &Detector,
    view: &View<'_>,
    seen: &Seen<'_>,
    before: &[Verdict],
) -> Vec<Verdict> {
    let bench = Bench { detector, view, seen, before };
    let mut verdicts = bench.of_ranks();
    verdicts.extend(bench.always_last());
    verdicts.extend(detector.signs.iter().filter_map(|(key, hold)| bench.of_job(*key, hold)));
    let worth = |verdict: &Verdict| if verdict.gain.is_nan() { 0.0 } else { verdict.gain };
    verdicts.sort_by(|a, b| {
        b.level.cmp(&a.level).then(worth(b).total_cmp(&worth(a))).then(a.class.cmp(&b.class))
    });
    verdicts
}

struct Bench<'a> {
    detector: &'a Detector,
    view: &'a View<'a>,
    seen: &'a Seen<'a>,
    before: &'a [Verdict],
}

impl Bench<'_> {
    /// Slow ranks, those of a slow host as one, and those that can't be told apart as one.
    fn of_ranks(&self) -> Vec<Verdict> {
        let holds = &self.detector.rank_holds;
        let groups = &self.detector.groups;
        let mut accused: Vec<usize> = holds
            .iter()
            .filter(|(_, hold)| hold.level() >= Some(Level::Warn))
            .map(|(place, _)| *place)
            .collect();
        let mut verdicts = Vec::new();
        let mut hosts: Vec<usize> = accused.iter().filter_map(|place| groups.host_of[*place]).collect();
        hosts.dedup();
        hosts.sort_unstable();
        hosts.dedup();
        for host in hosts {
            let ranks = &groups.hosts[host];
            // Ranks that are late at different times are not slow together.
            let is_slow = |place: &&usize| holds.contains_key(place) && self.late(&[**place]).is_none();
            let slow: Vec<usize> = ranks.iter().filter(is_slow).copied().collect();
            if ranks.len() < 2 || (slow.len() as f64) < HOST_RANKS * ranks.len() as f64 {
                continue;
            }
            accused.retain(|place| !ranks.contains(place));
            verdicts.extend(self.slow(Class::Node, &slow));
        }
        accused.sort_by_key(|place| groups.tensor_id(*place));
        let together = accused.chunk_by(|a, b| groups.tensor_id(*a) == groups.tensor_id(*b));
        verdicts.extend(together.filter_map(|places| self.slow(Class::Straggler, places)));
        verdicts
    }

    fn slow(&self, class: Class, places: &[usize]) -> Option<Verdict> {
        let holds: Vec<&Hold> =
            places.iter().filter_map(|place| self.detector.rank_holds.get(place)).collect();
        let level = holds.iter().filter_map(|hold| hold.level()).max()?;
        let held = holds.iter().map(|hold| hold.held()).max()?;
        let suspects: Vec<Suspect> =
            self.seen.found.suspects.iter().filter(|one| places.contains(&one.place)).copied().collect();
        let onset = holds.iter().filter_map(|hold| hold.onset).min_by_key(|(step, _)| *step);
        if suspects.is_empty()
            && let Some(late) = self.late(places)
        {
            return Some(self.late_rank(late, level, held, onset));
        }
        let mut verdict = self.blank(class, places);
        if (suspects.is_empty() || self.is_fading(&suspects))
            && let Some(before) = self.as_before(&verdict.key(), level, held)
        {
            return Some(before);
        }
        if suspects.is_empty() {
            return None;
        }
        let middle = |of: fn(&Suspect) -> f64| middle(suspects.iter().map(of));
        (verdict.rho, verdict.z) = (middle(|one| one.rho), middle(|one| one.z));
        let (own, peers) = (middle(|one| f64::from(one.median)), middle(|one| f64::from(one.middle)));
        self.charge(&mut verdict, places, (own, peers));
        (verdict.level, verdict.held) = (level, held);
        (verdict.onset_step, verdict.onset_time_ns) = (onset.map(|at| at.0), onset.map(|at| at.1));
        (verdict.step_seconds, verdict.counterfactual_seconds) = self.seen.found.cost;
        verdict.gain = 1.0 - verdict.counterfactual_seconds / verdict.step_seconds;
        if verdict.gain < PAGE_GAIN {
            verdict.level = verdict.level.min(Level::Warn);
        }
        verdict.confidence = confidence(&verdict);
        self.advise(&mut verdict);
        Some(verdict)
    }

    /// Of these the rank that is late now and again and costs most.
    fn late(&self, places: &[usize]) -> Option<&Late> {
        let lates = self.seen.found.lates.iter().filter(|late| places.contains(&late.place));
        lates.max_by(|a, b| (a.length - a.without).total_cmp(&(b.length - b.without)))
    }

    /// A rank that is late in some steps and not in others. All numbers are means: medians don't see it.
    fn late_rank(&self, late: &Late, level: Level, held: u32, onset: Option<(i64, i64)>) -> Verdict {
        let mut verdict = self.blank(Class::Straggler, &[late.place]);
        (verdict.level, verdict.held) = (level, held);
        (verdict.onset_step, verdict.onset_time_ns) = (onset.map(|at| at.0), onset.map(|at| at.1));
        verdict.rho = 1.0 + late.behind * late.times as f64 / (late.own * late.steps as f64);
        (verdict.wait_seconds, verdict.peers_wait_seconds) = (late.wait, late.next_wait);
        (verdict.step_seconds, verdict.counterfactual_seconds) = (late.length, late.without);
        verdict.gain = 1.0 - late.without / late.length;
        verdict.evidence = evidence_of_late(late, &words::ranks(&verdict.ranks));
        let busy = Busy { data: late.data, peers_data: late.peers_data, over: late.behind };
        self.find_cause(&mut verdict, &[late.place], busy);
        verdict.confidence = confidence(&verdict);
        self.advise(&mut verdict);
        verdict
    }

    /// Whether the latest steps are as usual: then the window is a mixture that makes little of what was.
    fn is_fading(&self, suspects: &[Suspect]) -> bool {
        let latest = suspects.iter().map(|one| {
            let own = self.view.own.last(one.place, self.view.end, SLIDE as usize);
            f64::from(median_of(own, &mut Vec::new()) / one.middle)
        });
        middle(latest) < self.detector.settings.warn_ratio
    }

    /// Ranks that are too little behind to be called slow.
    fn always_last(&self) -> Vec<Verdict> {
        let found = self.seen.found;
        let mut verdicts = Vec::new();
        for (place, hold) in &self.detector.lasts {
            let is_slow = self.detector.rank_holds.contains_key(place);
            let Some(level) = hold.level().filter(|_| !is_slow) else { continue };
            let mut verdict = self.blank(Class::ConsistentlyLast, &[*place]);
            if !hold.is_found() {
                verdicts.extend(self.as_before(&verdict.key(), level, hold.held()));
                continue;
            }
            let (middle, spread) = found.centres[self.detector.groups.peers_of[*place]];
            let own = f64::from(found.medians[*place]);
            let peers = f64::from(middle);
            (verdict.rho, verdict.z) = (own / peers, (own - peers) / f64::from(spread));
            self.charge(&mut verdict, &[*place], (own, peers));
            (verdict.level, verdict.held) = (level, hold.held());
            (verdict.onset_step, verdict.onset_time_ns) =
                (hold.onset.map(|at| at.0), hold.onset.map(|at| at.1));
            let without = self.view.without(&[*place], &mut Vec::new());
            verdict.counterfactual_seconds = without.map_or(found.step, |without| without.min(found.step));
            verdict.gain = 1.0 - verdict.counterfactual_seconds / found.step;
            verdict.confidence = confidence(&verdict);
            self.advise(&mut verdict);
            verdicts.push(verdict);
        }
        verdicts
    }

    fn of_job(&self, key: (Class, Option<u32>), hold: &Hold) -> Option<Verdict> {
        let level = hold.level()?;
        let mut verdict = self.blank(key.0, &[]);
        verdict.stage = key.1;
        let Some(sign) = self.seen.signs.iter().find(|sign| (sign.class, sign.stage) == key) else {
            return self.as_before(&verdict.key(), level, hold.held());
        };
        if let Some(places) = self.host_of_stage(sign) {
            verdict = self.blank(Class::Node, &places);
            self.charge(&mut verdict, &places, (sign.now, sign.before));
        } else {
            verdict.evidence = evidence_of(sign);
        }
        verdict.level = level;
        if self.detector.ranks.0.len() < self.detector.settings.page_ranks_min {
            verdict.level = level.min(Level::Warn);
        }
        verdict.held = hold.held();
        (verdict.rho, verdict.z) = (sign.rho, sign.z);
        (verdict.onset_step, verdict.onset_time_ns) = (hold.onset.map(|at| at.0), hold.onset.map(|at| at.1));
        verdict.counterfactual_seconds = sign.without.min(self.seen.found.step);
        verdict.gain = 1.0 - verdict.counterfactual_seconds / self.seen.found.step;
        verdict.confidence = confidence(&verdict);
        self.advise(&mut verdict);
        Some(verdict)
    }

    /// The ranks of a stage that lies on one host whose GPUs have a reason to be slow: then it is no matter of
    /// layout.
    fn host_of_stage(&self, sign: &Sign) -> Option<Vec<usize>> {
        let groups = &self.detector.groups;
        let (_, places) = groups.stages.iter().find(|(stage, _)| Some(*stage) == sign.stage)?;
        let host = groups.host_of[*places.first()?]?;
        if places.iter().any(|place| groups.host_of[*place] != Some(host)) {
            return None;
        }
        let all: Vec<usize> = (0..groups.host_of.len()).collect();
        let others = self.view.cards_of(&all, places)?;
        let has_reason = |place: &&usize| {
            let card = self.view.cards.get(**place).and_then(cards::Card::lately);
            card.is_some_and(|card| cards::of_card(&card, &others).is_some())
        };
        let slow = places.iter().filter(has_reason).count();
        (slow as f64 >= HOST_RANKS * places.len() as f64).then(|| places.clone())
    }

    fn as_before(&self, key: &str, level: Level, held: u32) -> Option<Verdict> {
        let before = self.before.iter().find(|verdict| verdict.key() == key)?;
        Some(Verdict { held, level: before.level.min(level), ..before.clone() })
    }

    fn blank(&self, class: Class, places: &[usize]) -> Verdict {
        let facts: Vec<_> = places.iter().map(|place| &self.detector.ranks.0[*place]).collect();
        let same = |of: fn(&super::RankFacts) -> &String| match facts.first() {
            Some(first) if facts.iter().all(|one| of(one) == of(first)) => of(first).clone(),
            _ => String::new(),
        };
        let stage = facts.first().and_then(|first| first.stage);
        let mut ranks: Vec<u32> = facts.iter().map(|one| one.rank).collect();
        ranks.sort_unstable();
        Verdict {
            class,
            level: Level::Info,
            ranks,
            host: same(|one| &one.host),
            gpu: if places.len() == 1 { same(|one| &one.gpu) } else { String::new() },
            uuid: if places.len() == 1 { same(|one| &one.uuid) } else { String::new() },
            stage: stage.filter(|_| facts.iter().all(|one| one.stage == stage)),
            rho: f64::NAN,
            z: f64::NAN,
            wait_seconds: f64::NAN,
            peers_wait_seconds: f64::NAN,
            onset_step: None,
            onset_time_ns: None,
            cause: Cause::Unknown,
            gain: f64::NAN,
            step_seconds: self.seen.found.step,
            counterfactual_seconds: f64::NAN,
            confidence: 0.0,
            held: 0,
            of: WINDOWS,
            evidence: Vec::new(),
            action: Action::None,
            advice: String::new(),
        }
    }

    /// Waits, own times and cause of ranks, with what speaks for them.
    fn charge(&self, verdict: &mut Verdict, places: &[usize], (own, peers): (f64, f64)) {
        let who = words::ranks(&verdict.ranks);
        let group = self.peers_of(verdict, places);
        let view = self.view;
        verdict.wait_seconds = view.middle_of(view.wait, places, &[]);
        verdict.peers_wait_seconds = view.middle_of(view.wait, &group, places);
        let (wait, others) = (verdict.wait_seconds, verdict.peers_wait_seconds);
        if wait.is_finite() && others.is_finite() {
            let text = format!("{who} waited {}, peers {}", words::seconds(wait), words::seconds(others));
            verdict.evidence.push(Evidence {
                text,
                name: "wait",
                value: wait,
                peers: others,
                unit: "seconds",
            });
        }
        let text = format!("busy for {} of a step, peers {}", words::seconds(own), words::seconds(peers));
        verdict.evidence.push(Evidence { text, name: "own", value: own, peers, unit: "seconds" });
        if let Some((place, ratio)) = self.seen.found.last
            && places.contains(&place)
        {
            let text = format!(
                "rank {} was the last in {:.0} % of the steps",
                self.detector.ranks.0[place].rank,
                ratio * 100.0
            );
            let peers = 1.0 / self.detector.ranks.0.len() as f64;
            verdict.evidence.push(Evidence { text, name: "last", value: ratio, peers, unit: "ratio" });
        }
        let data = |group: &[usize], accused: &[usize]| {
            view.data.map_or(f64::NAN, |data| view.middle_of(data, group, accused))
        };
        let busy = Busy { data: data(places, &[]), peers_data: data(&group, places), over: own - peers };
        self.find_cause(verdict, places, busy);
    }

    /// Adds why ranks are slow.
    fn find_cause(&self, verdict: &mut Verdict, places: &[usize], busy: Busy) {
        let group = self.peers_of(verdict, places);
        let view = self.view;
        let lately: Vec<_> = places.iter().filter_map(|place| view.cards.get(*place)?.lately()).collect();
        let card = worst(&lately);
        let peer_cards = view.cards_of(&group, places);
        let (cause, evidence) = cards::cause(card.as_ref(), peer_cards.as_ref(), busy);
        verdict.cause = cause;
        verdict.evidence.extend(evidence);
    }

    /// Whom ranks are compared with: their peers, and all ranks where that leaves nobody.
    fn peers_of(&self, verdict: &Verdict, places: &[usize]) -> Vec<usize> {
        let groups = &self.detector.groups;
        let mut peers: Vec<usize> = Vec::new();
        let mut numbers: Vec<usize> = places.iter().map(|place| groups.peers_of[*place]).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            peers.extend(&groups.peers[number]);
        }
        if verdict.class == Class::Node && peers.len() <= places.len() {
            peers = (0..groups.peers_of.len()).collect();
        }
        peers
    }

    fn advise(&self, verdict: &mut Verdict) {
        let who = match verdict.class {
            Class::Node => format!("host {}", verdict.host),
            _ => words::ranks(&verdict.ranks),
        };
        let others = self
            .detector
            .rank_holds
            .keys()
            .filter(|place| !verdict.ranks.contains(&self.detector.ranks.0[**place].rank));
        let with = if others.count() > 0 { " together with the other slow ranks" } else { "" };
        let gain = words::percent(verdict.gain);
        let fixing = format!("Fixing {who}{with} returns {gain} of step time");
        let place = if verdict.host.is_empty() { "its host" } else { &verdict.host };
        let (action, advice) = match verdict.class {
            Class::Straggler | Class::Node => of_cause(verdict, place, &fixing),
            Class::ConsistentlyLast => (
                Action::None,
                format!(
                    "{fixing}. That is too little to act on: look at it when {place} is next in service."
                ),
            ),
            Class::StageImbalance => (
                Action::Rebalance,
                format!(
                    "Dealing out the layers of the stages evenly returns {gain} of step time. No GPU is at fault."
                ),
            ),
            Class::Rotating => (
                Action::Rebalance,
                format!(
                    "No rank is at fault. Look at what varies from step to step: lengths of sequences, the loader, \
                     garbage collection. It costs {gain} of step time."
                ),
            ),
            Class::Communication => (
                Action::CheckLinks,
                format!(
                    "Look at NVLink, the network cards and the switches, and for neighbours on them. It costs \
                     {gain} of step time; no GPU is at fault."
                ),
            ),
            Class::Slowdown => (
                Action::CheckHost,
                "All ranks slowed down alike: look at what changed at that time, in the job and around it."
                    .to_owned(),
            ),
        };
        (verdict.action, verdict.advice) = (action, advice);
    }
}

fn evidence_of_late(late: &Late, who: &str) -> Vec<Evidence> {
    let (wait, next) = (late.wait, late.next_wait);
    let waited = format!(
        "in these {who} waited {}, all others {} or more",
        words::seconds(wait),
        words::seconds(next)
    );
    let behind = words::seconds(late.behind);
    let often = format!("late by {behind} in {} of {} steps", late.times, late.steps);
    let ratio = |of: usize| late.times as f64 / of as f64;
    let lost = format!("{who} was the last in {:.0} % of the steps that lost time", 100.0 * ratio(late.lost));
    let evidence = |text, name, value, peers, unit| Evidence { text, name, value, peers, unit };
    vec![
        evidence(often, "late", ratio(late.steps), f64::NAN, "ratio"),
        evidence(waited, "wait", wait, next, "seconds"),
        evidence(lost, "last", ratio(late.lost), f64::NAN, "ratio"),
    ]
}

fn of_cause(verdict: &Verdict, place: &str, fixing: &str) -> (Action, String) {
    let gpu = if verdict.gpu.is_empty() { "its GPUs".to_owned() } else { format!("GPU {}", verdict.gpu) };
    let look = match verdict.cause {
        Cause::Thermal => format!("the cooling of {gpu}"),
        Cause::PowerCap => format!("the power limit and supply of {gpu}"),
        Cause::Clock => format!("the clocks of {gpu}"),
        Cause::Link => format!("the PCIe link of {gpu}"),
        Cause::MemoryHealth => format!("the memory of {gpu}"),
        Cause::HostData => {
            let quota = verdict.evidence.iter().any(|one| one.name == "cpu_throttled");
            let what = if quota { "the CPU quota of its job on" } else { "the loader, CPUs and disks of" };
            let advice = format!("{fixing}: look at {what} {place}. The GPU is not at fault.");
            return (Action::CheckHost, advice);
        }
        Cause::Unknown => {
            let advice = format!("{fixing}: look at {place}. Nothing that is known of its GPU says why.");
            return (Action::CheckHost, advice);
        }
    };
    if verdict.level == Level::Page {
        let advice =
            format!("{fixing}: take {place} out of service after the next checkpoint and look at {look}.");
        return (Action::Drain, advice);
    }
    (Action::CheckHost, format!("{fixing}: look at {look} on {place}."))
}

/// Of several GPUs the one with the lowest clock, or whose process is held back the most: one is enough to hold
/// up all.
fn worst(cards: &[cards::Lately]) -> Option<cards::Lately> {
    let clock = |card: &cards::Lately| if card.clock.is_nan() { f64::INFINITY } else { card.clock };
    let held = |card: &cards::Lately| card.cpu_held.max(0.0);
    cards.iter().copied().min_by(|a, b| clock(a).total_cmp(&clock(b)).then(held(b).total_cmp(&held(a))))
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

fn evidence_of(sign: &Sign) -> Vec<Evidence> {
    let (now, before) = (words::seconds(sign.now), words::seconds(sign.before));
    let (name, text) = match sign.class {
        Class::StageImbalance => (
            "stage",
            format!(
                "ranks of stage {} are busy for {now} of a step, those of the others {before}",
                sign.stage.unwrap_or_default()
            ),
        ),
        Class::Communication => {
            ("communication", format!("even the last rank waits {now} in a step, it was {before}"))
        }
        Class::Rotating => (
            "behind",
            format!("the last rank of a step is {now} behind the middle, and it is another one each time"),
        ),
        _ => ("step", format!("a step takes {now}, it was {before}")),
    };
    vec![Evidence { text, name, value: sign.now, peers: sign.before, unit: "seconds" }]
}

/// Grows with how far out, how often the last and how long it is, and with a cause that is known.
fn confidence(verdict: &Verdict) -> f64 {
    let held = f64::from(verdict.held) / f64::from(verdict.of);
    let is_last = verdict.evidence.iter().any(|one| one.name == "last" && one.value >= 0.8);
    let score = 0.55
        + 0.15 * held
        + if is_last { 0.1 } else { 0.0 }
        + if verdict.z >= 12.0 { 0.1 } else { 0.0 }
        + if verdict.cause == Cause::Unknown { 0.0 } else { 0.09 };
    score.min(0.99)
}
