//! Why charts are missing. Every text that a user may read is in `missing.txt`.

use std::fmt::Write as _;

use insight::missing::{Explanation, Row};
use model::{
    Arbitration, AttributeValue, CaptureFailure, CaptureState, DeviceRole, DriverState, NodeRole, SessionEnd,
};

use crate::scene::{Scene, T0, device, owner, report};

/// One host, one process, eight minutes old and well, without GPUs so far.
fn healthy() -> Scene {
    let mut scene = Scene::at(480);
    scene.session("node-1", 0, (0, 475)).node("node-1", (1, 451)).process("node-1", 0, (1, 451));
    scene
}

/// The same with the first so many of eight GPUs its own.
fn with_gpus(own: u32, rest: DeviceRole) -> Scene {
    let mut scene = healthy();
    let mut said = report("node-1", 0);
    for gpu in 0..8 {
        let role = if gpu < own { DeviceRole::Owned } else { rest.clone() };
        said.devices.push(device(gpu, role));
        if gpu < own {
            scene.gpu("node-1", gpu, (1, 451));
        }
    }
    scene.report(said);
    scene
}

fn absent(reason: &str, text: &str, hint: &str) -> Scene {
    let mut scene = healthy();
    let driver = DriverState::Absent { reason: reason.into(), text: text.into(), hint: hint.into() };
    scene.report(model::CaptureReport { driver, ..report("node-1", 0) });
    scene
}

fn stated(state: CaptureState) -> Scene {
    let mut scene = Scene::at(480);
    scene.session("node-1", 0, (0, 475));
    scene.report(model::CaptureReport {
        state,
        driver: DriverState::Unknown,
        node: NodeRole::Unknown,
        arbitration: Arbitration::None,
        ..report("node-1", 0)
    });
    scene
}

fn failure(metric: &str, gpu: Option<u32>, reason: &str, cause: &str, backing_off: bool) -> CaptureFailure {
    CaptureFailure { metric: metric.into(), gpu, reason: reason.into(), cause: cause.into(), backing_off }
}

/// Eight GPUs, failures, and the series that are not there for them.
fn with(failures: Vec<CaptureFailure>, gone: &[(&str, Option<u32>)]) -> Scene {
    let mut scene = changed(with_gpus(8, DeviceRole::Owned), |report| report.failures = failures);
    for (metric, gpu) in gone {
        scene.without(metric, *gpu);
    }
    scene
}

/// A scene whose only report is changed.
fn changed(mut scene: Scene, change: impl FnOnce(&mut model::CaptureReport)) -> Scene {
    change(&mut scene.reports[0]);
    scene
}

/// Eight ranks of one node and as many GPUs, each its own.
fn eight(until: impl Fn(u32) -> i64) -> Scene {
    let mut scene = Scene::at(480);
    scene.node("node-1", (1, 451));
    for rank in 0..8 {
        let to = until(rank);
        scene.session("node-1", rank, (0, to)).process("node-1", rank, (1, to));
        scene.gpu("node-1", rank, (1, to));
        let mut said = report("node-1", rank);
        for gpu in 0..8 {
            let role = if gpu == rank {
                DeviceRole::Owned
            } else {
                DeviceRole::Other(owner("node-1", 100 + gpu, gpu))
            };
            said.devices.push(device(gpu, role));
        }
        scene.report(said);
    }
    scene
}

