//! A node: what its cards do, what its kernel says of them, and how its driver answers.

mod card;
mod driver;

use std::sync::Arc;

use crate::TICK_SECONDS;
use crate::engine::Engine;
use crate::job::{Job, Step};
use crate::noise::{noise, word};
use crate::profile::Profile;
use crate::scenario::{Fault, FaultKind, Scenario, ScenarioError};

pub use card::Card;
use card::Work;

/// A line of a node's kernel log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// When, seconds of the scenario.
    pub at: f64,
    /// The line without its time.
    pub text: String,
}

/// A node and how far it is.
#[derive(Debug)]
pub struct Node {
    scenario: Arc<Scenario>,
    host: String,
    driver: String,
    profile: Profile,
    cards: Vec<Card>,
    jobs: Vec<Track>,
    engines: Vec<Engine>,
    ticks: u64,
    boots: u32,
    booted: Option<f64>,
    is_up: bool,
    lines: Vec<LogLine>,
}

/// A job that has ranks here, and its step.
#[derive(Debug)]
struct Track {
    job: Job,
    step: Option<Step>,
    /// The rank on the first card here.
    first: usize,
}

impl Node {
    /// The node of this name at the scenario's start.
    pub fn new(scenario: &Arc<Scenario>, host: &str) -> Result<Self, ScenarioError> {
        let missing = || ScenarioError::Invalid(format!("there is no host `{host}`"));
        let (_, group) = scenario.hosts().find(|(name, _)| name == host).ok_or_else(missing)?;
        let (gpus, driver) = (group.gpus, group.driver.clone());
        let profile = scenario.profile(host).ok_or_else(missing)?;
        let mut jobs = Vec::new();
        for index in 0..scenario.jobs.len() {
            let job = Job::new(scenario.clone(), index)?;
            if let Some(first) = job.ranks().iter().position(|(one, _)| one == host) {
                jobs.push(Track { job, step: None, first });
            }
        }
        let engines = scenario
            .engine_names()
            .into_iter()
            .filter(|(_, one, _)| one == host)
            .filter_map(|(name, ..)| Engine::new(scenario.clone(), &name))
            .collect();
        let cards = (0..gpus).map(|gpu| Card::new(scenario.seed, host, gpu, profile)).collect();
        let mut node = Self {
            scenario: scenario.clone(),
            host: host.to_owned(),
            driver,
            profile,
            cards,
            jobs,
            engines,
            ticks: 0,
            boots: 1,
            booted: None,
            is_up: true,
            lines: Vec::new(),
        };
        node.introduce(0.0);
        Ok(node)
    }

    /// Its name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Version of its driver.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Its cards, those that are gone included, by the index that they had at the start.
    pub fn cards(&self) -> &[Card] {
        &self.cards
    }

    /// Which boot it is in, from 1.
    pub fn boots(&self) -> u32 {
        self.boots
    }

    /// When that boot began, seconds of the scenario; none for the first, which began before it.
    pub fn booted(&self) -> Option<f64> {
        self.booted
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// What its kernel has said since this was asked before.
    pub fn take_lines(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.lines)
    }

    /// Goes on until a time.
    pub fn advance(&mut self, until: f64) {
        while (self.ticks + 1) as f64 * TICK_SECONDS <= until + 1e-9 {
            self.ticks += 1;
            self.tick(self.ticks as f64 * TICK_SECONDS);
        }
    }

    fn say(&mut self, at: f64, text: String) {
        self.lines.push(LogLine { at, text });
    }

    /// What a driver says when it finds its cards.
    fn introduce(&mut self, at: f64) {
        let lines: Vec<String> = self
            .cards
            .iter()
            .filter(|card| card.is_present)
            .map(|card| format!("NVRM: GPU at PCI:{}: {}", &card.bus_id[..10], card.uuid))
            .collect();
        for line in lines {
            self.say(at, line);
        }
    }

