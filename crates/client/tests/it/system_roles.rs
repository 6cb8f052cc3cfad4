//! Processes of one run share a machine out between them, whoever dies.
//!
//! Each member is a process of its own: this program again, with only [`member`] to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::ownership::GpuEnvironment;
use client::{Config, Launch, Run};
use model::{DeviceRole, NodeRole, RunPath, Sample};

use crate::peer::Peer;
use crate::support::{close, until};
use crate::system::reports;
use crate::system_gpus::{Machine, scenario, whole};

const DIR: &str = "TG_TEST_MEMBER_DIR";
const URL: &str = "TG_TEST_MEMBER_URL";
const RUN: &str = "TG_TEST_MEMBER_RUN";
const LIBRARY: &str = "TG_TEST_MEMBER_LIBRARY";
const GRACE: &str = "TG_TEST_MEMBER_GRACE_MS";

/// The program of a member: it samples until its standard input ends. As a test of its own it does
/// nothing.
#[test]
fn member() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let variable = |name: &str| std::env::var(name).unwrap();
    let config = Config {
        path: RunPath { project: "system".into(), run: variable(RUN), ..RunPath::default() },
        url: Some(variable(URL)),
        spool_dir: Some(PathBuf::from(dir)),
        system_metrics_interval: Duration::ZERO,
        capture_grace: Duration::from_millis(variable(GRACE).parse().unwrap()),
        gpu_library: Some(PathBuf::from(variable(LIBRARY))),
        launch: Launch::detect(),
        gpu_environment: GpuEnvironment::detect(),
        ..Config::default()
    };
    let run = Run::start(config).unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    close(&run);
}

/// A job of one run on this machine.
struct Job {
    peer: Peer,
    dir: tempfile::TempDir,
    machine: Machine,
    members: Vec<Child>,
}

const NEVER: &str = "3600000";
const AT_ONCE: &str = "0";
/// Long enough for ranks that start one after another to claim their own.
const SHORT: (&str, i64) = ("5000", 5_000_000_000);

impl Job {
    fn new(gpus: usize) -> Self {
        let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
        Self { peer, dir, machine: Machine::of(gpus), members: Vec::new() }
    }

    fn start(&mut self, grace_ms: &str, variables: &[(&str, &str)]) -> u32 {
        let run = name_of(self.dir.path());
        self.start_in(&run, grace_ms, variables)
    }

    /// Starts a member; its process id.
    fn start_in(&mut self, run: &str, grace_ms: &str, variables: &[(&str, &str)]) -> u32 {
        let member = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "system_roles::member", "--nocapture"])
            .env(DIR, self.dir.path())
            .env(URL, self.peer.url())
            .env(RUN, run)
            .env(LIBRARY, self.machine.library())
            .env(GRACE, grace_ms)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.dir.path().join("said")).unwrap())
            .spawn()
            .unwrap();
        self.members.push(member);
        self.members.last().unwrap().id()
    }

    /// The lines that the latest member wrote to its standard error.
    fn said(&self) -> Vec<String> {
        let said = std::fs::read_to_string(self.dir.path().join("said")).unwrap();
        said.lines().map(str::to_owned).collect()
    }

    /// Kills a member as `kill -9` does.
    fn kill(&mut self, pid: u32) {
        let at = self.members.iter().position(|member| member.id() == pid).unwrap();
        let mut member = self.members.swap_remove(at);
        member.kill().unwrap();
        member.wait().unwrap();
    }

    /// Ends all members in good order.
    fn end(&mut self) {
        for mut member in self.members.drain(..) {
            drop(member.stdin.take());
            assert!(member.wait().unwrap().success());
        }
    }

    /// Who reported which points, by series.
    fn history(&self) -> History {
        let seen = self.peer.seen();
        let mut pids: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for request in &seen.requests {
            if let Some(session) = &request.session {
                pids.insert(request.client_id.clone(), session.pid);
            }
        }
        let mut history: BTreeMap<String, Vec<(u32, Sample)>> = BTreeMap::new();
        for request in &seen.requests {
            for series in &request.series {
                let labels: Vec<String> =
                    series.labels.iter().map(|l| format!("{}={}", l.key, l.value)).collect();
                let points = history.entry(format!("{}{{{}}}", series.name, labels.join(","))).or_default();
                points.extend(series.samples().unwrap().into_iter().map(|p| (pids[&request.client_id], p)));
            }
        }
        History(history)
    }

    /// Who reports a series now, once somebody other than `but` does.
    fn reporter(&self, series: &str, but: &[u32]) -> u32 {
        let last = || self.history().of(series).last().map(|(pid, _)| *pid).filter(|pid| !but.contains(pid));
        until(series, || last().is_some());
        last().unwrap()
    }

    /// Waits until the grace of every member is over.
    fn outlast_grace(&self) {
        let spans = |(key, points): (&String, &Vec<(u32, Sample)>)| {
            !key.starts_with("system/process/rss")
                || points.iter().any(|(_, p)| p.time_ns - points[0].1.time_ns > SHORT.1)
        };
        until("the end of the grace", || self.history().0.iter().all(spans));
    }

    /// Waits for as many more points of every one of these series.
    fn more(&self, series: &[String], count: usize) {
        let before = self.history();
        until("more points", || {
            let now = self.history();
            series.iter().all(|key| now.of(key).len() >= before.of(key).len() + count)
        });
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for member in &mut self.members {
            drop(member.kill());
            drop(member.wait());
        }
    }
}

