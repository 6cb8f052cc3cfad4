//! The steps of a training job: every rank computes, then all exchange, and nobody goes on before the last.

use std::collections::HashMap;
use std::sync::Arc;

use crate::scenario::{Fault, FaultKind, JobGroup, Scenario, ScenarioError};

/// One step of all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its number, from 0.
    pub number: u64,
    /// When it began, seconds.
    pub start: f64,
    /// How long each rank was busy itself, its data included, seconds.
    pub own: Vec<f64>,
    /// How long each rank read its data, seconds.
    pub data: Vec<f64>,
    /// How long the exchange took, seconds.
    pub communication: f64,
    /// How long it took, seconds: the longest own time and the exchange.
    pub length: f64,
}

impl Step {
    /// How long a rank waited for the others and the exchange, seconds.
    pub fn wait(&self, rank: usize) -> f64 {
        self.length - self.own.get(rank).copied().unwrap_or(self.length)
    }

    /// When it was done.
    pub fn end(&self) -> f64 {
        self.start + self.length
    }
}

/// A job and how far it is.
#[derive(Debug, Clone)]
pub struct Job {
    scenario: Arc<Scenario>,
    index: usize,
    ranks: Vec<(String, u32)>,
    number: u64,
    at: f64,
}

impl Job {
    /// The job at this place in the scenario, before its first step.
    pub fn new(scenario: Arc<Scenario>, index: usize) -> Result<Self, ScenarioError> {
        let group = scenario.jobs.get(index).ok_or_else(|| {
            ScenarioError::Invalid(format!("there is no job {index}, there are {}", scenario.jobs.len()))
        })?;
        let all: HashMap<String, u32> = scenario.hosts().map(|(host, group)| (host, group.gpus)).collect();
        let gpus = |host: &str| all.get(host).copied().unwrap_or_default();
        let ranks = scenario
            .range(&group.hosts)?
            .into_iter()
            .flat_map(|host| (0..gpus(&host)).map(move |gpu| (host.clone(), gpu)))
            .collect();
        let at = group.start;
        Ok(Self { scenario, index, ranks, number: 0, at })
    }

    /// What the scenario says of it.
    pub fn group(&self) -> &JobGroup {
        &self.scenario.jobs[self.index]
    }

    /// Host and card of each rank.
    pub fn ranks(&self) -> &[(String, u32)] {
        &self.ranks
    }

    /// The pipeline stage of a rank, from 0.
    pub fn stage(&self, rank: usize) -> usize {
        let stages = self.group().stages;
        let each = self.ranks.len().div_ceil(stages).max(1);
        (rank / each).min(stages - 1)
    }

    /// When every rank can take part again, if one can't now; infinite for never.
    fn held_until(&self, at: f64) -> Option<f64> {
        use FaultKind::{FallOff, Hang, Reboot};
        self.ranks
            .iter()
            .flat_map(|(host, gpu)| self.scenario.faults_of(host, *gpu, at))
            .filter(|fault| matches!(fault.kind, FallOff | Hang | Reboot))
            .map(|fault| fault.lasts.map_or(f64::INFINITY, |lasts| fault.at + lasts))
            .reduce(f64::max)
    }

    fn data(&self, rank: usize, at: f64) -> f64 {
        let (host, gpu) = &self.ranks[rank];
        let slow: f64 = self
            .scenario
            .faults_of(host, *gpu, at)
            .filter(|fault| fault.kind == FaultKind::SlowLoader)
            .map(|fault| fault.seconds.unwrap_or(0.15))
            .sum();
        self.group().data + slow
    }

    /// How many times as long as usual a rank computes, its clock aside.
    fn slowness(&self, rank: usize, at: f64) -> f64 {
        use FaultKind::{HeavyStage, Slow, Turns};
        let (host, gpu) = &self.ranks[rank];
        let rate = |fault: &Fault, usual: f64| fault.rate.unwrap_or(usual);
        let of_card = self.scenario.faults_of(host, *gpu, at).filter(|fault| fault.kind == Slow);
        let of_card: f64 = of_card.map(|fault| rate(fault, 1.05)).product();
        let of_job = self.scenario.faults_of_job(&self.group().name, at).map(|fault| match fault.kind {
            HeavyStage if fault.stage == Some(self.stage(rank)) => rate(fault, 1.12),
            Turns if rank as u64 == self.number.wrapping_mul(13) % self.ranks.len() as u64 => {
                rate(fault, 1.2)
            }
            _ => 1.0,
        });
        of_card * of_job.product::<f64>()
    }

    /// How many times as long as usual the exchange takes.
    fn congestion(&self, at: f64) -> f64 {
        let slow = |fault: &&Fault| fault.kind == FaultKind::SlowExchange;
        let faults = self.scenario.faults_of_job(&self.group().name, at).filter(slow);
        faults.map(|fault| fault.rate.unwrap_or(3.0)).product()
    }

    /// The next step, if it ends within `until`; none while a rank can't take part.
    pub fn next_until(&mut self, until: f64) -> Option<Step> {
        while let Some(free) = self.held_until(self.at) {
            if free > until {
                return None;
            }
            self.at = free;
        }
        let group = self.group();
        let (compute, jitter) = (group.compute, group.jitter);
        let communication = group.communication * self.congestion(self.at);
        let usual = group.data;
        let data: Vec<f64> = (0..self.ranks.len()).map(|rank| self.data(rank, self.at)).collect();
        let own: Vec<f64> = self
            .ranks
            .iter()
            .enumerate()
            .map(|(rank, (host, gpu))| {
                let busy = (compute - usual).max(0.0) * (1.0 + jitter * wobble(rank as u64, self.number));
                let busy = busy * self.slowness(rank, self.at);
                busy / self.scenario.clock_share(host, *gpu, self.at) + data[rank]
            })
            .collect();
        let length = own.iter().copied().fold(0.0, f64::max) + communication;
        if self.at + length > until {
            return None;
        }
        let step = Step { number: self.number, start: self.at, own, data, communication, length };
        self.number += 1;
        self.at += length;
        Some(step)
    }
}

/// Noise in [-0.5, 0.5) that a step's rank always has.
fn wobble(rank: u64, step: u64) -> f64 {
    let mixed = 7_919_u64
        .wrapping_mul(rank)
        .wrapping_add(104_729_u64.wrapping_mul(step))
        .wrapping_add(31_u64.wrapping_mul(rank.wrapping_mul(step)));
    (mixed % 2_003) as f64 / 2_003.0 - 0.5
}
