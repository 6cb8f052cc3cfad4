//! Samples the GPUs of this machine, each with a deadline of its own.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, atomic::Ordering, mpsc::sync_channel},
    thread,
    time::{Duration, Instant},
};

use model::Desc;

use super::{
    absence::GpuAbsence,
    device::GpuDevice,
    ffi::Library,
    reading::{GpuValue, READINGS},
    worker::{self, Answer, Outcome, Worker},
};

/// Where the driver's library is looked for: first as the loader finds it, then where containers and
/// operators put it without telling the loader.
const PLACES: [&str; 6] = [
    "libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
];

/// Which library is loaded and how long a call may take.
#[derive(Debug, Clone)]
pub struct GpuOptions {
    /// The library; `None` looks in the usual places.
    pub library: Option<PathBuf>,
    /// How long the driver may take to start. A machine without persistence mode takes seconds.
    pub start_deadline: Duration,
    /// How long one call may take before its device is left alone until it has answered.
    pub call_deadline: Duration,
}

impl Default for GpuOptions {
    fn default() -> Self {
        Self { library: None, start_deadline: Duration::from_secs(30), call_deadline: Duration::from_secs(1) }
    }
}

/// A value of a GPU that is there and could not be read in this tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFailure {
    /// The driver's index of the device.
    pub gpu: u32,
    /// The metric left out; the first one where a call feeds several.
    pub metric: &'static Desc,
    /// What could not be done, to what, and what was found: lower case, no full stop.
    pub cause: String,
    /// True on the failure after which it is asked with back-off only, as
    /// [`Failure::dropped`](crate::Failure::dropped) says.
    pub dropped: bool,
}

/// Where the values of one tick go: the driver's index of the device, and the value.
pub type GpuSink<'a> = dyn FnMut(u32, &GpuValue) + 'a;

/// Samples the devices of the driver; every call to it is made on a thread of the device's own.
///
/// Not to be used after a fork, which takes no threads along; dropping it in the child is harmless.
pub struct GpuSampler {
    driver_version: Option<String>,
    devices: Vec<GpuDevice>,
    unreadable: Vec<(u32, String)>,
    units: Vec<Unit>,
    tick: u64,
    call_deadline: Duration,
    failures: Vec<GpuFailure>,
}

/// A device that can be sampled.
struct Unit {
    worker: Worker,
    /// The tick that was asked for and is not over.
    pending: Option<u64>,
    unsupported: BTreeSet<usize>,
    throttle_mask: Option<u64>,
}

impl GpuSampler {
    /// Loads the driver's library and finds out which devices there are.
    pub fn open(options: &GpuOptions) -> Result<Self, GpuAbsence> {
        let (library, driver_version, count) = start(options)?;
        let library = Arc::new(library);
        let no_thread = |error: std::io::Error| GpuAbsence::NoThread { cause: error.to_string() };
        let workers: Vec<Worker> = (0..count)
            .map(|index| worker::start(library.clone(), index))
            .collect::<Result<_, _>>()
            .map_err(no_thread)?;
        let mut sampler = Self {
            driver_version,
            devices: Vec::new(),
            unreadable: Vec::new(),
            units: Vec::new(),
            tick: 0,
            call_deadline: options.call_deadline,
            failures: Vec::new(),
        };
        for worker in workers {
            sampler.admit(worker, options.start_deadline);
        }
        Ok(sampler)
    }

    /// Waits for a device to be identified; all are at it at the same time, so the waits do not add up.
    fn admit(&mut self, worker: Worker, deadline: Duration) {
        let left = deadline.saturating_sub(worker.since.elapsed());
        match worker.answers.recv_timeout(left) {
            Ok(Answer::Identified(Ok(device))) => {
                if !device.mig {
                    self.units.push(Unit {
                        worker,
                        pending: None,
                        unsupported: BTreeSet::new(),
                        throttle_mask: None,
                    });
                }
                self.devices.push(device);
            }
            Ok(Answer::Identified(Err(cause))) => self.unreadable.push((worker.index, cause)),
            _ => {
                let cause = format!(
                    "cannot identify GPU {}: no answer in {} s",
                    worker.index,
                    deadline.as_secs_f64()
                );
                self.unreadable.push((worker.index, cause));
            }
        }
    }

    /// Version of the driver; `None` when it does not tell.
    pub fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// The devices by driver index, partitioned ones included. One that could not be identified leaves a
    /// gap and is in [`unreadable`](Self::unreadable).
    pub fn devices(&self) -> &[GpuDevice] {
        &self.devices
    }

    /// Devices that the driver counts and could not name: index and cause.
    pub fn unreadable(&self) -> &[(u32, String)] {
        &self.unreadable
    }

