//! What the server says of trainings that are held up: jobs whose ranks push the times of their steps.

use std::time::Duration;

use model::{NANOS_PER_MILLI, NANOS_PER_SECOND, RunPath, Sample};
use prost::Message;
use serde_json::{Value, json};
use wire::push::{Attribute, PushRequest, Run, Series, Session};

use crate::fleet_peer::{Agent, Site};
use crate::otlp_peer::post;
use crate::trainer::{Process, Sent, span};

pub(crate) const SECOND: i64 = NANOS_PER_SECOND;
/// What the exchange between ranks costs a step, seconds.
pub(crate) const EXCHANGE: f64 = 0.15;

pub(crate) fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_nanos() as i64
}

/// A little more or less than 1, the same for the same rank and step.
pub(crate) fn jitter(rank: u32, step: i64) -> f64 {
    let mixed = (7_919 * i64::from(rank) + 104_729 * step + 31 * i64::from(rank) * step) % 2_003;
    1.0 + (mixed as f64 / 2_003.0 - 0.5) * 0.02
}

/// What one rank does in a step: busy for so long, of which waiting for data.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) own: f64,
    pub(crate) data: f64,
    pub(crate) checkpoint: f64,
}

impl Work {
    pub(crate) fn of(own: f64) -> Self {
        Self { own, data: 0.0, checkpoint: 0.0 }
    }
}

/// A job whose ranks wait for each other at the end of every step.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) ranks: u32,
    /// How often its processes were started.
    pub(crate) start: u32,
    pub(crate) token: &'static str,
    pub(crate) exchange: f64,
    sequence: u64,
    /// By how much the clock of every rank is ahead, nanoseconds.
    pub(crate) ahead_ns: fn(u32) -> i64,
}

impl Job {
    pub(crate) fn of(name: &'static str, ranks: u32) -> Self {
        Self { name, ranks, start: 0, token: "job", exchange: EXCHANGE, sequence: 0, ahead_ns: |_| 0 }
    }

    fn path(&self) -> RunPath {
        let [organization, workspace, project, run] =
            ["acme", "research", "llm", self.name].map(str::to_owned);
        RunPath { organization, workspace, project, run }
    }

    pub(crate) fn id(&self) -> String {
        self.path().id().to_string()
    }

    pub(crate) fn request(&mut self, rank: u32, at_ns: i64, event: u32, series: Vec<Series>) -> PushRequest {
        self.sequence += 1;
        let mut client_id = format!("{:_<12}", self.name).into_bytes();
        client_id.extend((rank + (self.start << 16)).to_be_bytes());
        let RunPath { organization, workspace, project, run } = self.path();
        PushRequest {
            client_id,
            sequence: self.sequence,
            run: Some(Run { organization, workspace, project, run }),
            session: Some(Session {
                time_ms: (at_ns + (self.ahead_ns)(rank)) / NANOS_PER_MILLI,
                event,
                host: format!("host-{}", rank / 8),
                pid: 100 + rank + (self.start << 16),
                rank: Some(rank),
                world_size: Some(self.ranks),
                job_token: self.token.into(),
                ..Session::default()
            }),
            series,
            ..PushRequest::default()
        }
    }

