//! The detector on ranks that are late in some steps and not in others, as one is that a quota stops.

use insight::straggler::{Action, Cause, Class, Detector, Level, RankFacts, Ranks, Settings, Verdict};

use crate::cluster::{Step, jitter};

const SECOND: i64 = 1_000_000_000;

/// A job in which some ranks are late in some steps, by so many seconds of a step of one.
#[derive(Clone, Copy)]
struct Job {
    ranks: u32,
    late: fn(u32, i64) -> f64,
}

impl Job {
    fn detector(self) -> Detector {
        let one = |rank: u32| RankFacts { rank, host: format!("host-{}", rank / 8), ..RankFacts::default() };
        Detector::new(Ranks((0..self.ranks).map(one).collect()), Settings::default())
    }

    fn step(self, step: i64, late: fn(u32, i64) -> f64) -> Step {
        let busy = (0..self.ranks).map(|rank| 1.0 + jitter(i64::from(rank), step) + late(rank, step));
        Step::of(&busy.collect::<Vec<_>>(), 0.1)
    }

    fn play(self, detector: &mut Detector, steps: std::ops::Range<i64>) {
        for step in steps {
            self.step(step, self.late).feed(detector, step);
        }
    }

    fn judged(self, steps: i64) -> Detector {
        let mut detector = self.detector();
        self.play(&mut detector, 0..steps);
        detector
    }

    /// Share of the time of steps that is won without a rank.
    fn gain(self, rank: u32, steps: std::ops::Range<i64>) -> f64 {
        let sum = |of: &dyn Fn(&[f32]) -> f32| -> f64 {
            steps.clone().map(|step| f64::from(of(&self.step(step, self.late).own)) + 0.1).sum()
        };
        let longest = |own: &[f32]| own.iter().copied().fold(0.0, f32::max);
        let without = |own: &[f32]| {
            let mut own = own.to_vec();
            own.remove(rank as usize);
            longest(&own)
        };
        1.0 - sum(&without) / sum(&longest)
    }
}

/// Rank 2 in every third step.
fn third(rank: u32, step: i64) -> f64 {
    if rank == 2 && step % 3 == 0 { 0.8 } else { 0.0 }
}

/// Rank 2 in every tenth step.
fn tenth(rank: u32, step: i64) -> f64 {
    if rank == 2 && step % 10 == 7 { 1.5 } else { 0.0 }
}

fn only(detector: &Detector) -> &Verdict {
    assert_eq!(detector.verdicts().len(), 1, "{:#?}", detector.verdicts());
    &detector.verdicts()[0]
}

#[test]
fn a_rank_that_is_late_in_one_step_of_some_is_named_with_what_it_costs() {
    for (late, name) in [(third as fn(u32, i64) -> f64, "late by 0.7"), (tenth, "late by 1.4")] {
        for ranks in [4, 8, 64] {
            let job = Job { ranks, late };
            let detector = job.judged(300);
            let verdict = only(&detector);
            assert_eq!(
                (verdict.class, verdict.ranks.as_slice()),
                (Class::Straggler, [2].as_slice()),
                "{ranks}"
            );
            let level = if ranks < 8 { Level::Warn } else { Level::Page };
            assert_eq!((verdict.level, verdict.cause), (level, Cause::Unknown), "{ranks}");
            let gain = job.gain(2, 100..300);
            assert!((verdict.gain - gain).abs() < 0.02, "{ranks}: {} for {gain}", verdict.gain);
            assert!(verdict.wait_seconds < 0.11 && verdict.peers_wait_seconds > 0.8, "{verdict:#?}");
            assert!(verdict.sentence().contains(name), "{}", verdict.sentence());
            assert!(verdict.onset_step.is_some_and(|step| step <= 37), "{verdict:#?}");
        }
    }
}

#[test]
fn it_is_named_soon_and_forgotten_when_it_is_mended() {
    let job = Job { ranks: 16, late: third };
    let mut detector = job.detector();
    let healthy = Job { late: |_, _| 0.0, ..job };
    healthy.play(&mut detector, 0..200);
    assert_eq!(detector.verdicts(), []);
    let named = (200..300).find(|step| {
        job.play(&mut detector, *step..*step + 1);
        !detector.verdicts().is_empty()
    });
    assert!(named.is_some_and(|step| step < 245), "{named:?}");
    assert_eq!((only(&detector).ranks.as_slice(), only(&detector).onset_step), ([2].as_slice(), Some(201)));
    job.play(&mut detector, 300..600);
    assert_eq!(only(&detector).onset_step, Some(201));
    let over = (600..800).find(|step| {
        healthy.play(&mut detector, *step..*step + 1);
        detector.verdicts().is_empty()
    });
    assert!(over.is_some_and(|step| step < 670), "{over:?}");
}

