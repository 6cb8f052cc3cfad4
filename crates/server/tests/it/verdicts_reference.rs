//! The reference scenarios through a whole server, to their printed digits: jobs of 64 ranks in which something is
//! wrong from step 100 on. What is printed is of the first window, the steps 100 to 119. A verdict takes three windows,
//! so it is held against that at the first window with which it is told: this one, or one or two later.

use serde_json::{Value, json};
use wire::push::{Attribute, PushRequest};

use crate::fleet_peer::{Agent, Site};
use crate::verdicts::{EXCHANGE, Job, SECOND, Work, deliver, jitter, near, now_ns, of_class, said};

const RANKS: u32 = 64;

/// Busy seconds of a rank in a step, and those of them in which it reads its data.
type Busy = fn(u32, i64) -> (f64, f64);

#[derive(Clone, Copy)]
struct Scene {
    name: &'static str,
    busy: Busy,
    exchange: f64,
    with_stages: bool,
    /// The last step of the window.
    last: i64,
}

impl Scene {
    fn of(name: &'static str, busy: Busy) -> Self {
        Self { name, busy, exchange: EXCHANGE, with_stages: false, last: 119 }
    }

    /// Plays the steps up to the last, and gives what is said then.
    fn play(self, site: &Site) -> Value {
        let mut job = Job::of(self.name, RANKS);
        if self.with_stages {
            let stage = |rank: u32| Attribute {
                key: format!("parallel/{rank}/pp"),
                if_absent: false,
                value: Some(wire::push::Value::Int(i64::from(rank / 16))),
            };
            let attributes: Vec<Attribute> = (0..RANKS).map(stage).collect();
            deliver(site, &PushRequest { attributes, ..job.request(0, now_ns(), 1, Vec::new()) });
        }
        let work = |rank: u32, step: i64| {
            let (own, data) = if step < 100 { (jitter(rank, step), 0.0) } else { (self.busy)(rank, step) };
            Work { own, data, checkpoint: 0.0 }
        };
        job.push(site, 0..100, now_ns() - 60 * SECOND, &|_, _| true, &work);
        job.exchange = self.exchange;
        job.all(site, 100..self.last + 1, &work);
        job.looked_at(site, self.last)
    }
}

fn slower(rank: u32, step: i64, times: f64) -> (f64, f64) {
    (jitter(rank, step) * times, 0.0)
}

fn healthy(rank: u32, step: i64) -> (f64, f64) {
    slower(rank, step, 1.0)
}

/// The only verdict.
fn only<'h>(health: &'h Value, class: &str, level: &str, ranks: &[u64]) -> &'h Value {
    assert_eq!(said(health), [(class.to_owned(), level.to_owned(), ranks.to_vec())], "{health:#}");
    let row = of_class(health, class);
    near(&row["onset"]["step"], 100.0, 3.0);
    row
}