struct History(BTreeMap<String, Vec<(u32, Sample)>>);

impl History {
    fn of(&self, series: &str) -> &[(u32, Sample)] {
        self.0.get(series).map(Vec::as_slice).unwrap_or_default()
    }

    fn pids(&self, series: &str) -> BTreeSet<u32> {
        self.of(series).iter().map(|(pid, _)| *pid).collect()
    }

    /// Asserts that steps rise strictly, and by one wherever the same process goes on.
    fn assert_continuous(&self) {
        for (series, points) in &self.0 {
            for pair in points.windows(2) {
                let ((old, before), (new, after)) = (pair[0], pair[1]);
                let step = after.step.unwrap() - before.step.unwrap();
                assert!(step > 0, "{series}: step {before:?} of {old}, then {after:?} of {new}");
                assert!(after.time_ns > before.time_ns, "{series}");
            }
        }
    }

    /// How often `pid` sampled itself between the last point of a series from `gone` and its own first.
    fn ticks_missed(&self, series: &str, gone: u32, pid: u32) -> usize {
        let points = self.of(series);
        let last = points.iter().rev().find(|(by, _)| *by == gone).unwrap().1.time_ns;
        let first = points.iter().find(|(by, _)| *by == pid).unwrap().1.time_ns;
        let own = self.of(&format!("system/process/rss_bytes{{host={},pid={pid}}}", collect::hostname()));
        own.iter().filter(|(_, p)| p.time_ns > last && p.time_ns < first).count()
    }
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap().to_string_lossy().into_owned()
}

fn gpu(index: usize) -> String {
    format!("system/gpu/utilization{{gpu={index},host={}}}", collect::hostname())
}

fn node() -> String {
    format!("system/cpu/utilization{{host={}}}", collect::hostname())
}

fn memory() -> String {
    format!("system/memory/used_bytes{{host={}}}", collect::hostname())
}

fn all_gpus(count: usize) -> Vec<String> {
    (0..count).map(gpu).collect()
}

/// Starts as many ranks as there are GPUs, and waits until all report.
fn full_job(ranks: usize, grace_ms: &str) -> Job {
    let mut job = Job::new(ranks);
    for rank in 0..ranks {
        let rank = rank.to_string();
        let world = ranks.to_string();
        job.start(grace_ms, &[("LOCAL_RANK", &rank), ("RANK", &rank), ("WORLD_SIZE", &world)]);
    }
    until("every GPU and the node", || {
        let now = job.history();
        all_gpus(ranks).iter().chain([&node()]).all(|series| now.of(series).len() >= 2)
    });
    job
}

#[test]
fn eight_ranks_share_eight_gpus_and_one_node() {
    let mut job = full_job(8, NEVER);
    job.more(&all_gpus(8), 2);
    // Before the first one ends: whoever takes its place goes on behind its steps.
    let (history, last) = (job.history(), reports(&job.peer).into_iter().collect::<BTreeMap<_, _>>());
    job.end();
    for index in 0..8 {
        let (series, points) = (gpu(index), history.of(&gpu(index)));
        assert_eq!(history.pids(&series).len(), 1, "{series} has one reporter");
        assert!(points.iter().all(|(_, p)| p.value == (10 * index + 1) as f64));
        let steps: Vec<i64> = points.iter().filter_map(|(_, p)| p.step).collect();
        assert!(steps.windows(2).all(|pair| pair[1] == pair[0] + 1), "{series}: {steps:?}");
    }
    assert_eq!(history.pids(&node()).len(), 1);
    assert_eq!(history.pids(&memory()), history.pids(&node()), "one process speaks for the node");
    let processes = history.0.keys().filter(|key| key.starts_with("system/process/rss_bytes")).count();
    assert_eq!(processes, 8);
    let owners: BTreeSet<u32> = (0..8).flat_map(|index| history.pids(&gpu(index))).collect();
    assert_eq!(owners.len(), 8, "each rank reports its own");
    assert!(history.0.keys().all(|key| !key.contains("rank=")));
    history.assert_continuous();
    let facts: BTreeMap<_, _> =
        job.peer.changes().into_iter().flat_map(|change| change.attributes_if_absent).collect();
    assert_eq!(facts["system/gpu/visible_count"], model::AttributeValue::Int(8));
    assert_eq!(facts["system/arbitration_mode"], model::AttributeValue::Text("shm".into()));
    assert_eq!(last.len(), 8, "{:?}", last.keys());
    assert_eq!(last.values().filter(|report| report.node == NodeRole::Reports).count(), 1);
    for (key, report) in last {
        let owned: Vec<u32> =
            report.devices.iter().filter(|d| d.role == DeviceRole::Owned).map(|d| d.gpu).collect();
        assert_eq!(owned, [report.rank.unwrap()], "{key}");
    }
}

