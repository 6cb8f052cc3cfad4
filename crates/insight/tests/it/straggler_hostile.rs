//! The detector on jobs that are not as one would like them: few ranks, ranks that come and go, steps that go
//! back, heavy tails and numbers that are none.

use insight::straggler::{
    Baseline, Cause, Class, Detector, GpuFacts, Level, RankFacts, Ranks, Settings, StepTimes,
};
use proptest::prelude::*;

use crate::cluster::{RANKS, Scene, Step, detector, jitter, own, play, ranks};

/// What a rank needs for a step, by seed, rank and step.
type Draw = fn(u64, u64, u64) -> f64;
/// Makes a card unlike its peers, by the time in seconds.
type Odd = fn(f64, &mut GpuFacts);

/// So many ranks, two a host, without stages.
fn few(n: u32) -> Detector {
    let one = |rank: u32| RankFacts { rank, host: format!("host-{}", rank / 2), ..RankFacts::default() };
    Detector::new(Ranks((0..n).map(one).collect()), Settings::default())
}

/// Plays so many ranks of which the first is slower.
fn play_few(n: u32, slow: f64, steps: i64) -> Detector {
    let mut detector = few(n);
    for step in 0..steps {
        let busy = |rank: i64| (1.0 + jitter(rank, step)) * if rank == 0 { slow } else { 1.0 };
        Step::of(&(0..i64::from(n)).map(busy).collect::<Vec<_>>(), 0.1).feed(&mut detector, step);
    }
    detector
}

#[test]
fn few_ranks_warn_and_wake_nobody() {
    for n in 2..8 {
        let detector = play_few(n, 1.3, 100);
        let [verdict] = detector.verdicts() else { panic!("{n} ranks: {:#?}", detector.verdicts()) };
        assert_eq!((verdict.class, verdict.level), (Class::Straggler, Level::Warn), "{n} ranks");
        assert_eq!(verdict.ranks, [0], "{n} ranks");
        assert_eq!(play_few(n, 1.0, 100).verdicts(), [], "{n} ranks");
    }
    let eight = play_few(8, 1.3, 100);
    assert_eq!(eight.verdicts()[0].level, Level::Page);
}

#[test]
fn one_rank_has_nobody_to_be_compared_with() {
    let mut detector = few(1);
    for step in 0..200 {
        Step::of(&[if step < 120 { 1.0 } else { 3.0 }], 0.0).feed(&mut detector, step);
    }
    let classes: Vec<Class> = detector.verdicts().iter().map(|verdict| verdict.class).collect();
    assert_eq!(classes, [Class::Slowdown]);
    assert_eq!(detector.verdicts()[0].level, Level::Warn);
    assert_eq!(detector.verdicts()[0].onset_step, Some(120));
}

#[test]
fn equal_ranks_are_equal() {
    let mut detector = few(16);
    for step in 0..300 {
        Step::of(&[1.0; 16], 0.1).feed(&mut detector, step);
    }
    assert_eq!(detector.verdicts(), []);
}

#[test]
fn warm_up_and_checkpoints_are_not_looked_at() {
    let mut detector = detector(false);
    for step in 0..160 {
        let mut values = Step::scene(Scene::Healthy, step);
        // Rank 3 is slow in the first twenty steps, and writes a checkpoint in every third.
        if step < 20 {
            values = Step::scene(Scene::Hot, step);
        } else if step % 3 == 0 {
            values.own[3] += 5.0;
            values.checkpoint = vec![0.0; RANKS];
            values.checkpoint[3] = 5.0;
        }
        values.feed(&mut detector, step);
        assert_eq!(detector.verdicts(), [], "step {step}");
    }
    assert_eq!(detector.watched().since_step, Some(20));
    assert!(detector.watched().windows > 10);
}

