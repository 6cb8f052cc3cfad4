//! One start of the driver's library, and the devices as it numbered them then.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::AtomicU32,
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use model::Desc;

use super::{
    absence::GpuAbsence,
    device::GpuDevice,
    endless::endless,
    events::Watcher,
    ffi::Library,
    processes::GpuProcess,
    sampler::{GpuFailure, GpuOptions, GpuSink},
    throttle,
    worker::{self, Job, NOBODY, Told, Waited, Worker},
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
/// Most devices that are taken up, each of which costs a thread: no machine has as many, and a library that
/// counts more counts nonsense.
const DEVICES_MAX: u32 = 256;
/// Between two looks at whether the last thread of an old session is done.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The driver's library, started, with a thread for each device.
pub(super) struct Session {
    pub(super) driver_version: Option<String>,
    units: Vec<Unit>,
    /// Waits for what the driver tells by itself.
    _watcher: Option<Watcher>,
    /// The library lives as long as a thread uses it; when it is gone the driver was shut down.
    library: Weak<Library>,
}

/// A device that the driver counts.
struct Unit {
    worker: Worker,
    /// What it is, or why it cannot be named.
    device: Result<GpuDevice, String>,
    /// Asked in this tick, and not answered yet.
    is_asked: bool,
    unsupported: Vec<&'static Desc>,
    throttle_mask: Option<u64>,
    told: Told,
}

/// What is asked in a tick.
pub(super) struct Asked<'a> {
    pub(super) gpus: &'a [u32],
    /// Whether partitioned devices are asked too.
    pub(super) partitioned: bool,
    pub(super) deadline: Duration,
}

/// What a tick was like, of all that was asked or of one device.
#[derive(Default)]
pub(super) struct Outcome {
    /// A device was named anew, or is another one now.
    pub(super) has_changed: bool,
    /// Nothing that was asked is there any more.
    pub(super) is_lost: bool,
}

impl Session {
    /// Loads and starts the library and finds out which devices there are.
    pub(super) fn open(options: &GpuOptions) -> Result<Self, GpuAbsence> {
        let no_thread = |error: io::Error| GpuAbsence::NoThread { cause: error.to_string() };
        let end = Instant::now() + options.start_deadline;
        let (tell, answer) = sync_channel(1);
        let named = options.library.clone();
        thread::Builder::new()
            .name("tg-gpu-start".to_owned())
            .spawn(move || {
                // Nobody waits any more: the library is dropped here.
                let _ = tell.send(start(named));
            })
            .map_err(no_thread)?;
        let (library, driver_version, count) = answer
            .recv_timeout(options.start_deadline)
            .unwrap_or(Err(GpuAbsence::NoAnswer { waited: options.start_deadline }))?;
        let library = Arc::new(library);
        let driver = driver_version.as_deref().and_then(throttle::version);
        let awaited = Arc::new(AtomicU32::new(NOBODY));
        let workers: Vec<Worker> = (0..count.min(DEVICES_MAX))
            .map(|index| worker::start(library.clone(), index, driver, awaited.clone()))
            .collect::<Result<_, _>>()
            .map_err(no_thread)?;
        let units =
            workers.into_iter().map(|worker| Unit::new(worker, end, options.start_deadline)).collect();
        let watcher = match &options.events {
            Some(events) => {
                let count = count.min(DEVICES_MAX);
                Some(Watcher::start(library.clone(), count, events.clone()).map_err(no_thread)?)
            }
            None => None,
        };
        Ok(Self { driver_version, units, _watcher: watcher, library: Arc::downgrade(&library) })
    }

    /// Opens a session in the place of an old one, on a thread of its own; the driver starts anew only
    /// after the old session's last thread is done.
    pub(super) fn reopen(
        old: Option<Self>,
        options: &GpuOptions,
    ) -> io::Result<Receiver<Result<Self, GpuAbsence>>> {
        let (tell, answer) = sync_channel(1);
        let options = options.clone();
        thread::Builder::new().name("tg-gpu-again".to_owned()).spawn(move || {
            let end = Instant::now() + options.start_deadline;
            let library = old.map(|old| old.library.clone()).unwrap_or_default();
            while library.strong_count() > 0 && Instant::now() < end {
                thread::sleep(LOOK_AGAIN);
            }
            let opened = if library.strong_count() > 0 {
                Err(GpuAbsence::NoAnswer { waited: options.start_deadline })
            } else {
                Self::open(&options)
            };
            // Nobody waits any more: the session is closed again.
            let _ = tell.send(opened);
        })?;
        Ok(answer)
    }

    /// The devices that could be named, by index.
    pub(super) fn devices(&self) -> impl Iterator<Item = &GpuDevice> {
        self.units.iter().filter_map(|unit| unit.device.as_ref().ok())
    }