fn scenes_of_hardware() -> Vec<(&'static str, Scene)> {
    let library = "cannot find NVIDIA's driver library: looked for `libnvidia-ml.so.1`";
    let not_permitted = "cannot start NVIDIA's driver library: this user may not open the device files";
    let mut two_hosts = absent("no_library", library, "start the container with `--gpus all`");
    two_hosts.session("node-2", 1, (0, 475)).process("node-2", 1, (1, 451)).node("node-2", (1, 451));
    let mut said = report("node-2", 1);
    (said.node, said.devices) = (NodeRole::Reports, vec![device(0, DeviceRole::Owned)]);
    two_hosts.report(said).gpu("node-2", 0, (1, 451));
    vec![
        ("a laptop without a driver", absent("no_library", library, "start the container with `--gpus all`")),
        ("one host without a driver beside one that has it", two_hosts),
        (
            "device files that may not be opened",
            absent("not_permitted", not_permitted, "let this user open `/dev/nvidiactl`"),
        ),
        (
            "another version of the kernel module",
            absent(
                "version_mismatch",
                "cannot start NVIDIA's driver library: the kernel module is of another version than the library",
                "restart the machine",
            ),
        ),
        (
            "a reason that this version does not know",
            absent("<b>new</b>", "cannot start: \u{1b}[31mno luck", ""),
        ),
        (
            "a driver without a device",
            changed(with_gpus(0, DeviceRole::NotVisible), |report| report.devices.clear()),
        ),
        ("a driver that hangs", changed(absent("", "", ""), |report| report.driver = DriverState::Unknown)),
        (
            "four of eight GPUs",
            changed(with_gpus(4, DeviceRole::NotVisible), |report| {
                report.ownership = "CUDA_VISIBLE_DEVICES=0,1,2,3".into();
            }),
        ),
        ("none of eight GPUs", with_gpus(0, DeviceRole::NotVisible)),
        (
            "one GPU with MIG",
            changed(with_gpus(8, DeviceRole::Owned), |report| {
                report.devices[2].role = DeviceRole::Mig;
            }),
        ),
        ("one GPU without power readings", {
            let mut scene = changed(with_gpus(8, DeviceRole::Owned), |report| {
                report.devices[5].model = "NVIDIA T4".into();
                report.devices[5].unsupported =
                    ["power_watts", "energy_joules_total", "row_remaps_total", "sm_active_ratio"]
                        .map(|name| format!("system/gpu/{name}"))
                        .into();
            });
            scene.without("system/gpu/power_watts", Some(5));
            scene
        }),
        (
            "a device that the driver can't name",
            changed(with_gpus(7, DeviceRole::NotVisible), |report| {
                report.devices[7].role = DeviceRole::Unreadable(
                    "cannot identify GPU 7: `nvmlDeviceGetUUID` answered GPU is lost (15)".into(),
                );
            }),
        ),
    ]
}

fn scenes_of_sharing() -> Vec<(&'static str, Scene)> {
    let young = |seconds, role: DeviceRole| {
        let mut scene = Scene::at(seconds);
        scene.session("node-1", 0, (0, seconds)).node("node-1", (1, seconds)).process(
            "node-1",
            0,
            (1, seconds),
        );
        scene.gpu("node-1", 0, (1, seconds));
        let mut said = report("node-1", 0);
        said.devices =
            (0..4).map(|gpu| device(gpu, if gpu == 0 { DeviceRole::Owned } else { role.clone() })).collect();
        scene.report(said);
        scene
    };
    let mut pods = Scene::at(480);
    for (host, rank) in [("pod-a", 0), ("pod-b", 1)] {
        pods.session(host, rank, (0, 475)).node(host, (1, 451)).process(host, rank, (1, 451));
        let role =
            if rank == 0 { DeviceRole::Owned } else { DeviceRole::ReportedElsewhere(owner("pod-a", 100, 0)) };
        let mut said = report(host, rank);
        (said.node, said.devices) = (NodeRole::Reports, vec![device(0, role)]);
        pods.report(said);
    }
    pods.gpu("pod-a", 0, (1, 451));
    let mut namesakes = Scene::at(480);
    namesakes.session("trainer", 0, (0, 475)).session("trainer", 1, (5, 475)).node("trainer", (1, 451));
    for rank in 0..2 {
        namesakes.process("trainer", rank, (1, 451)).gpu("trainer", 0, (1, 451));
        let mut said = report("trainer", rank);
        (said.boot_id, said.node) = (format!("boot {rank}"), NodeRole::Reports);
        said.devices = vec![device(0, DeviceRole::Owned)];
        namesakes.report(said);
    }
    let mut same_pid = Scene::at(480);
    same_pid.node("trainer", (1, 451)).points("system/process", ("trainer", None, Some(1)), (1, 451));
    for _ in 0..2 {
        same_pid.session_of(("trainer", 1, None), (0, 475), None, "0.1.0");
    }
    same_pid.report(model::CaptureReport {
        pid: 1,
        rank: None,
        driver: DriverState::Absent {
            reason: "no_library".into(),
            text: "cannot find it".into(),
            hint: String::new(),
        },
        ..report("trainer", 0)
    });
    let no_locks = {
        let mut scene = Scene::at(480);
        scene.session("node-1", 3, (0, 475)).process("node-1", 3, (1, 451)).gpu("node-1", 3, (1, 451));
        let mut said = report("node-1", 3);
        (said.arbitration, said.node) = (Arbitration::Unavailable, NodeRole::Unknown);
        said.devices = vec![device(3, DeviceRole::Owned)];
        scene.report(said);
        scene
    };
    let mut unclaimed_node = healthy();
    unclaimed_node.report(report("node-1", 0)).without("system/cpu/utilization", None);
    unclaimed_node.reports[0].node = NodeRole::Unknown;
    unclaimed_node.reports[0].devices = vec![device(0, DeviceRole::Owned)];
    unclaimed_node.gpu("node-1", 0, (1, 451));
    vec![
        ("rank 0 only, within the grace", young(20, DeviceRole::Waiting)),
        ("rank 0 only, and nobody took the rest", young(480, DeviceRole::Waiting)),
        ("held by a rank that said nothing", young(20, DeviceRole::Other(owner("node-1", 103, 3)))),
        ("two pods that share a card", pods),
        ("two machines by one name", namesakes),
        ("two containers that are process 1 of one name", same_pid),
        ("no folder for locks, and no local rank 0", no_locks),
        ("a node that nobody speaks for", unclaimed_node),
    ]
}

