//! The state of one loaded library: its scenario, and how often it was asked what.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs::File,
    io::Write,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    CALLS, Event, Gpu, SCENARIO, Scenario,
    abi::own_folder,
    scenario::{Answer, code},
};

/// Between two looks at whether a blocked call may go on.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How long a steady scenario is believed.
const STEADY: Duration = Duration::from_millis(100);
/// The device of a call that concerns none, in the log.
const NO_DEVICE: usize = usize::MAX;

static STAGE: OnceLock<Mutex<Stage>> = OnceLock::new();

struct Stage {
    folder: PathBuf,
    /// What tells one file of the scenario from the next: inode, change in nanoseconds, size.
    file: Option<(u64, i64, i64, u64)>,
    looked: Option<Instant>,
    scenario: Arc<Scenario>,
    log: Option<File>,
    /// How often the library was started and not shut down.
    starts: usize,
    /// The driver that was there at the first of them.
    load: u64,
    since: Instant,
    turns: HashMap<(usize, String), usize>,
    sets: HashMap<usize, EventSet>,
}

/// Who waits for events: which ones of which devices, and how many of all were passed.
#[derive(Default)]
struct EventSet {
    kinds: HashMap<usize, u64>,
    passed: usize,
}

fn stage() -> MutexGuard<'static, Stage> {
    let stage = STAGE.get_or_init(|| {
        Mutex::new(Stage {
            folder: own_folder(),
            file: None,
            looked: None,
            scenario: Arc::default(),
            log: None,
            starts: 0,
            load: 0,
            since: Instant::now(),
            turns: HashMap::new(),
            sets: HashMap::new(),
        })
    });
    let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
    stage.look();
    stage
}

impl Stage {
    /// Takes up the scenario as it lies there now; one that cannot be read leaves the last one.
    fn look(&mut self) {
        if self.scenario.steady && self.looked.is_some_and(|looked| looked.elapsed() < STEADY) {
            return;
        }
        self.looked = Some(Instant::now());
        let path = self.folder.join(SCENARIO);
        let Ok(file) = std::fs::metadata(&path) else { return };
        let file = Some((file.ino(), file.mtime(), file.mtime_nsec(), file.size()));
        if file == self.file {
            return;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { return };
        if let Ok(scenario) = toml::from_str(&text) {
            self.scenario = Arc::new(scenario);
            self.file = file;
        }
    }

    fn log(&mut self, function: &str, gpu: usize) {
        if self.scenario.steady {
            return;
        }
        let path = self.folder.join(CALLS);
        if self.log.is_none() {
            self.log = std::fs::OpenOptions::new().create(true).append(true).open(path).ok();
        }
        let line = if gpu == NO_DEVICE { format!("{function}\n") } else { format!("{function} {gpu}\n") };
        // A log that cannot be written is noticed by the test that counts its lines.
        let _ = self.log.as_mut().map(|log| log.write_all(line.as_bytes()));
    }

    fn answer(&mut self, gpu: usize, key: &str, answer: &Answer) -> Result<i64, i32> {
        let mut now = 0;
        if matches!(answer, Answer::InTurn(_)) {
            let turn = self.turns.entry((gpu, key.to_owned())).or_default();
            now = *turn;
            *turn += 1;
        }
        answer.at(now, self.since.elapsed().as_secs_f64())
    }

    fn error(&mut self, gpu: usize, function: &str, answer: Option<&Answer>) -> Result<(), i32> {
        answer.map_or(Ok(()), |answer| self.answer(gpu, function, answer).map(|_| ()))
    }
}

/// A device that was asked something, and is there.
pub(crate) struct Asked {
    pub(crate) index: usize,
    /// The MIG instance that is meant, by its place.
    instance: Option<usize>,
    scenario: Arc<Scenario>,
}

impl Asked {
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.scenario.gpu[self.index]
    }

    /// The same about a MIG instance of it.
    pub(crate) fn part(self, instance: Option<usize>) -> Self {
        Self { instance, ..self }
    }

    /// The answers of the device, or of the instance that is meant.
    pub(crate) fn values(&self) -> &BTreeMap<String, Answer> {
        match self.instance.and_then(|at| self.gpu().instances.get(at)) {
            Some(instance) => &instance.values,
            None => &self.gpu().values,
        }
    }

    /// The value of this name; NOT_SUPPORTED when the scenario has none.
    pub(crate) fn value(&self, key: &str) -> Result<i64, i32> {
        self.value_of(key, self.values().get(key).ok_or_else(|| code("not_supported"))?)
    }

    pub(crate) fn value_of(&self, key: &str, answer: &Answer) -> Result<i64, i32> {
        match answer {
            Answer::Number(number) => Ok(*number),
            answer => stage().answer(self.index, key, answer),
        }
    }
}

