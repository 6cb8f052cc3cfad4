//! The sampler thread: the machine's own series, every interval, from one Rust thread.
//!
//! A tick settles first what this process reports ([`roles`]), then reads the GPUs it owns, the node
//! if it speaks for it, and itself ([`ticker`]). Nothing here raises, and nothing waits for the network.

mod driver;
mod report;
mod roles;
mod series;
mod signal;
mod ticker;
mod troubles;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use collect::gpu::{GpuOptions, GpuSampler};
use model::{Arbitration, CaptureFailure, CaptureReport, CaptureState};

use self::driver::{Driver, gpus_are_expected};
use self::roles::Roles;
use self::signal::Signal;
use self::ticker::Ticker;
use crate::claims::{Claims, Me};
use crate::config::{Config, sampling_interval};
use crate::ownership::GpuEnvironment;
use crate::shared::Shared;

/// Ticks in a row that may fail before the sampler ends.
const FAILED_TICKS_MAX: u32 = 5;
/// Longest wait for the sampler at the run's end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first tick waits for the driver. One that is well answers within it, so that short
/// runs have their GPUs; a sick one joins at a later tick.
const DRIVER_WAIT: Duration = Duration::from_secs(1);
/// The same in a run that ends at once.
const DRIVER_WAIT_LEAST: Duration = Duration::from_millis(100);
/// Stack of the sampler's thread.
const STACK_BYTES: usize = 512 * 1024;
/// How long a preview waits for a driver to start.
const PREVIEW_WAIT: Duration = Duration::from_secs(10);

/// The running sampler.
#[derive(Debug)]
pub(crate) struct Sampler(Arc<Signal>);

impl Sampler {
    /// Starts the thread, unless capture is off. A forked child only ever samples itself.
    pub(crate) fn start(shared: &Arc<Shared>, is_child: bool) -> Option<Self> {
        let tell = |state: CaptureState| {
            if !is_child {
                shared.report_capture(report::blank(&shared.config, &shared.facts.host, state));
            }
        };
        if !shared.config.capture_system_metrics {
            tell(CaptureState::Off);
            return None;
        }
        let signal = Arc::new(Signal::new());
        let (theirs, run) = (Arc::clone(&signal), Arc::clone(shared));
        let started = std::thread::Builder::new()
            .name("truegauge-system".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // A panic in here is a bug, and still none of the training loop's business.
                let driver = catch_unwind(AssertUnwindSafe(|| run_until_stopped(&run, &theirs, is_child)));
                // Nobody waits for a driver that takes its time to end.
                theirs.ended();
                drop(driver);
            });
        match started {
            Ok(_) => Some(Self(signal)),
            Err(error) => {
                let cause = format!("could not start the thread for system metrics: {error}");
                tell(CaptureState::NotStarted(cause.clone()));
                shared.warn("capture_failed", cause);
                None
            }
        }
    }

    /// Ends it and waits for its last tick, if that does not hang.
    pub(crate) fn stop(self) {
        self.0.stop(STOP_TIMEOUT);
    }
}

/// Time between two samples.
fn interval(config: &Config) -> Duration {
    sampling_interval(config.system_metrics_interval.as_secs_f64()).unwrap_or(crate::SYSTEM_METRICS_INTERVAL)
}

/// What the environment says of GPUs; the local rank may have been set by hand.
fn environment(config: &Config) -> GpuEnvironment {
    let mut environment = config.gpu_environment.clone();
    environment.local_rank =
        environment.local_rank.or_else(|| Some((config.launch.local_rank?, "the launcher")));
    environment
}

fn claims(config: &Config, path: &model::RunPath, host: &str) -> Claims {
    let me = Me {
        host: host.to_owned(),
        rank: config.launch.rank,
        local_rank: config.launch.local_rank,
        job_token: config.launch.job_token.clone(),
    };
    match &config.machine {
        Some(machine) => Claims::open_in(&[(Arbitration::Tmp, machine.locks.clone())], path, &me),
        None => Claims::open(path, &me, &config.temporary_folder),
    }
}