    /// Index and cause of those that could not.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = (u32, &String)> {
        self.units.iter().filter_map(|unit| Some((unit.worker.index, unit.device.as_ref().err()?)))
    }

    pub(super) fn unsupported(&self, gpu: u32) -> &[&'static Desc] {
        self.unit(gpu).map_or(&[], |unit| &unit.unsupported)
    }

    pub(super) fn throttle_mask(&self, gpu: u32) -> Option<u64> {
        self.unit(gpu)?.throttle_mask
    }

    fn unit(&self, gpu: u32) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.worker.index == gpu)
    }

    pub(super) fn sample(
        &mut self,
        asked: &Asked<'_>,
        failures: &mut Vec<GpuFailure>,
        sink: &mut GpuSink<'_>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for unit in &mut self.units {
            outcome.has_changed |= unit.drain(failures);
            match &unit.device {
                // It is looked for while nobody waits.
                Err(_) => {
                    unit.worker.ask(Job::Tick);
                }
                Ok(device) if (asked.partitioned || !device.mig) && asked.gpus.contains(&device.index) => {
                    unit.is_asked = unit.worker.ask(Job::Tick);
                    if unit.is_asked {
                        unit.throttle_mask = None;
                    }
                }
                Ok(_) => {}
            }
        }
        let (mut waited, mut lost) = (0, 0);
        for unit in self.units.iter_mut().filter(|unit| unit.is_asked) {
            waited += 1;
            unit.is_asked = false;
            let of_unit = unit.collect(asked.deadline, failures, sink);
            lost += usize::from(of_unit.is_lost);
            outcome.has_changed |= of_unit.has_changed;
        }
        let none_is_there = !self.units.is_empty() && self.units.iter().all(|unit| unit.device.is_err());
        outcome.is_lost = none_is_there || (waited > 0 && waited == lost);
        outcome
    }

    pub(super) fn processes(&mut self, gpu: u32, deadline: Duration) -> Result<Vec<GpuProcess>, String> {
        let cannot = |why: &str| Err(format!("cannot list the processes of GPU {gpu}: {why}"));
        let Some(unit) = self.units.iter_mut().find(|unit| unit.worker.index == gpu) else {
            return cannot("the driver has no device of this index");
        };
        if !unit.worker.ask(Job::Processes) {
            return cannot("it has not answered an earlier question yet");
        }
        match unit.worker.wait(deadline) {
            Waited::Done => {
                let mut told = Told::default();
                unit.worker.listen(&mut told);
                let found = told.processes.take();
                // What else was told belongs to the next tick.
                unit.told.failures.append(&mut told.failures);
                unit.told.identified = told.identified.or(unit.told.identified.take());
                found.unwrap_or_else(|| cannot("its thread told nothing"))
            }
            Waited::TooLong(_) => cannot(&format!("no answer in {} s", deadline.as_secs_f64())),
        }
    }
}

impl Unit {
    /// Waits for a device to be identified; all are at it at the same time, so the waits do not add up.
    fn new(worker: Worker, end: Instant, deadline: Duration) -> Self {
        let mut told = Told::default();
        let index = worker.index;
        let silent =
            || Err(format!("cannot identify GPU {index}: no answer in {} s", deadline.as_secs_f64()));
        let device = if worker.wait_until(end) {
            worker.listen(&mut told);
            told.identified.take().unwrap_or_else(silent)
        } else {
            silent()
        };
        Self { worker, device, is_asked: false, unsupported: Vec::new(), throttle_mask: None, told }
    }

    /// Takes what was told between the ticks: values of then are of another time, what was learnt is
    /// not. Whether the device is another one now.
    fn drain(&mut self, failures: &mut Vec<GpuFailure>) -> bool {
        self.worker.listen(&mut self.told);
        self.told.values.clear();
        self.learn(failures)
    }

    fn learn(&mut self, failures: &mut Vec<GpuFailure>) -> bool {
        failures.append(&mut self.told.failures);
        for metric in self.told.unsupported.drain(..) {
            if self.unsupported.iter().all(|known| known.name != metric.name) {
                self.unsupported.push(metric);
            }
        }
        self.told.is_lost = false;
        match self.told.identified.take() {
            Some(Ok(device)) => {
                self.unsupported.clear();
                self.device = Ok(device);
                true
            }
            // Only the first word on a device that has no name counts: it is said once.
            Some(Err(_)) | None => false,
        }
    }

    /// Waits for what the device answers in this tick and passes it on.
    fn collect(
        &mut self,
        deadline: Duration,
        failures: &mut Vec<GpuFailure>,
        sink: &mut GpuSink<'_>,
    ) -> Outcome {
        let waited = self.worker.wait(deadline);
        self.worker.listen(&mut self.told);
        for value in self.told.values.drain(..) {
            sink(self.worker.index, &value);
        }
        self.throttle_mask = self.told.throttle_mask.take();
        let is_lost = self.told.is_lost;
        let has_changed = self.learn(failures);
        if let Waited::TooLong(call) = waited {
            let gpu = self.worker.index;
            let cause = format!(
                "cannot read `{}` of GPU {gpu}: no answer in {} s; it is left alone until there is one",
                call.name,
                deadline.as_secs_f64()
            );
            failures.push(GpuFailure {
                gpu,
                metric: call.metric,
                reason: "no_answer",
                cause,
                dropped: false,
            });
        }
        Outcome { has_changed, is_lost }
    }
}

fn start(named: Option<PathBuf>) -> Result<(Library, Option<String>, u32), GpuAbsence> {
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
        if let Some(library) = endless(place) {
            let cause =
                "it is no file: the loader would wait for it, and keep the whole process waiting".to_owned();
            return Err(GpuAbsence::NotLoadable { library, cause });
        }
        match Library::load(&OsString::from(place)) {
            Ok(library) => return Ok((library, place.clone())),
            // The loader has no codes, only words; a library that this one needs may be missing too.
            Err(cause) if cause.contains("No such file") && cause.contains(&*place.to_string_lossy()) => {}
            Err(cause) => return Err(GpuAbsence::NotLoadable { library: place.clone(), cause }),
        }
    }
    Err(GpuAbsence::NoLibrary { tried })
}