#[test]
fn ranks_that_are_late_alike_and_one_that_was_late_for_a_while_are_not_named() {
    // Any of eight ranks in every third step, each as often as the others.
    let turns = Job {
        ranks: 8,
        late: |rank, step| if step % 3 == 0 && i64::from(rank) == step / 3 * 5 % 8 { 0.8 } else { 0.0 },
    };
    let detector = turns.judged(600);
    assert!(
        detector.verdicts().iter().all(|verdict| verdict.class == Class::Rotating),
        "{:#?}",
        detector.verdicts()
    );
    // One rank in eight steps on end, and never again.
    let once =
        Job { ranks: 64, late: |rank, step| if rank == 2 && (100..108).contains(&step) { 0.8 } else { 0.0 } };
    let mut detector = once.detector();
    for step in 0..400 {
        once.play(&mut detector, step..step + 1);
        assert_eq!(detector.verdicts(), [], "step {step}");
    }
}

#[test]
fn two_that_are_late_at_different_times_are_both_named() {
    let job = Job {
        ranks: 16,
        late: |rank, step| match rank {
            2 if step % 4 == 0 => 0.8,
            3 if step % 5 == 1 => 0.6,
            _ => 0.0,
        },
    };
    let detector = job.judged(300);
    let named: Vec<&[u32]> = detector.verdicts().iter().map(|verdict| verdict.ranks.as_slice()).collect();
    assert_eq!(named, [[2], [3]], "{:#?}", detector.verdicts());
}

#[test]
fn a_rank_that_is_late_by_much_is_named_among_ranks_that_take_turns_in_little() {
    // Each of four is late by a tenth in turn, and one by a whole step in every sixth.
    let job = Job {
        ranks: 4,
        late: |rank, step| {
            let turn = if i64::from(rank) == step * 7 / 3 % 4 { 0.1 } else { 0.0 };
            turn + if rank == 2 && step % 6 == 0 { 1.0 } else { 0.0 }
        },
    };
    let detector = job.judged(400);
    assert_eq!(only(&detector).ranks, [2]);
}

#[test]
fn why_it_is_late_is_told_by_its_quota_or_its_data() {
    let job = Job { ranks: 8, late: third };
    let mut quota = job.detector();
    let mut loader = job.detector();
    for step in 0..150 {
        let mut values = job.step(step, third);
        if step % 10 == 0 {
            quota.held_back(2, step * SECOND, 0.3 * step as f64);
        }
        values.feed(&mut quota, step);
        values.data = (0..8).map(|rank| 0.01 + third(rank, step) as f32).collect();
        values.feed(&mut loader, step);
    }
    for (detector, text) in [
        (&quota, "rank 2: a CPU quota holds it back for 30 % of the time"),
        (&loader, "rank 2: reads data for 0.810 s of a step, peers 0.010 s"),
    ] {
        let verdict = only(detector);
        assert_eq!((verdict.cause, verdict.action), (Cause::HostData, Action::CheckHost));
        assert!(verdict.sentence().contains(text), "{}", verdict.sentence());
    }
}

#[test]
fn a_rank_that_is_late_in_most_steps_costs_no_more_than_it_does() {
    // In the middle it is late: medians would have it that all steps are as long.
    let job = Job { ranks: 16, late: |rank, step| if rank == 2 && step % 5 < 3 { 4.0 } else { 0.0 } };
    let detector = job.judged(200);
    let gain = job.gain(2, 100..200);
    assert!((only(&detector).gain - gain).abs() < 0.03, "{} for {gain}", only(&detector).gain);
}

#[test]
fn few_ranks_that_stall_alike_are_told_once_and_nobody_is_warned() {
    // Each of a few ranks stalls in a tenth or a third of its steps, so that of all steps some are long for good.
    for (ranks, often) in [(2, 3), (4, 10), (4, 3), (8, 10)] {
        let job = Job { ranks, late: |_, _| 0.0 };
        let mut detector = job.detector();
        let mut told: Vec<(Class, Level)> = Vec::new();
        let mut before = 0;
        for step in 0..20_000_u64 {
            let busy = (0..u64::from(ranks)).map(|rank| {
                let mixed = (rank * 1_000_003 + step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let drawn = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
                1.0 + jitter(rank as i64, step as i64) + if drawn % often == 0 { 0.5 } else { 0.0 }
            });
            Step::of(&busy.collect::<Vec<_>>(), 0.1).feed(&mut detector, step as i64);
            let now = detector.verdicts();
            if now.len() > before {
                told.extend(now.iter().map(|verdict| (verdict.class, verdict.level)));
            }
            before = now.len();
        }
        let is_warned = told.iter().any(|(_, level)| *level > Level::Info);
        assert!(!is_warned && told.len() < 10, "{ranks} ranks, one in {often}: {told:?}");
    }
}