fn scenes_of_processes() -> Vec<(&'static str, Scene)> {
    let killed = |ranks: &'static [u32]| eight(move |rank| if ranks.contains(&rank) { 200 } else { 475 });
    let mut reporter_gone = killed(&[0]);
    for metric in ["system/cpu/utilization", "system/memory/used_bytes"] {
        reporter_gone.without(metric, None).points(metric, ("node-1", None, None), (1, 200));
    }
    let first_tick = |seconds| {
        let mut scene = Scene::at(seconds);
        scene.session("node-1", 0, (0, 10)).node("node-1", (1, 1)).process("node-1", 0, (1, 1));
        scene.without("system/cpu/utilization", None);
        scene.without("system/process/cpu_utilization", None);
        let mut said = report("node-1", 0);
        said.devices = vec![device(0, DeviceRole::Owned)];
        scene.report(said).gpu("node-1", 0, (1, 1));
        scene
    };
    let mut short = first_tick(480);
    short.run.sessions.clear();
    short.session_of(("node-1", 100, Some(0)), (0, 2), Some(SessionEnd::Finished), "0.1.0");
    let mut just_now = Scene::at(2);
    just_now.session("node-1", 0, (0, 1)).report(report("node-1", 0));
    just_now.reports[0].devices = vec![device(0, DeviceRole::Owned)];
    let mut wrapped = Scene::at(10);
    wrapped.session("node-1", 0, (0, 10)).node("node-1", (1, 1));
    wrapped.points("system/process", ("node-1", None, Some(4_711)), (1, 1));
    wrapped.without("system/cpu/utilization", None);
    wrapped.report(model::CaptureReport { wraps_command: true, ..report("node-1", 0) });
    wrapped.reports[0].devices = vec![device(0, DeviceRole::Owned)];
    wrapped.gpu("node-1", 0, (1, 1));
    let mut metrana = Scene::at(480);
    metrana.session_of(("node-1", 100, None), (0, 475), None, "metrana 1.11.0").node("node-1", (1, 451));
    metrana.points("system/process", ("node-1", None, Some(100)), (1, 451));
    let mut old = Scene::at(480);
    old.session("node-1", 0, (0, 475));
    let mut otlp = Scene::at(480);
    let driver = AttributeValue::Text("570.1".into());
    otlp.run.attributes.insert("system/gpu/driver_version".into(), driver);
    vec![
        ("a rank that was killed", killed(&[3])),
        ("three ranks that were killed", killed(&[3, 4, 6])),
        ("the reporter was killed, and nobody took over", reporter_gone),
        ("the first sample of two", first_tick(10)),
        ("a run shorter than one interval", short),
        ("a run that began just now", just_now),
        ("a command that was wrapped just now", wrapped),
        (
            "switched off by a variable",
            changed(stated(CaptureState::Off), |report| {
                report.switched_off_by = "TRUEGAUGE_CAPTURE_SYSTEM_METRICS".into();
            }),
        ),
        (
            "switched off by an argument",
            changed(stated(CaptureState::Off), |report| {
                report.switched_off_by = "capture_system_metrics=False".into();
            }),
        ),
        ("not on Linux", stated(CaptureState::NotLinux)),
        (
            "no thread to be had",
            stated(CaptureState::NotStarted(
                "could not start a thread: Resource temporarily unavailable".into(),
            )),
        ),
        ("a client of metrana's without GPU readings", metrana),
        ("a client that reports nothing", old),
        ("by OpenTelemetry only", otlp),
    ]
}

