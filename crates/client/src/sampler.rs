//! The sampler thread: the machine's own series, every interval, from one Rust thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use collect::{Host, NodeSampler, ProcessSampler, Sink};
use model::{AttributeValue, Desc};

use crate::clock::now_on_grid;
use crate::config::sampling_interval;
use crate::launch::Launch;
use crate::series::SeriesHandle;
use crate::shared::{Shared, lock};

/// Ticks in a row that may fail before the sampler ends.
const FAILED_TICKS_MAX: u32 = 5;
/// Longest wait for the sampler at the run's end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether this build reads the machine.
const SUPPORTED: bool = cfg!(tg_linux) && collect::SUPPORTED;

/// The running sampler.
#[derive(Debug)]
pub(crate) struct Sampler(Arc<(Mutex<Phase>, Condvar)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping,
    Ended,
}

impl Sampler {
    /// Starts the thread, unless capture is off or not to be had here.
    pub(crate) fn start(shared: &Arc<Shared>, is_child: bool) -> Option<Self> {
        if !shared.config.capture_system_metrics {
            return None;
        }
        if !SUPPORTED {
            let message = "system metrics are captured on Linux only: the run has none from this host";
            shared.warn("capture_unsupported", message.into());
            return None;
        }
        let phase = Arc::new((Mutex::new(Phase::Running), Condvar::new()));
        let (theirs, run) = (Arc::clone(&phase), Arc::clone(shared));
        let started = std::thread::Builder::new().name("truegauge-system".into()).spawn(move || {
            sample_until_stopped(&run, &theirs, is_child);
            *lock(&theirs.0) = Phase::Ended;
            theirs.1.notify_all();
        });
        match started {
            Ok(_) => Some(Self(phase)),
            Err(error) => {
                shared.warn(
                    "capture_failed",
                    format!("could not start the thread for system metrics: {error}"),
                );
                None
            }
        }
    }

    /// Ends it and waits for its last tick, if that does not hang.
    pub(crate) fn stop(self) {
        let (phase, changed) = &*self.0;
        let mut now = lock(phase);
        if *now == Phase::Running {
            *now = Phase::Stopping;
        }
        changed.notify_all();
        drop(changed.wait_timeout_while(now, STOP_TIMEOUT, |phase| *phase != Phase::Ended));
    }
}

/// Whether this process speaks for its node. The one place that decides it: arbitration between
/// processes without a local rank comes in here.
fn reports_node(launch: &Launch, is_child: bool) -> bool {
    !is_child && launch.local_rank.is_none_or(|rank| rank == 0)
}

/// Says with the first request what the numbers are measured against.
pub(crate) fn say_facts(shared: &Shared) {
    if !SUPPORTED || !reports_node(&shared.config.launch, false) {
        return;
    }
    let found = collect::facts(&Host::real());
    let text = |value: &str| AttributeValue::Text(value.to_owned());
    let bytes = |value: u64| AttributeValue::Int(i64::try_from(value).unwrap_or(i64::MAX));
    let mut facts = vec![
        ("system/platform", text(&collect::platform())),
        ("system/arbitration_mode", text("none")),
        ("system/cgroup/mode", text(found.mode.as_str())),
    ];
    if let Some(memory) = &found.memory {
        facts.push(("system/memory/measured_at", text(&memory.path)));
        facts.push(("system/memory/ceiling_bytes", bytes(memory.ceiling_bytes)));
    }
    if let Some(cpu) = &found.cpu {
        facts.push(("system/cpu/measured_at", text(&cpu.path)));
        facts.push(("system/cpu/capacity_cpus", AttributeValue::Float(cpu.capacity_cpus)));
        facts.push(("system/cpu/bounded_by", text(cpu.source.as_str())));
    }
    shared.say(|pending| {
        pending.attributes.extend(facts.into_iter().map(|(key, value)| (key.to_owned(), value, true)));
    });
}

fn sample_until_stopped(shared: &Shared, phase: &(Mutex<Phase>, Condvar), is_child: bool) {
    let interval = shared.config.system_metrics_interval.as_secs_f64();
    let interval = sampling_interval(interval).unwrap_or(crate::SYSTEM_METRICS_INTERVAL);
    let mut ticker = Ticker::new(shared, is_child);
    let mut failed = 0;
    loop {
        let is_whole = catch_unwind(AssertUnwindSafe(|| ticker.tick(shared))).is_ok();
        failed = if is_whole { 0 } else { failed + 1 };
        if !is_whole {
            shared.warn("capture_failed", "a sample of the system failed: its series have a gap".into());
        }
        if failed >= FAILED_TICKS_MAX {
            let message = format!("{failed} samples of the system failed in a row: there won't be more");
            return shared.warn("capture_ended", message);
        }
        let now = lock(&phase.0);
        let (now, _) = phase
            .1
            .wait_timeout_while(now, interval, |phase| *phase == Phase::Running)
            .unwrap_or_else(PoisonError::into_inner);
        if *now != Phase::Running {
            return;
        }
    }
}