/// Since the library was started.
pub(crate) fn seconds() -> f64 {
    stage().since.elapsed().as_secs_f64()
}

/// A call that concerns no device.
pub(crate) fn system(function: &str) -> Result<Arc<Scenario>, i32> {
    stage().log(function, NO_DEVICE);
    while stage().scenario.blocked.iter().any(|blocked| blocked == function) {
        std::thread::sleep(LOOK_AGAIN);
    }
    let mut stage = stage();
    let scenario = stage.scenario.clone();
    stage.error(NO_DEVICE, function, scenario.errors.get(function))?;
    if function.starts_with("nvmlInit") {
        if stage.starts == 0 {
            stage.load = scenario.load;
            stage.since = Instant::now();
        }
        stage.starts += 1;
    }
    if stage.starts == 0 {
        return Err(code("uninitialized"));
    }
    if function == "nvmlShutdown" {
        stage.starts -= 1;
    }
    Ok(scenario)
}

thread_local! {
    /// A steady scenario, and until when this thread asks nobody about it.
    static STEADY_HERE: RefCell<Option<(Instant, Arc<Scenario>)>> = const { RefCell::new(None) };
}

/// The device of a steady scenario, for which no lock is taken: only so does it cost next to nothing.
fn steady(function: &str, index: usize) -> Option<Asked> {
    let known = STEADY_HERE.with_borrow(|here| {
        let (until, scenario) = here.as_ref()?;
        (Instant::now() < *until).then(|| scenario.clone())
    });
    let scenario = known?;
    let gpu = scenario.gpu.get(index)?;
    let is_plain = !gpu.gone && gpu.blocked.is_empty() && !gpu.errors.contains_key(function);
    is_plain.then_some(Asked { index, instance: None, scenario })
}

/// A call to the device of this index.
pub(crate) fn device(function: &str, index: usize) -> Result<Asked, i32> {
    if let Some(asked) = steady(function, index) {
        return Ok(asked);
    }
    let mut held = stage();
    held.log(function, index);
    let blocked = |stage: &Stage| {
        let gpu = stage.scenario.gpu.get(index);
        gpu.is_some_and(|gpu| gpu.blocked.iter().any(|blocked| blocked == function))
    };
    while blocked(&held) {
        drop(held);
        std::thread::sleep(LOOK_AGAIN);
        held = stage();
    }
    if held.starts == 0 {
        return Err(code("uninitialized"));
    }
    let scenario = held.scenario.clone();
    if held.load != scenario.load {
        return Err(code("gpu_is_lost"));
    }
    let gpu = scenario.gpu.get(index).ok_or_else(|| code("invalid_argument"))?;
    if gpu.gone {
        return Err(code("gpu_is_lost"));
    }
    held.error(index, function, gpu.errors.get(function))?;
    drop(held);
    if scenario.steady {
        STEADY_HERE.set(Some((Instant::now() + STEADY, scenario.clone())));
    }
    Ok(Asked { index, instance: None, scenario })
}

/// Makes a set of events; it is told what is added from now on.
pub(crate) fn make_set() -> usize {
    let mut stage = stage();
    let passed = stage.scenario.event.len();
    let number = stage.sets.keys().max().map_or(1, |last| last + 1);
    stage.sets.insert(number, EventSet { passed, ..EventSet::default() });
    number
}

/// Adds events of a device to a set.
pub(crate) fn add_to_set(number: usize, gpu: usize, kinds: u64) -> Result<(), i32> {
    let mut stage = stage();
    let set = stage.sets.get_mut(&number).ok_or_else(|| code("invalid_argument"))?;
    *set.kinds.entry(gpu).or_default() |= kinds;
    Ok(())
}

/// Forgets a set.
pub(crate) fn free_set(number: usize) -> Result<(), i32> {
    stage().sets.remove(&number).map(|_| ()).ok_or_else(|| code("invalid_argument"))
}

/// The next event of a set, waited for as long as this.
pub(crate) fn next_of_set(number: usize, wait: Duration) -> Result<Event, i32> {
    let end = Instant::now() + wait;
    loop {
        let mut stage = stage();
        if stage.starts == 0 {
            return Err(code("uninitialized"));
        }
        let scenario = stage.scenario.clone();
        let set = stage.sets.get_mut(&number).ok_or_else(|| code("invalid_argument"))?;
        while let Some(event) = scenario.event.get(set.passed) {
            set.passed += 1;
            if set.kinds.get(&event.gpu).is_some_and(|kinds| kinds & event.kind != 0) {
                return Ok(event.clone());
            }
        }
        drop(stage);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(code("timeout"));
        }
        // A real driver sleeps until there is something to tell.
        std::thread::sleep(left.min(if scenario.steady { STEADY } else { LOOK_AGAIN }));
    }
}