#[test]
fn steps_with_too_few_ranks_are_not_looked_at() {
    let mut detector = detector(false);
    play(&mut detector, Scene::Healthy, 0..60);
    let windows = detector.watched().windows;
    for step in 60..120 {
        let mut half = Step::scene(Scene::Hot, step);
        for rank in (0..RANKS).filter(|rank| rank % 2 == 0) {
            (half.own[rank], half.wait[rank]) = (f32::NAN, f32::NAN);
        }
        assert!(!half.feed(&mut detector, step));
    }
    let watched = detector.watched();
    assert_eq!((watched.windows, watched.ranks, watched.of), (windows, 32, 64));
    let reason = watched.reason.expect("a reason");
    assert_eq!(reason, "32 of 64 ranks reported the latest step; it takes 90 % of them");
}

#[test]
fn a_rank_that_joins_late_is_judged_once_it_has_steps() {
    let mut detector = detector(false);
    for step in 0..200 {
        let mut values = Step::scene(Scene::Hot, step);
        if step < 100 {
            (values.own[17], values.wait[17]) = (f32::NAN, f32::NAN);
        }
        values.feed(&mut detector, step);
        if step < 114 {
            assert_eq!(detector.verdicts(), [], "step {step}");
        }
    }
    assert_eq!(detector.verdicts()[0].ranks, [17]);
    assert_eq!(detector.verdicts()[0].onset_step, Some(100));
}

#[test]
fn a_rank_that_dies_is_not_accused_any_more() {
    let mut detector = detector(false);
    play(&mut detector, Scene::Hot, 0..120);
    assert_eq!(detector.verdicts()[0].ranks, [17]);
    for step in 120..200 {
        let mut values = Step::scene(Scene::Healthy, step);
        (values.own[17], values.wait[17]) = (f32::NAN, f32::NAN);
        values.feed(&mut detector, step);
    }
    assert_eq!(detector.verdicts(), []);
}

#[test]
fn a_verdict_takes_three_windows_and_six_clean_ones_end_it() {
    let mut detector = detector(false);
    play(&mut detector, Scene::Healthy, 0..100);
    let mut first = None;
    for step in 100..140 {
        Step::scene(Scene::Hot, step).feed(&mut detector, step);
        if first.is_none() && !detector.verdicts().is_empty() {
            first = Some(step);
        }
    }
    // Ten slow steps make a window slow: those that end at 109, 114 and 119.
    assert_eq!(first, Some(119));
    let mut last = None;
    for step in 140..220 {
        Step::scene(Scene::Healthy, step).feed(&mut detector, step);
        if let Some(verdict) = detector.verdicts().first() {
            last = Some(step);
            // What it cost is not made less of while it fades.
            assert!(verdict.gain > 0.17, "step {step}: {verdict:?}");
        }
    }
    // The last slow window ends at 149, the sixth clean one at 179.
    assert_eq!(last, Some(178));
}

#[test]
fn steps_that_go_back_are_another_attempt() {
    let mut detector = detector(false);
    play(&mut detector, Scene::Hot, 0..150);
    assert_eq!(detector.verdicts()[0].ranks, [17]);
    let baseline = detector.baseline();
    // Taken back to the checkpoint of step 100, on another host.
    assert!(Step::scene(Scene::Healthy, 100).feed(&mut detector, 100));
    assert_eq!(detector.verdicts(), []);
    assert!(detector.watched().reason.expect("a reason").starts_with("1 steps of this attempt are done"));
    play(&mut detector, Scene::Healthy, 101..180);
    assert_eq!(detector.verdicts(), []);
    assert_eq!((detector.watched().since_step, detector.baseline()), (Some(120), baseline));
    // The same step again is nothing.
    assert!(!Step::scene(Scene::Hot, 179).feed(&mut detector, 179));
}