/// What a tick needs.
struct Ticker {
    node: Option<NodeSampler>,
    process: ProcessSampler,
    host: String,
    pid: String,
    step: i64,
    started: Instant,
    series: Vec<(&'static Desc, SeriesHandle)>,
}

impl Ticker {
    fn new(shared: &Shared, is_child: bool) -> Self {
        let host = shared.facts.host.clone();
        Self {
            node: reports_node(&shared.config.launch, is_child).then(|| NodeSampler::new(Host::real())),
            process: ProcessSampler::new(Host::real()),
            step: shared.last_steps.of_system(&host).map_or(0, |last| last.wrapping_add(1)),
            pid: std::process::id().to_string(),
            host,
            started: Instant::now(),
            series: Vec::new(),
        }
    }

    /// One sample: node, process, and what it cost. All points share a step and a time.
    fn tick(&mut self, shared: &Shared) {
        let step = self.step;
        self.step = step.wrapping_add(1);
        let time_ns = now_on_grid();
        let monotonic_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (host, pid, series) = (&self.host, &self.pid, &mut self.series);
        let sink: &mut Sink<'_> = &mut |desc, value| {
            let handle = handle(shared, series, desc, host, pid);
            shared.log(handle, value, Some(step), Some(time_ns));
        };
        let mut failures = Vec::new();
        if let Some(node) = &mut self.node {
            node.sample(monotonic_ns, sink);
            node.sample_extras(monotonic_ns, sink);
            failures.append(&mut node.take_failures());
        }
        self.process.sample(monotonic_ns, sink);
        self.process.sample_extras(monotonic_ns, sink);
        failures.append(&mut self.process.take_failures());
        if let Some(seconds) = collect::thread_cpu_seconds() {
            sink(&collect::SELF_CPU, seconds);
        }
        for failure in failures {
            let message = format!("`{}` has a gap: {}", failure.metric.name, failure.cause);
            shared.warned.once(&failure.cause, crate::Warning { cause: "capture_failed", message });
        }
    }
}

/// The handle of a system series, made at its first point.
fn handle(
    shared: &Shared,
    known: &mut Vec<(&'static Desc, SeriesHandle)>,
    desc: &'static Desc,
    host: &str,
    pid: &str,
) -> SeriesHandle {
    if let Some((_, handle)) = known.iter().find(|(known, _)| known.name == desc.name) {
        return *handle;
    }
    let labels: &[(&str, &str)] =
        if desc.labels.contains(&"pid") { &[("host", host), ("pid", pid)] } else { &[("host", host)] };
    let handle = shared.own_series(desc.name, labels);
    known.push((desc, handle));
    handle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(tg_linux))]
    fn off_linux_the_run_works_and_says_once_that_it_captures_nothing() {
        static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
        assert!(crate::set_warning_hook(|warning| lock(&SAID).push(warning.message)));
        let folder = tempfile::tempdir().unwrap();
        let spool_dir = Some(folder.path().to_owned());
        let run = crate::Run::start(crate::Config { offline: true, spool_dir, ..crate::Config::default() });
        let run = run.unwrap();
        let loss = run.series("loss", &[], "").unwrap();
        run.log(loss, 1.0, None, None);
        run.close(model::SessionEnd::Finished, "", STOP_TIMEOUT, &mut || false);
        assert_eq!(run.counters().logged, 1);
        let said = lock(&SAID).iter().filter(|message| message.contains("on Linux only")).count();
        assert_eq!(said, 1);
    }

    #[test]
    fn first_local_rank_and_lonely_processes_speak_for_the_node() {
        let launch = |local_rank| Launch { local_rank, ..Launch::default() };
        assert!(reports_node(&launch(None), false));
        assert!(reports_node(&launch(Some(0)), false));
        assert!(!reports_node(&launch(Some(1)), false));
        assert!(!reports_node(&launch(None), true), "a forked child leaves the node to its parent");
    }
}