#[test]
fn dead_node_reporter_is_replaced() {
    let mut job = full_job(4, NEVER);
    let old = job.reporter(&node(), &[]);
    job.kill(old);
    let new = job.reporter(&node(), &[old]);
    job.more(&[node(), memory()], 2);
    job.end();
    let history = job.history();
    history.assert_continuous();
    assert!(history.ticks_missed(&memory(), old, new) <= 2);
    assert_eq!(history.pids(&node()), [old, new].into());
}

#[test]
fn who_dies_within_the_grace_is_not_waited_for() {
    let mut job = full_job(4, NEVER);
    let reporter = job.reporter(&node(), &[]);
    let index = (0..4).find(|index| job.reporter(&gpu(*index), &[]) != reporter).unwrap();
    let owner = job.reporter(&gpu(index), &[]);
    let own = (0..4).find(|index| job.reporter(&gpu(*index), &[]) == reporter).unwrap();
    job.kill(owner);
    assert_eq!(job.reporter(&gpu(index), &[owner]), reporter);
    job.kill(reporter);
    let next = job.reporter(&node(), &[owner, reporter]);
    for index in [index, own] {
        assert_eq!(job.reporter(&gpu(index), &[owner, reporter]), next);
    }
    job.more(&all_gpus(4), 2);
    job.end();
    let history = job.history();
    history.assert_continuous();
    assert!(history.ticks_missed(&gpu(index), owner, reporter) <= 2);
    assert!(history.ticks_missed(&gpu(own), reporter, next) <= 2);
}

#[test]
fn gpu_of_a_dead_owner_is_taken_by_the_node_reporter() {
    let mut job = full_job(4, SHORT.0);
    job.outlast_grace();
    let reporter = job.reporter(&node(), &[]);
    let index = (0..4).find(|index| job.reporter(&gpu(*index), &[]) != reporter).unwrap();
    let owner = job.reporter(&gpu(index), &[]);
    job.kill(owner);
    assert_eq!(job.reporter(&gpu(index), &[owner]), reporter);
    job.more(&all_gpus(4), 2);
    job.end();
    let history = job.history();
    history.assert_continuous();
    assert!(history.ticks_missed(&gpu(index), owner, reporter) <= 2);
}

#[test]
fn dead_node_reporter_and_dead_owner_are_both_replaced() {
    let mut job = full_job(4, SHORT.0);
    job.outlast_grace();
    let reporter = job.reporter(&node(), &[]);
    let owners: Vec<u32> = (0..4).map(|index| job.reporter(&gpu(index), &[])).collect();
    let other = *owners.iter().find(|owner| **owner != reporter).unwrap();
    job.kill(other);
    job.kill(reporter);
    let dead = [reporter, other];
    let next = job.reporter(&node(), &dead);
    for (index, owner) in owners.iter().enumerate() {
        let new = job.reporter(&gpu(index), &dead);
        assert!(new == next || new == *owner);
    }
    job.more(&all_gpus(4), 2);
    job.end();
    let history = job.history();
    history.assert_continuous();
    for (index, owner) in owners.iter().enumerate().filter(|(_, owner)| dead.contains(owner)) {
        assert!(history.ticks_missed(&gpu(index), *owner, next) <= 2);
    }
}

#[test]
fn restarted_rank_takes_its_gpu_up_where_it_was() {
    let mut job = full_job(1, NEVER);
    let owner = job.reporter(&gpu(0), &[]);
    job.kill(owner);
    let again = job.start(NEVER, &[("LOCAL_RANK", "0"), ("RANK", "0"), ("WORLD_SIZE", "1")]);
    assert_eq!(job.reporter(&gpu(0), &[owner]), again);
    job.more(&[gpu(0), node()], 2);
    job.end();
    job.history().assert_continuous();
}

