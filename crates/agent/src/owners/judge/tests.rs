use super::super::allocation::Given;
use super::*;

const CARD: &str = "GPU-aaaaaaaa";

fn board(slices: u32) -> Board {
    let slices = (1..=slices).map(|gi| super::super::boards::Slice { name: format!("MIG-{gi}"), gi });
    Board { gpu: 3, uuid: CARD.into(), slices: slices.collect(), ..Board::default() }
}

fn at(gi: Option<u32>) -> Place {
    Place { uuid: CARD.into(), gi }
}

fn given(pod: &str, gi: Option<u32>) -> Allocation {
    let given = Given {
        namespace: "ml".into(),
        pod: pod.into(),
        container: "main".into(),
        id: format!("{CARD}::{pod}"),
    };
    Allocation { place: Some(at(gi)), given }
}

fn process(pid: u32, gi: Option<u32>, who: Who) -> Usage {
    let is_of_pod = !who.pod.is_empty();
    Usage { place: at(gi), pid, start_ticks: 1, name: "python3".into(), who, is_of_pod, ..Usage::default() }
}

fn pod(name: &str) -> Who {
    Who { namespace: "ml".into(), pod: name.into(), ..Who::default() }
}

fn job(id: &str) -> Who {
    Who { job_id: id.into(), ..Who::default() }
}

fn run(id: &str) -> Who {
    Who { run_id: id.into(), ..Who::default() }
}

/// Judged twice, as two looks after another.
fn judged(slices: u32, allocations: Option<&[Allocation]>, usages: &[Usage]) -> Judgement {
    let boards = [board(slices)];
    let known =
        |confirmed: &BTreeSet<String>| judge(&Known { boards: &boards, allocations, usages, confirmed });
    let keys = known(&BTreeSet::new()).mismatches.into_iter().map(|mismatch| mismatch.key).collect();
    known(&keys)
}

/// Every owner as `who slice shared confidence`.
fn check(slices: u32, allocations: Option<&[Allocation]>, usages: &[Usage], wanted: &[&str]) {
    let judgement = judged(slices, allocations, usages);
    let line = |owner: &Owner| {
        let who = &owner.who;
        let names = [&*who.pod, &*who.job_id, &*who.container, &*who.run_id];
        let mut parts: Vec<String> =
            names.iter().filter(|name| !name.is_empty()).map(ToString::to_string).collect();
        parts.extend(owner.place.gi.map(|gi| format!("gi={gi}")));
        parts.extend(owner.shared.map(|shares| format!("of={shares}")));
        parts.push(owner.confidence.as_str().into());
        assert_eq!((owner.gpu, &*owner.place.uuid), (3, CARD));
        parts.join(" ")
    };
    let found: Vec<String> = judgement.owners.iter().map(line).collect();
    assert_eq!(found, wanted);
    let disputes = found.iter().filter(|line| line.ends_with("conflict")).count();
    assert_eq!(disputes > 0, !judgement.mismatches.is_empty(), "{found:?} {:?}", judgement.mismatches);
}

#[test]
fn a_pod_that_computes_on_what_it_was_given_is_certain() {
    let one = [given("a", None)];
    check(0, Some(&one), &[process(1, None, pod("a"))], &["a main certain"]);
    check(0, Some(&one), &[], &["a main likely"]);
    let unnamed = Usage { is_of_pod: true, ..process(1, None, Who::default()) };
    check(0, Some(&one), std::slice::from_ref(&unnamed), &["a main likely"]);
    // A run that its process names is the pod's.
    let named = Usage { who: Who { run_id: "r".into(), ..pod("a") }, ..process(1, None, pod("a")) };
    check(0, Some(&one), &[named, process(2, None, pod("a"))], &["a main r certain"]);
    // Replicas of one container are one share.
    check(0, Some(&[given("a", None), given("a", None)]), &[], &["a main likely"]);
    // Which of two pods an unnamed process is can't be told, and is no reason to complain.
    check(
        0,
        Some(&[given("a", None), given("b", None)]),
        &[unnamed],
        &["a main of=2 likely", "b main of=2 likely"],
    );
}

