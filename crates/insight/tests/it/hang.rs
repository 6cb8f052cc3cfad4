//! Whether a job of 64 ranks hangs, and who holds it up.

use proptest::prelude::*;

use insight::hang::{
    Collective, Fault, HangAsk, HangClass, HangInput, HangVerdict, Phase, judge, limit_seconds,
};

const SECOND: i64 = 1_000_000_000;
/// When the last step was done.
const T0: i64 = 1_000_000 * SECOND;

/// 64 ranks that wait in collective 1204 since T0.
fn waiting() -> Vec<HangInput> {
    let one = |rank: u32| HangInput {
        rank,
        host: format!("host-{}", rank / 8),
        last_step: Some(600),
        last_step_time_ns: Some(T0 - i64::from(rank % 3) * 1_000_000),
        last_heartbeat_ns: Some(T0),
        collectives: vec![Collective {
            group: "0".to_owned(),
            entered: 1204,
            completed: 1203,
            op: "all_reduce".to_owned(),
            sizes: "[1048576]".to_owned(),
        }],
        phase: Phase::Training,
        lull_end_ns: None,
    };
    (0..64).map(one).collect()
}

/// Asks at a time after T0, to which all ranks but the `silent` are heard of.
fn ask(ranks: &[HangInput], faults: &[Fault], after: i64, silent: &[u32]) -> Option<HangVerdict> {
    let mut ranks = ranks.to_vec();
    for rank in ranks.iter_mut().filter(|rank| !silent.contains(&rank.rank)) {
        rank.last_heartbeat_ns = Some(T0 + (after - 2) * SECOND);
    }
    judge(&HangAsk { now_ns: T0 + after * SECOND, step_seconds: Some(1.16), ranks: &ranks, faults })
}

#[test]
fn who_is_between_two_steps_has_the_longest_limit_and_all_together_may_have_ended() {
    let mut all = waiting();
    for rank in &mut all {
        (rank.phase, rank.collectives) = (Phase::Between, Vec::new());
    }
    assert_eq!(ask(&all, &[], 119, &[]), None);
    let verdict = ask(&all, &[], 121, &[]).unwrap();
    assert_eq!((verdict.class, verdict.is_idle, culprits(&verdict)), (HangClass::Unknown, true, vec![]));
    assert!(verdict.text.ends_with("the processes live: the loop may have ended."), "{}", verdict.text);
    // They wait for one at a barrier between their steps.
    let mut barrier = stuck();
    for rank in &mut barrier {
        rank.phase = Phase::Between;
    }
    let verdict = ask(&barrier, &[], 121, &[]).unwrap();
    assert_eq!(
        (verdict.class, verdict.is_idle, culprits(&verdict)),
        (HangClass::NotEntered, false, vec![42])
    );
    // One evaluates while the others wait for it in their step.
    let mut one = stuck();
    one[42].phase = Phase::Between;
    assert_eq!(ask(&one, &[], 119, &[]), None);
    let verdict = ask(&one, &[], 121, &[]).unwrap();
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::NotEntered, vec![42]));
    assert!(
        verdict.text.contains("rank 42 has not begun the step that 63 others are in"),
        "{}",
        verdict.text
    );
    assert_eq!(verdict.culprits[0].state, "has not begun the step");
    // One that is gone is gone.
    let verdict = ask(&one, &[], 90, &[42]).unwrap();
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::Dead, vec![42]));
}

#[test]
fn time_in_an_evaluation_does_not_count_once_it_has_ended() {
    let mut ranks = stuck();
    for rank in &mut ranks {
        rank.lull_end_ns = Some(T0 + 180 * SECOND);
    }
    assert_eq!(ask(&ranks, &[], 209, &[]), None);
    let verdict = ask(&ranks, &[], 211, &[]).unwrap();
    assert_eq!((culprits(&verdict), verdict.since_ns), (vec![42], T0 + 180 * SECOND));
}

