//! Steps and runs told apart by their spans.

use insight::breakdown::{Iteration, PHASES, Row, Slice, merge, of_rank, walls};
use insight::clocks::{End, Shift, shifts};
use insight::goodput::{KINDS, goodput};

const S: i64 = 1_000_000_000;

fn slice(from: f64, to: f64, parent: Option<usize>, share: u8) -> Slice {
    let ns = |seconds: f64| (seconds * S as f64) as i64;
    Slice { start_ns: ns(from), end_ns: ns(to), parent, share: Some(share) }
}

fn iteration(number: i64, from: f64, to: f64) -> Iteration {
    let slice = slice(from, to, None, 0);
    Iteration { number, start_ns: slice.start_ns, end_ns: slice.end_ns }
}

fn share(name: &str) -> u8 {
    PHASES.iter().take_while(|phase| **phase != name).count() as u8
}

fn seconds(row: &Row, name: &str) -> f64 {
    row.phases_ns[usize::from(share(name))] as f64 / S as f64
}

/// Two iterations of 4 s with a checkpoint of 2 s in between.
fn two() -> (Vec<Iteration>, Vec<Slice>) {
    let iterations = vec![iteration(1, 0.0, 4.0), iteration(2, 6.0, 10.0)];
    let mut slices = vec![slice(4.0, 6.0, None, share("checkpoint"))];
    for start in [0.0, 6.0] {
        let parent = slices.len();
        slices.push(slice(start, start + 4.0, None, share("unattributed")));
        slices.push(slice(start + 0.5, start + 3.0, Some(parent), share("forward_backward")));
        slices.push(slice(start + 1.0, start + 1.5, Some(parent + 1), share("communication")));
        slices.push(slice(start + 3.0, start + 3.5, Some(parent), share("optimizer")));
    }
    (iterations, slices)
}

#[test]
fn what_lies_between_two_iterations_belongs_to_the_later() {
    let (iterations, slices) = two();
    let rows = of_rank(&iterations, &[], &slices);
    let told = |row: &Row| PHASES.map(|phase| seconds(row, phase));
    assert_eq!(told(&rows[0]), [2.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(told(&rows[1]), [2.0, 0.5, 0.5, 0.0, 2.0, 0.0, 0.0, 1.0]);
    assert_eq!((rows[0].wall_ns, rows[1].wall_ns), (4 * S, 6 * S));
}

#[test]
fn no_wall_reaches_over_a_restart_or_a_gap_in_the_numbers() {
    let iterations =
        [iteration(1, 0.0, 1.0), iteration(2, 2.0, 3.0), iteration(4, 5.0, 6.0), iteration(5, 9.0, 10.0)];
    let starts =
        |breaks: &[i64]| walls(&iterations, breaks).iter().map(|wall| wall.0 / S).collect::<Vec<_>>();
    assert_eq!(starts(&[]), [0, 1, 5, 6]);
    assert_eq!(starts(&[0, 8 * S]), [0, 1, 5, 9]);
}

#[test]
fn phases_add_up_to_the_wall_for_any_bucket_and_any_ranks() {
    let (iterations, slices) = two();
    let first = of_rank(&iterations, &[], &slices);
    let second = of_rank(&iterations[..1], &[], &[]);
    for buckets in [1, 2, 1_000] {
        let columns = merge(&[first.clone(), second.clone()], buckets);
        assert!(columns.sum_error_ratio < 1e-12, "{columns:?}");
        assert_eq!((columns.iterations, columns.count.iter().sum::<u64>()), (2, 2));
    }
    let columns = merge(&[first, second], 10);
    assert_eq!((columns.x, columns.wall_seconds), (vec![1, 2], vec![4.0, 6.0]));
    assert_eq!(columns.seconds[0], [1.0, 2.0], "the mean of the two ranks, then of the one");
}

#[test]
fn of_an_iteration_that_was_done_twice_the_later_counts() {
    let rows = vec![
        Row { number: 5, wall_ns: S, phases_ns: [S, 0, 0, 0, 0, 0, 0, 0] },
        Row { number: 5, wall_ns: 3 * S, phases_ns: [3 * S, 0, 0, 0, 0, 0, 0, 0] },
    ];
    let columns = merge(&[rows], 10);
    assert_eq!((columns.wall_seconds, columns.iterations), (vec![3.0], 1));
    assert_eq!(merge(&[], 10).iterations, 0);
}

#[test]
fn time_is_productive_in_iterations_but_for_what_they_wait_for() {
    let kind = |name: &str| KINDS.iter().position(|kind| *kind == name).unwrap() as u8;
    let spans = vec![
        slice(0.0, 10.0, None, kind("startup")),
        slice(10.0, 60.0, None, kind("productive")),
        slice(20.0, 25.0, Some(1), kind("checkpoint")),
        slice(80.0, 90.0, None, kind("startup")),
        slice(92.0, 100.0, None, kind("productive")),
    ];
    let told = goodput(&[spans.clone(), spans], &[0, 80 * S]).unwrap();
    let seconds = |name: &str| told.seconds[usize::from(kind(name))];
    assert_eq!(told.wall_seconds(), 100.0);
    assert_eq!(
        ["productive", "startup", "checkpoint", "restart", "idle"].map(seconds),
        [53.0, 20.0, 5.0, 20.0, 2.0]
    );
    assert_eq!(told.seconds.iter().sum::<f64>(), 100.0);
    assert_eq!(told.ratio(), 0.53);
    assert_eq!(goodput(&[], &[]), None);
    assert_eq!(goodput(&[vec![slice(5.0, 5.0, None, 0)]], &[]), None);
}

#[test]
fn a_clock_that_is_off_is_told_with_its_bound() {
    let mut ends = Vec::new();
    for number in 0..20 {
        let end_ns = number * S;
        let jitter = [0, 40_000, -30_000, 10_000, 20_000][number as usize % 5];
        for host in ["a", "b", "c"] {
            ends.push(End { host, number, end_ns: end_ns + jitter / 10 });
        }
        ends.push(End { host: "off", number, end_ns: end_ns - 1_200_000 + jitter });
    }
    ends.push(End { host: "rare", number: 3, end_ns: 9 * S });
    let found = shifts(&ends);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["off"]);
    let Shift { ahead_ns, bound_ns } = found["off"];
    assert!((ahead_ns + 1_200_000).abs() <= bound_ns && bound_ns < 50_000, "{ahead_ns} {bound_ns}");
}

#[test]
fn a_rank_that_comes_late_now_and_then_has_no_other_clock() {
    let late = [0, 0, 900_000, 0, 0, 700_000, 0, 0];
    let ends = (0..8).flat_map(|number| {
        let at = number * S;
        ["a", "b", "c"].map(|host| End {
            host,
            number,
            end_ns: at + if host == "c" { late[number as usize] } else { 0 },
        })
    });
    assert_eq!(shifts(&ends.collect::<Vec<_>>()).len(), 0);
    assert_eq!(shifts(&[]).len(), 0);
}
