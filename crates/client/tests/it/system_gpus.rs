//! The series of GPUs, through a driver that a scenario plays.

use std::collections::BTreeSet;
use std::path::Path;

use client::{Config, Run};
use model::{AttributeValue, DeviceRole, DriverState};

use crate::peer::Peer;
use crate::support::{close, until};
use crate::system::{reports, sampling, system_series};

/// A machine with these GPUs behind a driver of its own.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
}

/// A GPU on which the seed's six readings work; utilisation tells which one it is.
pub(crate) fn whole(gpu: usize) -> String {
    format!(
        "mig = false\n[gpu.values]\nutilization = {}\nutilization_memory = 1\nmemory_total = 85899345920\n\
         memory_used = 1073741824\nmemory_reserved = 0\ntemperature = {}\npower_mw = 100000\nsm_mhz = 1980",
        10 * gpu + 1,
        40 + gpu
    )
}

/// A scenario of these GPUs, each as the lines below its UUID.
pub(crate) fn scenario(gpus: &[String]) -> String {
    let entries = gpus.iter().enumerate().map(|(index, lines)| {
        format!(
            "[[gpu]]\nuuid = \"GPU-{index:08}\"\nname = \"Fake H100\"\nbus_id = \"00000000:{:02X}:00.0\"\n{lines}\n",
            0x1b + index
        )
    });
    std::iter::once("driver_version = \"570.86.15\"\n".to_owned()).chain(entries).collect()
}

impl Machine {
    pub(crate) fn new(scenario: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fake_nvml::install(folder.path(), scenario).unwrap();
        Self { folder }
    }

    /// With this many GPUs on which all works.
    pub(crate) fn of(gpus: usize) -> Self {
        Self::new(&scenario(&(0..gpus).map(whole).collect::<Vec<_>>()))
    }

    pub(crate) fn library(&self) -> std::path::PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    pub(crate) fn play(&self, scenario: &str) {
        fake_nvml::play(self.folder.path(), scenario).unwrap();
    }

    fn config(&self, peer: &Peer, dir: &Path) -> Config {
        Config { gpu_library: Some(self.library()), ..sampling(peer, dir) }
    }
}

/// The labels `gpu` of a metric's series.
fn gpus_of(peer: &Peer, metric: &str) -> BTreeSet<String> {
    let prefix = format!("{metric}{{gpu=");
    let keys = system_series(peer).into_keys();
    keys.filter_map(|key| Some(key.strip_prefix(&prefix)?.split(',').next()?.to_owned())).collect()
}

fn utilization(gpu: usize) -> String {
    format!("system/gpu/utilization{{gpu={gpu},host={}}}", collect::hostname())
}

#[test]
fn lonely_process_reports_every_gpu_from_its_first_sample_on() {
    let (peer, dir, machine) = (Peer::start(), tempfile::tempdir().unwrap(), Machine::of(4));
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    until("a sample", || system_series(&peer).contains_key(&utilization(3)));
    close(&run);
    let series = system_series(&peer);
    for gpu in 0..4 {
        let first = series[&utilization(gpu)][0];
        assert_eq!((first.step, first.value), (Some(0), (10 * gpu + 1) as f64));
    }
    let host = collect::hostname();
    for (metric, value) in [
        ("memory_used_bytes", 1_073_741_824.0),
        ("memory_utilization", 1.25),
        ("temperature_celsius", 42.0),
        ("power_watts", 100.0),
        ("sm_clock_mhz", 1980.0),
    ] {
        assert_eq!(series[&format!("system/gpu/{metric}{{gpu=2,host={host}}}")][0].value, value, "{metric}");
    }
    let ticks: BTreeSet<_> = series.values().flatten().map(|p| (p.step, p.time_ns)).collect();
    let steps: BTreeSet<_> = series.values().flatten().map(|p| p.step).collect();
    assert_eq!(ticks.len(), steps.len(), "one time for each step: {ticks:?}");
    let facts: std::collections::BTreeMap<_, _> =
        peer.changes().into_iter().flat_map(|c| c.attributes_if_absent).collect();
    assert_eq!(facts["system/gpu/visible_count"], AttributeValue::Int(4));
    assert_eq!(facts["system/gpu/host_device_count"], AttributeValue::Int(4));
    assert_eq!(facts["system/gpu/mig_partitioned_count"], AttributeValue::Int(0));
    assert_eq!(facts["system/gpu/driver_version"], AttributeValue::Text("570.86.15".into()));
}