#[test]
fn whoever_computes_where_another_was_given_the_card_is_in_conflict() {
    let one = [given("a", None)];
    check(0, Some(&one), &[process(1, None, pod("b"))], &["a main of=2 conflict", "b of=2 conflict"]);
    check(0, Some(&one), &[process(1, None, job("7"))], &["7 of=2 conflict", "a main of=2 conflict"]);
    check(0, Some(&one), &[process(1, None, Who::default())], &["a main conflict"]);
    check(0, Some(&[]), &[process(1, None, pod("b"))], &["b conflict"]);
    let judgement = judged(0, Some(&one), &[process(41, None, job("7"))]);
    assert_eq!(
        judgement.mismatches[0].text,
        "process 41 (`python3`) of Slurm job 7 computes on GPU 3, which the kubelet gave to pod `ml/a`"
    );
    // The programs that serve everybody are nobody's.
    let server = Usage { name: "nvidia-cuda-mps-server".into(), ..process(1, None, Who::default()) };
    check(0, Some(&one), &[server], &["a main likely"]);
}

#[test]
fn what_is_at_odds_for_one_look_only_is_no_conflict() {
    let boards = [board(0)];
    let (one, usages) = ([given("a", None)], [process(1, None, pod("b"))]);
    let known =
        Known { boards: &boards, allocations: Some(&one), usages: &usages, confirmed: &BTreeSet::new() };
    let judgement = judge(&known);
    assert!(judgement.owners.iter().all(|owner| owner.confidence == Confidence::Likely));
    assert_eq!(judgement.mismatches.len(), 1);
}

#[test]
fn jobs_and_runs_own_what_nobody_gave_out() {
    let certain = Usage { is_given: true, ..process(1, None, job("7")) };
    check(0, None, &[certain, process(2, None, job("7"))], &["7 certain"]);
    check(
        0,
        None,
        &[process(1, None, job("7")), process(2, None, job("8"))],
        &["7 of=2 likely", "8 of=2 likely"],
    );
    check(0, None, &[process(1, None, run("r"))], &["r likely"]);
    check(0, None, &[process(1, None, Who::default())], &[]);
    check(0, None, &[], &[]);
    let lock = Usage { is_by_lock: true, ..process(1, None, run("r")) };
    check(0, None, std::slice::from_ref(&lock), &["r likely"]);
    check(0, None, &[lock.clone(), process(2, None, job("7"))], &["7 likely"]);
    check(0, Some(&[given("a", None)]), &[lock], &["a main likely"]);
}

#[test]
fn slices_say_who_shares_the_card() {
    let two = [given("a", Some(1)), given("b", Some(2))];
    check(
        2,
        Some(&two),
        &[process(1, Some(2), pod("b"))],
        &["a main gi=1 of=2 likely", "b main gi=2 of=2 certain"],
    );
    // One who has two slices has no whole card either.
    let both = [given("a", Some(1)), given("a", Some(2))];
    check(2, Some(&both), &[], &["a main gi=1 of=2 likely", "a main gi=2 of=2 likely"]);
    let wrong = [process(1, Some(1), pod("b"))];
    check(
        2,
        Some(&two),
        &wrong,
        &["a main gi=1 of=3 conflict", "b gi=1 of=3 conflict", "b main gi=2 of=3 likely"],
    );
}

#[test]
fn cards_that_were_given_are_counted_even_when_the_driver_lost_them() {
    let count =
        |allocations: Option<&[Allocation]>, usages: &[Usage]| judged(0, allocations, usages).allocated;
    let lost = Allocation { place: None, ..given("b", None) };
    let lost = Allocation { given: Given { id: "GPU-bbbbbbbb::1".into(), ..lost.given }, ..lost };
    assert_eq!(count(Some(&[]), &[]), Some(0));
    assert_eq!(count(Some(&[given("a", None), given("b", None), lost.clone()]), &[]), Some(2));
    assert_eq!(count(None, &[]), None);
    assert_eq!(count(None, &[process(1, None, job("7"))]), Some(1));
    let mismatches = judged(0, Some(&[lost]), &[]).mismatches;
    assert_eq!(
        mismatches[0].text,
        "the kubelet gave `GPU-bbbbbbbb::1` to pod `ml/b`, and the driver has no such card"
    );
}