fn evidence<'h>(row: &'h Value, name: &str) -> &'h Value {
    let all = row["evidence"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {row:#}"))
}

#[test]
fn s0_a_healthy_job_has_no_verdict_and_its_steps_are_as_long_as_they_were() {
    let site = Site::new();
    let health = Scene::of("s0", healthy).play(&site);
    assert_eq!((said(&health), &health["state"]), (Vec::new(), &json!("ok")));
    near(&health["figures"]["step_seconds_median"]["value"], 1.1599, 1e-3);
    assert!(site.query("tg_straggler").is_empty() && site.query("tg_run_slowdown").is_empty());
}

#[test]
fn s1_a_slow_rank() {
    let site = Site::new();
    let scene = Scene::of("s1", |rank, step| slower(rank, step, if rank == 17 { 1.25 } else { 1.0 }));
    let health = scene.play(&site);
    let row = only(&health, "straggler", "page", &[17]);
    near(&row["rho"], 1.2495, 1e-3);
    near(&row["z"], 49.9, 0.1);
    near(&row["wait_seconds"], 0.150, 1e-3);
    near(&row["peers_wait_seconds"], 0.3997, 1e-3);
    near(&row["step_seconds"], 1.3998, 1e-3);
    near(&row["gain_ratio"], 0.1714, 1e-3);
    near(&evidence(row, "last")["value"], 1.0, 1e-9);
    assert_eq!(evidence(row, "wait")["text"], "rank 17 waited 0.150 s, peers 0.400 s");
}

#[test]
fn s2_a_slow_exchange() {
    let site = Site::new();
    let health = Scene { exchange: 0.45, ..Scene::of("s2", healthy) }.play(&site);
    let row = only(&health, "communication", "page", &[]);
    near(&row["rho"], 3.0, 1e-3);
    near(&row["step_seconds"], 1.4599, 1e-3);
    near(&evidence(row, "communication")["value"], 0.45, 1e-3);
    assert_eq!(row["action"]["word"], "check_links");
}

#[test]
fn s3_a_slow_loader() {
    let site = Site::new();
    let scene = Scene::of("s3", |rank, step| {
        let data = if rank == 5 { 0.15 } else { 0.0 };
        (jitter(rank, step) + data, data)
    });
    let health = Scene { last: 124, ..scene }.play(&site);
    let row = only(&health, "straggler", "page", &[5]);
    near(&row["rho"], 1.1492, 1e-3);
    near(&row["z"], 29.8, 0.2);
    near(&row["gain_ratio"], 0.1075, 1e-3);
    assert_eq!((&row["cause"], &row["action"]["word"]), (&json!("host_data"), &json!("check_host")));
}

#[test]
fn s4_a_stage_that_has_more_to_do() {
    let site = Site::new();
    let busy: Busy = |rank, step| slower(rank, step, if rank >= 48 { 1.12 } else { 1.0 });
    let health = Scene { with_stages: true, ..Scene::of("s4", busy) }.play(&site);
    let row = only(&health, "stage_imbalance", "warn", &[]);
    assert_eq!((&row["stage"], &row["action"]["word"]), (&json!(3), &json!("rebalance")));
    near(&row["rho"], 1.1208, 1e-3);
    // The own time of the stage, and of the others.
    near(&evidence(row, "stage")["value"], 1.1208, 1e-3);
    near(&evidence(row, "stage")["peers"], 1.000, 1e-3);
    assert!(site.query("tg_straggler").is_empty());
}

#[test]
fn s5_another_rank_in_every_step() {
    let site = Site::new();
    let scene = Scene::of("s5", |rank, step| {
        slower(rank, step, if i64::from(rank) == (13 * step) % 64 { 1.2 } else { 1.0 })
    });
    let health = scene.play(&site);
    let row = only(&health, "rotating", "warn", &[]);
    near(&row["step_seconds"], 1.3519, 1e-3);
    assert_eq!(row["action"]["word"], "rebalance");
    assert!(site.query("tg_straggler").is_empty());
}

#[test]
fn s7_a_slow_host() {
    let site = Site::new();
    let scene = Scene::of("s7", |rank, step| slower(rank, step, if rank / 8 == 3 { 1.08 } else { 1.0 }));
    let health = Scene { last: 124, ..scene }.play(&site);
    let row = only(&health, "node", "warn", &(24..32).collect::<Vec<_>>());
    assert_eq!(row["host"], "host-3");
    near(&row["rho"], 1.080, 1e-3);
    near(&row["z"], 16.0, 0.5);
    near(&row["gain_ratio"], 0.0640, 1e-3);
}

#[test]
fn s8_a_rank_that_is_always_last() {
    let site = Site::new();
    let scene = Scene::of("s8", |rank, step| slower(rank, step, if rank == 9 { 1.03 } else { 1.0 }));
    let health = Scene { last: 129, ..scene }.play(&site);
    let row = only(&health, "consistently_last", "info", &[9]);
    near(&row["step_seconds"], 1.1802, 1e-3);
    near(&evidence(row, "last")["value"], 1.0, 1e-9);
}

/// How far a rank is in the collectives of its group, as its process tells.
fn progress(rank: u32, at_ns: i64, entered: i32, completed: i32) -> Vec<wire::push::Series> {
    let label = [("rank".to_owned(), rank.to_string()), ("group".to_owned(), "dp".to_owned())];
    let series = |name: &str, value: i32| {
        let sample = model::Sample { time_ns: at_ns, value: f64::from(value), step: None };
        wire::push::Series::new(name, &label, "", &[sample])
    };
    vec![series("train_collective_sequence", entered), series("train_collective_completed", completed)]
}

#[test]
fn s6_a_rank_that_does_not_enter_is_told_within_a_minute_with_the_fault_beside_it() {
    let site = Site::new();
    let mut job = Job::of("s6", RANKS);
    // Half a minute may go by before it is a hang; the rest of the minute is what the test waits at most.
    let at_ns = (now_ns() - 25 * SECOND) / 1_000_000 * 1_000_000;
    for rank in 0..RANKS {
        let entered = if rank == 42 { 1_203 } else { 1_204 };
        deliver(&site, &job.request(rank, now_ns(), 1, progress(rank, at_ns, entered, 1_203)));
    }
    let agent = Agent::of("host-5");
    agent.push(&site, Vec::new(), &[agent.xid(at_ns - 3 * SECOND, "0000:1b:00.0", 79)]);
    job.push(&site, 0..60, at_ns, &|_, _| true, &|rank, step| Work::of(jitter(rank, step)));
    let health = job.health_when(&site, &|health| health["state"] == "page");
    assert_eq!(said(&health), [("hang".to_owned(), "page".to_owned(), vec![42])]);
    let row = of_class(&health, "hang");
    let culprit = &row["culprits"][0];
    assert_eq!(
        (&culprit["rank"], &culprit["host"], &culprit["sequence"], &culprit["completed"]),
        (&json!(42), &json!("host-5"), &json!(1_203), &json!(1_203))
    );
    assert_eq!((&row["cause"], &row["onset"]["step"]), (&json!("hardware"), &json!(59)));
    near(&row["onset"]["time"], (at_ns / 1_000_000) as f64, 50.0);
    assert_eq!(row["action"]["word"], "reboot_node,restart_from_checkpoint");
    near(&evidence(row, "fault")["value"], -3.0, 0.05);
    let sequence = "rank 42 is at collective 1,203 of group dp, others at 1,204";
    assert_eq!(evidence(row, "sequence")["text"], sequence);
}

#[test]
fn a_rank_that_ran_ahead_of_all_others_is_named() {
    let site = Site::new();
    let mut job = Job::of("ahead", 16);
    let at_ns = now_ns() - 60 * SECOND;
    for rank in 0..16 {
        let (entered, completed) = if rank == 11 { (1_205, 1_204) } else { (1_204, 1_203) };
        deliver(&site, &job.request(rank, now_ns(), 1, progress(rank, at_ns, entered, completed)));
    }
    job.push(&site, 0..60, at_ns, &|_, _| true, &|rank, step| Work::of(jitter(rank, step)));
    let health = job.health_when(&site, &|health| health["state"] == "page");
    assert_eq!(said(&health), [("hang".to_owned(), "page".to_owned(), vec![11])], "{health:#}");
    assert_eq!(of_class(&health, "hang")["cause"], "program");
}