#[test]
fn report_names_every_device_and_what_it_lacks() {
    let gpus = ["mig = true".to_owned(), whole(1).replace("power_mw = 100000\n", "")];
    let (peer, dir, machine) = (Peer::start(), tempfile::tempdir().unwrap(), Machine::new(&scenario(&gpus)));
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    let lacks = |metric: &str| {
        run.capture().is_some_and(|r| r.devices.iter().any(|d| d.unsupported.iter().any(|m| m == metric)))
    };
    until("what the device lacks", || lacks("system/gpu/power_watts"));
    let report = run.capture().unwrap();
    close(&run);
    assert_eq!(report.driver, DriverState::Loaded("570.86.15".into()));
    let roles: Vec<_> = report.devices.iter().map(|d| (d.gpu, d.role.clone())).collect();
    assert_eq!(roles, [(0, DeviceRole::Mig), (1, DeviceRole::Owned)]);
    assert_eq!(report.devices[1].uuid, "GPU-00000001");
    assert!(!report.devices[1].unsupported.iter().any(|m| m == "system/gpu/temperature_celsius"));
    assert_eq!(gpus_of(&peer, "system/gpu/utilization"), ["1".to_owned()].into());
    let facts: std::collections::BTreeMap<_, _> =
        peer.changes().into_iter().flat_map(|c| c.attributes_if_absent).collect();
    let counts = ["visible_count", "host_device_count", "mig_partitioned_count"]
        .map(|name| facts[&format!("system/gpu/{name}")].clone());
    assert_eq!(counts, [AttributeValue::Int(1), AttributeValue::Int(2), AttributeValue::Int(1)]);
    assert_eq!(reports(&peer).last().unwrap().1.devices, report.devices);
}

#[test]
fn process_without_gpus_has_all_other_series() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let library = dir.path().join("nowhere.so");
    let config = Config { gpu_library: Some(library), ..sampling(&peer, dir.path()) };
    let run = Run::start(config).unwrap();
    until("a rate", || system_series(&peer).keys().any(|key| key.starts_with("system/cpu/utilization")));
    let report = run.capture().unwrap();
    close(&run);
    let DriverState::Absent { reason, text, hint } = report.driver else { panic!("{:?}", report.driver) };
    assert_eq!(reason, "no_library");
    assert!(text.contains("nowhere.so") && !hint.is_empty(), "{text}; {hint}");
    let names: BTreeSet<String> =
        system_series(&peer).into_keys().map(|key| key.split('{').next().unwrap().to_owned()).collect();
    // Not every kernel tells of pressure, and only a quota holds back.
    let is_everywhere = |name: &&str| !name.contains("pressure") && !name.contains("throttled");
    for name in collect::DESCS.iter().map(|desc| desc.name).filter(is_everywhere) {
        assert!(name.starts_with("system/gpu/") || names.contains(name), "{name} is not in {names:?}");
    }
    let facts = peer.changes().into_iter().flat_map(|c| c.attributes_if_absent);
    assert_eq!(facts.filter(|(key, _)| key.starts_with("system/gpu/")).count(), 0);
}