    /// Pushes steps that ended at `end_ns`, of the ranks that `who` names.
    pub(crate) fn push(
        &mut self,
        site: &Site,
        steps: std::ops::Range<i64>,
        end_ns: i64,
        who: &dyn Fn(u32, i64) -> bool,
        work: &dyn Fn(u32, i64) -> Work,
    ) {
        let longest = |step: i64| {
            (0..self.ranks)
                .filter(|rank| who(*rank, step))
                .map(|rank| work(rank, step).own)
                .fold(0.0, f64::max)
        };
        let all: Vec<f64> = steps.clone().map(|step| longest(step) + self.exchange).collect();
        let whole: f64 = all.iter().sum();
        let mut ends = Vec::new();
        let mut at = end_ns as f64 - whole * SECOND as f64;
        for seconds in &all {
            at += seconds * SECOND as f64;
            ends.push(at as i64);
        }
        let first = steps.start;
        for rank in 0..self.ranks {
            let ahead_ns = (self.ahead_ns)(rank);
            let told = steps.clone().filter(|step| who(rank, *step));
            let column = |value: &dyn Fn(i64) -> f64| -> Vec<Sample> {
                let sample = |step: i64| {
                    let time_ns =
                        (ends[(step - first) as usize] + ahead_ns) / NANOS_PER_MILLI * NANOS_PER_MILLI;
                    Sample { time_ns, value: value(step), step: Some(step) }
                };
                told.clone().map(sample).collect()
            };
            let length = |step: i64| all[(step - first) as usize];
            let label = [("rank".to_owned(), rank.to_string())];
            let series = |name: &str, samples: Vec<Sample>| Series::new(name, &label, "", &samples);
            let checkpoints: Vec<Sample> =
                column(&|step| work(rank, step).checkpoint).into_iter().filter(|s| s.value > 0.0).collect();
            let series = vec![
                series("train_step_seconds", column(&length)),
                series("train_step_wait_seconds", column(&|step| length(step) - work(rank, step).own)),
                series("train_step_data_seconds", column(&|step| work(rank, step).data)),
                series("train_step_checkpoint_seconds", checkpoints),
                series("train_step_tokens", column(&|_| 1_000.0)),
            ];
            let event = if first == 0 { 1 } else { 2 };
            let request = self.request(rank, now_ns(), event, series);
            deliver(site, &request);
        }
    }

    /// Steps of all ranks, the last just done.
    pub(crate) fn all(&mut self, site: &Site, steps: std::ops::Range<i64>, work: &dyn Fn(u32, i64) -> Work) {
        self.push(site, steps, now_ns(), &|_, _| true, work);
    }

    /// A sign of life of some ranks, or that they end.
    pub(crate) fn live(&mut self, site: &Site, ranks: std::ops::Range<u32>, event: u32) {
        for rank in ranks {
            let request = self.request(rank, now_ns(), event, Vec::new());
            deliver(site, &request);
        }
    }

    pub(crate) fn health(&self, site: &Site) -> Value {
        site.get(&format!("/api/tg/v1/runs/{}/health", self.id()))
    }

    /// The health once it is as wanted.
    pub(crate) fn health_when(&self, site: &Site, is_it: &dyn Fn(&Value) -> bool) -> Value {
        let mut health = Value::Null;
        for _ in 0..600 {
            health = self.health(site);
            if is_it(&health) {
                return health;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("not as wanted after a minute: {health:#}");
    }

    /// The health once so many steps were looked at.
    pub(crate) fn looked_at(&self, site: &Site, last_step: i64) -> Value {
        self.health_when(site, &|health| health["watched"]["last_step"].as_i64() >= Some(last_step))
    }
}

pub(crate) fn deliver(site: &Site, request: &PushRequest) {
    let answer = post(site.address(), "/api/tg/v1/push", wire::push::CONTENT_TYPE, &request.encode_to_vec());
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
}

/// Class, level and ranks of what holds.
pub(crate) fn said(health: &Value) -> Vec<(String, String, Vec<u64>)> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let ranks =
        |row: &Value| row["ranks"].as_array().unwrap().iter().map(|rank| rank.as_u64().unwrap()).collect();
    let rows = health["verdicts"].as_array().unwrap();
    rows.iter().map(|row| (text(row, "class"), text(row, "level"), ranks(row))).collect()
}

pub(crate) fn of_class<'h>(health: &'h Value, class: &str) -> &'h Value {
    let rows = health["verdicts"].as_array().unwrap();
    rows.iter().find(|row| row["class"] == class).unwrap_or_else(|| panic!("no {class}: {health:#}"))
}

pub(crate) fn near(value: &Value, want: f64, by: f64) {
    let found = value.as_f64().unwrap();
    assert!((found - want).abs() <= by, "{found} is not {want}");
}

