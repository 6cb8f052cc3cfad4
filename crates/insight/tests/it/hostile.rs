//! Reports say what their senders like; the answer stays an answer.

use insight::missing::{PLACES_MAX, ROWS_MAX, foresee};
use model::{
    Arbitration, CaptureDevice, CaptureFailure, CaptureReport, CaptureState, DeviceRole, DriverState,
    NodeRole, SessionEnd,
};
use proptest::prelude::*;

use crate::scene::{EXPECTED, Scene, owner};

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(crate::scene::T0), any::<i64>()]
}

fn seconds() -> impl Strategy<Value = f64> {
    prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), Just(1e300), 0.0..100.0]
}

fn role() -> impl Strategy<Value = DeviceRole> {
    let other = || owner("node-1", 101, 1);
    prop_oneof![
        Just(DeviceRole::Owned),
        Just(DeviceRole::Other(other())),
        Just(DeviceRole::Waiting),
        Just(DeviceRole::NotVisible),
        Just(DeviceRole::Mig),
        ".*".prop_map(DeviceRole::Unreadable),
        Just(DeviceRole::ReportedElsewhere(owner("", 0, None))),
    ]
}

fn device() -> impl Strategy<Value = CaptureDevice> {
    let gpu = prop_oneof![0..4_u32, Just(u32::MAX), Just(u32::MAX - 1)];
    (gpu, role(), ".*", prop::collection::vec(".*", 0..3)).prop_map(|(gpu, role, model, unsupported)| {
        CaptureDevice { model, unsupported, ..crate::scene::device(gpu, role) }
    })
}

fn failure() -> impl Strategy<Value = CaptureFailure> {
    let metric = prop_oneof![Just(EXPECTED[0].name.to_owned()), Just("system/x".to_owned()), ".*"];
    let reason = prop_oneof![Just("gpu_lost".to_owned()), Just("series_limit".to_owned()), ".*"];
    (metric, prop::option::of(0..4_u32), reason, ".*", any::<bool>()).prop_map(
        |(metric, gpu, reason, cause, backing_off)| CaptureFailure {
            metric,
            gpu,
            reason,
            cause,
            backing_off,
        },
    )
}

fn report() -> impl Strategy<Value = CaptureReport> {
    let state = prop_oneof![
        4 => Just(CaptureState::Sampling),
        1 => Just(CaptureState::Off),
        1 => ".*".prop_map(CaptureState::NotStarted),
        1 => (any::<u32>(), ".*").prop_map(|(failed_ticks, cause)| CaptureState::Ended { failed_ticks, cause }),
    ];
    let driver = prop_oneof![
        Just(DriverState::Unknown),
        ".*".prop_map(DriverState::Loaded),
        (".*", ".*", ".*").prop_map(|(reason, text, hint)| DriverState::Absent { reason, text, hint }),
    ];
    let node = prop_oneof![
        Just(NodeRole::Reports),
        Just(NodeRole::Unknown),
        Just(NodeRole::Other(owner("node-1", 101, None))),
    ];
    let devices = prop::collection::vec(device(), 0..6);
    let failures = prop::collection::vec(failure(), 0..3);
    let host = prop_oneof![3 => Just("node-1".to_owned()), 1 => ".*"];
    ((host, 100..103_u32, number(), number()), seconds(), (state, driver, node), devices, failures).prop_map(
        |((host, pid, time_ns, started_ns), interval_seconds, (state, driver, node), devices, failures)| {
            CaptureReport {
                host,
                pid,
                time_ns,
                started_ns,
                interval_seconds,
                state,
                driver,
                node,
                devices,
                failures,
                arbitration: Arbitration::Unavailable,
                ..CaptureReport::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_reports_give_rows_of_printable_words(
        reports in prop::collection::vec(report(), 0..5),
        ends in prop::collection::vec(0..600_i64, 0..3),
    ) {
        let mut scene = Scene::at(480);
        for (rank, to) in ends.into_iter().enumerate() {
            let end = (to % 2 == 0).then_some(SessionEnd::Finished);
            scene.session_of(("node-1", 100 + rank as u32, Some(rank as u32)), (0, to), end, "");
        }
        scene.node("node-1", (1, 300)).process("node-1", 0, (1, 1)).gpu("node-1", 0, (1, 451));
        for report in reports {
            foresee(&report, &EXPECTED, &[]);
            scene.report(report);
        }
        let answer = scene.explain();
        prop_assert!(answer.rows.len() <= ROWS_MAX);
        prop_assert!(answer.rows.iter().map(|row| row.places.len()).sum::<usize>() <= PLACES_MAX);
        for row in &answer.rows {
            prop_assert!(!row.text.is_empty() && !row.metrics.is_empty());
            prop_assert!(!row.text.chars().any(char::is_control), "{:?}", row.text);
            prop_assert!(row.text.chars().count() < 2_000, "{}", row.text);
        }
    }
}
