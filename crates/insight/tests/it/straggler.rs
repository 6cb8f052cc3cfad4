//! The detector on a job of 64 ranks with one thing wrong at a time: who is named, why, and at what cost.

use insight::straggler::{Action, Cause, Class, Detector, Level, Verdict};

use crate::cluster::{Scene, detector, play};

/// The first window is of the steps 100 to 119; before it lies the warm-up.
fn first_window(scene: Scene, with_stages: bool) -> Detector {
    let mut detector = detector(with_stages);
    play(&mut detector, scene, 80..120);
    detector
}

/// Steps 100 to 179 with something wrong, after 80 without.
fn judged(scene: Scene, with_stages: bool) -> Detector {
    let mut detector = detector(with_stages);
    play(&mut detector, Scene::Healthy, 0..100);
    play(&mut detector, scene, 100..180);
    detector
}

fn only(detector: &Detector) -> &Verdict {
    let verdicts = detector.verdicts();
    assert_eq!(verdicts.len(), 1, "{verdicts:#?}");
    &verdicts[0]
}

#[track_caller]
fn near(value: f64, wanted: f64, within: f64) {
    assert!((value - wanted).abs() <= within, "{value}, wanted {wanted} ± {within}");
}

fn evidence<'a>(verdict: &'a Verdict, name: &str) -> &'a str {
    verdict.evidence.iter().find(|one| one.name == name).map_or("", |one| one.text.as_str())
}

#[test]
fn a_healthy_job_has_no_verdict() {
    for with_stages in [false, true] {
        let detector = judged(Scene::Healthy, with_stages);
        assert_eq!(detector.verdicts(), []);
        let first = first_window(Scene::Healthy, with_stages);
        let window = first.window().expect("a window");
        assert_eq!((window.first_step, window.last_step), (100, 119));
        near(window.step_seconds, 1.1599, 1e-4);
        near(window.wait_seconds, 0.150, 1e-4);
        near(window.last.expect("a last rank").1, 0.10, 1e-9);
        assert_eq!(window.suspects, []);
        assert_eq!(detector.watched().reason, None);
    }
}

#[test]
fn a_hot_card_is_named_with_what_it_costs() {
    let first = first_window(Scene::Hot, false);
    let window = first.window().expect("a window");
    near(window.step_seconds, 1.3998, 1e-4);
    assert_eq!(window.last, Some((17, 1.0)));
    near(window.suspects[0].rho, 1.2495, 1e-3);
    near(window.suspects[0].z, 49.9, 0.1);
    near(1.0 - window.counterfactual_seconds / window.step_seconds, 0.1714, 1e-3);

    for with_stages in [false, true] {
        let detector = judged(Scene::Hot, with_stages);
        let verdict = only(&detector);
        assert_eq!((verdict.class, verdict.level), (Class::Straggler, Level::Page));
        assert_eq!((verdict.ranks.as_slice(), verdict.host.as_str()), ([17].as_slice(), "host-2"));
        assert_eq!((verdict.gpu.as_str(), verdict.uuid.as_str()), ("1", "GPU-00000011"));
        assert_eq!((verdict.cause, verdict.action), (Cause::Thermal, Action::Drain));
        near(verdict.rho, 1.2495, 1e-2);
        near(verdict.gain, 0.1714, 2e-3);
        near(verdict.onset_step.expect("an onset") as f64, 100.0, 3.0);
        assert_eq!((verdict.held, verdict.of), (4, 4));
        assert!(verdict.confidence > 0.9);
    }
    // The identity of waits is quoted, and what is won: over the first window as over all.
    let mut detector = detector(false);
    play(&mut detector, Scene::Hot, 80..130);
    let verdict = only(&detector);
    assert_eq!(evidence(verdict, "wait"), "rank 17 waited 0.150 s, peers 0.400 s");
    assert_eq!(evidence(verdict, "last"), "rank 17 was the last in 100 % of the steps");
    assert!(verdict.advice.starts_with("Fixing rank 17 returns 17.1 % of step time: "), "{}", verdict.advice);
    assert_eq!(verdict.claim(), "Rank 17 is slow");
    assert_eq!(
        verdict.sentence(),
        "host-2, GPU 1: SM clock 80 % of peers, thermal. Costs 17.1 % of step time since step 100."
    );
}

#[test]
fn a_slow_exchange_blames_no_gpu() {
    let detector = judged(Scene::SlowExchange, false);
    let verdict = only(&detector);
    assert_eq!(verdict.class, Class::Communication);
    assert_eq!((verdict.ranks.as_slice(), verdict.host.as_str()), ([].as_slice(), ""));
    assert_eq!(verdict.action, Action::CheckLinks);
    near(verdict.rho, 3.0, 1e-3);
    near(verdict.step_seconds, 1.4599, 1e-3);
    near(verdict.onset_step.expect("an onset") as f64, 100.0, 3.0);
    let window = detector.window().expect("a window");
    near(window.wait_seconds, 0.45, 1e-3);
    assert_eq!(window.suspects, []);
}