fn run_until_stopped(shared: &Shared, signal: &Arc<Signal>, is_child: bool) -> Option<Driver> {
    let standing = (!is_child).then(|| {
        let environment = environment(&shared.config);
        let is_expected = gpus_are_expected(&environment);
        let driver = Driver::ask(shared.config.gpu_library.clone(), is_expected, signal);
        (Roles::new(claims(&shared.config, &shared.path, &shared.facts.host), environment), driver)
    });
    if standing.is_some() {
        signal.wait_for_driver(DRIVER_WAIT_LEAST, DRIVER_WAIT);
    }
    let mut ticker = Ticker::new(shared, signal, standing);
    let interval = interval(&shared.config);
    let began = Cell::new(Instant::now());
    let failed = tick_until(
        || {
            began.set(Instant::now());
            catch_unwind(AssertUnwindSafe(|| ticker.tick())).unwrap_or_else(|_panic| {
                shared.warn("capture_failed", "a sample of the system failed: its series have a gap".into());
                Err("the sample broke off: this is a bug".into())
            })
        },
        // From the beginning of the sample on: it takes nothing from the interval, which is never shorter.
        || signal.wait_until(began.get() + interval),
    );
    if let Some((count, cause)) = &failed {
        let message = format!("{count} samples of the system failed in a row ({cause}): there won't be more");
        shared.warn("capture_ended", message);
    }
    ticker.end(failed)
}

/// Ticks until `go_on` says no, or until too many ticks in a row have failed: how many, and of what.
fn tick_until(
    mut tick: impl FnMut() -> Result<(), String>,
    mut go_on: impl FnMut() -> bool,
) -> Option<(u32, String)> {
    let mut failed = 0;
    loop {
        match tick() {
            Ok(()) => failed = 0,
            Err(cause) => {
                failed += 1;
                if failed >= FAILED_TICKS_MAX {
                    return Some((failed, cause));
                }
            }
        }
        if !go_on() {
            return None;
        }
    }
}

/// What a run with these settings would capture in this process, found out without starting one: locks
/// are asked for and given back. Takes as long as the driver takes to start, ten seconds at most.
pub fn preview(config: &Config) -> CaptureReport {
    let host = config.host();
    let state = if config.capture_system_metrics { CaptureState::Sampling } else { CaptureState::Off };
    let mut made = report::blank(config, &host, state);
    let options = GpuOptions {
        library: config.gpu_library.clone(),
        start_deadline: PREVIEW_WAIT,
        ..GpuOptions::default()
    };
    let mut driver = Driver::answered(GpuSampler::open(&options));
    let mut path = config.path.clone();
    if path.run.is_empty() {
        path.run = if config.launch.run_name.is_empty() { "preview" } else { &config.launch.run_name }.into();
    }
    let mut roles = Roles::new(claims(config, &path, &host), environment(config));
    if let Some(sampler) = driver.sampler() {
        roles.set_devices(sampler);
    }
    roles.advance(false);
    made.failures = read_once(&mut roles, &mut driver);
    report::describe(&mut made, &roles, &driver);
    made.limits = Some(report::limits(&report::read_limits()));
    roles.release();
    made
}

/// Reads the devices once, so that it is known what they do not have; what could not be read.
fn read_once(roles: &mut Roles, driver: &mut Driver) -> Vec<CaptureFailure> {
    let mut gpus = Vec::new();
    roles.sampled(&mut gpus);
    let Some(sampler) = driver.sampler_mut() else { return Vec::new() };
    sampler.sample(&gpus, &mut |_, _| {});
    let failures = sampler.take_failures().into_iter();
    let told = failures.map(|failure| CaptureFailure {
        metric: failure.metric.name.to_owned(),
        gpu: Some(failure.gpu),
        reason: failure.reason.to_owned(),
        cause: failure.cause,
        backing_off: failure.dropped,
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifth_failure_in_a_row_ends_it() {
        let run = |outcomes: &[bool]| {
            let mut ticks = outcomes.iter();
            let mut left = outcomes.len();
            let failed = tick_until(
                || if *ticks.next().unwrap() { Ok(()) } else { Err("x".into()) },
                || {
                    left -= 1;
                    left > 0
                },
            );
            (failed.map(|(count, _)| count), ticks.count())
        };
        assert_eq!(run(&[false, false, false, false, false, true]), (Some(5), 1));
        assert_eq!(run(&[false, false, false, false, true, false, false, false, false]), (None, 0));
    }
}
