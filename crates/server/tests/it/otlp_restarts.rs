//! A process that is started again under its old name, and makes the ids of before once more.

use serde_json::{Value, json};

use crate::metrana::{World, block};
use crate::trainer::{Process, S, Sent, TRACE, now_ns, span};

/// A step; its ids are those of its whole, its pass, and the exchange within that.
fn step(number: i64, at_ns: i64, [whole, pass, exchange]: [u64; 3], optimizer_tenths: i64) -> Vec<Sent> {
    let at = |tenths: i64| at_ns + tenths * S / 10;
    let mut all = span("megatron.train.iteration", (whole, 0), (at(0), at(40)));
    all.attributes = json!({ "megatron.iteration": number });
    let optimizer = (at(20), at(20 + optimizer_tenths));
    let mut optimizer = span("megatron.train.iteration.optimizer", (13, whole), optimizer);
    optimizer.links = vec![11];
    vec![
        all,
        span("megatron.train.iteration.forward_backward", (pass, whole), (at(0), at(20))),
        span("megatron.grad_sync.finish", (exchange, pass), (at(5), at(10))),
        optimizer,
    ]
}

/// Two lives of two ranks: the first did step 1 a minute ago, the second some step ten seconds ago, with the
/// same ids in another order, and its optimizer took longer.
fn restart(
    world: &World,
    number: i64,
    first: &dyn Fn(Process) -> Process,
    second: &dyn Fn(Process) -> Process,
) -> i64 {
    let now_ns = now_ns();
    for rank in 0..2 {
        let named = || Process::new("r1", rank);
        let of_first = step(1, now_ns - 60 * S, [10, 11, 12], 10);
        first(named()).spans(&world.running, &of_first);
        second(named()).spans(&world.running, &step(number, now_ns - 10 * S, [12, 11, 10], 15));
        // The answer to the first request was lost on its way.
        first(named()).spans(&world.running, &of_first);
    }
    now_ns
}

/// The second life is known by its process id.
fn restarted(world: &World, number: i64) -> i64 {
    let second = |rank| Process { more: vec![("process.pid", json!(4_000))], ..rank };
    restart(world, number, &|rank| rank, &second)
}

async fn timeline(world: &World, query: &str) -> Value {
    let id = world.the_run().await["run_id"].as_str().unwrap().to_owned();
    world.get(&format!("runs/{id}/timeline?{query}")).await
}

#[test]
fn whatever_tells_a_start_from_the_one_before_keeps_the_spans_of_both() {
    let with = |key: &'static str, of: Value| move |process: Process| process.with(key, of.clone());
    let created = "process.creation.time";
    for (first, second, kept) in [
        (with("nv.dl.run.uuid", json!("a")), with("nv.dl.run.uuid", json!("b")), 8),
        (with("process.pid", json!(100)), with("process.pid", json!(200)), 8),
        (with("nv.dl.restart_count", json!(0)), with("nv.dl.restart_count", json!("1")), 8),
        (with(created, json!("2026-01-01T00:00:00Z")), with(created, json!("2026-01-01T00:01:00Z")), 8),
        (with("host.name", json!("pod-a")), with("host.name", json!("pod-b")), 8),
        // Nothing tells them apart: the later replace the earlier.
        (with("nv.dl.run.uuid", json!("a")), with("nv.dl.run.uuid", json!("a")), 4),
    ] {
        let world = World::new();
        let now_ns = restart(&world, 5, &first, &second);
        block(async {
            let (from, to) = (now_ns / 1_000_000 - 90_000, now_ns / 1_000_000);
            let drawn = timeline(&world, &format!("part=spans&from={from}&to={to}&ranks=1")).await;
            assert_eq!(drawn["total"], json!(kept), "{:?}", second(Process::new("r1", 1)).more);
        });
    }
}

