//! The state of one loaded library: its scenario, and how often it was asked what.

use std::{
    collections::HashMap,
    io::Write,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    CALLS, Gpu, SCENARIO, Scenario,
    abi::own_folder,
    scenario::{Answer, code},
};

/// Between two looks at whether a blocked call may go on.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// The device of a call that concerns none, in the log.
const NO_DEVICE: usize = usize::MAX;

static STAGE: OnceLock<Mutex<Stage>> = OnceLock::new();

struct Stage {
    folder: PathBuf,
    text: String,
    scenario: Arc<Scenario>,
    /// When the library was initialised; `None` before that and after a shutdown.
    since: Option<Instant>,
    turns: HashMap<(usize, String), usize>,
}

fn stage() -> MutexGuard<'static, Stage> {
    let stage = STAGE.get_or_init(|| {
        Mutex::new(Stage {
            folder: own_folder(),
            text: String::new(),
            scenario: Arc::default(),
            since: None,
            turns: HashMap::new(),
        })
    });
    let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
    stage.look();
    stage
}

impl Stage {
    /// Takes up the scenario as it lies there now; one that cannot be read leaves the last one.
    fn look(&mut self) {
        let Ok(text) = std::fs::read_to_string(self.folder.join(SCENARIO)) else { return };
        if text == self.text {
            return;
        }
        if let Ok(scenario) = toml::from_str(&text) {
            self.scenario = Arc::new(scenario);
            self.text = text;
        }
    }

    fn log(&self, function: &str, gpu: usize) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.join(CALLS));
        let line = if gpu == NO_DEVICE { format!("{function}\n") } else { format!("{function} {gpu}\n") };
        // A log that cannot be written is noticed by the test that counts its lines.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }

    fn answer(&mut self, gpu: usize, key: &str, answer: &Answer) -> Result<i64, i32> {
        let turn = self.turns.entry((gpu, key.to_owned())).or_default();
        let now = *turn;
        *turn += 1;
        let seconds = self.since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        answer.at(now, seconds)
    }

    fn error(&mut self, gpu: usize, function: &str, answer: Option<Answer>) -> Result<(), i32> {
        answer.map_or(Ok(()), |answer| self.answer(gpu, function, &answer).map(|_| ()))
    }
}

/// A device that was asked something, and is there.
pub(crate) struct Asked {
    index: usize,
    pub(crate) gpu: Gpu,
}

impl Asked {
    /// The value of this name; NOT_SUPPORTED when the scenario has none.
    pub(crate) fn value(&self, key: &str) -> Result<i64, i32> {
        let answer = self.gpu.values.get(key).ok_or_else(|| code("not_supported"))?;
        stage().answer(self.index, key, answer)
    }
}

/// A call that concerns no device.
pub(crate) fn system(function: &str) -> Result<Arc<Scenario>, i32> {
    stage().log(function, NO_DEVICE);
    while stage().scenario.blocked.iter().any(|blocked| blocked == function) {
        std::thread::sleep(LOOK_AGAIN);
    }
    let mut stage = stage();
    let error = stage.scenario.errors.get(function).cloned();
    stage.error(NO_DEVICE, function, error)?;
    if function.starts_with("nvmlInit") {
        stage.since = Some(Instant::now());
    }
    if stage.since.is_none() {
        return Err(code("uninitialized"));
    }
    if function == "nvmlShutdown" {
        stage.since = None;
    }
    Ok(stage.scenario.clone())
}

/// A call to the device of this index.
pub(crate) fn device(function: &str, index: usize) -> Result<Asked, i32> {
    stage().log(function, index);
    let blocked = |stage: &Stage| {
        let gpu = stage.scenario.gpu.get(index);
        gpu.is_some_and(|gpu| gpu.blocked.iter().any(|blocked| blocked == function))
    };
    while blocked(&stage()) {
        std::thread::sleep(LOOK_AGAIN);
    }
    let mut stage = stage();
    if stage.since.is_none() {
        return Err(code("uninitialized"));
    }
    let gpu = stage.scenario.gpu.get(index).cloned().ok_or_else(|| code("invalid_argument"))?;
    if gpu.gone {
        return Err(code("gpu_is_lost"));
    }
    stage.error(index, function, gpu.errors.get(function).cloned())?;
    Ok(Asked { index, gpu })
}