pub(crate) fn events(site: &Site, job: &Job) -> Vec<String> {
    let answer = site.get(&format!("/api/tg/v1/events?run_id={}&kind=run", job.id()));
    let rows = answer["events"].as_array().unwrap();
    rows.iter().map(|row| row["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_healthy_job_is_told_to_be() {
    let site = Site::new();
    let mut job = Job::of("s0", 64);
    job.all(&site, 0..180, &|rank, step| Work::of(jitter(rank, step)));
    let health = job.looked_at(&site, 179);
    assert_eq!((health["state"].clone(), said(&health)), (json!("ok"), Vec::new()));
    assert_eq!(health["watched"]["ranks"], json!(64));
    near(&health["figures"]["step_seconds_median"]["value"], 1.16, 0.01);
    near(&health["figures"]["tokens_per_second"]["value"], 64_000.0 / 1.16, 500.0);
    assert!(health["money"]["usd"]["reason"].as_str().unwrap().contains("GPU"));
}

#[test]
fn a_slow_rank_is_named_with_what_it_costs_and_once_over_a_restart() {
    let mut site = Site::new();
    let mut job = Job::of("s1", 64);
    let slow = |rank: u32, step: i64| {
        let factor = if rank == 17 && step >= 100 { 1.25 } else { 1.0 };
        Work::of(jitter(rank, step) * factor)
    };
    job.all(&site, 0..180, &slow);
    let health = job.health_when(&site, &|health| health["state"] == "page");
    assert_eq!(said(&health)[0], ("straggler".into(), "page".into(), vec![17]));
    let row = of_class(&health, "straggler");
    near(&row["rho"], 1.25, 0.01);
    near(&row["gain_ratio"], 0.1714, 0.01);
    near(&row["onset"]["step"], 100.0, 5.0);
    assert_eq!((row["host"].as_str(), row["cleared"].clone()), (Some("host-2"), Value::Null));
    assert!(row["evidence"].as_array().unwrap().iter().any(|one| one["metric"].is_string()), "{row:#}");
    let series = site.query("tg_straggler");
    assert_eq!(series.len(), 1);
    assert_eq!((series[0].0["rank"].as_str(), series[0].0["level"].as_str()), (Some("17"), Some("page")));
    assert!((series[0].1 - 0.1714).abs() < 0.01, "{series:?}");
    let listed = site.get("/api/tg/v1/runs");
    assert_eq!(listed["runs"][0]["verdict"]["level"], json!("page"));
    // A restart in the middle: the same verdict, raised once.
    site.restart();
    job.live(&site, 0..64, 2);
    job.all(&site, 180..200, &slow);
    let again = job.looked_at(&site, 199);
    assert_eq!(of_class(&again, "straggler")["id"], row["id"]);
    assert_eq!(of_class(&again, "straggler")["since"], row["since"]);
    assert_eq!(events(&site, &job).len(), 1, "{:?}", events(&site, &job));
    // When it is mended, it is over, and told so once.
    job.all(&site, 200..300, &|rank, step| Work::of(jitter(rank, step)));
    let over = job.health_when(&site, &|health| health["verdicts"].as_array().unwrap().is_empty());
    assert_eq!(over["history"][0]["id"], row["id"]);
    assert!(over["history"][0]["cleared"].is_i64());
    assert!(site.query("tg_straggler").is_empty());
    assert_eq!(events(&site, &job).len(), 2);
}

#[test]
fn a_rank_that_waits_for_its_data_is_no_reason_to_drain_a_card() {
    let site = Site::new();
    let mut job = Job::of("s3", 64);
    job.all(&site, 0..180, &|rank, step| {
        let data = if rank == 5 && step >= 100 { 0.15 } else { 0.0 };
        Work { own: jitter(rank, step) + data, data, checkpoint: 0.0 }
    });
    let health = job.health_when(&site, &|health| health["state"] == "page");
    let row = of_class(&health, "straggler");
    assert_eq!((row["ranks"].clone(), row["cause"].clone()), (json!([5]), json!("host_data")));
    assert_eq!(row["action"]["word"], json!("check_host"));
    near(&row["gain_ratio"], 0.1075, 0.015);
}

#[test]
fn a_stage_with_more_to_do_is_named_and_none_of_its_ranks() {
    let site = Site::new();
    let mut job = Job::of("s4", 64);
    let stages = (0..64).map(|rank: u32| Attribute {
        key: format!("parallel/{rank}/pp"),
        if_absent: false,
        value: Some(wire::push::Value::Int(i64::from(rank / 16))),
    });
    let attributes: Vec<Attribute> = stages.collect();
    let first = PushRequest { attributes, ..job.request(0, now_ns(), 1, Vec::new()) };
    deliver(&site, &first);
    job.all(&site, 0..180, &|rank, step| Work::of(jitter(rank, step) * if rank >= 48 { 1.12 } else { 1.0 }));
    let health = job.looked_at(&site, 179);
    let row = of_class(&health, "stage_imbalance");
    assert_eq!((row["stage"].clone(), row["action"]["word"].clone()), (json!(3), json!("rebalance")));
    assert!(said(&health).iter().all(|(class, ..)| class != "straggler" && class != "node"), "{health:#}");
    let series = site.query("tg_run_stage_imbalance");
    assert_eq!(series[0].0["stage"], json!("3"));
}

#[test]
fn another_rank_late_in_every_step_names_nobody() {
    let site = Site::new();
    let mut job = Job::of("s5", 64);
    job.all(&site, 0..200, &|rank, step| {
        let is_late = step >= 100 && i64::from(rank) == (13 * step) % 64;
        Work::of(jitter(rank, step) * if is_late { 1.2 } else { 1.0 })
    });
    let health = job.health_when(&site, &|health| !said(health).is_empty());
    let row = of_class(&health, "rotating");
    assert_eq!(row["ranks"], json!([]));
    assert!(said(&health).iter().all(|(class, ..)| class != "straggler"), "{health:#}");
    assert_eq!(site.query("tg_run_slowdown{class=\"rotating\",level=\"warn\"}").len(), 1);
}

#[test]
fn a_run_that_is_slower_as_a_whole_says_by_how_much_in_its_level() {
    let site = Site::new();
    for (name, factor, level) in [("s6a", 1.07, "warn"), ("s6b", 1.2, "page")] {
        let mut job = Job::of(name, 64);
        job.all(&site, 0..200, &|rank, step| {
            Work::of(jitter(rank, step) * if step >= 100 { factor } else { 1.0 })
        });
        let health = job.health_when(&site, &|health| !said(health).is_empty());
        assert_eq!(said(&health), [("slowdown".to_owned(), level.to_owned(), Vec::new())], "{health:#}");
        let series = site.query(&format!("tg_run_slowdown{{class=\"step_change\",run=\"{name}\"}}"));
        assert_eq!((series.len(), &series[0].0["level"]), (1, &json!(level)), "{series:?}");
    }
}

#[test]
fn steps_that_come_in_one_go_are_judged_as_if_they_had_come_one_by_one() {
    let mut site = Site::new();
    let slow = |rank: u32, step: i64| {
        Work::of(jitter(rank, step) * if rank == 7 && step >= 120 { 1.25 } else { 1.0 })
    };
    let told = |site: &Site, job: &Job, last: i64| {
        let health = job.looked_at(site, last);
        assert_eq!(said(&health), [("straggler".to_owned(), "page".to_owned(), vec![7])], "{health:#}");
        near(&of_class(&health, "straggler")["onset"]["step"], 120.0, 5.0);
    };
    // The first are there before the server looks at runs at all, the others later.
    let (mut first, mut later, mut kept) = (Job::of("first", 64), Job::of("later", 16), Job::of("kept", 16));
    first.all(&site, 0..300, &slow);
    told(&site, &first, 299);
    later.all(&site, 0..700, &slow);
    told(&site, &later, 699);
    // What ranks kept while there was no server comes in its first second.
    kept.all(&site, 0..60, &slow);
    kept.looked_at(&site, 59);
    site.restart();
    kept.all(&site, 60..700, &slow);
    told(&site, &kept, 699);
}

#[test]
fn when_it_began_stays_though_more_is_known_of_the_ranks_later() {
    let site = Site::new();
    let mut job = Job::of("seated", 16);
    let slow = |rank: u32, step: i64| {
        Work::of(jitter(rank, step) * if rank == 3 && step >= 100 { 1.25 } else { 1.0 })
    };
    job.all(&site, 0..180, &slow);
    let health = job.health_when(&site, &|health| health["state"] == "page");
    let row = of_class(&health, "straggler");
    near(&row["onset"]["step"], 100.0, 5.0);
    job.all(&site, 180..260, &slow);
    job.looked_at(&site, 259);
    let attribute =
        Attribute { key: "parallel/3/gpu".into(), if_absent: false, value: Some(wire::push::Value::Int(5)) };
    let said_so = PushRequest { attributes: vec![attribute], ..job.request(3, now_ns(), 2, Vec::new()) };
    deliver(&site, &said_so);
    job.all(&site, 260..300, &slow);
    let again = job.looked_at(&site, 299);
    let now = of_class(&again, "straggler");
    assert_eq!((&now["gpu"], &now["id"]), (&json!("5"), &row["id"]), "{now:#}");
    assert_eq!(now["onset"], row["onset"]);
}

#[test]
fn a_slow_host_is_one_verdict() {
    let site = Site::new();
    let mut job = Job::of("s7", 64);
    job.all(&site, 0..180, &|rank, step| {
        Work::of(jitter(rank, step) * if (24..32).contains(&rank) && step >= 100 { 1.08 } else { 1.0 })
    });
    let health = job.health_when(&site, &|health| health["state"] == "warn");
    let row = of_class(&health, "node");
    assert_eq!((row["host"].clone(), row["level"].clone()), (json!("host-3"), json!("warn")));
    near(&row["gain_ratio"], 0.064, 0.015);
    assert_eq!(site.query("tg_straggler{level=\"warn\"}")[0].0["host"], json!("host-3"));
}

#[test]
fn clocks_of_ranks_that_are_minutes_apart_and_checkpoints_change_nothing() {
    let site = Site::new();
    let mut job = Job::of("clocks", 64);
    job.ahead_ns = |rank| (i64::from(rank) - 32) * 20 * SECOND;
    job.all(&site, 0..180, &|rank, step| {
        let checkpoint = if step % 25 == 24 { 3.0 } else { 0.0 };
        let own = jitter(rank, step) * if rank == 17 && step >= 100 { 1.25 } else { 1.0 };
        Work { own: own + checkpoint, data: 0.0, checkpoint }
    });
    let health = job.health_when(&site, &|health| health["state"] == "page");
    assert_eq!(said(&health)[0], ("straggler".into(), "page".into(), vec![17]));
    let at = of_class(&health, "straggler")["onset"]["time"].as_i64().unwrap() * NANOS_PER_MILLI;
    let ago = (now_ns() - at) / SECOND;
    assert!((80..180).contains(&ago), "{ago} s ago by the server's clock");
}

#[test]
fn a_job_of_two_ranks_only_warns() {
    let site = Site::new();
    let mut job = Job::of("two", 2);
    job.all(&site, 0..180, &|rank, step| Work::of(jitter(rank, step) * if rank == 1 { 1.5 } else { 1.0 }));
    let health = job.looked_at(&site, 179);
    assert_ne!(health["state"], json!("page"), "{health:#}");
}

#[test]
fn steps_that_half_the_ranks_tell_are_passed_over_and_late_ranks_are_taken_up() {
    let site = Site::new();
    let mut job = Job::of("half", 64);
    let work = |rank: u32, step: i64| Work::of(jitter(rank, step) * if rank == 40 { 1.25 } else { 1.0 });
    // Ranks 32 and above come late, and of the steps from 60 to 99 tell nothing.
    let who = |rank: u32, step: i64| rank < 32 || (step >= 20 && !(60..100).contains(&step));
    job.push(&site, 0..180, now_ns(), &who, &work);
    let health = job.health_when(&site, &|health| health["state"] == "page");
    assert_eq!(said(&health)[0], ("straggler".into(), "page".into(), vec![40]));
}

#[test]
fn a_rank_that_tells_nothing_while_others_go_on_is_silent() {
    let site = Site::new();
    let mut job = Job::of("silent", 16);
    let work = |rank: u32, step: i64| Work::of(jitter(rank, step));
    // The others did a hundred steps more, of more than a second each.
    job.push(&site, 0..200, now_ns(), &|rank, step| rank != 9 || step < 100, &work);
    let health = job.health_when(&site, &|health| health["state"] == "warn");
    assert_eq!(said(&health), [("silent".into(), "warn".into(), vec![9])]);
    let culprit = &of_class(&health, "silent")["culprits"][0];
    assert_eq!((culprit["last_step"].clone(), culprit["host"].clone()), (json!(99), json!("host-1")));
}

/// Steps whose last was a minute ago, and signs of life of now.
fn hung(site: &Site, job: &mut Job) {
    job.push(site, 0..60, now_ns() - 60 * SECOND, &|_, _| true, &|rank, step| Work::of(jitter(rank, step)));
}

#[test]
fn a_run_that_stands_still_hangs_at_the_rank_that_did_not_enter() {
    let mut site = Site::new();
    let mut job = Job::of("s6", 64);
    let at = now_ns() - 61 * SECOND;
    for rank in 0..64 {
        let (entered, completed) = if rank == 42 { (1_203, 1_203) } else { (1_204, 1_203) };
        let label = [("rank".to_owned(), rank.to_string()), ("group".to_owned(), "dp".to_owned())];
        let series = |name: &str, value: i32| {
            Series::new(name, &label, "", &[Sample { time_ns: at, value: f64::from(value), step: None }])
        };
        let series = vec![
            series("train_collective_sequence", entered),
            series("train_collective_completed", completed),
        ];
        let request = job.request(rank, now_ns(), 1, series);
        deliver(&site, &request);
    }
    let agent = Agent::of("host-5");
    agent.push(&site, Vec::new(), &[agent.xid(at - 3 * SECOND, "0000:1b:00.0", 79)]);
    hung(&site, &mut job);
    let health = job.health_when(&site, &|health| health["state"] == "page");
    assert_eq!(said(&health)[0], ("hang".into(), "page".into(), vec![42]));
    let row = of_class(&health, "hang");
    let culprit = &row["culprits"][0];
    assert_eq!((culprit["sequence"].clone(), culprit["host"].clone()), (json!(1_203), json!("host-5")));
    assert_eq!(row["cause"], json!("hardware"), "{row:#}");
    assert!(row["action"]["word"].as_str().unwrap().contains("reboot_node"), "{row:#}");
    assert!(row["events"].as_array().unwrap().iter().any(|event| event["kind"] == "xid"), "{row:#}");
    assert_eq!(site.query("tg_run_hang")[0].0["rank"], json!("42"));
    // A restart changes nothing, and progress ends it.
    site.restart();
    job.live(&site, 0..64, 2);
    let again = job.health_when(&site, &|health| health["state"] == "page");
    assert_eq!(of_class(&again, "hang")["id"], row["id"]);
    job.all(&site, 60..70, &|rank, step| Work::of(jitter(rank, step)));
    let over = job.health_when(&site, &|health| health["state"] != "page");
    assert_eq!(over["history"][0]["id"], row["id"]);
    assert_eq!(events(&site, &job).len(), 2, "{:?}", events(&site, &job));
}

#[test]
fn a_run_that_has_ended_or_is_at_its_checkpoint_does_not_hang() {
    let site = Site::new();
    let (mut ended, mut saving, mut stuck) = (Job::of("ended", 8), Job::of("saving", 8), Job::of("stuck", 8));
    // A hang is told after half a minute: what these two say of themselves comes before it, that of the third last.
    let stand = |job: &mut Job| {
        let steady = |rank, step| Work::of(jitter(rank, step));
        job.push(&site, 0..60, now_ns() - 20 * SECOND, &|_, _| true, &steady);
    };
    stand(&mut ended);
    ended.live(&site, 0..8, 3);
    stand(&mut saving);
    for rank in 0..8 {
        let label = [("rank".to_owned(), rank.to_string())];
        let sample = Sample { time_ns: now_ns() - 10 * SECOND, value: 1.0, step: None };
        let request =
            saving.request(rank, now_ns(), 2, vec![Series::new("train_step_phase", &label, "", &[sample])]);
        deliver(&site, &request);
    }
    let phases = |job: &mut Job, phases: &[(i64, f64)]| {
        for rank in 0..8 {
            let label = [("rank".to_owned(), rank.to_string())];
            let sample = |(ago, value): &(i64, f64)| Sample {
                time_ns: now_ns() - ago * SECOND,
                value: *value,
                step: None,
            };
            let samples: Vec<Sample> = phases.iter().map(sample).collect();
            let series = vec![Series::new("train_step_phase", &label, "", &samples)];
            deliver(&site, &job.request(rank, now_ns(), 2, series));
        }
    };
    // One has just left an evaluation, which began when its last step was done; one has ended its loop.
    let (mut evaluated, mut idle) = (Job::of("evaluated", 8), Job::of("idle", 8));
    stand(&mut evaluated);
    phases(&mut evaluated, &[(19, 2.0), (1, 0.0)]);
    stand(&mut idle);
    phases(&mut idle, &[(15, 3.0)]);
    stand(&mut stuck);
    stuck.health_when(&site, &|health| health["state"] == "page");
    for job in [&ended, &saving, &evaluated, &idle] {
        assert_eq!(said(&job.health(&site)), [], "{}", job.name);
        assert!(events(&site, job).is_empty(), "{}", job.name);
    }
    assert!(ended.health(&site)["reason"].as_str().unwrap().contains("finished"));
}

#[test]
fn ranks_that_export_spans_only_are_compared_by_their_exchange() {
    let site = Site::new();
    let steps = 180;
    let from_ns = now_ns() - (steps * 4 + 1) * SECOND;
    for rank in 0..8_u32 {
        let process = Process::new("spans", rank).with("dl.world_size", json!("8"));
        let spans: Vec<Sent> = (0..steps)
            .flat_map(|step| {
                let (at, id) = (from_ns + step * 4 * SECOND, step as u64 * 10 + 1);
                let waits = if rank == 5 { SECOND / 10 } else { SECOND - step * 1_000_000 % 7 };
                let mut whole = span("megatron.train.iteration", (id, 0), (at, at + 4 * SECOND));
                whole.attributes = json!({ "megatron.iteration": step });
                let exchange = (at + 2 * SECOND, at + 2 * SECOND + waits);
                [whole, span("megatron.grad_sync.finish", (id + 1, id), exchange)]
            })
            .collect();
        process.spans(site.running(), &spans);
    }
    let run = site.get("/api/tg/v1/runs")["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let mut health = Value::Null;
    for _ in 0..300 {
        health = site.get(&format!("/api/tg/v1/runs/{run}/health"));
        if said(&health).iter().any(|(class, ..)| class == "straggler") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let row = of_class(&health, "straggler");
    assert_eq!(row["ranks"], json!([5]));
    near(&row["wait_seconds"], 0.1, 0.01);
    near(&row["peers_wait_seconds"], 1.0, 0.01);
}

#[test]
fn steps_done_in_vain_do_not_count_as_effective_time() {
    let site = Site::new();
    let mut job = Job::of("again", 2);
    job.all(&site, 0..60, &|_, _| Work::of(0.85));
    job.looked_at(&site, 59);
    // Back to step 40: twenty steps of a second are done again.
    job.push(&site, 40..50, now_ns() + 15 * SECOND, &|_, _| true, &|_, _| Work::of(0.85));
    let health = job.health_when(&site, &|health| {
        health["figures"]["ettr_ratio"]["explain"].as_str().unwrap_or_default().contains("20 steps (20 s)")
    });
    assert!(health["figures"]["ettr_ratio"]["value"].is_f64(), "{health:#}");
}