fn scenes_of_failures() -> Vec<(&'static str, Scene)> {
    let unreadable = "cannot read `/sys/fs/cgroup/memory.current`: Permission denied (os error 13)";
    let lost = "cannot read `nvmlDeviceGetPowerUsage` of GPU 0: GPU is lost (15)";
    let ended = {
        let mut scene = Scene::at(480);
        scene.session("node-1", 0, (0, 475)).node("node-1", (1, 121)).process("node-1", 0, (1, 121));
        scene.gpu("node-1", 0, (1, 121)).report(report("node-1", 0));
        scene.reports[0].devices = vec![device(0, DeviceRole::Owned)];
        let cause = "the series were refused".into();
        scene.reports[0].state = CaptureState::Ended { failed_ticks: 5, cause };
        scene
    };
    let power = Some(0);
    let mut counted =
        with(Vec::new(), &[("system/process/rss_bytes", None), ("system/disk/free_bytes", None)]);
    counted.refused = vec![("project_series_limit", 1_234)];
    vec![
        ("a sampler that gave up", ended),
        (
            "a file that can't be read",
            with(
                vec![failure("system/memory/used_bytes", None, "unreadable", unreadable, false)],
                &[("system/memory/used_bytes", None), ("system/memory/utilization", None)],
            ),
        ),
        (
            "a reading that is backed off",
            with(
                vec![failure("system/gpu/power_watts", power, "unreadable", lost, true)],
                &[("system/gpu/power_watts", power)],
            ),
        ),
        (
            "a series beyond the limit",
            with(
                vec![failure(
                    "system/process/rss_bytes",
                    None,
                    "series_limit",
                    "the server refuses points (series_limit): 20000 series of `system/process/rss_bytes` are there",
                    false,
                )],
                &[("system/process/rss_bytes", None)],
            ),
        ),
        ("a series that the server counts as refused", counted),
        (
            "a series by a name that was taken",
            with(
                vec![failure(
                    "system/disk/free_bytes",
                    None,
                    "display_name_taken",
                    "`system_disk_free_bytes` is another's",
                    false,
                )],
                &[("system/disk/free_bytes", None)],
            ),
        ),
        (
            "one of our own series that can't be read",
            with(
                vec![failure(
                    "system/pressure/io_waiting_ratio",
                    None,
                    "unreadable",
                    "cannot read `/proc/pressure/io`",
                    false,
                )],
                &[],
            ),
        ),
        ("nothing says why", with(Vec::new(), &[("system/disk/free_bytes", None)])),
    ]
}

fn scenes_of_sick_cards() -> Vec<(&'static str, Scene)> {
    let power = Some(0);
    vec![
        ("a card that is gone", {
            let lost = "cannot read `nvmlDeviceGetUtilizationRates` of GPU 3: answered GPU is lost (15)";
            let failure = failure("system/gpu/utilization", Some(3), "gpu_lost", lost, true);
            let mut scene =
                changed(with_gpus(8, DeviceRole::Owned), |report| report.failures = vec![failure]);
            for desc in &crate::scene::EXPECTED {
                scene.without(desc.name, Some(3));
            }
            scene.gpu("node-1", 3, (1, 200));
            scene
        }),
        (
            "a card that blocks",
            with(
                vec![failure("system/gpu/power_watts", power, "no_answer", "no answer in 1 s", false)],
                &[("system/gpu/power_watts", power), ("system/gpu/sm_clock_mhz", power)],
            ),
        ),
        (
            "counters for administrators only",
            with(
                vec![failure(
                    "system/gpu/sm_active_ratio",
                    power,
                    "no_permission",
                    "answered Insufficient Permissions (4)",
                    true,
                )],
                &[],
            ),
        ),
    ]
}