#[test]
fn one_operation_in_two_spellings_is_one_operation() {
    let mut ranks = stuck();
    for rank in &mut ranks {
        let is_line = rank.rank < 8;
        let of = &mut rank.collectives[0];
        of.op = if is_line { "ALLREDUCE" } else { "all_reduce" }.to_owned();
        of.sizes = if is_line { "512 to 512" } else { "16x32 to 16x32" }.to_owned();
    }
    let verdict = ask(&ranks, &[], 60, &[]).unwrap();
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::NotEntered, vec![42]));
    for rank in &mut ranks {
        let of = &mut rank.collectives[0];
        of.op = if rank.rank < 8 { "_ALLGATHER_BASE" } else { "all_gather" }.to_owned();
    }
    assert_eq!(ask(&ranks, &[], 60, &[]).unwrap().class, HangClass::NotEntered);
    // Only the root has what is gathered.
    let mut ranks = waiting();
    for rank in &mut ranks {
        let of = &mut rank.collectives[0];
        of.op = "gather".to_owned();
        of.sizes = if rank.rank == 0 { "16 to 64x16" } else { "16 to 0" }.to_owned();
    }
    assert_eq!(ask(&ranks, &[], 60, &[]).unwrap().class, HangClass::Network);
    ranks[9].collectives[0].op = "broadcast".to_owned();
    let verdict = ask(&ranks, &[], 60, &[]).unwrap();
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::Desync, vec![9]));
}

fn xid() -> Fault {
    Fault {
        time_ns: T0 - 3 * SECOND,
        host: "host-5".to_owned(),
        rank: None,
        text: "Xid 79, GPU has fallen off the bus".to_owned(),
        is_hardware: true,
        action: "reboot_node".to_owned(),
    }
}

fn culprits(verdict: &HangVerdict) -> Vec<u32> {
    verdict.culprits.iter().map(|one| one.rank).collect()
}

/// Rank 42 completed 1203 and did not go on.
fn stuck() -> Vec<HangInput> {
    let mut ranks = waiting();
    ranks[42].collectives[0].entered = 1203;
    ranks
}

#[test]
fn a_job_may_be_without_a_step_for_ten_of_them() {
    for (step, limit) in [
        (0.2, 30.0),
        (1.16, 30.0),
        (5.0, 50.0),
        (12.0, 120.0),
        (50.0, 120.0),
        (90.0, 180.0),
        (f64::NAN, 120.0),
        (0.0, 120.0),
    ] {
        assert_eq!(limit_seconds(step), limit, "{step}");
    }
    assert_eq!(ask(&stuck(), &[], 29, &[]), None);
    assert!(ask(&stuck(), &[], 30, &[]).is_some());
}

#[test]
fn the_rank_that_did_not_enter_is_named() {
    let verdict = ask(&stuck(), &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::NotEntered, vec![42]));
    assert_eq!((verdict.since_ns, verdict.cause), (T0, "unknown"));
    let culprit = &verdict.culprits[0];
    assert_eq!(
        (culprit.host.as_str(), culprit.sequence, culprit.completed),
        ("host-5", Some(1203), Some(1203))
    );
    assert_eq!(culprit.state, "has not entered");
    assert_eq!(
        verdict.text,
        "No step is done for 60 s since step 600: rank 42 has not entered collective 1,204 of group 0, in which 63 \
         others wait."
    );
}

#[test]
fn a_fault_beside_it_says_what_to_do() {
    let verdict = ask(&stuck(), &[xid()], 60, &[]).expect("a hang");
    assert_eq!(
        (verdict.class, culprits(&verdict), verdict.cause),
        (HangClass::NotEntered, vec![42], "hardware")
    );
    assert_eq!(verdict.actions, ["reboot_node", "restart_from_checkpoint"]);
    assert!(
        verdict.text.ends_with("Xid 79, GPU has fallen off the bus on host-5, 3 s before the last step.")
    );
    // A fault of another host, or of long ago, is none of this.
    let elsewhere = Fault { host: "host-1".to_owned(), ..xid() };
    let before = Fault { time_ns: T0 - 600 * SECOND, ..xid() };
    assert_eq!(ask(&stuck(), &[elsewhere, before], 60, &[]).expect("a hang").cause, "unknown");
}

#[test]
fn all_in_the_same_operation_point_at_the_network() {
    let verdict = ask(&waiting(), &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, verdict.cause, verdict.culprits.len()), (HangClass::Network, "network", 0));
    assert_eq!(verdict.actions, ["check_links", "restart_from_checkpoint"]);
}

#[test]
fn ranks_in_another_operation_are_a_matter_of_the_program() {
    for change in [
        |one: &mut Collective| one.op = "broadcast".to_owned(),
        |one: &mut Collective| {
            one.sizes = "[7]".to_owned();
        },
    ] {
        let mut ranks = waiting();
        change(&mut ranks[7].collectives[0]);
        let verdict = ask(&ranks, &[], 60, &[]).expect("a hang");
        assert_eq!(
            (verdict.class, culprits(&verdict), verdict.cause),
            (HangClass::Desync, vec![7], "program")
        );
    }
    // Where each rank sends as much as it likes, sizes differ by intention.
    let mut ranks = waiting();
    for rank in &mut ranks {
        rank.collectives[0].op = "all_to_all".to_owned();
        rank.collectives[0].sizes = format!("[{}]", rank.rank);
    }
    assert_eq!(ask(&ranks, &[], 60, &[]).expect("a hang").class, HangClass::Network);
}