#[test]
fn driver_that_is_slow_to_start_joins_later() {
    let all = scenario(&[whole(0)]);
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let machine = Machine::new(&format!("blocked = [\"nvmlInit_v2\"]\n{all}"));
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    until("the host's sample", || system_series(&peer).keys().any(|k| k.starts_with("system/memory/")));
    assert!(gpus_of(&peer, "system/gpu/utilization").is_empty());
    assert_eq!(run.capture().unwrap().driver, DriverState::Unknown);
    machine.play(&all);
    until("the GPU", || system_series(&peer).contains_key(&utilization(0)));
    close(&run);
    let series = system_series(&peer);
    let first = series[&utilization(0)][0];
    assert!(first.step.unwrap() > 0);
    let memory = &series[&format!("system/memory/used_bytes{{host={}}}", collect::hostname())];
    assert!(memory.iter().any(|p| (p.step, p.time_ns) == (first.step, first.time_ns)));
}

#[test]
fn run_that_ends_while_the_driver_is_slow_still_has_its_sample() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let machine = Machine::new(&format!("blocked = [\"nvmlInit_v2\"]\n{}", scenario(&[whole(0)])));
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    close(&run);
    machine.play(&scenario(&[]));
    let steps = peer.steps(&format!("system/memory/used_bytes{{host={}}}", collect::hostname()));
    assert_eq!(steps, [0]);
}

#[test]
fn series_that_the_server_refuses_is_left_out_and_the_others_go_on() {
    let (peer, dir, machine) = (Peer::start(), tempfile::tempdir().unwrap(), Machine::of(1));
    peer.seen().refuses = Some("system/gpu/power_watts".into());
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    let is_told = || {
        run.capture().is_some_and(|report| {
            report.failures.iter().any(|f| {
                (f.metric.as_str(), f.gpu, f.reason.as_str())
                    == ("system/gpu/power_watts", Some(0), "series_limit")
            })
        })
    };
    until("the report says so", is_told);
    let later = peer.steps(&utilization(0)).len() + 2;
    until("two more samples", || peer.steps(&utilization(0)).len() >= later);
    close(&run);
    let power = peer.steps(&utilization(0).replace("utilization", "power_watts"));
    assert_eq!(power, [0, 1, 2, 3, 4], "five refusals");
    assert_eq!(run.counters().dropped["series_limit"], 5);
    assert!(peer.steps(&utilization(0)).ends_with(&[5, 6]) || later > 7);
}

#[test]
fn device_that_the_server_has_from_another_process_is_left_alone() {
    let (peer, dir, machine) = (Peer::start(), tempfile::tempdir().unwrap(), Machine::of(2));
    peer.seen().elsewhere =
        vec![wire::push::Elsewhere { gpu: 1, host: "pod-b".into(), pid: 7, rank: Some(3) }];
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    let role = |gpu: usize| run.capture().and_then(|r| Some(r.devices.get(gpu)?.role.clone()));
    until("the report says so", || matches!(role(1), Some(DeviceRole::ReportedElsewhere(_))));
    let owner = model::CaptureOwner { host: "pod-b".into(), pid: 7, rank: Some(3) };
    assert_eq!(role(1), Some(DeviceRole::ReportedElsewhere(owner)));
    assert_eq!(role(0), Some(DeviceRole::Owned));
    let later = peer.steps(&utilization(0)).len() + 2;
    until("two more samples", || peer.steps(&utilization(0)).len() >= later);
    close(&run);
    assert_eq!(peer.steps(&utilization(1)), [0], "one point found out, and no more came");
}

#[test]
fn frameworks_that_come_up_late_settle_whose_the_devices_are() {
    let (peer, dir, machine) = (Peer::start(), tempfile::tempdir().unwrap(), Machine::of(4));
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    until("a sample", || system_series(&peer).contains_key(&utilization(3)));
    run.set_frameworks(client::ownership::Frameworks { jax: Some(vec![1, 2]), torch: None });
    let owned = || {
        let report = run.capture().unwrap();
        let owned = report.devices.into_iter().filter(|d| d.role == DeviceRole::Owned).map(|d| d.gpu);
        owned.collect::<Vec<_>>()
    };
    until("the answer is taken up", || owned() == [1, 2]);
    let later = peer.steps(&utilization(1)).len() + 2;
    until("two more samples", || peer.steps(&utilization(1)).len() >= later);
    close(&run);
    assert!(peer.steps(&utilization(0)).len() < peer.steps(&utilization(1)).len());
    let preview = client::preview(&Config {
        path: model::RunPath { run: "other".into(), ..run.path().clone() },
        ..machine.config(&peer, dir.path())
    });
    assert_eq!(preview.devices.iter().filter(|d| d.role == DeviceRole::Owned).count(), 4);
}

