//! An inference engine: requests that wait, are prefilled and decode together.

mod page;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::TICK_SECONDS;
use crate::noise::{noise, word};
use crate::scenario::{EngineGroup, FaultKind, Scenario};

/// Bounds of the time to the first token, as vLLM has them, seconds.
const TTFT: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2_560.0,
];
/// Bounds of the time between two tokens, seconds.
const ITL: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Bounds of the time of whole requests and of their phases, seconds.
const PHASE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1_920.0, 7_680.0,
];

/// Counts by upper bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Upper bounds, ascending; the infinite one is left out.
    pub bounds: &'static [f64],
    /// How many fell into each bucket, the last one beyond every bound.
    pub counts: Vec<f64>,
    /// What was seen, added up.
    pub sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0.0; bounds.len() + 1], sum: 0.0 }
    }

    fn see(&mut self, value: f64, times: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += times;
        self.sum += value * times;
    }

    /// How many were seen.
    pub fn count(&self) -> f64 {
        self.counts.iter().sum()
    }
}

#[derive(Debug, Clone)]
struct Request {
    arrived: f64,
    /// When its prompt was computed.
    began: f64,
    prompt: f64,
    output: f64,
    produced: f64,
    /// Tokens that the cache holds for it when it is taken up.
    context: f64,
}

/// What an engine has counted since its start.
#[derive(Debug, Clone)]
pub(crate) struct Totals {
    pub(crate) preemptions: f64,
    pub(crate) prompt: f64,
    pub(crate) computed: f64,
    pub(crate) output: f64,
    pub(crate) stopped: f64,
    pub(crate) cut: f64,
    pub(crate) decode_seconds: f64,
    pub(crate) prefill_seconds: f64,
    pub(crate) ttft: Histogram,
    pub(crate) itl: Histogram,
    pub(crate) tpot: Histogram,
    pub(crate) e2e: Histogram,
    pub(crate) queue: Histogram,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            preemptions: 0.0,
            prompt: 0.0,
            computed: 0.0,
            output: 0.0,
            stopped: 0.0,
            cut: 0.0,
            decode_seconds: 0.0,
            prefill_seconds: 0.0,
            ttft: Histogram::new(TTFT),
            itl: Histogram::new(ITL),
            tpot: Histogram::new(ITL),
            e2e: Histogram::new(PHASE),
            queue: Histogram::new(PHASE),
        }
    }
}

/// A replica and how far it is.
#[derive(Debug, Clone)]
pub struct Engine {
    scenario: Arc<Scenario>,
    group: EngineGroup,
    name: String,
    host: String,
    ticks: u64,
    /// When it started, seconds.
    started: f64,
    arriving: f64,
    arrived: u64,
    waiting: VecDeque<Request>,
    running: Vec<Request>,
    totals: Totals,
    /// Decoding time that was left of the last tick.
    left: f64,
    /// Shares of the last tick in which prompts were computed and tokens decoded.
    prefilling: f64,
    decoding: f64,
}

