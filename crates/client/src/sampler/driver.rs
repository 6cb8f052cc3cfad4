//! The GPUs' driver: asked to start on a thread of its own, so that no tick waits for a sick one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use collect::gpu::{GpuAbsence, GpuOptions, GpuSampler};
use model::DriverState;

use super::signal::{DriverAnswer, Signal};
use crate::ownership::GpuEnvironment;
use crate::shared::Shared;

/// Pauses before a driver that would not start is asked again: the first, and the longest. Each try
/// at one that never answers leaves a thread behind, so they become rare.
const PAUSES: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(1));

/// What is known of the driver.
pub(super) struct Driver {
    state: State,
    options: GpuOptions,
    pause: Duration,
    /// A driver is expected: its absence is worth a warning.
    is_expected: bool,
    /// Which devices were taken up: the sampler's generation, and whether the driver was there.
    seen: Option<(u64, bool)>,
}

enum State {
    /// It was asked to start and has not answered; why it would not the time before.
    Asked {
        before: Option<GpuAbsence>,
    },
    Open(Box<GpuSampler>),
    Absent {
        absence: GpuAbsence,
        again_at: Option<Instant>,
    },
}

impl Driver {
    /// Asks the driver to start.
    pub(super) fn ask(library: Option<PathBuf>, is_expected: bool, signal: &Arc<Signal>) -> Self {
        let options = GpuOptions { library, ..GpuOptions::default() };
        let state = State::Asked { before: None };
        let mut driver = Self { state, options, pause: PAUSES.0, is_expected, seen: None };
        driver.spawn(signal);
        driver
    }

    /// With an answer that is here already.
    pub(super) fn answered(answer: DriverAnswer) -> Self {
        let options = GpuOptions::default();
        let state = State::Asked { before: None };
        let mut driver = Self { state, options, pause: PAUSES.0, is_expected: false, seen: None };
        driver.settle(answer);
        driver
    }

    fn spawn(&mut self, signal: &Arc<Signal>) {
        let (options, theirs) = (self.options.clone(), Arc::clone(signal));
        let started = std::thread::Builder::new()
            .name("truegauge-gpu".into())
            .stack_size(256 * 1024)
            .spawn(move || theirs.put_driver(GpuSampler::open(&options)));
        let before = std::mem::replace(&mut self.state, State::Asked { before: None });
        if let State::Absent { absence, .. } = before {
            self.state = State::Asked { before: Some(absence) };
        }
        if let Err(error) = started {
            self.settle(Err(GpuAbsence::NoThread { cause: error.to_string() }));
        }
    }

    fn settle(&mut self, answer: DriverAnswer) {
        self.state = match answer {
            Ok(sampler) => State::Open(Box::new(sampler)),
            Err(absence) => {
                let is_final = matches!(absence, GpuAbsence::NoLibrary { .. });
                let again_at = (!is_final).then(|| Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(PAUSES.1);
                State::Absent { absence, again_at }
            }
        };
    }

    /// Takes the answer when it is there, and asks again when it is time. Whether the devices are to be
    /// looked at anew: the driver has answered, was restarted, or is gone.
    pub(super) fn advance(&mut self, shared: &Shared, signal: &Arc<Signal>) -> bool {
        if let Some(answer) = signal.take_driver() {
            self.settle(answer);
            self.warn(shared);
        }
        if let State::Absent { again_at: Some(at), .. } = &self.state
            && Instant::now() >= *at
        {
            self.spawn(signal);
        }
        let now = self.sampler().map(|sampler| (sampler.generation(), sampler.absence().is_some()));
        std::mem::replace(&mut self.seen, now) != now
    }

    /// Says once a process that GPUs are missing, where there should be some.
    fn warn(&self, shared: &Shared) {
        static SAID: AtomicBool = AtomicBool::new(false);
        let State::Absent { absence, .. } = &self.state else { return };
        if self.is_expected && !SAID.swap(true, Ordering::Relaxed) {
            let message = format!("the run has no series of its GPUs: {absence}; {}", absence.hint());
            shared.warn("gpu_driver", message);
        }
    }

    pub(super) fn sampler(&self) -> Option<&GpuSampler> {
        if let State::Open(sampler) = &self.state { Some(sampler) } else { None }
    }

    pub(super) fn sampler_mut(&mut self) -> Option<&mut GpuSampler> {
        if let State::Open(sampler) = &mut self.state { Some(sampler) } else { None }
    }

    /// As the report says it.
    pub(super) fn report(&self) -> DriverState {
        match &self.state {
            State::Asked { before } => before.as_ref().map_or(DriverState::Unknown, absent),
            State::Open(sampler) => sampler.absence().map_or_else(
                || DriverState::Loaded(sampler.driver_version().unwrap_or_default().to_owned()),
                absent,
            ),
            State::Absent { absence, .. } => absent(absence),
        }
    }
}

fn absent(absence: &GpuAbsence) -> DriverState {
    DriverState::Absent {
        reason: absence.reason().to_owned(),
        text: absence.to_string(),
        hint: absence.hint().to_owned(),
    }
}

/// Whether this process should have GPUs: the kernel's device files are there, or the environment
/// names some. On a machine without either, a driver that is missing is no news.
pub(super) fn gpus_are_expected(environment: &GpuEnvironment) -> bool {
    let names_some = |value: &Option<String>| {
        let value = value.as_deref().unwrap_or_default().trim();
        !matches!(value, "" | "none" | "void" | "NoDevFiles") && !value.starts_with('-')
    };
    ["/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"].iter().any(|path| std::path::Path::new(path).exists())
        || names_some(&environment.nvidia_visible_devices)
        || names_some(&environment.cuda_visible_devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_expected_where_the_environment_names_some() {
        let check = |cuda: Option<&str>, nvidia: Option<&str>, want: bool| {
            let environment = GpuEnvironment {
                cuda_visible_devices: cuda.map(Into::into),
                nvidia_visible_devices: nvidia.map(Into::into),
                ..GpuEnvironment::default()
            };
            let has_files = std::path::Path::new("/dev/nvidiactl").exists();
            assert_eq!(gpus_are_expected(&environment), want || has_files, "{cuda:?} {nvidia:?}");
        };
        check(None, None, false);
        check(Some(""), Some("void"), false);
        check(Some("-1"), Some("none"), false);
        check(Some("NoDevFiles"), None, false);
        check(Some("0"), None, true);
        check(None, Some("all"), true);
    }
}