    /// What the driver said of a device is not there, and will not be asked again. A metric of several
    /// calls is named when one of them is not there.
    pub fn unsupported(&self, gpu: u32) -> Vec<&'static Desc> {
        let mut found: Vec<&'static Desc> = Vec::new();
        let unit = self.units.iter().find(|unit| unit.worker.index == gpu);
        for reading in unit.iter().flat_map(|unit| &unit.unsupported) {
            let metric = READINGS[*reading].metric;
            if !found.iter().any(|known| known.name == metric.name) {
                found.push(metric);
            }
        }
        found
    }

    /// The mask of reasons for which clocks of a device were held back at the last tick; for display, see
    /// [`throttle_reasons`](super::throttle_reasons).
    pub fn throttle_mask(&self, gpu: u32) -> Option<u64> {
        self.units.iter().find(|unit| unit.worker.index == gpu)?.throttle_mask
    }

    /// What could not be read since the last call.
    pub fn take_failures(&mut self) -> Vec<GpuFailure> {
        std::mem::take(&mut self.failures)
    }

    /// Asks these devices, all at the same time, and emits what they answer, device by device.
    ///
    /// A device whose driver call does not return within the deadline gives what it had given until
    /// then, and nothing more until that call has returned; the others are not held up by it for longer
    /// than that one deadline. A partitioned or unknown device is passed over.
    pub fn sample(&mut self, gpus: &[u32], sink: &mut GpuSink<'_>) {
        self.tick += 1;
        let (tick, deadline) = (self.tick, self.call_deadline);
        let asked_at = Instant::now();
        let mut asked = Vec::with_capacity(gpus.len());
        for unit in &mut self.units {
            if !gpus.contains(&unit.worker.index) {
                continue;
            }
            unit.drain(&mut self.failures);
            if unit.pending.is_none() && unit.worker.requests.try_send(tick).is_ok() {
                unit.pending = Some(tick);
                unit.throttle_mask = None;
                asked.push(unit);
            }
        }
        for unit in asked {
            unit.collect(tick, asked_at, deadline, &mut self.failures, sink);
        }
    }
}

impl Unit {
    /// Takes what a late tick left behind: its values are of another time, what it learnt is not.
    fn drain(&mut self, failures: &mut Vec<GpuFailure>) {
        while let Ok(answer) = self.worker.answers.try_recv() {
            match answer {
                Answer::Read { outcome, .. } => self.note(outcome, failures, &mut |_, _| {}),
                Answer::Done { tick } if self.pending == Some(tick) => self.pending = None,
                Answer::Done { .. } | Answer::Identified(_) => {}
            }
        }
    }

    fn collect(
        &mut self,
        tick: u64,
        asked_at: Instant,
        deadline: Duration,
        failures: &mut Vec<GpuFailure>,
        sink: &mut GpuSink<'_>,
    ) {
        let mut last = asked_at;
        loop {
            let left = (last + deadline).saturating_duration_since(Instant::now());
            match self.worker.answers.recv_timeout(left) {
                Ok(Answer::Read { tick: of, at, outcome }) if of == tick => {
                    last = at;
                    self.note(outcome, failures, sink);
                }
                Ok(Answer::Done { tick: of }) if of == tick => {
                    self.pending = None;
                    return;
                }
                Ok(_) => {}
                Err(_) => {
                    let reading = &READINGS[self.worker.current.load(Ordering::Relaxed)];
                    failures.push(GpuFailure {
                        gpu: self.worker.index,
                        metric: reading.metric,
                        cause: format!(
                            "cannot read `{}` of GPU {}: no answer in {} s; it is left alone until there is one",
                            reading.call,
                            self.worker.index,
                            deadline.as_secs_f64()
                        ),
                        dropped: false,
                    });
                    return;
                }
            }
        }
    }

    fn note(&mut self, outcome: Outcome, failures: &mut Vec<GpuFailure>, sink: &mut GpuSink<'_>) {
        match outcome {
            Outcome::Values { values, throttle_mask } => {
                self.throttle_mask = throttle_mask.or(self.throttle_mask);
                for value in &values {
                    sink(self.worker.index, value);
                }
            }
            Outcome::Unsupported { reading } => {
                self.unsupported.insert(reading);
            }
            Outcome::Failed { reading, cause, dropped: Some(dropped) } => {
                let metric = READINGS[reading].metric;
                failures.push(GpuFailure { gpu: self.worker.index, metric, cause, dropped });
            }
            // A failed retry: said already.
            Outcome::Failed { dropped: None, .. } => {}
        }
    }
}

/// Loads and starts the library on a thread of its own: a sick driver can block there for minutes.
fn start(options: &GpuOptions) -> Result<(Library, Option<String>, u32), GpuAbsence> {
    let (tell, answer) = sync_channel(1);
    let named = options.library.clone();
    thread::Builder::new()
        .name("tg-gpu-start".to_owned())
        .spawn(move || {
            // Nobody waits any more: the library is dropped here.
            let _ = tell.send(start_now(named));
        })
        .map_err(|error| GpuAbsence::NoThread { cause: error.to_string() })?;
    answer
        .recv_timeout(options.start_deadline)
        .unwrap_or(Err(GpuAbsence::NoAnswer { waited: options.start_deadline }))
}

fn start_now(named: Option<PathBuf>) -> Result<(Library, Option<String>, u32), GpuAbsence> {
    let (mut library, path) = load(named)?;
    let missing = library.missing();
    if !missing.is_empty() {
        return Err(GpuAbsence::LacksFunctions { library: path, missing });
    }
    library.init().map_err(|code| GpuAbsence::refused("nvmlInit_v2", code))?;
    let count = library.count().map_err(|code| GpuAbsence::refused("nvmlDeviceGetCount_v2", code))?;
    let driver_version = library.driver_version().ok().filter(|version| !version.is_empty());
    Ok((library, driver_version, count))
}

/// The first library that is there.
fn load(named: Option<PathBuf>) -> Result<(Library, PathBuf), GpuAbsence> {
    let tried = named.map_or_else(|| PLACES.map(PathBuf::from).to_vec(), |path| vec![path]);
    for place in &tried {
        match Library::load(&OsString::from(place)) {
            Ok(library) => return Ok((library, place.clone())),
            // The loader has no codes, only words; a library that this one needs may be missing too.
            Err(cause) if cause.contains("No such file") && cause.contains(&*place.to_string_lossy()) => {}
            Err(cause) => return Err(GpuAbsence::NotLoadable { library: place.clone(), cause }),
        }
    }
    Err(GpuAbsence::NoLibrary { tried })
}
