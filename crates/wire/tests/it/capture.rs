//! Reports of autocapture come back as they went.

use model::{
    Arbitration, CaptureDevice, CaptureFailure, CaptureLimits, CaptureOwner, CaptureReport, CaptureState,
    DeviceRole, DriverState, NodeRole,
};
use proptest::prelude::*;
use wire::capture::{parse, to_json};

fn owner() -> CaptureOwner {
    CaptureOwner { host: "n\"1".into(), pid: 7, rank: Some(3) }
}

fn report() -> CaptureReport {
    let roles = [
        DeviceRole::Owned,
        DeviceRole::Other(owner()),
        DeviceRole::Waiting,
        DeviceRole::NotVisible,
        DeviceRole::Mig,
        DeviceRole::Unreadable("no answer".into()),
        DeviceRole::ReportedElsewhere(owner()),
    ];
    let devices = roles.into_iter().zip(0..).map(|(role, gpu)| CaptureDevice {
        gpu,
        uuid: format!("GPU-{gpu}"),
        model: "H100".into(),
        pci_bus_id: "0000:1b:00.0".into(),
        compute_capability: "9.0".into(),
        memory_account: "allocated".into(),
        role,
        unsupported: vec!["system/gpu/power_watts".into()],
    });
    CaptureReport {
        host: "n\u{7}1".into(),
        boot_id: "b".into(),
        pid: 12,
        rank: Some(3),
        local_rank: Some(1),
        time_ns: 5,
        started_ns: 4,
        interval_seconds: 30.0,
        switched_off_by: "X".into(),
        wraps_command: true,
        arbitration: Arbitration::Shm,
        lock_domain: "1:2".into(),
        devices: devices.collect(),
        limits: Some(CaptureLimits {
            cgroup_mode: "v2".into(),
            memory_measured_at: "/pod".into(),
            memory_ceiling_bytes: Some(1 << 34),
            cpu_measured_at: "/pod/cpu.stat".into(),
            cpu_capacity_cpus: Some(0.5),
        }),
        failures: vec![CaptureFailure {
            metric: "system/gpu/power_watts".into(),
            gpu: Some(1),
            reason: "unreadable".into(),
            cause: "cannot read".into(),
            backing_off: true,
        }],
        ..CaptureReport::default()
    }
}

#[test]
fn every_state_role_and_driver_survives_the_journey() {
    let absent = DriverState::Absent { reason: "no_library".into(), text: "t".into(), hint: "h".into() };
    let ended = CaptureState::Ended { failed_ticks: 5, cause: "x".into() };
    for (state, node, driver) in [
        (CaptureState::Sampling, NodeRole::Reports, DriverState::Loaded("570.1".into())),
        (CaptureState::Off, NodeRole::Other(owner()), absent),
        (CaptureState::NotLinux, NodeRole::Unknown, DriverState::Unknown),
        (CaptureState::NotStarted("no thread".into()), NodeRole::Unknown, DriverState::Unknown),
        (ended, NodeRole::Unknown, DriverState::Unknown),
    ] {
        let report = CaptureReport { state, node, driver, ..report() };
        assert_eq!(parse(&to_json(&report)), Some(report));
    }
}

#[test]
fn what_is_missing_or_of_another_type_reads_as_nothing() {
    assert_eq!(parse("{}"), Some(CaptureReport::default()));
    assert_eq!(parse(r#"{"pid":"x","devices":[1,{}],"rank":-1,"node":5}"#), Some(CaptureReport::default()));
    assert_eq!(parse("[]"), None);
    assert_eq!(parse(""), None);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".*") {
        let _ = parse(&text);
    }
}
