//! One sample: what this process reports is settled, then GPUs, node and process are read.

use std::sync::Arc;
use std::time::Instant;

use collect::{Failure, Host, NodeSampler, ProcessSampler};
use model::{CaptureLimits, CaptureState};

use super::driver::Driver;
use super::report;
use super::roles::Roles;
use super::series::{SeriesTable, Subject};
use super::signal::Signal;
use super::troubles::{Trouble, Troubles, UNREADABLE};
use crate::capture::News;
use crate::clock::{When, now_ns, now_on_grid};
use crate::shared::Shared;

/// Ticks between two looks at what changes seldom: limits, and what a device does not have.
const LOOK_TICKS: u64 = 16;
/// Ticks at the start in which everything is looked at, since devices tell then what they lack.
const UNSETTLED_TICKS: u64 = 4;

/// When a tick is, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Of the points: nanoseconds since the epoch.
    pub(super) time_ns: i64,
    /// Of the rates: a clock that is never set.
    pub(super) monotonic_ns: u64,
}

/// What a process does that has its own place in the run; a forked child has none of it.
struct Standing {
    roles: Roles,
    driver: Driver,
}

/// What ticks need.
pub(super) struct Ticker<'a> {
    shared: &'a Shared,
    signal: &'a Arc<Signal>,
    standing: Option<Standing>,
    node: Option<NodeSampler>,
    /// `None` when somebody else reports this very process.
    process: Option<ProcessSampler>,
    table: SeriesTable,
    troubles: Troubles,
    gpus: Vec<u32>,
    step: i64,
    tick: u64,
    started: Instant,
    started_ns: i64,
    limits: Option<CaptureLimits>,
    has_said_gpus: bool,
    left_out: usize,
}

impl<'a> Ticker<'a> {
    /// Of a process that stands for the node and its devices if `standing` is there.
    pub(super) fn new(
        shared: &'a Shared,
        signal: &'a Arc<Signal>,
        standing: Option<(Roles, Driver)>,
    ) -> Self {
        let host = shared.facts.host.clone();
        let config = &shared.config;
        let is_wrapped = crate::command::is_reported_by(&config.wrapper, shared.run_id);
        let is_sampled = config.samples_process && !is_wrapped;
        let step = shared.last_steps.of_system(&host).map_or(0, |last| last.wrapping_add(1));
        Self {
            shared,
            signal,
            standing: standing.map(|(roles, driver)| Standing { roles, driver }),
            node: None,
            process: is_sampled.then(|| ProcessSampler::new(Host::real())),
            table: SeriesTable::new(host),
            troubles: Troubles::default(),
            gpus: Vec::new(),
            step,
            tick: 0,
            started: Instant::now(),
            started_ns: now_ns(),
            limits: None,
            has_said_gpus: false,
            left_out: 0,
        }
    }

    /// One sample now; the cause when nothing at all could be read.
    pub(super) fn tick(&mut self) -> Result<(), String> {
        let is_grace_over = self.started.elapsed() >= self.shared.config.capture_grace;
        let monotonic_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.tick_at(Moment { time_ns: now_on_grid(), monotonic_ns }, is_grace_over)
    }

    /// One sample. All points share a step and a time.
    pub(super) fn tick_at(&mut self, now: Moment, is_grace_over: bool) -> Result<(), String> {
        let begun = Instant::now();
        self.tick += 1;
        self.table.begin(self.tick);
        self.settle_roles(is_grace_over);
        let step = self.step;
        self.step = step.wrapping_add(1);
        if let Some(standing) = &mut self.standing {
            // Before the points: who comes after this process must not use their step again.
            standing.roles.note(step, now.time_ns);
        }
        // First, since a sick GPU is waited for up to a second; and at the time of the reading, since a
        // driver that starts may have been waited for already: rates are of what lies between readings.
        let waited_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.read_host(now.monotonic_ns.saturating_add(waited_ns));
        self.read_gpus();
        let is_empty = self.process.is_some() && self.table.points().is_empty();
        if let Some(seconds) = collect::thread_cpu_seconds() {
            self.table.put(self.shared, subject(&collect::SELF_CPU), seconds);
        }
        // Before the points: a server that judges whose a device is must know who sends them.
        self.report(CaptureState::Sampling);
        self.shared.log_all(self.table.points(), Some(step), When::At(now.time_ns));
        self.troubles.warn(self.shared, self.tick);
        if is_empty && self.table.left_out_count() == 0 {
            return Err(self.troubles.latest().unwrap_or("nothing could be read").to_owned());
        }
        Ok(())
    }