#[test]
fn clocks_of_hosts_do_not_matter() {
    let judged = |clock: fn(i64) -> i64| {
        let mut detector = detector(false);
        for step in 0..150 {
            let values = Step::scene(Scene::Hot, step);
            detector.take(&StepTimes {
                step,
                time_ns: clock(step),
                own: &values.own,
                wait: &values.wait,
                data: &[],
                checkpoint: &[],
            });
        }
        let verdict = &detector.verdicts()[0];
        (verdict.ranks.clone(), verdict.rho, verdict.onset_step, verdict.gain)
    };
    let even = judged(|step| step * 1_000_000_000);
    assert_eq!(even, judged(|step| (step + 7 * (step % 2)) * 60_000_000_000));
    assert_eq!(even, judged(|_| i64::MIN));
}

#[test]
fn without_waits_nobody_can_be_named_and_that_is_said() {
    let mut detector = detector(false);
    for step in 0..150 {
        let mut values = Step::scene(Scene::Hot, step);
        values.own = values.own.iter().zip(&values.wait).map(|(own, wait)| own + wait).collect();
        values.wait = Vec::new();
        values.feed(&mut detector, step);
    }
    assert_eq!(detector.verdicts(), []);
    assert!(detector.watched().reason.expect("a reason").starts_with("how long ranks wait for each other"));
}

#[test]
fn a_rank_that_does_not_tell_its_waits_is_not_slow() {
    let mut detector = detector(false);
    for step in 0..150 {
        let mut values = Step::scene(Scene::Healthy, step);
        (values.own[40], values.wait[40]) = (values.own[40] + values.wait[40], f32::NAN);
        values.feed(&mut detector, step);
    }
    assert_eq!(detector.verdicts(), []);
    assert_eq!(detector.watched().ranks, 63);
}

#[test]
fn a_tensor_group_that_is_late_together_is_told_apart() {
    // Eight ranks a tensor group; waits inside of it are not measured, so all of a group seem as slow as the
    // slowest.
    let mut facts = ranks(false);
    for rank in &mut facts.0 {
        (rank.tensor, rank.data) = (Some(rank.rank % 8), Some(rank.rank / 8));
        rank.host = format!("host-{}", rank.rank % 32);
    }
    let play = |slower: f64, hot: bool| {
        let mut detector = Detector::new(facts.clone(), Settings::default());
        for step in 0..150_i64 {
            if hot && step % 10 == 0 {
                for place in 0..RANKS {
                    let clock_hertz = if place == 17 { 1.5e9 } else { 1.98e9 };
                    let facts = GpuFacts { clock_hertz, ..GpuFacts::default() };
                    detector.gpu(place, step * 1_000_000_000, &facts);
                }
            }
            let mut busy: Vec<f64> =
                (0..RANKS as i64).map(|rank| own(Scene::Healthy, rank, step).0).collect();
            for (rank, busy) in busy.iter_mut().enumerate().skip(16).take(8) {
                *busy *= if rank == 17 { 1.25 } else { slower };
            }
            Step::of(&busy, 0.15).feed(&mut detector, step);
        }
        let [verdict] = detector.verdicts() else { panic!("{:#?}", detector.verdicts()) };
        (verdict.class, verdict.ranks.clone(), verdict.cause)
    };
    // One is behind the others of its group.
    assert_eq!(play(1.2, false), (Class::Straggler, vec![17], Cause::Unknown));
    // All are as late, and the card of one has a reason.
    assert_eq!(play(1.25, true), (Class::Straggler, vec![17], Cause::Clock));
    // All are as late, and nothing tells them apart.
    assert_eq!(play(1.25, false), (Class::Straggler, (16..24).collect(), Cause::Unknown));
}

