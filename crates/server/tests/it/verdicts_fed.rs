//! Verdicts on what a whole site tells: the reference scenarios to their tolerances, cards by their agents and by the
//! run's own samplers, quotas, what NCCL left, ranks that die, and what all that is in money.

use std::time::{Duration, Instant};

use model::{Event, Sample, Severity};
use serde_json::{Value, json};
use wire::push::{Attribute, PushRequest, Series};

use crate::fleet_peer::{Agent, Site};
use crate::site::settings;
use crate::verdicts::{EXCHANGE, Job, SECOND, Work, deliver, jitter, near, now_ns, of_class, said};

fn attribute(key: &str, value: wire::push::Value) -> Attribute {
    Attribute { key: key.to_owned(), if_absent: false, value: Some(value) }
}

fn text(key: &str, text: &str) -> Attribute {
    attribute(key, wire::push::Value::Text(text.to_owned()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

/// A job of 64 ranks in which something is wrong from step 100 on.
struct Scene {
    name: &'static str,
    own: fn(u32, i64) -> f64,
    data: fn(u32) -> f64,
    exchange: f64,
}

impl Scene {
    const RANKS: u32 = 64;

    fn busy(&self, rank: u32, step: i64) -> f64 {
        if step < 100 { jitter(rank, step) } else { (self.own)(rank, step) + (self.data)(rank) }
    }

    /// The median of a rank's own time over the steps.
    fn own_of(&self, rank: u32, steps: std::ops::Range<i64>) -> f64 {
        median(steps.map(|step| self.busy(rank, step)).collect())
    }

    /// How long a step is without some of the ranks, the median over the steps.
    fn without(&self, who: &[u64], steps: std::ops::Range<i64>) -> f64 {
        let longest = |step| {
            let others = (0..Self::RANKS).filter(|rank| !who.contains(&u64::from(*rank)));
            others.map(|rank| self.busy(rank, step)).fold(0.0, f64::max) + self.exchange
        };
        median(steps.map(longest).collect())
    }

    /// Plays the steps 0 to 179, and gives what is said then.
    fn play(&self, site: &Site) -> Value {
        let mut job = Job::of(self.name, Self::RANKS);
        let work = |rank: u32, step: i64| {
            let data = if step < 100 { 0.0 } else { (self.data)(rank) };
            Work { own: self.busy(rank, step), data, checkpoint: 0.0 }
        };
        job.push(site, 0..100, now_ns() - 120 * SECOND, &|_, _| true, &work);
        job.exchange = self.exchange;
        job.all(site, 100..180, &work);
        job.health_when(site, &|health| {
            health["watched"]["last_step"] == 179 && !health["verdicts"].as_array().unwrap().is_empty()
        })
    }
}

const NO_DATA: fn(u32) -> f64 = |_| 0.0;

#[test]
fn the_reference_scenarios_are_judged_to_their_tolerances() {
    let site = Site::new();
    let scenes = [
        (
            "straggler",
            "page",
            vec![17],
            Scene {
                name: "s1",
                own: |rank, step| jitter(rank, step) * if rank == 17 { 1.25 } else { 1.0 },
                data: NO_DATA,
                exchange: EXCHANGE,
            },
        ),
        (
            "straggler",
            "page",
            vec![5],
            Scene {
                name: "s3",
                own: jitter,
                data: |rank| if rank == 5 { 0.15 } else { 0.0 },
                exchange: EXCHANGE,
            },
        ),
        (
            "node",
            "warn",
            (24..32).collect(),
            Scene {
                name: "s7",
                own: |rank, step| jitter(rank, step) * if (24..32).contains(&rank) { 1.08 } else { 1.0 },
                data: NO_DATA,
                exchange: EXCHANGE,
            },
        ),
        (
            "consistently_last",
            "info",
            vec![9],
            Scene {
                name: "s8",
                own: |rank, step| jitter(rank, step) * if rank == 9 { 1.03 } else { 1.0 },
                data: NO_DATA,
                exchange: EXCHANGE,
            },
        ),
    ];
    for (class, level, ranks, scene) in scenes {
        let health = scene.play(&site);
        assert_eq!(said(&health), [(class.to_owned(), level.to_owned(), ranks.clone())], "{health:#}");
        let row = of_class(&health, class);
        // Of the latest window, reckoned here from the definition.
        let window = || 160..180_i64;
        let peers = median((0..Scene::RANKS).map(|rank| scene.own_of(rank, window())).collect());
        let of_ranks = median(ranks.iter().map(|rank| scene.own_of(*rank as u32, window())).collect());
        near(&row["rho"], of_ranks / peers, 1e-3);
        let step = scene.without(&[], window());
        near(&row["step_seconds"], step, 1e-3);
        near(&row["gain_ratio"], 1.0 - scene.without(&ranks, window()) / step, 1e-3);
        near(&row["onset"]["step"], 100.0, 3.0);
    }
}

#[test]
fn an_exchange_that_takes_three_times_as_long_blames_the_network() {
    let site = Site::new();
    let scene = Scene { name: "s2", own: jitter, data: NO_DATA, exchange: 0.45 };
    let health = scene.play(&site);
    assert_eq!(said(&health), [("communication".to_owned(), "page".to_owned(), Vec::new())], "{health:#}");
    let row = of_class(&health, "communication");
    assert_eq!((row["host"].clone(), row["action"]["word"].clone()), (Value::Null, json!("check_links")));
    near(&row["rho"], 3.0, 1e-3);
    near(&row["step_seconds"], 1.4599, 1e-3);
    near(&row["onset"]["step"], 100.0, 3.0);
    assert_eq!(site.query("tg_run_slowdown{class=\"communication\",level=\"page\"}").len(), 1);
    assert!(site.query("tg_straggler").is_empty());
}

/// A card of a rank at one time.
fn card(agent: &Agent, rank: u32, at_ns: i64, odd: (f64, f64, f64)) -> Vec<Series> {
    let (clock, thermal, power) = odd;
    let (gpu, uuid) = ((rank % 8).to_string(), format!("GPU-{rank:04}"));
    let base = [("gpu", gpu.as_str()), ("uuid", uuid.as_str())];
    let series = |name: &str, value: f64| agent.series(name, &base, &[(at_ns, value)]);
    let held = |reason: &str, value: f64| {
        let labels = [base[0], base[1], ("reason", reason)];
        agent.series("tg_gpu_throttled_seconds_total", &labels, &[(at_ns, value)])
    };
    vec![
        series("tg_gpu_sm_clock_hertz", clock),
        series("tg_gpu_power_watts", 600.0),
        series("tg_gpu_pcie_link_width", 16.0),
        held("hw_thermal", thermal),
        held("sw_power", power),
    ]
}

/// What the sampler of a rank's process tells of its card, and of its quota.
fn sampled(rank: u32, at_ns: i64, clock: f64, lanes: f64, held: Option<f64>) -> Vec<Series> {
    let host = ("host".to_owned(), format!("host-{}", rank / 8));
    let sample = |value: f64| [Sample { time_ns: at_ns, value, step: None }];
    let of_card = |name: &str, value: f64| {
        let labels = [host.clone(), ("gpu".to_owned(), (rank % 8).to_string())];
        Series::new(name, &labels, "", &sample(value))
    };
    let mut series = vec![
        of_card("system/gpu/sm_clock_mhz", clock / 1e6),
        of_card("system/gpu/power_watts", 600.0),
        of_card("system/gpu/pcie_link_width", lanes),
    ];
    let of_process = [host.clone(), ("pid".to_owned(), (100 + rank).to_string())];
    series.extend(held.map(|held| {
        Series::new("system/process/cpu_throttled_seconds_total", &of_process, "", &sample(held))
    }));
    series
}

#[test]
fn why_a_rank_is_slow_comes_from_its_card_and_its_quota_whoever_tells_of_them() {
    let site = Site::new();
    let mut job = Job::of("cards", 32);
    // Rank 3 is hot, 12 meets its power limit, both by their agents; 20 has half a link and 27 a quota, by their samplers.
    let slow = [3_u32, 12, 20, 27];
    let work =
        |rank: u32, step: i64| Work::of(jitter(rank, step) * if slow.contains(&rank) { 1.25 } else { 1.0 });
    let of_agents = (0..16).map(|rank| text(&format!("parallel/{rank}/gpu_uuid"), &format!("GPU-{rank:04}")));
    let of_samplers =
        (16..32).map(|rank| attribute(&format!("parallel/{rank}/gpu"), wire::push::Value::Int(rank % 8)));
    let attributes: Vec<Attribute> = of_agents.chain(of_samplers).collect();
    let first = PushRequest { attributes, ..job.request(0, now_ns(), 1, Vec::new()) };
    deliver(&site, &first);
    job.all(&site, 0..100, &work);
    let began = Instant::now();
    let mut step = 100;
    let wanted = json!({ "3": "thermal", "12": "power_cap", "20": "link", "27": "host_data" });
    let causes = |health: &Value| -> Value {
        let rows = health["verdicts"].as_array().unwrap().iter();
        rows.map(|row| (row["ranks"][0].to_string(), row["cause"].clone())).collect()
    };
    // Cards are looked at every ten seconds, and judged by three samples.
    let health = loop {
        let (at_ns, seconds) = (now_ns(), began.elapsed().as_secs_f64());
        for host in 0..2 {
            let agent = Agent::of(&format!("host-{host}"));
            let of_rank = |rank: u32| {
                let odd = match rank {
                    3 => (1.584e9, 0.9 * seconds, 0.0),
                    12 => (1.584e9, 0.0, 0.8 * seconds),
                    _ => (1.98e9, 0.0, 0.0),
                };
                card(&agent, rank, at_ns, odd)
            };
            agent.push(&site, (host * 8..host * 8 + 8).flat_map(of_rank).collect(), &[]);
        }
        for rank in 16..32 {
            let lanes = if rank == 20 { 8.0 } else { 16.0 };
            let held = (rank == 27).then_some(0.4 * seconds);
            let request = job.request(rank, at_ns, 2, sampled(rank, at_ns, 1.98e9, lanes, held));
            deliver(&site, &request);
        }
        job.all(&site, step..step + 5, &work);
        step += 5;
        let health = job.looked_at(&site, step - 1);
        if causes(&health) == wanted {
            break health;
        }
        assert!(began.elapsed() < Duration::from_secs(90), "{health:#}");
        std::thread::sleep(Duration::from_secs(1));
    };
    let of = |rank: u64| {
        let rows = health["verdicts"].as_array().unwrap();
        rows.iter().find(|row| row["ranks"] == json!([rank])).unwrap()
    };
    let evidence = |rank: u64, name: &str| {
        let all = of(rank)["evidence"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {all:?}")).clone()
    };
    assert_eq!(of(3)["uuid"], "GPU-0003");
    assert!(of(3)["sentence"].as_str().unwrap().contains("SM clock 80 % of peers, thermal"), "{}", of(3));
    near(&evidence(3, "thermal")["value"], 0.9, 0.02);
    near(&evidence(12, "power_cap")["value"], 0.8, 0.02);
    assert_eq!(evidence(20, "pcie_width")["value"], 8.0);
    near(&evidence(27, "cpu_throttled")["value"], 0.4, 0.02);
    assert_eq!(evidence(27, "cpu_throttled")["text"], "a CPU quota holds it back for 40 % of the time");
    assert!(of(27)["action"]["sentence"].as_str().unwrap().contains("CPU quota"), "{}", of(27));
    assert_eq!(
        (&of(3)["action"]["word"], &of(27)["action"]["word"]),
        (&json!("drain"), &json!("check_host"))
    );
    let labels = |cause: &str| site.query(&format!("tg_straggler{{cause=\"{cause}\"}}"))[0].0["rank"].clone();
    assert_eq!(labels("power_cap"), "12");
}

#[test]
fn a_run_costs_its_gpus_for_the_time_it_held_them_and_verdicts_have_their_share() {
    let site = Site::with(|config| {
        *config = settings("[site]\nprices = ['h100-sxm=2.50']\nprice_revision = 'r7'", config.clone());
    });
    let mut job = Job::of("money", 64);
    let began_ns = now_ns() - 1_000 * SECOND;
    let attributes = vec![
        text("otel/gpu_model", "NVIDIA H100 80GB HBM3"),
        text("model/dtype", "bf16"),
        attribute("model/parameters", wire::push::Value::Float(8e9)),
    ];
    let host = [("host".to_owned(), "host-0".to_owned()), ("gpu".to_owned(), "0".to_owned())];
    let counted: Vec<Sample> = (0..=10)
        .map(|at| Sample { time_ns: began_ns + at * 50 * SECOND, value: 6e4 * at as f64, step: Some(at) })
        .collect();
    let energy = Series::new("system/gpu/energy_joules_total", &host, "", &counted);
    let first = PushRequest { attributes, ..job.request(0, began_ns, 1, vec![energy]) };
    deliver(&site, &first);
    let slow = |rank: u32, step: i64| {
        Work::of(jitter(rank, step) * if rank == 17 && step >= 120 { 1.25 } else { 1.0 })
    };
    job.all(&site, 20..200, &slow);
    let health = job.health_when(&site, &|health| health["state"] == "page");
    let (money, figures) = (&health["money"], &health["figures"]);
    let hours = 64.0 * 1_000.0 / 3_600.0;
    assert_eq!(
        money["price"],
        json!({ "usd_per_gpu_hour": 2.5, "gpu_model": "NVIDIA H100 80GB HBM3", "revision": "r7" })
    );
    near(&money["gpu_hours"]["value"], hours, 0.03 * hours);
    let used = money["gpu_hours"]["value"].as_f64().unwrap();
    near(&money["usd"]["value"], 2.5 * used, 1e-9);
    near(&money["usd_per_hour"]["value"], 160.0, 1e-9);
    // The share of step time for as long as it held, which is the time from its onset to now.
    let row = of_class(&health, "straggler");
    let onset_ms = row["onset"]["time"].as_i64().unwrap();
    let held = (now_ns() / 1_000_000 - onset_ms) as f64 / 3.6e6;
    near(&money["usd_lost_to_verdicts"]["value"], 160.0 * held * row["gain_ratio"].as_f64().unwrap(), 0.05);
    assert!(money["usd_lost_to_verdicts"]["value"].as_f64().unwrap() > 0.5, "{money:#}");
    let tokens = 64_000.0 * 180.0;
    near(&money["usd_per_mtok"]["value"], 2.5 * used / tokens * 1e6, 1e-6);
    // One card of 64 was counted, for half of the time.
    near(&money["energy_joules"]["value"], 6e5, 1e-6);
    near(&money["energy_joules"]["coverage"], 0.5 / 64.0, 0.001);
    let coverage = money["energy_joules"]["coverage"].as_f64().unwrap();
    near(&money["tokens_per_joule"]["value"], tokens * coverage / 6e5, 1e-6);
    let per_second = figures["tokens_per_second"]["value"].as_f64().unwrap();
    near(&figures["tokens_per_second"]["value"], 64_000.0 / 1.4, 300.0);
    near(&figures["mfu_ratio"]["value"], per_second * 6.0 * 8e9 / (64.0 * 989.4e12), 2e-5);
    // A list of runs asks for the same of several at once; what is not there is left out.
    let other = Job::of("other", 2);
    deliver(&site, &Job::of("other", 2).request(0, now_ns(), 1, Vec::new()));
    let asked = [job.id(), other.id(), "0123456789abcdef".to_owned()].map(|id| format!("run_id={id}"));
    let listed = site.get(&format!("/api/tg/v1/runs/figures?{}", asked.join("&")));
    let rows = listed["runs"].as_array().unwrap();
    assert_eq!((rows.len(), &listed["later"]), (2, &json!([])), "{listed:#}");
    assert_eq!(
        (&rows[0]["gpus"]["value"], &rows[0]["gpu_model"]),
        (&json!(64.0), &money["price"]["gpu_model"])
    );
    for name in ["tokens_per_second", "mfu_ratio"] {
        assert_eq!(rows[0][name], figures[name], "{name}");
    }
    near(&rows[0]["ettr_ratio"]["value"], figures["ettr_ratio"]["value"].as_f64().unwrap(), 0.02);
    near(&rows[0]["usd"]["value"], 2.5 * used, 0.05 * used);
    let reason = |name: &str| rows[1][name]["reason"].as_str().unwrap_or_default();
    assert!(reason("ettr_ratio").contains("no step was told"), "{listed:#}");
    assert!(reason("usd").contains("GPU"), "{listed:#}");
}

#[test]
fn a_process_that_dies_in_a_synchronous_job_is_named_though_all_are_at_the_same_step() {
    let site = Site::new();
    let mut job = Job::of("dead", 16);
    // By its own clock it would live for ten minutes more.
    job.ahead_ns = |rank| if rank == 9 { 600 * SECOND } else { 0 };
    let end_ns = now_ns();
    job.push(&site, 0..60, end_ns, &|_, _| true, &|rank, step| Work::of(jitter(rank, step)));
    // Nine others go on to show life, as often as clients do.
    let began = Instant::now();
    let health = loop {
        job.live(&site, 0..9, 2);
        job.live(&site, 10..16, 2);
        let health = job.health(&site);
        if said(&health).iter().any(|(class, _, ranks)| class == "hang" && !ranks.is_empty()) {
            break health;
        }
        assert!(began.elapsed() < Duration::from_secs(90), "{health:#}");
        std::thread::sleep(Duration::from_secs(1));
    };
    assert_eq!(said(&health), [("hang".to_owned(), "page".to_owned(), vec![9])]);
    let row = of_class(&health, "hang");
    assert_eq!(row["culprits"][0]["host"], "host-1");
    assert!(row["culprits"][0]["state"].as_str().unwrap().starts_with("is silent for"), "{row:#}");
    assert!(row["sentence"].as_str().unwrap().contains("nothing is heard of rank 9 any more"), "{row:#}");
    assert_eq!(site.query("tg_run_hang")[0].0["rank"], "9");
}

/// What NCCL's watchdog left of a rank's latest collective.
fn watchdog(job: &Job, rank: u32, at_ns: i64, (seq, op, state): (i64, &str, &str)) -> Event {
    let labels = [("run_id", job.id()), ("rank", rank.to_string()), ("source", "nccl".to_owned())];
    Event {
        time_ns: at_ns,
        kind: "run".to_owned(),
        severity: Severity::Warning,
        key: format!("nccl-{}-{rank}-{seq}", job.name),
        labels: labels.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        text: format!("watchdog of rank {rank}: {op} {seq} {state}"),
        body: json!({ "seq": seq, "op": op, "group": "0", "state": state, "timeout_ms": 600_000, "sizes": "[4096]" })
            .to_string(),
    }
}

/// The hang of a job of which every rank's watchdog left something.
fn hang_of(name: &'static str, left: impl Fn(u32) -> (i64, &'static str, &'static str)) -> Value {
    let site = Site::new();
    let mut job = Job::of(name, 16);
    let end_ns = now_ns() - 60 * SECOND;
    for rank in 0..16 {
        let events = [watchdog(&job, rank, end_ns + 20 * SECOND, left(rank))];
        let request = PushRequest {
            events: events.iter().map(Into::into).collect(),
            ..job.request(rank, now_ns(), 1, Vec::new())
        };
        deliver(&site, &request);
    }
    job.push(&site, 0..60, end_ns, &|_, _| true, &|rank, step| Work::of(jitter(rank, step)));
    let health = job.health_when(&site, &|health| health["state"] == "page");
    of_class(&health, "hang").clone()
}

#[test]
fn what_nccl_left_names_who_did_not_enter_who_does_something_else_or_the_network() {
    let not_entered = hang_of("absent", |rank| match rank {
        7 => (1_203, "ALLREDUCE", "completed"),
        _ => (1_204, "ALLREDUCE", "timeout"),
    });
    assert_eq!(
        (&not_entered["ranks"], &not_entered["culprits"][0]["sequence"]),
        (&json!([7]), &json!(1_203))
    );
    let else_where = hang_of("desync", |rank| match rank {
        11 => (1_204, "ALLGATHER", "timeout"),
        _ => (1_204, "ALLREDUCE", "timeout"),
    });
    assert_eq!(else_where["ranks"], json!([11]));
    assert_eq!(else_where["cause"], "program");
    assert!(else_where["culprits"][0]["state"].as_str().unwrap().contains("ALLGATHER"), "{else_where:#}");
    let network = hang_of("network", |_| (1_204, "ALLREDUCE", "timeout"));
    assert_eq!((&network["ranks"], &network["cause"]), (&json!([]), &json!("network")), "{network:#}");
    assert!(network["action"]["word"].as_str().unwrap().contains("check_links"), "{network:#}");
}