    /// Settles what this process reports in this tick.
    fn settle_roles(&mut self, is_grace_over: bool) {
        let News { refusals, elsewhere, frameworks } = self.shared.capture.take_news();
        for refusal in &refusals {
            self.table.refused(refusal);
        }
        let Some(Standing { roles, driver }) = &mut self.standing else { return };
        if driver.advance(self.shared, self.signal)
            && let Some(sampler) = driver.sampler()
        {
            roles.set_devices(sampler);
        }
        if let Some(frameworks) = frameworks {
            roles.set_frameworks(frameworks);
        }
        roles.hear_elsewhere(elsewhere);
        if let Some(last) = roles.advance(is_grace_over) {
            self.step = self.step.max(last.wrapping_add(1));
        }
        roles.sampled(&mut self.gpus);
        match (roles.reports_node(), &self.node) {
            (true, None) => {
                self.node = Some(NodeSampler::new(Host::real()));
                let found = report::read_limits();
                report::say_node_facts(self.shared, roles.mode(), &found);
                self.limits = Some(report::limits(&found));
            }
            (false, Some(_)) => (self.node, self.limits) = (None, None),
            _ => {}
        }
        let (gpus, has_node) = (&self.gpus, self.node.is_some());
        self.troubles.keep(|trouble| match trouble.gpu {
            Some(gpu) => gpus.contains(&gpu),
            None => has_node || trouble.metric.labels.contains(&"pid"),
        });
        if let (true, false, Some(sampler)) = (roles.reports_node(), self.has_said_gpus, driver.sampler()) {
            self.has_said_gpus = true;
            report::say_gpu_facts(self.shared, roles, sampler.driver_version());
        }
    }

    fn read_gpus(&mut self) {
        let Some(sampler) = self.standing.as_mut().and_then(|s| s.driver.sampler_mut()) else { return };
        let (shared, table, troubles) = (self.shared, &mut self.table, &mut self.troubles);
        sampler.sample(&self.gpus, &mut |gpu, value| {
            let gpu = Some(gpu);
            troubles.settle(value.metric, gpu);
            table.put(shared, Subject { metric: value.metric, gpu, labels: value.labels }, value.value);
        });
        for failure in sampler.take_failures() {
            troubles.add(Trouble {
                metric: failure.metric,
                gpu: Some(failure.gpu),
                reason: failure.reason,
                cause: failure.cause,
                backs_off: failure.dropped,
                since_tick: self.tick,
            });
        }
    }