/// Numbers that look random, above 0 and below 1.
fn even(seed: u64, rank: u64, step: u64) -> f64 {
    let mut x = seed ^ rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step.wrapping_mul(0xff51_afd7_ed55_8ccd);
    for _ in 0..2 {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
    }
    ((x >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

fn normal(seed: u64, rank: u64, step: u64) -> f64 {
    let (a, b) = (even(seed, rank, step), even(seed ^ 0x5bd1_e995, rank, step));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

#[test]
fn heavy_tails_accuse_nobody() {
    let draws: [(&str, Draw); 5] = [
        ("normal", |seed, rank, step| (1.0 + 0.05 * normal(seed, rank, step)).max(0.1)),
        ("lognormal", |seed, rank, step| (0.5 * normal(seed, rank, step)).exp()),
        ("Pareto", |seed, rank, step| 0.9 + 0.1 * even(seed, rank, step).powf(-1.0 / 1.2)),
        ("stalls", |seed, rank, step| if even(seed, rank, step) < 0.3 { 1.5 } else { 1.0 }),
        ("stalls and noise", |seed, rank, step| {
            1.0 + 0.01 * normal(seed, rank, step) + if even(!seed, rank, step) < 0.4 { 0.3 } else { 0.0 }
        }),
    ];
    for (name, draw) in draws {
        for seed in 0..12 {
            let mut detector = detector(seed % 2 == 0);
            for step in 0..400_u64 {
                let busy: Vec<f64> = (0..RANKS as u64).map(|rank| draw(seed, rank, step)).collect();
                Step::of(&busy, 0.15).feed(&mut detector, step as i64);
                let is_smooth = matches!(name, "normal" | "lognormal");
                assert!(!is_smooth || detector.verdicts().is_empty(), "{name}: {:?}", detector.verdicts());
                for verdict in detector.verdicts() {
                    assert_eq!(
                        (verdict.ranks.len(), verdict.stage),
                        (0, None),
                        "{name}, seed {seed}: {verdict:?}"
                    );
                    assert!(verdict.level < Level::Warn, "{name}, seed {seed}: {verdict:?}");
                }
            }
        }
    }
}

#[test]
fn who_costs_nothing_wakes_nobody() {
    // Stage 0 has so little to do that its slow rank is still done before all of stage 3.
    let mut detector = detector(true);
    for step in 0..150 {
        let busy = (0..RANKS as i64).map(|rank| {
            let of_stage = if rank < 16 { 0.7 } else { 1.0 };
            own(Scene::Healthy, rank, step).0 * of_stage * if rank == 3 { 1.3 } else { 1.0 }
        });
        Step::of(&busy.collect::<Vec<_>>(), 0.15).feed(&mut detector, step);
    }
    let [verdict] = detector.verdicts() else { panic!("{:#?}", detector.verdicts()) };
    assert_eq!(
        (verdict.class, verdict.level, verdict.ranks.as_slice()),
        (Class::Straggler, Level::Warn, [3].as_slice())
    );
    assert!(verdict.gain < 0.01);
}

#[test]
fn a_stage_on_one_host_with_slow_cards_is_a_slow_host() {
    let mut facts = ranks(false);
    for rank in &mut facts.0 {
        rank.stage = Some(rank.rank / 8);
    }
    let play = |clock: f64| {
        let mut detector = Detector::new(facts.clone(), Settings::default());
        for step in 0..150_i64 {
            for place in 0..if step % 10 == 0 { RANKS } else { 0 } {
                let clock_hertz = if (24..32).contains(&place) { clock } else { 1.98e9 };
                let card = GpuFacts { clock_hertz, ..GpuFacts::default() };
                detector.gpu(place, step * 1_000_000_000, &card);
            }
            Step::scene(Scene::SlowHost, step).feed(&mut detector, step);
        }
        let [verdict] = detector.verdicts() else { panic!("{:#?}", detector.verdicts()) };
        (verdict.class, verdict.host.clone(), verdict.cause)
    };
    assert_eq!(play(1.5e9), (Class::Node, "host-3".to_owned(), Cause::Clock));
    assert_eq!(play(1.98e9), (Class::StageImbalance, String::new(), Cause::Unknown));
}

#[test]
fn a_rank_is_always_last_also_if_its_tensor_group_is_late_with_it() {
    let mut facts = ranks(false);
    for rank in &mut facts.0 {
        (rank.tensor, rank.data) = (Some(rank.rank % 8), Some(rank.rank / 8));
    }
    let mut detector = Detector::new(facts, Settings::default());
    for step in 0..150 {
        let busy = (0..RANKS).map(|rank| match rank {
            17 => 1.03,
            16..24 => 1.027,
            _ => 1.0,
        });
        Step::of(&busy.collect::<Vec<_>>(), 0.15).feed(&mut detector, step);
    }
    let [verdict] = detector.verdicts() else { panic!("{:#?}", detector.verdicts()) };
    assert_eq!((verdict.class, verdict.ranks.as_slice()), (Class::ConsistentlyLast, [17].as_slice()));
}

#[test]
fn two_samples_of_a_card_are_no_cause() {
    let judged = |samples: i64| {
        let mut detector = detector(false);
        play(&mut detector, Scene::Healthy, 1..10);
        for step in 10..100_i64 {
            for place in 0..if step % 10 == 0 && step / 10 <= samples { RANKS } else { 0 } {
                let clock_hertz = if place == 17 { 1.5e9 } else { 1.98e9 };
                let card = GpuFacts { clock_hertz, ..GpuFacts::default() };
                detector.gpu(place, step * 1_000_000_000, &card);
            }
            Step { data: Vec::new(), ..Step::scene(Scene::Hot, step) }.feed(&mut detector, step);
        }
        detector.verdicts()[0].cause
    };
    assert_eq!((judged(2), judged(3)), (Cause::Unknown, Cause::Clock));
}

#[test]
fn a_long_step_before_does_not_move_the_onset() {
    let mut detector = detector(false);
    for step in 0..200 {
        let mut busy: Vec<f64> = (0..RANKS as i64)
            .map(|rank| own(if step < 150 { Scene::Healthy } else { Scene::Hot }, rank, step).0)
            .collect();
        if step == 141 {
            busy[17] = 30.0;
        }
        Step::of(&busy, 0.15).feed(&mut detector, step);
    }
    let [verdict] = detector.verdicts() else { panic!("{:#?}", detector.verdicts()) };
    assert_eq!((verdict.ranks.as_slice(), verdict.onset_step), ([17].as_slice(), Some(150)));
}

#[test]
fn what_lasts_becomes_usual() {
    let mut detector = few(8);
    let mut play = |steps: std::ops::Range<i64>, seconds: f64| {
        for step in steps {
            let busy = (0..8).map(|rank| seconds * (1.0 + jitter(rank, step)));
            Step::of(&busy.collect::<Vec<_>>(), 0.1).feed(&mut detector, step);
        }
        let classes: Vec<Class> = detector.verdicts().iter().map(|verdict| verdict.class).collect();
        (classes, detector.baseline().map_or(0.0, |usual| usual.own_seconds))
    };
    let near = |value: f64, wanted: f64| (value - wanted).abs() < 0.02;
    let (classes, usual) = play(0..100, 1.0);
    assert!(classes.is_empty() && near(usual, 1.0), "{classes:?} {usual}");
    // Faster steps are usual after a while, and then the old ones are slow.
    let (classes, usual) = play(100..400, 0.8);
    assert!(classes.is_empty() && near(usual, 0.8), "{classes:?} {usual}");
    let (classes, usual) = play(400..1_000, 1.0);
    assert!(classes == [Class::Slowdown] && near(usual, 0.8), "{classes:?} {usual}");
    // Slower ones too, once everybody has seen them for long.
    let (classes, usual) = play(1_000..11_000, 1.0);
    assert!(classes.is_empty() && near(usual, 1.0), "{classes:?} {usual}");
}

#[test]
fn what_all_ranks_lost_is_a_slowdown_from_its_first_step() {
    let mut detector = detector(false);
    for step in 0..220 {
        let busy: Vec<f64> = (0..RANKS as i64)
            .map(|rank| own(Scene::Healthy, rank, step).0 * if step < 150 { 1.0 } else { 1.15 })
            .collect();
        // One long step on the way is no change.
        let exchange = if step == 100 { 20.0 } else { 0.15 };
        Step::of(&busy, exchange).feed(&mut detector, step);
        assert!(step > 150 || detector.verdicts().is_empty(), "step {step}: {:?}", detector.verdicts());
    }
    let [verdict] = detector.verdicts() else { panic!("{:#?}", detector.verdicts()) };
    assert_eq!((verdict.class, verdict.level, verdict.onset_step), (Class::Slowdown, Level::Page, Some(150)));
    assert_eq!(verdict.ranks, []);
}

#[test]
fn what_an_earlier_attempt_showed_is_usual_from_the_start() {
    let mut detector = detector(false);
    detector.expect(Baseline {
        step_seconds: 1.16,
        own_seconds: 1.0,
        wait_seconds: 0.15,
        spread_seconds: 0.006,
        wait_spread_seconds: 0.001,
        behind_spread_seconds: 0.001,
        step_seconds_p85: 1.17,
        behind_seconds_p85: 0.011,
    });
    play(&mut detector, Scene::SlowExchange, 0..60);
    assert_eq!(detector.verdicts()[0].class, Class::Communication);
}

#[test]
fn causes_are_told_apart_by_what_cards_do() {
    let normal = || GpuFacts {
        clock_hertz: 1.98e9,
        power_watts: 600.0,
        power_limit_watts: 700.0,
        thermal_seconds: 0.0,
        power_seconds: 0.0,
        pcie_width: 16.0,
        pcie_generation: 5.0,
        memory_faults: 0.0,
        ..GpuFacts::default()
    };
    let cases: [(Cause, Odd); 7] = [
        (Cause::Thermal, |at, card| (card.clock_hertz, card.thermal_seconds) = (1.5e9, 0.5 * at)),
        (Cause::PowerCap, |at, card| (card.clock_hertz, card.power_seconds) = (1.5e9, 0.5 * at)),
        (Cause::Clock, |_, card| card.clock_hertz = 1.5e9),
        (Cause::Link, |_, card| card.pcie_width = 8.0),
        (Cause::Link, |_, card| card.pcie_generation = 3.0),
        (Cause::MemoryHealth, |at, card| card.memory_faults = if at > 100.0 { 1.0 } else { 0.0 }),
        (Cause::Unknown, |_, _| ()),
    ];
    for (cause, odd) in cases {
        let mut detector = detector(false);
        for step in 0..150_i64 {
            for place in 0..if step % 10 == 0 { RANKS } else { 0 } {
                let mut card = normal();
                if place == 17 {
                    odd(step as f64, &mut card);
                }
                detector.gpu(place, step * 1_000_000_000, &card);
            }
            let mut values = Step::scene(Scene::Hot, step);
            values.data.clear();
            values.feed(&mut detector, step);
        }
        let verdict = &detector.verdicts()[0];
        assert_eq!((verdict.ranks.as_slice(), verdict.cause), ([17].as_slice(), cause), "{verdict:#?}");
        assert!(verdict.sentence().ends_with("% of step time since step 20."), "{}", verdict.sentence());
    }
}

/// Whether the verdict on a slow rank lays it on a quota, where so much of the time is lost to quotas: by each rank's
/// place, NaN for those without one.
fn is_quota(share: fn(usize) -> f64) -> bool {
    let mut detector = detector(false);
    for step in 0..150_i64 {
        for place in 0..if step % 10 == 0 { RANKS } else { 0 } {
            // Whoever samples it does so at a time of its own, and may tell the same sample twice.
            let at = step / 30 * 30;
            detector.held_back(place, at * 1_000_000_000, share(place) * at as f64);
        }
        let mut values = Step::scene(Scene::Hot, step);
        values.data.clear();
        values.feed(&mut detector, step);
    }
    let verdict = &detector.verdicts()[0];
    assert_eq!(verdict.ranks, [17], "{verdict:#?}");
    let quota = verdict.evidence.iter().find(|one| one.name == "cpu_throttled");
    if verdict.cause == Cause::HostData {
        assert!(quota.is_some(), "{verdict:#?}");
        let Some(quota) = quota else { return false };
        assert_eq!(
            quota.text,
            format!("a CPU quota holds it back for {:.0} % of the time", share(17) * 100.0)
        );
        assert!(verdict.sentence().contains(&quota.text), "{}", verdict.sentence());
        assert!(verdict.advice.contains("CPU quota"), "{}", verdict.advice);
    }
    verdict.cause == Cause::HostData
}

#[test]
fn a_quota_that_holds_back_one_rank_is_the_cause_and_one_of_all_ranks_is_not() {
    assert!(is_quota(|place| if place == 17 { 0.4 } else { f64::NAN }), "the others have none");
    assert!(is_quota(|place| if place == 17 { 0.4 } else { 0.0 }), "the others are far below theirs");
    assert!(is_quota(|place| if place == 17 { 1.0 } else { 0.3 }));
    assert!(!is_quota(|_| 0.4), "it holds back everybody");
    assert!(!is_quota(|place| if place == 17 { 0.02 } else { f64::NAN }), "too little");
    assert!(!is_quota(|_| f64::NAN), "nobody has one");
}

fn seconds() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => 0.5..2.0_f32,
        1 => prop_oneof![
            Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(0.0), Just(-1.0), Just(f32::MAX),
            Just(f32::MIN_POSITIVE), Just(1e30),
        ],
    ]
}

fn values(ranks: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(seconds(), 0..=ranks + 1)
}

prop_compose! {
    fn job()(n in 0_usize..12)(
        facts in prop::collection::vec(
            (any::<u32>(), "[a-c]?", prop::option::of(0..3_u32), prop::option::of(0..3_u32)), n..=n),
        steps in prop::collection::vec(
            (prop_oneof![8 => Just(1_i64), 1 => any::<i64>()], values(n), values(n), values(n)), 0..12),
        repeat in 1_usize..20,
        number in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), 0.0..1e12],
    ) -> (Vec<RankFacts>, Vec<(i64, Vec<f32>, Vec<f32>, Vec<f32>)>, usize, f64) {
        let facts = facts.into_iter().map(|(rank, host, stage, tensor)| RankFacts {
            rank, host, stage, tensor, data: tensor, ..RankFacts::default()
        });
        (facts.collect(), steps, repeat, number)
    }
}

proptest! {
    #[test]
    fn any_steps_give_finite_costs((facts, steps, repeat, number) in job()) {
        let known: Vec<u32> = facts.iter().map(|fact| fact.rank).collect();
        let settings = Settings { warm_up_steps: 0, reporting_ratio: 0.5, ..Settings::default() };
        let mut detector = Detector::new(Ranks(facts), settings);
        let mut at = 0_i64;
        for turn in 0..repeat {
            for (step, own, wait, data) in &steps {
                at = if *step == 1 { at.wrapping_add(1) } else { *step };
                detector.take(&StepTimes { step: at, time_ns: at, own, wait, data, checkpoint: &[] });
            }
            let card = GpuFacts { clock_hertz: number, thermal_seconds: number, ..GpuFacts::default() };
            detector.gpu(turn, at, &card);
        }
        for verdict in detector.verdicts() {
            prop_assert!(verdict.ranks.iter().all(|rank| known.contains(rank)));
            prop_assert!((0.0..=1.0).contains(&verdict.gain), "{verdict:?}");
            prop_assert!((0.0..=1.0).contains(&verdict.confidence));
            prop_assert!(!verdict.sentence().contains("NaN") && !verdict.advice.contains("NaN"), "{verdict:?}");
        }
    }
}
