//! The ranks of a job, as processes that log their steps the way a training does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Config, Machine, Run, SeriesHandle};
use model::{AttributeValue, RunPath};
use simulate::{Job, Step};

use super::Play;
use super::telemetry::Telemetry;
use crate::output::Failure;

/// How far ahead a step may end for a rank to wait for it; none ends later unless the job is held up.
const HORIZON_SECONDS: f64 = 600.0;
/// Time between two samples of a rank's machine: short, since a scenario is.
const SAMPLED_EVERY: Duration = Duration::from_secs(5);
/// How long a rank rests when its job is held up.
const REST: Duration = Duration::from_millis(200);

/// The series of one rank.
struct Series {
    step: SeriesHandle,
    wait: SeriesHandle,
    data: SeriesHandle,
    tokens: SeriesHandle,
}

impl Series {
    fn of(run: &Run, labels: &[(&str, &str)]) -> Result<Self, Failure> {
        let series = |name: &str| {
            run.series(name, labels, "")
                .map_err(|error| Failure::new(format!("cannot log `{name}`: {error}")))
        };
        Ok(Self {
            step: series("train_step_seconds")?,
            wait: series("train_step_wait_seconds")?,
            data: series("train_step_data_seconds")?,
            tokens: series("train_step_tokens")?,
        })
    }

    fn points(&self, step: &Step, rank: usize, tokens: f64) -> [(SeriesHandle, f64); 4] {
        [
            (self.step, step.length),
            (self.wait, step.wait(rank)),
            (self.data, step.data.get(rank).copied().unwrap_or_default()),
            (self.tokens, tokens),
        ]
    }
}

/// Plays one rank, whose place in the job the environment says, until the process ends.
pub(super) fn one(play: &Play, index: usize, rank: usize, dir: &Path) -> Result<(), Failure> {
    let job = open(play, index)?;
    let host = job.ranks().get(rank).map(|(host, _)| host.clone()).unwrap_or_default();
    let config = Config {
        machine: Some(Machine { locks: locks_folder(&dir.join(&host)), host }),
        gpu_library: play.driver.clone(),
        capture_grace: SAMPLED_EVERY,
        system_metrics_interval: SAMPLED_EVERY,
        ..Config::from_env()
    };
    let run = start(play, &job, config)?;
    if rank == 0 {
        leave_run(&run, dir, index)?;
        if play.driver.is_none() {
            tell_device(play, &run, &job);
        }
    }
    if job.group().stages > 1 {
        place(&run, rank, "pp", AttributeValue::Int(job.stage(rank) as i64));
    }
    let tokens = job.group().tokens / job.ranks().len().max(1) as f64;
    let series = Series::of(&run, &[])?;
    let loss = if rank == 0 { Some(loss(&run)?) } else { None };
    let telemetry = Telemetry::of(play, &job, rank, &run)?;
    let begins = |step: &Step| {
        if let Some(telemetry) = &telemetry {
            telemetry.begin(step);
        }
    };
    steps(play, job, begins, |step| {
        let mut points = series.points(step, rank, tokens).to_vec();
        points.extend(loss.map(|loss| (loss, loss_at(step.number))));
        let ended = play.wall_ns(step.end());
        run.log_all(&points, Some(step.number as i64), Some(ended));
        if let Some(telemetry) = &telemetry {
            telemetry.record(step, loss_at(step.number), ended);
        }
    })
}

/// The file in which the first process of a job leaves the id of its run.
pub(super) fn run_file(dir: &Path, job: usize) -> PathBuf {
    dir.join(format!("run-{job}"))
}

/// The folder of the locks by which the ranks on a node share its cards, in the folder of the node: another
/// play has nodes and cards of the same names, and is another cluster.
pub(super) fn locks_folder(node: &Path) -> PathBuf {
    node.join("locks")
}

fn leave_run(run: &Run, dir: &Path, job: usize) -> Result<(), Failure> {
    let file = run_file(dir, job);
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, run.run_id().to_string())
        .and_then(|()| std::fs::rename(&fresh, &file))
        .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", file.display())))
}