    fn read_host(&mut self, monotonic_ns: u64) {
        let (shared, table, troubles) = (self.shared, &mut self.table, &mut self.troubles);
        let sink: &mut collect::Sink<'_> = &mut |metric, value| {
            troubles.settle(metric, None);
            table.put(shared, subject(metric), value);
        };
        let mut failures: Vec<Failure> = Vec::new();
        if let Some(node) = &mut self.node {
            node.sample(monotonic_ns, sink);
            node.sample_extras(monotonic_ns, sink);
            failures.append(&mut node.take_failures());
        }
        if let Some(process) = &mut self.process {
            process.sample(monotonic_ns, sink);
            process.sample_extras(monotonic_ns, sink);
            failures.append(&mut process.take_failures());
        }
        for failure in failures {
            self.troubles.add(Trouble {
                metric: failure.metric,
                gpu: None,
                reason: UNREADABLE,
                cause: failure.cause,
                backs_off: failure.dropped,
                since_tick: self.tick,
            });
        }
    }

    /// Makes a report when something may have changed, and sends it when something did.
    fn report(&mut self, state: CaptureState) {
        let Some(Standing { roles, driver }) = &mut self.standing else { return };
        let left_out = self.table.left_out_count();
        // Each is asked, whatever the others say: asking takes the change.
        let changes = [self.troubles.take_change(), left_out != self.left_out, roles.take_change()];
        self.left_out = left_out;
        if self.tick > UNSETTLED_TICKS && !changes.contains(&true) && !self.tick.is_multiple_of(LOOK_TICKS) {
            return;
        }
        if self.node.is_some() && self.tick.is_multiple_of(LOOK_TICKS) {
            self.limits = Some(report::limits(&report::read_limits()));
        }
        let mut made = report::blank(&self.shared.config, &self.shared.facts.host, state);
        report::describe(&mut made, roles, driver);
        made.limits.clone_from(&self.limits);
        made.failures = self.troubles.report(&self.table, &self.gpus);
        made.started_ns = self.started_ns;
        self.shared.report_capture(made);
    }

    /// Lets go of everything that others wait for; with the cause when sampling has failed for good.
    /// The driver is given back: letting go of a sick one may take long.
    pub(super) fn end(mut self, failed: Option<(u32, String)>) -> Option<Driver> {
        if let Some((failed_ticks, cause)) = failed {
            let state = CaptureState::Ended { failed_ticks, cause };
            let mut made = self.shared.capture.report().unwrap_or_default();
            (made.state, made.time_ns) = (state, now_ns());
            if self.standing.is_some() {
                self.shared.report_capture(made);
            }
        }
        let Standing { roles, driver } = self.standing.take()?;
        roles.release();
        Some(driver)
    }
}

fn subject(metric: &'static model::Desc) -> Subject {
    Subject { metric, gpu: None, labels: &[] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests of every spool in `folder`.
    fn spooled(folder: &std::path::Path) -> Vec<wire::push::PushRequest> {
        let mut requests = Vec::new();
        for spool in spool::list(folder) {
            let mut reader = spool::Reader::open(&spool).unwrap();
            while let Some(record) = reader.next().unwrap() {
                requests.push(wire::push::decode(&record.bytes).unwrap());
            }
        }
        requests
    }

    /// A run that is kept in a spool, and samples only when told to.
    fn run(folder: &std::path::Path) -> crate::Run {
        crate::Run::start(crate::Config {
            offline: true,
            spool_dir: Some(folder.to_owned()),
            capture_system_metrics: false,
            ..crate::Config::default()
        })
        .unwrap()
    }

    #[test]
    fn wall_clock_that_jumps_moves_points_and_no_rate() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path());
        let shared = run.shared().unwrap();
        let signal = Arc::new(Signal::new());
        let mut ticker = Ticker::new(shared, &signal, None);
        let second = 1_000_000_000;
        let start = 1_800_000_000 * second;
        // An hour forward, then two back, while the machine counts seconds.
        let jumps = [0, 3_601, -3_598];
        for (at, jump) in jumps.into_iter().enumerate() {
            let monotonic_ns = (at as u64 + 1) * second as u64;
            ticker.tick_at(Moment { time_ns: start + jump * second, monotonic_ns }, false).unwrap();
        }
        run.finish();
        let of = |name: &str| {
            let series = spooled(folder.path()).into_iter().flat_map(|request| request.series);
            series.filter(|s| s.name == name).flat_map(|s| s.samples().unwrap()).collect::<Vec<_>>()
        };
        let rss: Vec<_> =
            of("system/process/rss_bytes").iter().map(|p| (p.step, p.time_ns - start)).collect();
        assert_eq!(rss, [(Some(0), 0), (Some(1), 3_601 * second), (Some(2), -3_598 * second)]);
        let cpu = of("system/process/cpu_utilization");
        assert_eq!(cpu.len(), 2, "one rate for each later tick");
        assert!(cpu.iter().all(|point| (0.0..100_000.0).contains(&point.value)), "{cpu:?}");
    }
}
