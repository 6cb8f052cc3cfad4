//! Verdicts over `kill -9`: what was told stands under its name, what was about to be told is told once.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::{NANOS_PER_MILLI, NANOS_PER_SECOND, Sample};
use serde_json::Value;
use wire::push::{PushRequest, Series, Session};

use crate::process::{Server, eventually, id, request};
use crate::prometheus::escape;

const RANKS: u32 = 16;
const EXCHANGE: f64 = 0.15;
/// The clocks of all ranks are behind by so much, so that the runs seem silent a few seconds after their last sign.
const BEHIND_NS: i64 = 56 * NANOS_PER_SECOND;

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// A little more or less than 1, the same for the same rank and step.
fn jitter(rank: u32, step: i64) -> f64 {
    let mixed = (7_919 * i64::from(rank) + 104_729 * step + 31 * i64::from(rank) * step) % 2_003;
    1.0 + (mixed as f64 / 2_003.0 - 0.5) * 0.02
}

/// A job of which one rank is slow from a step on, up to another.
struct Job {
    name: &'static str,
    slow: (u32, std::ops::Range<i64>),
    sequence: u64,
}

impl Job {
    fn own(&self, rank: u32, step: i64) -> f64 {
        jitter(rank, step) * if rank == self.slow.0 && self.slow.1.contains(&step) { 1.25 } else { 1.0 }
    }

    fn request(&mut self, rank: u32, series: Vec<Series>) -> PushRequest {
        self.sequence += 1;
        let mut client_id = format!("{:_<12}", self.name).into_bytes();
        client_id.extend(rank.to_be_bytes());
        let session = Session {
            time_ms: (now_ns() - BEHIND_NS) / NANOS_PER_MILLI,
            event: if self.sequence <= u64::from(RANKS) { 1 } else { 2 },
            host: format!("host-{}", rank / 8),
            pid: 100 + rank,
            rank: Some(rank),
            world_size: Some(RANKS),
            job_token: "job".into(),
            ..Session::default()
        };
        let sent = request(self.name, 0, self.sequence, series);
        PushRequest { client_id, session: Some(session), ..sent }
    }

    /// What a rank tells of steps of which the last was done so long ago.
    fn steps(&mut self, rank: u32, steps: std::ops::Range<i64>, ago_ns: i64) -> PushRequest {
        let longest = |step: i64| (0..RANKS).map(|rank| self.own(rank, step)).fold(0.0, f64::max) + EXCHANGE;
        let lengths: Vec<f64> = steps.clone().map(longest).collect();
        let mut at = (now_ns() - BEHIND_NS - ago_ns) as f64 - lengths.iter().sum::<f64>() * 1e9;
        let (mut whole, mut waits) = (Vec::new(), Vec::new());
        for (step, seconds) in steps.zip(lengths) {
            at += seconds * 1e9;
            let time_ns = at as i64 / NANOS_PER_MILLI * NANOS_PER_MILLI;
            whole.push(Sample { time_ns, value: seconds, step: Some(step) });
            waits.push(Sample { time_ns, value: seconds - self.own(rank, step), step: Some(step) });
        }
        let label = [("rank".to_owned(), rank.to_string())];
        let series = [("train_step_seconds", whole), ("train_step_wait_seconds", waits)];
        let series = series.map(|(name, samples)| Series::new(name, &label, "", &samples));
        self.request(rank, series.to_vec())
    }

    /// All ranks' steps, told rank by rank.
    fn push(&mut self, server: &Server, steps: std::ops::Range<i64>, ago_ns: i64) {
        for rank in 0..RANKS {
            let request = self.steps(rank, steps.clone(), ago_ns);
            assert_eq!(server.push(&request).0, 200);
        }
    }

    fn live(&mut self, server: &Server) {
        for rank in 0..RANKS {
            let request = self.request(rank, Vec::new());
            assert_eq!(server.push(&request).0, 200);
        }
    }

    /// How far each rank is in its collective operations: one did not enter the last.
    fn collectives(&mut self, server: &Server, absent: u32) {
        for rank in 0..RANKS {
            let label = [("rank".to_owned(), rank.to_string()), ("group".to_owned(), "dp".to_owned())];
            let at = now_ns() - BEHIND_NS - 60 * NANOS_PER_SECOND;
            let series = |name: &str, value: f64| {
                Series::new(name, &label, "", &[Sample { time_ns: at, value, step: None }])
            };
            let entered = if rank == absent { 1_203.0 } else { 1_204.0 };
            let series = vec![
                series("train_collective_sequence", entered),
                series("train_collective_completed", 1_203.0),
            ];
            let request = self.request(rank, series);
            assert_eq!(server.push(&request).0, 200);
        }
    }

    fn health(&self, server: &Server) -> Value {
        server.get(&format!("/api/tg/v1/runs/{}/health", id(self.name)))
    }

    /// The health once it is as wanted. The job gives signs of life meanwhile, or it would fall silent in seconds.
    fn health_when(&mut self, server: &Server, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || {
            self.live(server);
            Some(self.health(server)).filter(|health| is_it(health))
        })
    }

    /// Text and time of what was told of it.
    fn events(&self, server: &Server) -> Vec<(String, i64)> {
        let answer = server.get(&format!("/api/tg/v1/events?run_id={}&kind=run", id(self.name)));
        let rows = answer["events"].as_array().unwrap().iter();
        rows.map(|row| (row["text"].as_str().unwrap().to_owned(), row["time"].as_i64().unwrap())).collect()
    }
}