#[test]
fn a_rank_that_ran_ahead_is_named_and_not_those_that_it_left() {
    // All entered 1204, rank 7 alone left it, and is in another operation.
    let ahead = |op: &str| {
        let mut ranks = waiting();
        let one = &mut ranks[7].collectives[0];
        (one.entered, one.completed, one.op) = (1205, 1204, op.to_owned());
        ranks
    };
    let verdict = ask(&ahead("broadcast"), &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, culprits(&verdict), verdict.cause), (HangClass::Desync, vec![7], "program"));
    assert_eq!(verdict.culprits[0].state, "is in broadcast [1048576]");
    assert!(verdict.text.contains("rank 7 is in another operation than the 63 others"), "{}", verdict.text);
    let at = verdict.evidence.iter().find(|one| one.name == "sequence").map(|one| one.text.as_str());
    assert_eq!(at, Some("rank 7 is at collective 1,205 of group 0, others at 1,204"));
    // In the next one of the same kind it may have been served where the others were not.
    let verdict = ask(&ahead("all_reduce"), &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, verdict.culprits.len()), (HangClass::Network, 0));
    // Where all but one have left, it is the one.
    let mut ranks = waiting();
    for rank in ranks.iter_mut().filter(|rank| rank.rank != 7) {
        (rank.collectives[0].entered, rank.collectives[0].completed) = (1205, 1204);
    }
    let verdict = ask(&ranks, &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::NotEntered, vec![7]));
}

#[test]
fn ranks_that_have_launched_more_or_less_ahead_wait_for_the_one_that_has_not() {
    // What is launched is counted as entered: up to six operations ahead of the one that does not end.
    let mut ranks = waiting();
    for rank in &mut ranks {
        rank.collectives[0].entered = 1204 + i64::from(rank.rank % 7);
    }
    assert_eq!(ask(&ranks, &[], 60, &[]).expect("a hang").class, HangClass::Network);
    ranks[42].collectives[0].entered = 1203;
    let verdict = ask(&ranks, &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::NotEntered, vec![42]));
}

#[test]
fn a_rank_that_is_silent_is_gone() {
    let verdict = ask(&waiting(), &[], 60, &[30]).expect("a hang");
    assert_eq!((verdict.class, culprits(&verdict), verdict.cause), (HangClass::Dead, vec![30], "process"));
    assert_eq!(verdict.culprits[0].state, "is silent for 60 s");
    let killed = Fault {
        time_ns: T0 + SECOND,
        host: "host-3".to_owned(),
        rank: Some(30),
        text: "the kernel killed the process for its memory".to_owned(),
        is_hardware: false,
        action: String::new(),
    };
    let verdict = ask(&waiting(), &[killed], 60, &[30]).expect("a hang");
    assert_eq!(verdict.cause, "process");
    assert!(verdict.text.contains("killed the process for its memory on host-3, 1 s after the last step"));
    // If nothing is heard of anybody it may be the way to us that is broken.
    let all: Vec<u32> = (0..64).collect();
    let verdict = ask(&waiting(), &[], 60, &all).expect("a hang");
    assert_eq!((verdict.class, verdict.culprits.len()), (HangClass::Unknown, 0));
}

#[test]
fn who_waits_in_another_group_is_held_up_itself() {
    // Rank 42 hangs. Its tensor group of eight waits for it, and replicas wait for those.
    let mut ranks = waiting();
    for rank in &mut ranks {
        let in_group = rank.rank / 8 == 5;
        rank.collectives[0].entered = if in_group { 1203 } else { 1204 };
        rank.collectives.push(Collective {
            group: format!("tensor-{}", rank.rank / 8),
            entered: if in_group && rank.rank != 42 { 90_001 } else { 90_000 },
            completed: 90_000,
            op: "all_gather".to_owned(),
            sizes: String::new(),
        });
    }
    let verdict = ask(&ranks, &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::NotEntered, vec![42]));
}

