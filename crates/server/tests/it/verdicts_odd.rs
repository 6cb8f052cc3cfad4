//! Verdicts on jobs that are not as they are meant to be: clocks that are all wrong, jobs that go on with fewer ranks,
//! attempts that overlap, ranks that have nothing to tell.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fleet_peer::Site;
use crate::verdicts::{Job, SECOND, Work, jitter, near, now_ns, of_class, said};

fn slow(rank: u32, step: i64, who: u32, since: i64) -> Work {
    Work::of(jitter(rank, step) * if rank == who && step >= since { 1.25 } else { 1.0 })
}

#[test]
fn a_job_whose_clocks_are_all_behind_is_judged_and_its_end_is_seen() {
    let site = Site::new();
    let mut job = Job::of("behind", 16);
    job.ahead_ns = |_| -300 * SECOND;
    job.all(&site, 0..180, &|rank, step| slow(rank, step, 7, 100));
    // By its own clocks it has been silent for five minutes, but its signs of life go on coming.
    let began = Instant::now();
    let health = loop {
        job.live(&site, 0..16, 2);
        let health = job.health(&site);
        if health["watched"]["last_step"] == 179
            && said(&health).iter().any(|(class, ..)| class == "straggler")
        {
            break health;
        }
        assert!(began.elapsed() < Duration::from_secs(50), "{health:#}");
        std::thread::sleep(Duration::from_secs(1));
    };
    assert_eq!(health["state"], "page");
    assert_eq!(of_class(&health, "straggler")["ranks"], json!([7]));
    job.live(&site, 0..16, 3);
    let over = job.health_when(&site, &|health| health["verdicts"].as_array().unwrap().is_empty());
    assert!(over["reason"].as_str().unwrap().contains("finished"), "{over:#}");
}

#[test]
fn what_was_kept_of_a_run_that_is_over_does_not_make_it_go_on() {
    let site = Site::new();
    let mut job = Job::of("kept", 4);
    job.ahead_ns = |_| -400 * SECOND;
    // All within a moment, as a spool is adopted.
    for (at, ago) in [(0_i64, 300_i64), (60, 200), (120, 100)] {
        job.ahead_ns = match ago {
            300 => |_| -700 * SECOND,
            200 => |_| -600 * SECOND,
            _ => |_| -500 * SECOND,
        };
        job.push(&site, at..at + 60, now_ns(), &|_, _| true, &|rank, step| slow(rank, step, 9, 0));
    }
    let mut other = Job::of("other", 4);
    other.all(&site, 0..60, &|rank, step| slow(rank, step, 9, 0));
    other.looked_at(&site, 59);
    let health = job.health(&site);
    assert_eq!((health["watched"].clone(), said(&health)), (Value::Null, Vec::new()), "{health:#}");
    assert!(health["reason"].as_str().unwrap().contains("stale"), "{health:#}");
}

#[test]
fn a_job_that_goes_on_with_fewer_ranks_is_judged_and_nobody_is_missed() {
    let site = Site::new();
    let mut job = Job::of("fewer", 16);
    job.push(&site, 0..60, now_ns() - 300 * SECOND, &|_, _| true, &|rank, step| slow(rank, step, 99, 0));
    job.looked_at(&site, 59);
    // Killed, and started again at once with half the ranks: the same attempt, for nobody knows of the others' end.
    (job.start, job.ranks) = (1, 8);
    job.push(&site, 50..230, now_ns(), &|_, _| true, &|rank, step| slow(rank, step, 3, 150));
    let health = job.looked_at(&site, 229);
    assert_eq!(said(&health), [("straggler".to_owned(), "page".to_owned(), vec![3])], "{health:#}");
    assert_eq!((&health["watched"]["ranks"], &health["watched"]["of"]), (&json!(8), &json!(8)));
    near(&of_class(&health, "straggler")["onset"]["step"], 150.0, 5.0);
}

#[test]
fn ranks_that_never_tell_a_step_are_not_silent() {
    let site = Site::new();
    let mut job = Job::of("first only", 16);
    job.push(&site, 0..200, now_ns(), &|rank, _| rank == 0, &|rank, step| slow(rank, step, 99, 0));
    job.live(&site, 0..16, 2);
    let health = job.looked_at(&site, 199);
    assert_eq!(said(&health), [], "{health:#}");
}