impl Engine {
    /// The replica of this name, before its first request; none where the scenario has no such one.
    pub fn new(scenario: Arc<Scenario>, name: &str) -> Option<Self> {
        let (name, host, group) = scenario.engine_names().into_iter().find(|(one, ..)| one == name)?;
        let group = group.clone();
        Some(Self {
            scenario,
            group,
            name,
            host,
            ticks: 0,
            started: 0.0,
            arriving: 0.0,
            arrived: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            totals: Totals::default(),
            left: 0.0,
            prefilling: 0.0,
            decoding: 0.0,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its node.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What the scenario says of it.
    pub fn group(&self) -> &EngineGroup {
        &self.group
    }

    /// Whether it answers at a time.
    pub fn is_up(&self, at: f64) -> bool {
        self.is_host_up(at) && !self.faults(FaultKind::EngineDown, at).any(|_| true)
    }

    fn is_host_up(&self, at: f64) -> bool {
        let reboots = |gpu| self.scenario.faults_of(&self.host, gpu, at);
        let down = |fault: &crate::Fault| matches!(fault.kind, FaultKind::Reboot | FaultKind::FallOff);
        !self.group.gpus.iter().any(|gpu| reboots(*gpu).any(down))
    }

    fn faults(&self, kind: FaultKind, at: f64) -> impl Iterator<Item = &crate::Fault> {
        self.scenario.faults.iter().filter(move |fault| {
            fault.kind == kind && fault.is_on(at) && fault.engine.as_deref() == Some(self.name.as_str())
        })
    }

    /// Requests that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The share of the KV cache in use.
    pub fn kv_usage(&self) -> f64 {
        let held: f64 = self.running.iter().map(|request| request.context + request.produced).sum();
        (held / self.group.kv_tokens).min(1.0)
    }

    /// Shares of the last tick in which prompts were computed and tokens were decoded.
    pub fn activity(&self) -> (f64, f64) {
        (self.prefilling, self.decoding)
    }

    /// Goes on until a time.
    pub fn advance(&mut self, until: f64) {
        while (self.ticks + 1) as f64 * TICK_SECONDS <= until + 1e-9 {
            self.ticks += 1;
            self.tick(self.ticks as f64 * TICK_SECONDS);
        }
    }

    fn restart(&mut self, at: f64) {
        self.waiting.clear();
        self.running.clear();
        self.totals = Totals::default();
        self.left = 0.0;
        self.started = at;
    }

    fn tick(&mut self, at: f64) {
        let before = at - TICK_SECONDS;
        let restarts = |fault: &crate::Fault| {
            fault.kind == FaultKind::EngineRestart
                && fault.engine.as_deref() == Some(self.name.as_str())
                && fault.at > before
                && fault.at <= at
        };
        let is_back = self.is_host_up(at) && !self.is_host_up(before);
        if self.scenario.faults.iter().any(restarts) || is_back {
            self.restart(at);
        }
        (self.prefilling, self.decoding) = (0.0, 0.0);
        if !self.is_host_up(at) {
            self.waiting.clear();
            self.running.clear();
            return;
        }
        self.arrive(at);
        let prefill = self.prefill(at);
        self.decode(at, (TICK_SECONDS - prefill).max(0.0), prefill);
    }

    fn arrive(&mut self, at: f64) {
        let times: f64 = self.faults(FaultKind::Queue, at).map(|fault| fault.rate.unwrap_or(3.0)).product();
        let swing = 1.0 + 0.3 * noise(self.scenario.seed, &[word(&self.name), self.ticks, 1]);
        self.arriving += self.group.requests_per_second * times * swing * TICK_SECONDS;
        while self.arriving >= 1.0 {
            self.arriving -= 1.0;
            self.arrived += 1;
            let spread =
                |salt| (0.7 * noise(self.scenario.seed, &[word(&self.name), self.arrived, salt])).exp();
            let prompt = (self.group.prompt * spread(2)).max(1.0).round();
            let output = (self.group.output * spread(3)).max(1.0).round();
            self.waiting.push_back(Request {
                arrived: at,
                began: at,
                prompt,
                output,
                produced: 0.0,
                context: prompt,
            });
        }
    }

    /// Takes up requests that wait; how long that took within the tick, seconds.
    fn prefill(&mut self, at: f64) -> f64 {
        let mut spent = 0.0;
        let mut held: f64 = self.running.iter().map(|request| request.context + request.produced).sum();
        while spent < TICK_SECONDS * 0.8 && self.running.len() < self.group.slots {
            let Some(next) = self.waiting.front() else { break };
            if held + next.context + next.produced > self.group.kv_tokens * 0.98 {
                break;
            }
            let Some(mut next) = self.waiting.pop_front() else { break };
            let computed = (next.context + next.produced) * (1.0 - self.group.cached);
            let took = computed / self.group.prefill;
            spent += took;
            held += next.context + next.produced;
            if next.produced == 0.0 {
                self.totals.prompt += next.prompt;
                self.totals.computed += computed;
                self.totals.queue.see(at - next.arrived, 1.0);
                self.totals.ttft.see(at - next.arrived + took + self.group.decode, 1.0);
                next.began = at + took;
                next.produced = 1.0;
                self.totals.output += 1.0;
            }
            self.running.push(next);
        }
        self.prefilling = (spent / TICK_SECONDS).min(1.0);
        self.totals.prefill_seconds += spent;
        spent.min(TICK_SECONDS)
    }

    fn decode(&mut self, at: f64, seconds: f64, stalled: f64) {
        if self.running.is_empty() {
            self.left = 0.0;
            return;
        }
        let step = self.group.decode + self.group.decode_each * self.running.len() as f64;
        let steps = ((seconds + self.left) / step).floor();
        self.left = (seconds + self.left - steps * step).max(0.0);
        self.decoding = (seconds / TICK_SECONDS).min(1.0);
        self.totals.decode_seconds += seconds;
        if steps < 1.0 {
            return;
        }
        let mut going = Vec::with_capacity(self.running.len());
        for mut request in std::mem::take(&mut self.running) {
            let more = steps.min(request.output - request.produced);
            if more >= 1.0 {
                // The prompts that were computed in between held the first of these tokens up.
                self.totals.itl.see(step + stalled, 1.0);
                self.totals.itl.see(step, more - 1.0);
                request.produced += more;
                self.totals.output += more;
            }
            if request.produced < request.output {
                going.push(request);
            } else {
                self.finish(&request, at);
            }
        }
        self.running = going;
        self.make_room();
    }

    fn finish(&mut self, request: &Request, at: f64) {
        self.totals.e2e.see(at - request.arrived, 1.0);
        if request.output > 1.0 {
            self.totals.tpot.see((at - request.began).max(0.0) / (request.output - 1.0), 1.0);
        }
        let is_long = request.output > self.group.output * 1.9;
        *(if is_long { &mut self.totals.cut } else { &mut self.totals.stopped }) += 1.0;
    }

    /// Puts the latest requests back while the KV cache is too small for all.
    fn make_room(&mut self) {
        let mut held: f64 = self.running.iter().map(|request| request.context + request.produced).sum();
        while held > self.group.kv_tokens && self.running.len() > 1 {
            let Some(out) = self.running.pop() else { return };
            held -= out.context + out.produced;
            self.totals.preemptions += 1.0;
            self.waiting.push_front(out);
        }
    }
}