#[test]
fn ranks_that_wait_for_each_other_in_a_ring_run_different_programs() {
    let mut ranks = waiting();
    ranks.truncate(2);
    let of = |group: &str, entered| Collective {
        group: group.to_owned(),
        entered,
        completed: 4,
        ..Collective::default()
    };
    ranks[0].collectives = vec![of("a", 5), of("b", 4)];
    ranks[1].collectives = vec![of("a", 4), of("b", 5)];
    let verdict = ask(&ranks, &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::Desync, vec![0, 1]));
    assert!(verdict.text.contains("ranks 0, 1 wait for each other in a ring"), "{}", verdict.text);
}

#[test]
fn without_operations_the_rank_with_fewer_steps_is_named() {
    let mut ranks = waiting();
    for rank in &mut ranks {
        rank.collectives.clear();
    }
    assert_eq!(ask(&ranks, &[], 60, &[]).expect("a hang").class, HangClass::Unknown);
    ranks[9].last_step = Some(599);
    let verdict = ask(&ranks, &[], 60, &[]).expect("a hang");
    assert_eq!((verdict.class, culprits(&verdict)), (HangClass::NotEntered, vec![9]));
}

#[test]
fn checkpoints_evaluation_and_the_start_are_no_hang() {
    for phase in [Phase::Checkpoint, Phase::Evaluation, Phase::Startup] {
        let mut ranks = stuck();
        ranks[3].phase = phase;
        assert_eq!(ask(&ranks, &[], 600, &[]), None, "{phase:?}");
        // A rank that is gone does not excuse the others for ever.
        assert_eq!(ask(&ranks, &[], 600, &[3]).expect("a hang").class, HangClass::Dead);
    }
    let mut ranks = stuck();
    for rank in &mut ranks {
        rank.phase = Phase::Finished;
    }
    assert_eq!(ask(&ranks, &[], 600, &[]), None);
    // Before the first step there is nothing to measure by.
    let mut ranks = stuck();
    for rank in &mut ranks {
        rank.last_step_time_ns = None;
    }
    assert_eq!(ask(&ranks, &[], 600, &[]), None);
    assert_eq!(ask(&[], &[], 600, &[]), None);
}

#[test]
fn long_steps_are_given_two_of_them() {
    let ranks = stuck();
    let at = |after: i64| {
        let mut ranks = ranks.clone();
        for rank in &mut ranks {
            rank.last_heartbeat_ns = Some(T0 + after * SECOND);
        }
        judge(&HangAsk { now_ns: T0 + after * SECOND, step_seconds: Some(150.0), ranks: &ranks, faults: &[] })
    };
    assert_eq!(at(299), None);
    assert!(at(300).is_some());
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(T0), T0..T0 + 100 * SECOND, any::<i64>()]
}

prop_compose! {
    fn any_rank()(
        rank in 0..6_u32,
        host in "[ab]?",
        (last_step, last_step_time_ns, last_heartbeat_ns) in
            (prop::option::of(number()), prop::option::of(number()), prop::option::of(number())),
        collectives in prop::collection::vec(("[xy]", number(), number(), "(all_reduce|send)?", "[0-9]?"), 0..3),
        is_away in prop::bool::weighted(0.1),
    ) -> HangInput {
        let collectives = collectives.into_iter().map(|(group, entered, completed, op, sizes)| Collective {
            group, entered, completed, op, sizes,
        });
        let phase = if is_away { Phase::Evaluation } else { Phase::Training };
        let collectives = collectives.collect();
        let lull_end_ns = None;
        HangInput { rank, host, last_step, last_step_time_ns, last_heartbeat_ns, collectives, phase, lull_end_ns }
    }
}

proptest! {
    #[test]
    fn any_ranks_give_a_verdict_of_themselves(
        ranks in prop::collection::vec(any_rank(), 0..8),
        (now_ns, fault_ns) in (number(), number()),
        step_seconds in prop::option::of(prop_oneof![Just(f64::NAN), Just(-1.0), Just(f64::INFINITY), 0.0..1e3]),
    ) {
        let faults = [Fault { time_ns: fault_ns, ..xid() }];
        let ask = HangAsk { now_ns, step_seconds, ranks: &ranks, faults: &faults };
        if let Some(verdict) = judge(&ask) {
            let known = |rank: u32| ranks.iter().any(|one| one.rank == rank);
            prop_assert!(verdict.culprits.iter().all(|culprit| known(culprit.rank)));
            prop_assert!((0.0..=1.0).contains(&verdict.confidence));
            prop_assert!(now_ns > verdict.since_ns);
            prop_assert!(!verdict.text.contains("NaN") && !verdict.actions.is_empty());
        }
    }
}