#[test]
fn an_attempt_that_goes_on_from_a_checkpoint_is_judged_over_a_restart_and_beside_what_came_late() {
    let mut site = Site::new();
    let mut job = Job::of("resumed", 16);
    job.push(&site, 0..200, now_ns() - 20 * SECOND, &|_, _| true, &|rank, step| slow(rank, step, 99, 0));
    job.looked_at(&site, 199);
    (job.start, job.token) = (1, "again");
    job.push(&site, 100..160, now_ns() - 10 * SECOND, &|_, _| true, &|rank, step| slow(rank, step, 5, 120));
    let health =
        job.health_when(&site, &|health| said(health).iter().any(|(class, ..)| class == "straggler"));
    assert_eq!(health["watched"]["last_step"], 159, "{health:#}");
    let id = of_class(&health, "straggler")["id"].clone();
    // A process of the attempt before has something to tell yet.
    (job.start, job.token, job.ahead_ns) = (0, "job", |_| -600 * SECOND);
    job.push(&site, 200..206, now_ns(), &|rank, _| rank == 3, &|rank, step| slow(rank, step, 99, 0));
    (job.start, job.token, job.ahead_ns) = (1, "again", |_| 0);
    job.all(&site, 160..170, &|rank, step| slow(rank, step, 5, 120));
    let health = job.health_when(&site, &|health| health["watched"]["last_step"] == 169);
    assert_eq!(of_class(&health, "straggler")["id"], id);
    site.restart();
    job.all(&site, 170..180, &|rank, step| slow(rank, step, 5, 120));
    let health = job.health_when(&site, &|health| health["watched"]["last_step"] == 179);
    let row = of_class(&health, "straggler");
    assert_eq!((&row["id"], &row["ranks"]), (&id, &json!([5])));
    assert_eq!(crate::verdicts::events(&site, &job).len(), 1, "{:?}", crate::verdicts::events(&site, &job));
}

#[test]
fn a_host_that_falls_silent_is_named_and_each_of_its_ranks_is_a_series() {
    let site = Site::with(|config| config.own_metrics_interval = Duration::from_secs(1));
    let mut job = Job::of("host", 32);
    let work = |rank, step| slow(rank, step, 99, 0);
    let began = Instant::now();
    job.push(&site, 0..200, now_ns(), &|rank, step| rank / 8 != 2 || step < 100, &work);
    let health = job.health_when(&site, &|health| !said(health).is_empty());
    let ranks: Vec<u64> = (16..24).collect();
    assert_eq!(said(&health), [("silent".to_owned(), "warn".to_owned(), ranks)], "{health:#}");
    let row = of_class(&health, "silent");
    assert_eq!((&row["claim"], &row["host"]), (&json!("host-2 is silent with 8 ranks"), &json!("host-2")));
    let series = || site.query("tg_rank_silent_seconds{host=\"host-2\"}");
    let first = series();
    assert_eq!(first.len(), 8);
    // A hundred steps of more than a second and what has gone by since, and it goes on growing.
    let most = 120.0 + began.elapsed().as_secs_f64();
    assert!(first.iter().all(|(_, seconds)| (110.0..most).contains(seconds)), "{first:?}");
    job.live(&site, 0..16, 2);
    let grown = |seconds: f64| series().iter().all(|(_, now)| *now > seconds);
    assert!((0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        grown(first[0].1 + 1.0)
    }));
    job.all(&site, 200..210, &work);
    let over = job.health_when(&site, &|health| said(health).is_empty());
    assert_eq!(over["history"][0]["class"], "silent");
    assert!(series().is_empty());
}

#[test]
fn a_rank_that_is_silent_stays_so_between_the_steps_of_a_job_whose_steps_are_long() {
    let site = Site::new();
    let mut job = Job::of("long steps", 8);
    job.exchange = 80.0;
    let work = |rank, step| slow(rank, step, 99, 0);
    // Its last step was forty seconds ago, and the next is not due yet.
    let end_ns = now_ns() - 40 * SECOND;
    job.push(&site, 0..30, end_ns, &|rank, step| rank != 6 || step < 20, &work);
    job.live(&site, 0..8, 2);
    let health = job.health_when(&site, &|health| !said(health).is_empty());
    assert_eq!(said(&health), [("silent".to_owned(), "warn".to_owned(), vec![6])], "{health:#}");
}