#[test]
fn restarted_driver_is_followed_by_uuid() {
    let (peer, dir, machine) = (Peer::start(), tempfile::tempdir().unwrap(), Machine::of(2));
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    until("a sample", || system_series(&peer).contains_key(&utilization(1)));
    machine.play("load = 2\nerrors = { nvmlInit_v2 = \"driver_not_loaded\" }");
    let is_absent = |run: &Run| matches!(run.capture().unwrap().driver, DriverState::Absent { .. });
    until("the report says that it is gone", || is_absent(&run));
    let swapped = [whole(1), whole(0)];
    let swapped = scenario(&swapped).replace("GPU-00000000", "x").replace("GPU-00000001", "GPU-00000000");
    machine.play(&format!("load = 3\n{}", swapped.replace("\"x\"", "\"GPU-00000001\"")));
    until("the report names the devices as they are now", || {
        let report = run.capture().unwrap();
        report.devices.first().is_some_and(|d| d.uuid == "GPU-00000001" && d.role == DeviceRole::Owned)
    });
    until("the other card's values", || system_series(&peer)[&utilization(0)].last().unwrap().value == 11.0);
    close(&run);
    let steps = peer.steps(&utilization(0));
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
}

#[test]
fn device_that_blocks_costs_its_own_series_only() {
    let (peer, dir, machine) = (Peer::start(), tempfile::tempdir().unwrap(), Machine::of(2));
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    until("a sample", || system_series(&peer).contains_key(&utilization(1)));
    let blocked = format!("blocked = [\"nvmlDeviceGetTemperature\"]\n{}", whole(1));
    machine.play(&scenario(&[whole(0), blocked]));
    let failure = |run: &Run| {
        let failures = run.capture().unwrap().failures.into_iter();
        failures.filter(|f| f.gpu == Some(1)).map(|f| f.metric).next()
    };
    until("the report says so", || failure(&run).is_some());
    let later = peer.steps(&utilization(0)).len() + 2;
    until("two more samples of the other", || peer.steps(&utilization(0)).len() >= later);
    machine.play(&scenario(&[whole(0), whole(1)]));
    until("the report says that it is over", || failure(&run).is_none());
    close(&run);
    let (well, sick) = (peer.steps(&utilization(0)), peer.steps(&utilization(1)));
    assert!(well.windows(2).all(|pair| pair[1] == pair[0] + 1), "{well:?}");
    assert!(sick.len() < well.len(), "{sick:?} of {well:?}");
}

#[test]
fn run_that_ends_at_once_has_its_gpus() {
    let (peer, dir, machine) = (Peer::start(), tempfile::tempdir().unwrap(), Machine::of(2));
    let run = Run::start(machine.config(&peer, dir.path())).unwrap();
    close(&run);
    assert_eq!(gpus_of(&peer, "system/gpu/utilization").len(), 2);
}

/// Says what the next test has set in its environment. As a test of its own it does nothing.
#[test]
fn environment_of_a_child() {
    if std::env::var_os("TG_TEST_ENVIRONMENT").is_some() {
        println!("it is {:?}", Config::from_env().gpu_environment.cuda_visible_devices);
    }
}

#[test]
fn a_list_of_devices_that_is_no_text_does_not_pass_for_one_that_is_not_there() {
    use std::os::unix::ffi::OsStrExt;

    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "system_gpus::environment_of_a_child", "--nocapture"])
        .env("TG_TEST_ENVIRONMENT", "1")
        .env("CUDA_VISIBLE_DEVICES", std::ffi::OsStr::from_bytes(b"\xff0"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("it is Some(\"\u{fffd}0\")"), "{said}");
}