#[test]
fn a_slow_loader_is_no_reason_to_drain_a_gpu() {
    let first = first_window(Scene::SlowLoader, false);
    let window = first.window().expect("a window");
    near(window.suspects[0].rho, 1.1492, 1e-3);
    near(window.suspects[0].z, 29.8, 0.1);
    near(1.0 - window.counterfactual_seconds / window.step_seconds, 0.1075, 1e-3);
    for with_stages in [false, true] {
        let detector = judged(Scene::SlowLoader, with_stages);
        let verdict = only(&detector);
        assert_eq!((verdict.class, verdict.level), (Class::Straggler, Level::Page));
        assert_eq!(verdict.ranks, [5]);
        assert_eq!((verdict.cause, verdict.action), (Cause::HostData, Action::CheckHost));
        assert_eq!(evidence(verdict, "data"), "reads data for 0.170 s of a step, peers 0.020 s");
    }
}

#[test]
fn a_stage_with_more_to_do_is_a_matter_of_layout() {
    let detector = judged(Scene::HeavyStage, true);
    let verdict = only(&detector);
    assert_eq!((verdict.class, verdict.stage), (Class::StageImbalance, Some(3)));
    assert_eq!((verdict.action, verdict.ranks.len()), (Action::Rebalance, 0));
    near(verdict.rho, 1.1208, 2e-3);
    let first = first_window(Scene::HeavyStage, true);
    assert_eq!(first.window().expect("a window").suspects, []);
    // Who does not know of stages accuses all of its ranks.
    let first = first_window(Scene::HeavyStage, false);
    let window = first.window().expect("a window");
    assert_eq!(window.suspects.iter().map(|one| one.rank).collect::<Vec<_>>(), (48..64).collect::<Vec<_>>());
}

#[test]
fn ranks_that_take_turns_are_not_named() {
    let first = first_window(Scene::Turns, true);
    near(first.window().expect("a window").step_seconds, 1.3519, 1e-4);
    near(first.window().and_then(|window| window.last).expect("a last rank").1, 0.05, 1e-9);
    for detector in [judged(Scene::Turns, false), judged(Scene::Turns, true)] {
        let verdict = only(&detector);
        assert_eq!((verdict.class, verdict.level), (Class::Rotating, Level::Warn));
        assert_eq!((verdict.ranks.len(), verdict.action), (0, Action::Rebalance));
        near(verdict.onset_step.expect("an onset") as f64, 100.0, 3.0);
    }
    // A job that never was otherwise is told, and nobody is warned.
    let mut detector = detector(false);
    play(&mut detector, Scene::Turns, 80..180);
    assert_eq!((only(&detector).class, only(&detector).level), (Class::Rotating, Level::Info));
}

#[test]
fn a_slow_host_is_one_verdict() {
    let first = first_window(Scene::SlowHost, false);
    let window = first.window().expect("a window");
    assert_eq!(window.suspects.iter().map(|one| one.rank).collect::<Vec<_>>(), (24..32).collect::<Vec<_>>());
    for suspect in &window.suspects {
        near(suspect.rho, 1.080, 2e-3);
        near(suspect.z, 16.0, 0.5);
    }
    near(1.0 - window.counterfactual_seconds / window.step_seconds, 0.0640, 1e-3);
    // With stages the host is half of its peers, and still found.
    for with_stages in [false, true] {
        let detector = judged(Scene::SlowHost, with_stages);
        let verdict = only(&detector);
        assert_eq!((verdict.class, verdict.level), (Class::Node, Level::Warn));
        assert_eq!(
            (verdict.host.as_str(), verdict.ranks.as_slice()),
            ("host-3", [24, 25, 26, 27, 28, 29, 30, 31].as_slice())
        );
        near(verdict.rho, 1.080, 2e-3);
        near(verdict.gain, 0.0640, 2e-3);
    }
}

#[test]
fn a_rank_that_is_hardly_slower_and_always_last_is_told() {
    let first = first_window(Scene::Slight, false);
    let window = first.window().expect("a window");
    near(window.step_seconds, 1.1802, 1e-4);
    assert_eq!((window.last, window.suspects.len()), (Some((9, 1.0)), 0));
    for with_stages in [false, true] {
        let detector = judged(Scene::Slight, with_stages);
        let verdict = only(&detector);
        assert_eq!((verdict.class, verdict.level), (Class::ConsistentlyLast, Level::Info));
        assert_eq!((verdict.ranks.as_slice(), verdict.action), ([9].as_slice(), Action::None));
        near(verdict.gain, 0.0175, 2e-3);
        near(verdict.onset_step.expect("an onset") as f64, 100.0, 3.0);
    }
}