/// Plays all ranks of a job in one process, until it ends.
pub(super) fn all(play: &Play, index: usize, dir: &Path) -> Result<(), Failure> {
    let job = open(play, index)?;
    let config = Config { capture_system_metrics: false, ..Config::from_env() };
    let run = start(play, &job, config)?;
    leave_run(&run, dir, index)?;
    tell_device(play, &run, &job);
    tell_places(&run, &job);
    let tokens = job.group().tokens / job.ranks().len().max(1) as f64;
    let series = (0..job.ranks().len())
        .map(|rank| Series::of(&run, &[("rank", &rank.to_string())]))
        .collect::<Result<Vec<_>, _>>()?;
    let loss = loss(&run)?;
    steps(
        play,
        job,
        |_| {},
        |step| {
            let ranks = series.iter().enumerate();
            let mut points: Vec<_> =
                ranks.flat_map(|(rank, series)| series.points(step, rank, tokens)).collect();
            points.push((loss, loss_at(step.number)));
            run.log_all(&points, Some(step.number as i64), Some(play.wall_ns(step.end())));
        },
    )
}

/// Says what the ranks run on, as a trainer does that samples no card itself.
fn tell_device(play: &Play, run: &Run, job: &Job) {
    let profile = job.ranks().first().and_then(|(host, _)| play.scenario.profile(host));
    if let Some(profile) = profile {
        run.set_attribute("otel/gpu_model", AttributeValue::Text(profile.name.to_owned()));
    }
}

/// Says where each rank is, since no process of it does.
fn tell_places(run: &Run, job: &Job) {
    for (rank, (host, gpu)) in job.ranks().iter().enumerate() {
        place(run, rank, "host", AttributeValue::Text(host.clone()));
        place(run, rank, "gpu", AttributeValue::Int(i64::from(*gpu)));
        if job.group().stages > 1 {
            place(run, rank, "pp", AttributeValue::Int(job.stage(rank) as i64));
        }
    }
}

fn place(run: &Run, rank: usize, what: &str, value: AttributeValue) {
    run.set_attribute(&format!("parallel/{rank}/{what}"), value);
}

fn loss(run: &Run) -> Result<SeriesHandle, Failure> {
    run.series("loss", &[], "").map_err(|error| Failure::new(format!("cannot log `loss`: {error}")))
}

fn loss_at(step: u64) -> f64 {
    1.8 + 6.0 / (1.0 + step as f64 / 40.0)
}

fn open(play: &Play, job: usize) -> Result<Job, Failure> {
    Job::new(play.scenario.clone(), job).map_err(|error| Failure::new(error.to_string()))
}

fn start(play: &Play, job: &Job, config: Config) -> Result<Run, Failure> {
    let group = job.group();
    let path = RunPath {
        organization: group.organization.clone(),
        workspace: group.workspace.clone(),
        project: group.project.clone(),
        run: group.name.clone(),
    };
    let url = play.server.clone().or(config.url.clone());
    let run = Run::start(Config { path, url, ..config })
        .map_err(|error| Failure::new(format!("cannot start the run `{}`: {error}", group.name)))?;
    if let Some(parameters) = group.parameters {
        run.set_attribute("model/parameters", AttributeValue::Float(parameters));
        run.set_attribute("model/dtype", AttributeValue::Text(group.dtype.clone()));
    }
    Ok(run)
}

/// Hands every step over when it begins and when it is done.
fn steps(
    play: &Play,
    mut job: Job,
    begins: impl Fn(&Step),
    mut done: impl FnMut(&Step),
) -> Result<(), Failure> {
    loop {
        let Some(step) = job.next_until(play.now() + HORIZON_SECONDS) else {
            std::thread::sleep(REST);
            continue;
        };
        std::thread::sleep(play.until(step.start));
        begins(&step);
        std::thread::sleep(play.until(step.end()));
        done(&step);
    }
}