#[test]
fn first_rank_alone_takes_all_gpus_behind_the_grace() {
    let mut job = Job::new(4);
    let grace = Duration::from_millis(2_500);
    let first = job.start("2500", &[("LOCAL_RANK", "0"), ("RANK", "0"), ("WORLD_SIZE", "4")]);
    job.more(&all_gpus(4), 2);
    // A rank that comes now keeps quiet.
    let late = job.start(NEVER, &[("LOCAL_RANK", "3"), ("RANK", "3"), ("WORLD_SIZE", "4")]);
    let own = format!("system/process/rss_bytes{{host={},pid={late}}}", collect::hostname());
    job.more(&[own, gpu(3)], 3);
    // Before the first one ends: the late rank takes its own then.
    let history = job.history();
    job.end();
    history.assert_continuous();
    let begin = history.of(&gpu(0))[0];
    assert_eq!((begin.0, begin.1.step), (first, Some(0)));
    for index in 1..4 {
        let (pid, point) = history.of(&gpu(index))[0];
        assert_eq!(pid, first);
        let waited = point.time_ns - begin.1.time_ns;
        // The first sample is somewhat younger than the sampler.
        assert!(waited >= grace.as_nanos() as i64 - 1_500_000_000, "{waited} ns");
        assert!(point.step > Some(0));
        assert_eq!(history.pids(&gpu(index)), [first].into());
    }
    let of_late = |(key, points): (&String, &Vec<(u32, Sample)>)| {
        points.iter().any(|(pid, _)| *pid == late).then(|| key.split('{').next().unwrap().to_owned())
    };
    let said: BTreeSet<String> = history.0.iter().filter_map(of_late).collect();
    assert!(said.iter().all(|name| name.contains("/process") || name.contains("/self/")), "{said:?}");
}

#[test]
fn takeover_stays_within_what_is_visible() {
    let mut job = Job::new(4);
    let first = job.start(AT_ONCE, &[("LOCAL_RANK", "0"), ("CUDA_VISIBLE_DEVICES", "0,1")]);
    job.more(&[gpu(0), gpu(1)], 3);
    job.end();
    let history = job.history();
    assert!(history.of(&gpu(2)).is_empty() && history.of(&gpu(3)).is_empty());
    assert_eq!(history.pids(&gpu(1)), [first].into());
}

#[test]
fn two_runs_on_one_machine_do_not_meet() {
    let mut job = Job::new(1);
    let name = name_of(job.dir.path());
    let runs = [format!("{name}-a"), format!("{name}-b")];
    let pids = [0, 1].map(|n| job.start_in(&runs[n], NEVER, &[("SLURM_JOB_ID", "777")]));
    until("both report the node and the GPU", || {
        let history = job.history();
        [gpu(0), memory()].iter().all(|series| history.pids(series) == pids.into())
    });
    job.end();
}

#[test]
fn missing_driver_is_said_once_and_only_where_gpus_should_be() {
    let mut job = Job::new(0);
    let nowhere = job.dir.path().join("nowhere.so").to_string_lossy().into_owned();
    job.start(NEVER, &[(LIBRARY, &nowhere), ("NVIDIA_VISIBLE_DEVICES", "all")]);
    job.more(&[memory()], 3);
    job.end();
    let said = job.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("no series of its GPUs") && said[0].contains("nowhere.so"), "{said:?}");
    job.start(NEVER, &[(LIBRARY, &nowhere), ("NVIDIA_VISIBLE_DEVICES", "void")]);
    job.more(&[memory()], 3);
    job.end();
    let has_device_files =
        ["/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"].iter().any(|p| Path::new(p).exists());
    assert_eq!(job.said().len(), usize::from(has_device_files), "{:?}", job.said());
}

#[test]
fn reading_that_fails_on_every_gpu_is_warned_of_once() {
    let mut job = Job::new(2);
    let broken = |gpu| format!("errors = {{ nvmlDeviceGetTemperature = \"unknown\" }}\n{}", whole(gpu));
    job.machine.play(&scenario(&[broken(0), broken(1)]));
    job.start(NEVER, &[("NVIDIA_VISIBLE_DEVICES", "all")]);
    job.more(&all_gpus(2), 7);
    job.end();
    let said = job.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("system/gpu/temperature_celsius"), "{said:?}");
    let report = reports(&job.peer).pop().unwrap().1;
    let failures: Vec<_> =
        report.failures.iter().map(|f| (f.metric.as_str(), f.gpu, f.backing_off)).collect();
    let temperature = "system/gpu/temperature_celsius";
    assert_eq!(failures, [(temperature, Some(0), true), (temperature, Some(1), true)]);
}