fn scenes() -> Vec<(&'static str, Scene)> {
    [
        scenes_of_hardware(),
        scenes_of_sharing(),
        scenes_of_processes(),
        scenes_of_failures(),
        scenes_of_sick_cards(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn write_row(page: &mut String, row: &Row) {
    let alarm = if row.is_alarm { "ALARM" } else { "calm" };
    let since = row.since_ns.map_or(String::new(), |ns| format!(" since {} s", (ns - T0) / 1_000_000_000));
    let _ = writeln!(page, "{alarm} {}{since}: {}", row.reason, row.text);
    if let Some(hint) = &row.hint {
        let _ = writeln!(page, "  hint: {hint}");
    }
    if let Some(command) = &row.command {
        let _ = writeln!(page, "  command: {command}");
    }
    let metrics: Vec<&str> = row.metrics.iter().map(|m| m.display.trim_start_matches("system/")).collect();
    let _ = writeln!(page, "  metrics: {}", metrics.join(" "));
    let number = |name: &str, of: Option<u32>| of.map_or(String::new(), |n| format!(" {name}={n}"));
    let places: Vec<String> = row
        .places
        .iter()
        .map(|p| {
            format!("{}{}{}{}", p.host, number("gpu", p.gpu), number("pid", p.pid), number("rank", p.rank))
        })
        .collect();
    let _ = writeln!(page, "  places: {}", places.join(", "));
}

fn page(name: &str, answer: &Explanation) -> String {
    let mut page = format!("## {name}\n{} of {} are there\n", answer.present, answer.expected);
    for row in &answer.rows {
        write_row(&mut page, row);
    }
    page
}

/// Every text, compared with the file; `UPDATE_TEXTS=1` writes it anew, and then its diff is to be read.
#[test]
fn every_reason_is_told_in_these_words() {
    let mut found = String::from(
        "Why charts are missing, as users read it. Written by `UPDATE_TEXTS=1 cargo nextest run -p insight`.\n",
    );
    for (name, scene) in scenes() {
        found.push('\n');
        found.push_str(&page(name, &scene.explain()));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/missing.txt");
    if std::env::var_os("UPDATE_TEXTS").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let wanted = std::fs::read_to_string(path).unwrap();
    let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert_eq!(differs, None, "see the file; if the new text is meant, UPDATE_TEXTS=1 writes it");
    assert_eq!(found.lines().count(), wanted.lines().count());
}

#[test]
fn a_run_of_which_nothing_is_missing_says_so() {
    let answer = with_gpus(8, DeviceRole::Owned).explain();
    assert_eq!((answer.present, answer.expected, answer.is_cut), (14, 14, false));
    assert_eq!(answer.rows, []);
}

#[test]
fn what_was_killed_and_started_again_is_not_missed() {
    let mut scene = eight(|rank| if rank == 3 { 200 } else { 475 });
    scene.session_of(("node-1", 4711, Some(3)), (230, 475), None, "0.1.0");
    scene.points("system/process", ("node-1", None, Some(4711)), (231, 471)).gpu("node-1", 3, (231, 471));
    let mut said = report("node-1", 3);
    (said.pid, said.time_ns, said.started_ns) = (4711, crate::scene::at(231), crate::scene::at(231));
    said.devices = vec![device(3, DeviceRole::Owned)];
    scene.reports.retain(|report| report.rank != Some(3));
    scene.report(said);
    assert_eq!(scene.explain().rows, []);
}

#[test]
fn a_finished_run_is_judged_at_its_end() {
    let mut scene = Scene::at(100_000);
    scene.session_of(("node-1", 100, Some(0)), (0, 480), Some(SessionEnd::Finished), "0.1.0");
    scene.node("node-1", (1, 451)).process("node-1", 0, (1, 451)).gpu("node-1", 0, (1, 451));
    scene.report(report("node-1", 0));
    scene.reports[0].devices = vec![device(0, DeviceRole::Owned)];
    assert_eq!(scene.explain().rows, []);
}

#[test]
fn a_report_of_an_earlier_attempt_counts_no_more() {
    let mut scene = healthy();
    scene.report(report("node-1", 0));
    scene.reports[0].devices = vec![device(0, DeviceRole::Owned)];
    scene.gpu("node-1", 0, (1, 451));
    let mut old = report("node-0", 9);
    (old.time_ns, old.started_ns) = (crate::scene::at(-90_000), crate::scene::at(-90_000));
    scene.report(old);
    assert_eq!(scene.explain().rows, []);
}

/// 128 hosts of 8 GPUs, each with its rank; every one lacks power, half of the ranks were killed.
#[test]
fn a_thousand_gpus_become_a_few_rows() {
    let mut scene = Scene::at(480);
    for host in 0..128 {
        let name = format!("node-{host:03}");
        scene.node(&name, (1, 451));
        for local in 0..8 {
            let rank = host * 8 + local;
            let to = if local % 2 == 0 { 475 } else { 200 };
            scene.session_of((&name, 100 + local, Some(rank)), (0, to), None, "0.1.0");
            scene.points("system/process", (&name, None, Some(100 + local)), (1, to));
            scene.gpu(&name, local, (1, to));
            let mut said = report(&name, local);
            said.rank = Some(rank);
            for gpu in 0..8 {
                let role = if gpu == local {
                    DeviceRole::Owned
                } else {
                    DeviceRole::Other(owner(&name, 100 + gpu, host * 8 + gpu))
                };
                let mut device = device(gpu, role);
                device.unsupported = vec!["system/gpu/power_watts".into()];
                said.devices.push(device);
            }
            scene.report(said);
            scene.without("system/gpu/power_watts", Some(local));
        }
    }
    let answer = scene.explain();
    let told: Vec<(&str, usize, usize)> =
        answer.rows.iter().map(|row| (row.reason, row.metrics.len(), row.places.len())).collect();
    assert_eq!(
        told,
        [("process_ended", 5, 512), ("process_ended", 2, 512), ("unsupported", 1, 1024)],
        "{:?}",
        answer.rows.iter().map(|row| &row.text).collect::<Vec<_>>()
    );
    assert!(answer.rows[2].text.starts_with("GPUs 0-7 of 128 hosts"), "{}", answer.rows[2].text);
}

#[test]
fn a_process_that_only_exports_is_not_asked_for_captures() {
    let mut scene = Scene::at(480);
    scene.session("node-1", 0, (0, 475));
    for session in &mut scene.run.sessions {
        session.facts.silent_after_seconds = 30;
    }
    let found = scene.explain();
    let told: Vec<(&str, bool)> = found.rows.iter().map(|row| (row.reason, row.is_alarm)).collect();
    assert_eq!(told, [("no_report", false)], "{found:?}");
}

#[test]
fn what_a_run_would_lack_is_foreseen_from_one_report() {
    let foreseen = |report: &model::CaptureReport| {
        let answer = insight::missing::foresee(report, &crate::scene::EXPECTED, &[]);
        let rows: Vec<(&str, bool, usize)> =
            answer.rows.iter().map(|row| (row.reason, row.is_alarm, row.places.len())).collect();
        (answer.present, rows)
    };
    let mut said = report("node-1", 0);
    said.devices = (0..8).map(|gpu| device(gpu, DeviceRole::Owned)).collect();
    assert_eq!(foreseen(&said), (14, Vec::new()));
    said.devices[1].role = DeviceRole::Mig;
    said.devices[2].unsupported = vec!["system/gpu/power_watts".into()];
    said.devices[6].role = DeviceRole::NotVisible;
    said.devices[7].role = DeviceRole::Waiting;
    said.failures = vec![failure("system/memory/used_bytes", None, "unreadable", "cannot read it", false)];
    let told = [
        ("unreadable", true, 1),
        ("grace", false, 1),
        ("mig", false, 1),
        ("not_allocated", false, 1),
        ("unsupported", false, 1),
    ];
    let (present, mut rows) = foreseen(&said);
    rows.sort_unstable_by_key(|(reason, alarm, _)| (!alarm, *reason));
    assert_eq!((present, rows), (13, told.to_vec()));
    said.state = CaptureState::Off;
    assert_eq!(foreseen(&said).0, 0);
}

#[test]
fn the_guide_has_every_reason() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/missing.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for (name, scene) in scenes() {
        for row in scene.explain().rows {
            assert!(
                guide.contains(&format!("`{}`", row.reason)),
                "`{}` of \"{name}\" is not told",
                row.reason
            );
        }
    }
}
