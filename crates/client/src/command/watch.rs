//! The series of a command's process and its descendants, and the most memory they took together.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use collect::{Host, ProcessSampler, Sink, TREE_RSS};
use model::Desc;

use crate::clock::{When, now_on_grid};
use crate::config::sampling_interval;
use crate::series::{Meta, SeriesHandle};
use crate::shared::{Shared, lock};

/// First and longest time between two looks at the memory of the tree.
const LOOK_FIRST: Duration = Duration::from_millis(50);
const LOOK_LONGEST: Duration = Duration::from_secs(1);

/// A thread that watches one process until it is told to stop.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: std::thread::JoinHandle<Option<u64>>,
}

impl Watch {
    /// Starts it; `None` where the system gives no thread, which costs the series only.
    pub(super) fn start(shared: Arc<Shared>, pid: u32) -> Option<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("truegauge-command".into())
            .spawn(move || watch(&shared, pid, &theirs))
            .ok()?;
        Some(Self { stop, thread })
    }

    /// Ends it; the most memory that the tree was seen to take, bytes.
    pub(super) fn end(self) -> Option<u64> {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        self.thread.join().ok().flatten()
    }
}

fn watch(shared: &Shared, pid: u32, stop: &(Mutex<bool>, Condvar)) -> Option<u64> {
    let interval = shared.config.system_metrics_interval.as_secs_f64();
    let interval = sampling_interval(interval).unwrap_or(crate::SYSTEM_METRICS_INTERVAL);
    let started = Instant::now();
    let mut series = Series::new(shared, pid, started);
    let mut peak = Peak { sampler: ProcessSampler::of(Host::real(), pid), started, bytes: None };
    let (mut pause, mut next_tick) = (LOOK_FIRST, started);
    loop {
        if Instant::now() >= next_tick {
            series.tick(shared);
            next_tick += interval;
        }
        peak.look();
        let now = lock(&stop.0);
        let (now, _) =
            stop.1.wait_timeout_while(now, pause, |stop| !*stop).unwrap_or_else(PoisonError::into_inner);
        if *now {
            return peak.bytes;
        }
        pause = (pause * 2).min(LOOK_LONGEST);
    }
}

/// Time since `started`, as samplers want it.
fn monotonic_ns(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The highest memory of the tree.
struct Peak {
    sampler: ProcessSampler,
    started: Instant,
    bytes: Option<u64>,
}

impl Peak {
    fn look(&mut self) {
        let bytes = &mut self.bytes;
        self.sampler.sample_extras(monotonic_ns(self.started), &mut |desc, value| {
            if desc.name == TREE_RSS.name {
                *bytes = (*bytes).max(Some(value as u64));
            }
        });
        // A process that has just ended is no failure.
        drop(self.sampler.take_failures());
    }
}

/// The process's series, as a sampler in the process would write them.
struct Series {
    sampler: ProcessSampler,
    started: Instant,
    labels: [(&'static str, String); 2],
    handles: Vec<(&'static Desc, SeriesHandle)>,
    step: i64,
}

impl Series {
    fn new(shared: &Shared, pid: u32, started: Instant) -> Self {
        let labels = [("host", shared.facts.host.clone()), ("pid", pid.to_string())];
        let known = collect::DESCS.iter().filter(|desc| desc.labels.contains(&"pid"));
        let key = |name| Meta::new(name, &borrowed(&labels), "").key();
        // In a container that starts again the same process ID comes again, and its series go on.
        let last = known.filter_map(|desc| shared.last_steps.get(&key(desc.name))).max();
        Self {
            sampler: ProcessSampler::of(Host::real(), pid),
            started,
            step: last.map_or(0, |last| last.wrapping_add(1)),
            labels,
            handles: Vec::new(),
        }
    }

    fn tick(&mut self, shared: &Shared) {
        let (step, time_ns, at_ns) = (self.step, now_on_grid(), monotonic_ns(self.started));
        self.step = step.wrapping_add(1);
        let (labels, handles) = (borrowed(&self.labels), &mut self.handles);
        let sink: &mut Sink<'_> = &mut |desc, value| {
            let known = handles.iter().find(|(known, _)| known.name == desc.name).map(|(_, handle)| *handle);
            let handle = known.unwrap_or_else(|| {
                let handle = shared.own_series(desc.name, &labels);
                handles.push((desc, handle));
                handle
            });
            shared.log(handle, value, Some(step), When::At(time_ns));
        };
        self.sampler.sample(at_ns, sink);
        self.sampler.sample_extras(at_ns, sink);
        drop(self.sampler.take_failures());
    }
}

fn borrowed<'a>(labels: &'a [(&'static str, String); 2]) -> [(&'static str, &'a str); 2] {
    [(labels[0].0, &labels[0].1), (labels[1].0, &labels[1].1)]
}
