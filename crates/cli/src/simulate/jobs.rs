//! Starts the ranks of all jobs, each a process of its own as long as they are few.

use std::path::Path;
use std::time::{Duration, Instant};

use simulate::Job;

use super::Play;
use super::nodes::Nodes;
use super::parts::Part;
use super::ranks::run_file;
use super::stage::{Wanted, job_id};
use crate::output::Failure;

/// Most ranks of a job that are a process each.
const RANK_PROCESSES_MAX: usize = 64;
/// How long a run may take to be known.
const RUN_TIME_MAX: Duration = Duration::from_secs(30);

/// Processes that play ranks, and how many ranks they are.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    pub(super) parts: Vec<Part>,
    pub(super) count: usize,
}

/// Starts them all and shows them on the cards of their nodes.
pub(super) fn start(play: &Play, wanted: &Wanted, nodes: &mut Nodes) -> Result<Ranks, Failure> {
    let mut ranks = Ranks::default();
    let spool = ("TRUEGAUGE_SPOOL_DIR", wanted.dir.join("spool").display().to_string());
    for index in 0..play.scenario.jobs.len() {
        let job = Job::new(play.scenario.clone(), index).map_err(|error| Failure::new(error.to_string()))?;
        ranks.count += job.ranks().len();
        if job.ranks().len() > RANK_PROCESSES_MAX {
            refuse_otlp(&job)?;
            let variables = [spool.clone(), ("WORLD_SIZE", job.ranks().len().to_string())];
            let part = Part::of(play, &format!("ranks:{index}"), &wanted.dir, &[], &variables)?;
            show(&part, &job, (index, &wanted.dir), nodes)?;
            ranks.parts.push(part);
        } else {
            each(play, wanted, (&job, index, &spool), nodes, &mut ranks.parts)?;
        }
    }
    Ok(ranks)
}

/// One process has one resource, so it can't send OpenTelemetry for many ranks.
fn refuse_otlp(job: &Job) -> Result<(), Failure> {
    if !job.group().otlp {
        return Ok(());
    }
    let (name, ranks) = (&job.group().name, job.ranks().len());
    Err(Failure::new(format!(
        "cannot play `otlp` of the job `{name}`: its {ranks} ranks share a process, only up to \
         {RANK_PROCESSES_MAX} have one each"
    ))
    .hint("take `otlp` out of the job, or give it fewer hosts"))
}

type Variable = (&'static str, String);

fn each(
    play: &Play,
    wanted: &Wanted,
    (job, index, spool): (&Job, usize, &Variable),
    nodes: &mut Nodes,
    parts: &mut Vec<Part>,
) -> Result<(), Failure> {
    for (rank, (host, gpu)) in job.ranks().iter().enumerate() {
        let mut variables = vec![
            spool.clone(),
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", gpu.to_string()),
            ("WORLD_SIZE", job.ranks().len().to_string()),
            ("TRUEGAUGE_ORCHESTRATION_ID", format!("{}-{}", job.group().name, play.epoch_ns)),
        ];
        let mut more = Vec::new();
        match nodes.library(host) {
            Some(library) => more.extend(["--driver".to_owned(), library.display().to_string()]),
            None => variables.push(("TRUEGAUGE_CAPTURE_SYSTEM_METRICS", "false".to_owned())),
        }
        let part = Part::of(play, &format!("rank:{index}/{rank}"), &wanted.dir, &more, &variables)?;
        nodes.uses((host, *gpu), part.pid(), &cgroup(index, *gpu), None)?;
        parts.push(part);
    }
    Ok(())
}

/// Shows the one process of all ranks on every node of the job, as if a part of it were there.
fn show(part: &Part, job: &Job, (index, dir): (usize, &Path), nodes: &mut Nodes) -> Result<(), Failure> {
    if nodes.len() == 0 {
        return Ok(());
    }
    let end = Instant::now() + RUN_TIME_MAX;
    let mut run_id = std::fs::read_to_string(run_file(dir, index));
    while run_id.is_err() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        run_id = std::fs::read_to_string(run_file(dir, index));
    }
    let run_id = run_id.ok();
    for (host, gpu) in job.ranks() {
        nodes.uses((host, *gpu), part.pid(), &cgroup(index, *gpu), run_id.as_deref())?;
    }
    Ok(())
}

/// The control group of a task, as Slurm makes it.
fn cgroup(index: usize, gpu: u32) -> String {
    format!("/system.slice/slurmstepd.scope/job_{}/step_0/user/task_{gpu}", job_id(index))
}