    fn tick(&mut self, at: f64) {
        let before = at - TICK_SECONDS;
        let scenario = self.scenario.clone();
        let mine = |fault: &&Fault| fault.host.as_deref() == Some(self.host.as_str());
        let faults: Vec<&Fault> = scenario.faults.iter().filter(mine).collect();
        let reboots = |at: f64| faults.iter().any(|fault| fault.kind == FaultKind::Reboot && fault.is_on(at));
        if self.is_up && reboots(at) {
            self.is_up = false;
        } else if !self.is_up && !reboots(at) {
            self.is_up = true;
            self.boots += 1;
            self.booted = Some(at);
            for card in &mut self.cards {
                card.reboot();
            }
            self.introduce(at);
        }
        for fault in faults {
            if fault.at > before && fault.at <= at {
                self.begin(fault, at);
            }
            if let Some(lasts) = fault.lasts
                && fault.at + lasts > before
                && fault.at + lasts <= at
            {
                self.end(fault);
            }
        }
        self.work(at);
    }

    fn begin(&mut self, fault: &Fault, at: f64) {
        let text = fault.text.clone().unwrap_or_default();
        if fault.kind == FaultKind::Line {
            self.say(at, text);
            return;
        }
        let Some(card) = fault.gpu.and_then(|gpu| self.cards.get_mut(gpu as usize)) else { return };
        let place = card.bus_id[..10].to_owned();
        match fault.kind {
            FaultKind::Xid => {
                let code = fault.code.unwrap_or_default();
                self.say(at, format!("NVRM: Xid (PCI:{place}): {code}, {text}"));
            }
            FaultKind::FallOff => {
                card.is_present = false;
                let whole = card.bus_id.clone();
                let name = "pid='<unknown>', name=<unknown>";
                self.say(at, format!("NVRM: Xid (PCI:{place}): 79, {name}, GPU has fallen off the bus."));
                self.say(at, format!("NVRM: GPU {whole}: GPU has fallen off the bus."));
            }
            FaultKind::RowRemap => {
                card.remap_pending = true;
                card.remapped += 1;
                let what =
                    "Row Remapper: New row (0x00000000000fc2a1) marked for remapping, reset gpu to activate.";
                self.say(at, format!("NVRM: Xid (PCI:{place}): 63, pid=771, name=python3, {what}"));
            }
            _ => {}
        }
    }

    fn end(&mut self, fault: &Fault) {
        let Some(card) = fault.gpu.and_then(|gpu| self.cards.get_mut(gpu as usize)) else { return };
        match fault.kind {
            FaultKind::FallOff => card.is_present = true,
            FaultKind::RowRemap => card.remap_pending = false,
            _ => {}
        }
    }

    /// What each card does in this tick, and what that does to it.
    fn work(&mut self, at: f64) {
        for engine in &mut self.engines {
            engine.advance(at);
        }
        for track in &mut self.jobs {
            track.go(at);
        }
        let scenario = self.scenario.clone();
        for gpu in 0..self.cards.len() {
            let index = gpu as u32;
            let work = if self.is_up { self.work_of(gpu, at) } else { Work::default() };
            let clock = scenario.clock_share(&self.host, index, at);
            let ripple = noise(scenario.seed, &[word(&self.host), gpu as u64, self.ticks]);
            let card = &mut self.cards[gpu];
            card.tick(&work, clock, ripple);
            for fault in scenario.faults_of(&self.host, index, at) {
                card.suffer(fault);
            }
        }
    }

    fn work_of(&self, gpu: usize, at: f64) -> Work {
        let index = gpu as u32;
        for track in &self.jobs {
            if let Some(step) = track.step.as_ref().filter(|step| step.start <= at) {
                let own = step.own.get(track.first + gpu).copied().unwrap_or_default();
                return Work::training(at - step.start < own);
            }
            if track.job.group().start <= at {
                return Work::hanging();
            }
        }
        let engine = self.engines.iter().find(|engine| engine.group().gpus.contains(&index));
        engine.map_or_else(Work::default, |engine| Work::serving(engine, self.profile))
    }
}

impl Track {
    /// Takes up the step that is under way at a time.
    fn go(&mut self, at: f64) {
        while self.step.as_ref().is_none_or(|step| step.end() <= at) {
            // A step is known whole when it begins, so the one that ends after now is asked for too.
            let horizon = at + 3_600.0;
            let Some(next) = self.job.next_until(horizon) else {
                self.step = None;
                return;
            };
            let begins_later = next.start > at;
            self.step = Some(next);
            if begins_later {
                return;
            }
        }
    }
}