#[test]
fn both_lives_have_their_steps_and_the_time_of_each_is_told_apart() {
    let world = World::new();
    restarted(&world, 5);
    block(async {
        for (number, optimizer) in [(1, 1.0), (5, 1.5)] {
            let drawn = timeline(&world, &format!("part=spans&step={number}")).await;
            assert_eq!((&drawn["total"], &drawn["lanes"][1]["depth"]), (&json!(8), &json!(3)));
            let told = timeline(&world, &format!("part=breakdown&from={number}&to={number}")).await;
            assert_eq!((&told["x"], &told["wall_seconds"]), (&json!([number]), &json!([4.0])));
            let phase = |name: &str| told["seconds"][name][0].as_f64().unwrap();
            let told_apart = ["forward_backward", "communication", "optimizer"].map(phase);
            assert_eq!(told_apart, [1.5, 0.5, optimizer]);
            assert!((phase("unattributed") - (2.0 - optimizer)).abs() < 1e-9, "{told}");
        }
        // Both in one range: a child counts within its own parent.
        let told = timeline(&world, "part=breakdown").await;
        assert_eq!((&told["x"], &told["wall_seconds"]), (&json!([1, 5]), &json!([4.0, 4.0])));
        assert_eq!(told["seconds"]["communication"], json!([0.5, 0.5]));
        assert_eq!(told["seconds"]["optimizer"], json!([1.0, 1.5]));
        let run = world.the_run().await;
        let id = run["run_id"].as_str().unwrap();
        let points = world.get(&format!("runs/{id}/points?metric=train_step_seconds&axis=step")).await;
        for one in points["series"].as_array().unwrap() {
            assert_eq!((&one["x"], &one["last"]), (&json!([1, 5]), &json!([4.0, 4.0])));
        }
    });
}

#[test]
fn the_span_that_was_clicked_is_the_one_that_is_told() {
    let world = World::new();
    let now_ns = restarted(&world, 1);
    block(async {
        let (from, to) = (now_ns / 1_000_000 - 90_000, now_ns / 1_000_000);
        let drawn = timeline(&world, &format!("part=spans&from={from}&to={to}")).await;
        let columns = &drawn["spans"];
        let mut told = Vec::new();
        for at in 0..columns["id"].as_array().unwrap().len() {
            let lane = &drawn["lanes"][columns["lane"][at].as_u64().unwrap() as usize];
            // Where no lane has two lives, the column is left out.
            let life = columns["incarnation"][at].as_u64().unwrap() as usize;
            let (instance, id) = (lane["instance"].as_str().unwrap(), columns["id"][at].as_str().unwrap());
            let key = format!("part=span&instance={instance}&trace={TRACE}&id={id}");
            let one = timeline(&world, &format!("{key}&incarnation={}", lane["incarnations"][life])).await;
            let span = &one["span"];
            assert_eq!(span["incarnation"], lane["incarnations"][life]);
            assert_eq!(span["length_us"], columns["length_us"][at]);
            let name = &drawn["names"][columns["name"][at].as_u64().unwrap() as usize];
            assert_eq!(&span["name"], name);
            // The other rank did the same step in either life: the one of the same time is meant.
            assert_eq!(one["others"]["ranks"], json!(1));
            assert_eq!(
                (&one["others"]["min_us"], &one["others"]["max_us"]),
                (&span["length_us"], &span["length_us"])
            );
            if id.ends_with("0b") {
                let from: Vec<&Value> = span["linked_from"].as_array().unwrap().iter().collect();
                assert!(
                    from.iter()
                        .all(|of| of["instance"] != *instance || of["incarnation"] == span["incarnation"])
                );
                assert_eq!(from.iter().filter(|of| of["instance"] == *instance).count(), 1, "{from:?}");
            }
            told.push((id.to_owned(), life));
            // Asked by its ids alone, the latest life's is told.
            let latest = timeline(&world, &key).await;
            assert_eq!(latest["span"]["incarnation"], lane["incarnations"][1]);
        }
        told.sort();
        let ids = ["000000000000000a", "000000000000000b", "000000000000000c", "000000000000000d"];
        let want: Vec<_> =
            ids.iter().flat_map(|id| [0, 0, 1, 1].map(|life| ((*id).to_owned(), life))).collect();
        assert_eq!(told, want);
        let one_life = timeline(&world, "part=spans&step=1").await;
        assert_eq!(one_life["spans"].get("incarnation"), None);
        let known = &one_life["lanes"][0]["incarnations"];
        assert_eq!((known.as_array().unwrap().len(), &known[0]), (1, &drawn["lanes"][0]["incarnations"][1]));
    });
}
