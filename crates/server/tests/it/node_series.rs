//! Series of a node that the server knows by the bytes of their labels: what is stored is the same.

use std::time::{Duration, Instant};

use model::NANOS_PER_SECOND;
use wire::push::{Node, PushRequest, PushResponse, Series};

use crate::fleet_peer::{Agent, Site, lately};

const DAY_NS: i64 = 86_400 * NANOS_PER_SECOND;
const CARD: [(&str, &str); 2] = [("gpu", "3"), ("uuid", "GPU-aa")];
const POWER: &str = "tg_gpu_power_watts";
const ENERGY: &str = "tg_gpu_energy_joules_total";
const BUSY: &str = "tg_gpu_busy_ratio";

fn request(agent: &Agent, sequence: u64, series: Vec<Series>) -> PushRequest {
    let node = Node {
        host: agent.host.clone(),
        interval_ms: 10_000,
        agent_id: vec![agent.id; 16],
        ..Node::default()
    };
    let client_id = vec![agent.id; 16];
    PushRequest { client_id, sequence, node: Some(node), series, ..PushRequest::default() }
}

fn reasons(answer: &PushResponse) -> Vec<(&str, u64)> {
    answer.refused.iter().map(|count| (count.reason.as_str(), count.count)).collect()
}

#[test]
fn series_that_went_between_two_pushes_are_stored_again() {
    let site = Site::with(|config| {
        config.retention.raw = Duration::from_hours(24);
        config.retention.rollup_1m = Duration::ZERO;
        config.retention.rollup_15m = Duration::ZERO;
        config.seal_age = Duration::from_secs(1);
    });
    let agent = Agent::of("n1");
    let now_ns = lately();
    // As much as a card can use in the time between.
    let energy = |sequence: u64| 1e6 + 100.0 * sequence.saturating_sub(3) as f64;
    let push = |sequence: u64, idle_ns: i64, value: f64| {
        let busy_ns = now_ns + sequence as i64;
        let series = [(POWER, idle_ns, value), (BUSY, busy_ns, value), (ENERGY, idle_ns, energy(sequence))];
        let series = series.map(|(name, time_ns, value)| agent.series(name, &CARD, &[(time_ns, value)]));
        agent.deliver(&site, &request(&agent, sequence, series.into()))
    };
    // Their numbers are learnt with the second time that they are named.
    for sequence in 1..=3 {
        let answer = push(sequence, now_ns - 10 * DAY_NS + sequence as i64, sequence as f64);
        assert_eq!((answer.stored, reasons(&answer)), (3, vec![]));
    }
    let known = |name: &str| {
        let found = site.get(&format!("/api/v1/series?match[]={name}&start=0"));
        found["data"].as_array().unwrap().len()
    };
    let begun = Instant::now();
    while known(POWER) + known(ENERGY) > 0 {
        assert!(begun.elapsed() < Duration::from_mins(1), "the idle series don't go");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(known(BUSY), 1);
    let answer = push(4, now_ns, 4.0);
    assert_eq!((answer.stored, answer.duplicate, reasons(&answer)), (3, false, vec![]));
    assert!(push(4, now_ns, 4.0).duplicate);
    push(5, now_ns + NANOS_PER_SECOND, 5.0);
    for (name, value, count) in [(POWER, 5.0, 2.0), (BUSY, 5.0, 5.0), (ENERGY, energy(5), 2.0)] {
        assert_eq!(site.query(name)[0].1, value, "{name}");
        assert_eq!(site.query(&format!("count_over_time({name}[1h])"))[0].1, count, "{name}");
        assert_eq!(known(name), 1, "{name}");
    }
}

#[test]
fn what_is_known_of_one_node_is_not_taken_from_another() {
    let site = Site::new();
    let (own, other) = (Agent::of("n1"), Agent::of("n2"));
    let at = lately();
    for sequence in 1..=4 {
        let series = vec![own.series(POWER, &CARD, &[(at + sequence as i64, 1.0)])];
        let answer = own.deliver(&site, &request(&own, sequence, series.clone()));
        assert_eq!((answer.stored, reasons(&answer)), (1, vec![]));
        let answer = other.deliver(&site, &request(&other, sequence, series));
        assert_eq!((answer.stored, reasons(&answer)), (0, vec![("other_host", 1)]));
    }
    assert_eq!(site.query(&format!("count_over_time({POWER}[1h])"))[0].1, 4.0);
}

#[test]
fn series_of_a_second_agent_are_refused_also_where_they_are_known() {
    let site = Site::new();
    let first = Agent::of("n1");
    let second = Agent { id: first.id.wrapping_add(1), ..first.clone() };
    let at = lately();
    let series = |n: i64| vec![first.series(POWER, &CARD, &[(at + n, 1.0), (at + n + 1, 1.0)])];
    for sequence in 1..=3 {
        let answer = first.deliver(&site, &request(&first, sequence, series(2 * sequence as i64)));
        assert_eq!((answer.stored, reasons(&answer)), (2, vec![]));
    }
    let answer = second.deliver(&site, &request(&second, 1, series(9)));
    assert_eq!((answer.stored, reasons(&answer)), (0, vec![("node_reported_elsewhere", 2)]));
}