fn last_step(health: &Value) -> Option<i64> {
    health["watched"]["last_step"].as_i64()
}

/// What tells one verdict from another, and from itself had it been told anew.
fn name(row: &Value) -> [Value; 6] {
    ["id", "class", "level", "ranks", "onset", "since"].map(|key| row[key].clone())
}

fn series(server: &Server, metric: &str) -> Vec<Value> {
    let to = now_ns() / NANOS_PER_SECOND + 1;
    let query = escape(&format!("{metric}{{run_id!=\"\"}}"));
    let path = format!("/api/v1/query_range?query={query}&start={}&end={to}&step=1", to - 900);
    let rows = server.get(&path)["data"]["result"].as_array().unwrap().clone();
    rows.into_iter().map(|row| row["metric"].clone()).collect()
}

#[test]
fn verdicts_stand_under_their_names_over_a_kill_and_what_was_pending_is_told_once() {
    let mut server = Server::start(&["--own-metrics-interval", "1s"]);
    let mut standing = Job { name: "standing", slow: (5, 100..240), sequence: 0 };
    let mut pending = Job { name: "pending", slow: (3, 169..400), sequence: 0 };
    let mut hung = Job { name: "hung", slow: (0, 0..0), sequence: 0 };
    hung.push(&server, 0..60, 60 * NANOS_PER_SECOND);
    hung.collectives(&server, 11);
    standing.push(&server, 0..180, 0);
    pending.push(&server, 0..180, 0);
    let told = standing.health_when(&server, "the slow rank", |health| health["state"] == "page");
    let hangs = hung.health_when(&server, "the hang", |health| health["state"] == "page");
    let (told, hangs) = (told["verdicts"][0].clone(), hangs["verdicts"][0].clone());
    assert_eq!(hangs["ranks"], serde_json::json!([11]), "{hangs:#}");
    let nothing = pending.health_when(&server, "all steps", |health| last_step(health) == Some(179));
    assert_eq!(nothing["verdicts"], serde_json::json!([]), "too early: {nothing:#}");
    // Some ranks' next steps are stored, the others' are not yet.
    for rank in 0..RANKS / 2 {
        let next = standing.steps(rank, 180..184, 0);
        assert_eq!(server.push(&next).0, 200);
    }
    let last_sign_ns = now_ns();
    server.kill();
    let path = format!("/api/tg/v1/runs/{}", id("standing"));
    // Until its last sign of life is too old by the server's clock.
    let silent_ns = last_sign_ns + 60 * NANOS_PER_SECOND - BEHIND_NS;
    std::thread::sleep(Duration::from_nanos((silent_ns - now_ns()).max(0) as u64));
    server.restart();
    eventually("it seems silent", || Some(server.get(&path)).filter(|run| run["state"] == "stale"));
    // What was told holds while the processes find their way back.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        assert_eq!(name(&standing.health(&server)["verdicts"][0]), name(&told));
        assert_eq!(name(&hung.health(&server)["verdicts"][0]), name(&hangs));
        std::thread::sleep(Duration::from_millis(100));
    }
    for rank in RANKS / 2..RANKS {
        let next = standing.steps(rank, 180..184, 0);
        assert_eq!(server.push(&next).0, 200);
    }
    pending.push(&server, 180..200, 0);
    hung.live(&server);
    let again =
        standing.health_when(&server, "the steps of both halves", |health| last_step(health) == Some(183));
    assert_eq!(name(&again["verdicts"][0]), name(&told));
    let raised = pending.health_when(&server, "what was pending", |health| health["state"] == "page");
    let onset = raised["verdicts"][0]["onset"]["step"].as_i64().unwrap();
    assert!((166..=172).contains(&onset), "{raised:#}");
    for job in [&standing, &pending, &hung] {
        assert_eq!(job.events(&server).len(), 1, "{:?}", job.events(&server));
    }
    assert_eq!(series(&server, "tg_straggler").len(), 2, "{:?}", series(&server, "tg_straggler"));
    assert_eq!(series(&server, "tg_run_hang").len(), 1, "{:?}", series(&server, "tg_run_hang"));
    // Mended, and killed while that is found out.
    standing.push(&server, 184..240, 0);
    standing.push(&server, 240..262, 0);
    standing.health_when(&server, "the mended steps", |health| last_step(health) == Some(261));
    server.kill();
    server.restart();
    standing.push(&server, 262..330, 0);
    let over = standing.health_when(&server, "its end", |health| {
        last_step(health) == Some(329) && health["verdicts"] == serde_json::json!([])
    });
    assert_eq!(over["history"][0]["id"], told["id"]);
    assert_eq!(standing.events(&server).len(), 2, "{:?}", standing.events(&server));
    // Found again by this server: its text tells of a longer time.
    let until = Instant::now() + Duration::from_mins(2);
    let found = loop {
        hung.live(&server);
        let found = hung.health(&server)["verdicts"][0].clone();
        if found["sentence"] != hangs["sentence"] || found["evidence"] != hangs["evidence"] {
            break found;
        }
        assert!(Instant::now() < until, "{found:#}");
        std::thread::sleep(Duration::from_millis(500));
    };
    assert_eq!((name(&found), &found["cause"]), (name(&hangs), &hangs["cause"]), "{found:#}");
    assert_eq!(hung.events(&server).len(), 1, "{:?}", hung.events(&server));
}
