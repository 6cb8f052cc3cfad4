//! Runs that are seen through their telemetry: sessions, steps, spans.

use serde_json::{Value, json};

use wire::metrana::ResumePolicy;

use crate::metrana::{World, acknowledged, asks, block, declared, initialize, points, stream, update};
use crate::trainer::{Process, S, Sent, TRACE, now_ns, span};

fn ranks(run: &'static str) -> Vec<Process> {
    (0..4).map(|rank| Process::new(run, rank)).collect()
}

/// Sends `iterations` of 4 s of every rank, the last of which ended `ago` seconds ago.
fn train(world: &World, ranks: &[Process], iterations: i64, ago: i64) -> i64 {
    let start_ns = now_ns() - (iterations * 4 + ago) * S;
    for rank in ranks {
        let all: Vec<Sent> =
            (0..iterations).flat_map(|n| Process::iteration(n + 1, start_ns + n * 4 * S)).collect();
        assert_eq!(rank.spans(&world.running, &all), json!({}));
    }
    start_ns
}

async fn timeline(world: &World, query: &str) -> Value {
    let id = world.the_run().await["run_id"].as_str().unwrap().to_owned();
    world.get(&format!("runs/{id}/timeline?{query}")).await
}

fn numbers(of: &Value) -> Vec<f64> {
    of.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn round(numbers: Vec<f64>) -> Vec<f64> {
    numbers.into_iter().map(|number| (number * 1e6).round() / 1e6).collect()
}

#[test]
fn a_run_appears_by_itself_with_its_ranks_attributes_and_steps() {
    let world = World::new();
    let ranks: Vec<Process> = ranks("r1")
        .into_iter()
        .map(|rank| {
            rank.with("dl.tensor_parallel.size", json!("2"))
                .with("nv.dl.role", json!("trainer"))
                .with("megatron.num_layers", json!(32))
                .with("deployment.environment", json!("night"))
                .with("api_key", json!("sk-0123456789abcdef0123"))
        })
        .collect();
    train(&world, &ranks, 3, 1);
    block(async {
        let run = world.the_run().await;
        let text = |key: &str| run[key].as_str().unwrap().to_owned();
        assert_eq!([text("project"), text("run"), text("state")], ["megatron-lm", "r1", "running"]);
        assert_eq!((run["telemetry"].clone(), run["attempts"].clone()), (json!(true), json!(1)));
        assert_eq!((run["last_step"].clone(), run["hosts"].clone()), (json!(3), json!(["host-0", "host-1"])));
        let sessions = run["sessions"].as_array().unwrap();
        let mut seen: Vec<_> = sessions
            .iter()
            .map(|s| (s["rank"].as_u64(), s["pid"].as_u64(), s["world_size"].as_u64()))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3].map(|rank| (Some(rank), Some(1_000 + rank), Some(4))));
        let attributes: Vec<(&str, &Value)> =
            run["attributes"].as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value)).collect();
        assert_eq!(
            attributes,
            [
                ("otel/environment", &json!("night")),
                ("otel/layers", &json!(32)),
                ("otel/role", &json!("trainer")),
                ("otel/service.name", &json!("megatron-lm")),
                ("otel/tp_size", &json!(2)),
                ("otel/world_size", &json!(4)),
            ]
        );
        let id = text("run_id");
        let points = world.get(&format!("runs/{id}/points?metric=train_step_seconds&axis=step")).await;
        let series = points["series"].as_array().unwrap();
        assert_eq!(series.len(), 4);
        for (rank, one) in series.iter().enumerate() {
            assert_eq!(one["labels"]["rank"], json!(rank.to_string()));
            assert_eq!((numbers(&one["x"]), numbers(&one["last"])), (vec![1.0, 2.0, 3.0], vec![4.0; 3]));
        }
        // What comes again changes nothing.
        let before = run["points"].clone();
        ranks[0].spans(&world.running, &Process::iteration(3, now_ns()));
        assert_eq!(world.the_run().await["points"], json!(before.as_u64().unwrap() + 1));
    });
}

#[test]
fn spans_that_come_twice_are_one() {
    let world = World::new();
    let rank = Process::new("r1", 0);
    let spans = Process::iteration(1, now_ns() - 10 * S);
    rank.spans(&world.running, &spans);
    rank.spans(&world.running, &spans);
    block(async {
        assert_eq!(world.the_run().await["points"], json!(1));
        let drawn = timeline(&world, "part=spans&step=1").await;
        assert_eq!(drawn["total"], json!(4));
    });
}

#[test]
fn another_incarnation_is_another_attempt_of_the_same_run() {
    let world = World::new();
    // A process that is seeded alike makes the ids of before once more.
    let go = |uuid: &'static str, ago: i64| {
        let ranks = ranks("r1").into_iter().map(|rank| rank.with("nv.dl.run.uuid", json!(uuid)));
        train(&world, &ranks.collect::<Vec<Process>>(), 2, ago)
    };
    go("a", 60);
    let restarted_ns = go("b", 1);
    block(async {
        let run = world.the_run().await;
        assert_eq!((run["attempts"].clone(), run["sessions"].as_array().unwrap().len()), (json!(2), 8));
        let attempts = run["attempts_list"].as_array().unwrap();
        let tokens: Vec<&str> = attempts.iter().map(|a| a["job_token"].as_str().unwrap()).collect();
        assert_eq!(tokens, ["a", "b"]);
        assert_eq!(attempts[1]["started_ms"], json!(restarted_ns / 1_000_000));
        let told = timeline(&world, "part=breakdown").await;
        let restart = told["goodput"]["phases"]["restart"].as_f64().unwrap();
        assert!((50.0..60.0).contains(&restart), "{told}");
        assert_eq!(round(numbers(&told["wall_seconds"])), [4.0, 4.0], "no wall reaches over the restart");
    });
}

#[test]
fn what_exports_under_a_run_that_was_opened_already_joins_it() {
    let world = World::new();
    block(async {
        let mut peer = world.peer().await;
        let given = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
        let mut message = update(&given, 1, 1);
        message.series_declarations = vec![declared("own", 9)];
        message.series = vec![points(9, 0, &[1.0])];
        let mut call = stream(&mut peer, &given, 1).await;
        call.send(&message).await;
        acknowledged(&mut call).await;
    });
    let mut id = String::new();
    block(async { id = world.the_run().await["run_id"].as_str().unwrap().to_owned() });
    let rank = Process::new("r1", 0).with("truegauge.run_id", json!(id)).with("slurm.job.id", json!("99"));
    rank.spans(&world.running, &Process::iteration(7, now_ns() - 10 * S));
    rank.gauges(&world.running, now_ns(), &[("loss", 2.0)]);
    block(async {
        assert_eq!(world.get("runs").await["runs"].as_array().unwrap().len(), 1);
        let run = world.the_run().await;
        assert_eq!(
            (run["run"].clone(), run["attempts"].clone(), run["telemetry"].clone()),
            (json!("r"), json!(1), json!(true))
        );
        assert_eq!(run["sessions"].as_array().unwrap().len(), 1, "its own client tells that it lives");
        assert_eq!(run["attributes"]["otel/slurm_job"], json!("99"));
        let series = [("megatron.training.loss".to_owned(), 1), ("own".to_owned(), 1)];
        assert_eq!(world.series().await, series, "its own client tells the steps");
        let drawn = timeline(&world, "part=spans").await;
        assert_eq!((drawn["step"].clone(), drawn["total"].clone()), (json!(7), json!(4)));
    });
}

#[test]
fn a_run_is_stale_after_three_of_its_own_intervals() {
    for (interval, alive, silent) in [(10, 20, 45), (60, 140, 215)] {
        for (ago, want) in [(alive, "running"), (silent, "stale")] {
            let world = World::new();
            let rank = Process::new("r1", 0);
            let now_ns = now_ns();
            for exports in (0..4).rev() {
                rank.gauges(&world.running, now_ns - (ago + exports * interval) * S, &[("loss", 2.0)]);
            }
            block(async {
                let run = world.the_run().await;
                assert_eq!(run["state"], json!(want), "every {interval} s, silent for {ago} s");
            });
        }
    }
}

#[test]
fn a_process_whose_first_request_holds_a_backlog_lives_until_the_last_of_it() {
    let world = World::new();
    let rank = Process::new("r1", 0);
    let now_ns = now_ns();
    let backlog = [Process::iteration(1, now_ns - 600 * S), Process::iteration(2, now_ns - 5 * S)].concat();
    rank.spans(&world.running, &backlog);
    block(async {
        let run = world.the_run().await;
        assert_eq!((&run["state"], &run["attempts"]), (&json!("running"), &json!(1)));
        let started = run["attempts_list"][0]["started_ms"].as_i64().unwrap();
        assert_eq!(started, (now_ns - 600 * S) / 1_000_000);
    });
}

#[test]
fn the_time_of_a_step_is_told_apart_and_adds_up() {
    let world = World::new();
    let ranks = ranks("r1");
    let start_ns = train(&world, &ranks, 5, 20);
    // Between the fifth iteration and a sixth lie 3 s of a checkpoint and 1 s of nothing.
    for rank in &ranks {
        let at = start_ns + 20 * S;
        let save = span("megatron.checkpoint.exposed_save", (900, 0), (at, at + 3 * S));
        rank.spans(&world.running, &[vec![save], Process::iteration(6, at + 4 * S)].concat());
    }
    block(async {
        let told = timeline(&world, "part=breakdown").await;
        assert_eq!(told["ranks"], json!([0, 1, 2, 3]));
        assert_eq!(told["x"], json!([1, 2, 3, 4, 5, 6]));
        assert_eq!(round(numbers(&told["wall_seconds"])), [4.0, 4.0, 4.0, 4.0, 4.0, 8.0]);
        let phase = |name: &str| round(numbers(&told["seconds"][name]));
        assert_eq!(phase("forward_backward"), [1.5; 6]);
        assert_eq!(phase("communication"), [0.5; 6]);
        assert_eq!(phase("optimizer"), [0.5; 6]);
        assert_eq!(phase("checkpoint"), [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]);
        assert_eq!(phase("unattributed"), [1.5, 1.5, 1.5, 1.5, 1.5, 2.5]);
        assert!(told["sum_error_ratio"].as_f64().unwrap() < 0.01);
        let missing: Vec<&str> =
            told["switches"].as_array().unwrap().iter().map(|s| s["phase"].as_str().unwrap()).collect();
        assert_eq!(missing, ["data_loading", "evaluation", "housekeeping"]);
        assert_eq!(told["switches"][1]["switch"], json!("MEGATRON_OTEL_SPAN_GROUPS=default"));
        let part = timeline(&world, "part=breakdown&from=2&to=5&rank=3&buckets=2").await;
        assert_eq!((part["rank"].clone(), part["count"].clone()), (json!(3), json!([2, 2])));
        assert_eq!((part["iterations"].clone(), part["x"].clone()), (json!(4), json!([2, 4])));
        let goodput = &told["goodput"];
        let seconds = |key: &str| (goodput[key].as_f64().unwrap() * 1e6).round() / 1e6;
        assert_eq!((seconds("wall_seconds"), seconds("productive_seconds")), (28.0, 24.0));
        let nobody = timeline(&world, "part=breakdown&rank=9").await;
        assert_eq!((nobody["x"].clone(), nobody["switch"].is_string()), (json!([]), true));
        assert!(nobody["text"].as_str().unwrap().contains("Rank 9"), "{nobody}");
    });
}

#[test]
fn iterations_may_have_any_number() {
    let world = World::new();
    let rank = Process::new("r1", 0);
    let start_ns = now_ns() - 60 * S;
    let numbers = [i64::MIN, -1, 0, 7, i64::MAX];
    for (at, number) in (0..).zip(numbers) {
        let from_ns = start_ns + at * 4 * S;
        let mut whole = span("megatron.train.iteration", (at as u64 + 1, 0), (from_ns, from_ns + 4 * S));
        whole.attributes = json!({ "megatron.iteration": number });
        assert_eq!(rank.spans(&world.running, &[whole]), json!({}));
    }
    block(async {
        let told = timeline(&world, "part=breakdown").await;
        // The range of all is far too wide to be looked at whole.
        assert_eq!((told["x"][0].clone(), told["sampled"].clone()), (json!(i64::MIN), json!(true)));
        let told = timeline(&world, "part=breakdown&from=-1&to=7").await;
        assert_eq!((told["x"].clone(), told["sampled"].clone()), (json!([-1, 0, 7]), json!(false)));
        let far = timeline(&world, &format!("part=breakdown&from={}&buckets=1", i64::MAX)).await;
        assert_eq!(far["x"], json!([i64::MAX]));
        let last = timeline(&world, "part=spans").await;
        assert_eq!((last["step"].clone(), last["total"].clone()), (json!(i64::MAX), json!(1)));
    });
}

#[test]
fn a_run_without_spans_says_which_switch_brings_them() {
    let world = World::new();
    Process::new("r1", 0).gauges(&world.running, now_ns(), &[("loss", 2.0)]);
    block(async {
        for part in ["breakdown", "spans"] {
            let told = timeline(&world, &format!("part={part}")).await;
            assert_eq!(told["switch"], json!("MEGATRON_OTEL_SPAN_GROUPS=per_step"), "{told}");
            assert!(told["text"].as_str().unwrap().ends_with('.'), "{told}");
        }
    });
}

#[test]
fn a_run_that_tells_no_iteration_is_drawn_whole() {
    let world = World::new();
    let at = now_ns() - 60 * S;
    let startup = span("megatron.startup", (1, 0), (at, at + 30 * S));
    let load = span("megatron.checkpoint.load", (2, 1), (at + 5 * S, at + 25 * S));
    Process::new("r1", 0).spans(&world.running, &[startup, load]);
    block(async {
        let drawn = timeline(&world, "part=spans").await;
        assert_eq!((drawn["total"].clone(), drawn["step"].clone()), (json!(2), Value::Null));
        assert_eq!(drawn["phases"], json!(["startup", "checkpoint"]));
        assert_eq!(drawn["switch"], json!("MEGATRON_OTEL_SPAN_GROUPS=per_step"));
        assert!(drawn["text"].as_str().unwrap().starts_with("No span tells an iteration"), "{drawn}");
        let goodput = &timeline(&world, "part=breakdown").await["goodput"];
        assert_eq!(
            (goodput["phases"]["startup"].clone(), goodput["phases"]["checkpoint"].clone()),
            (json!(10.0), json!(20.0))
        );
        assert_eq!(goodput["ratio"], json!(0.0));
    });
}

#[test]
fn spans_of_equal_ids_are_drawn_on_the_lane_of_their_rank() {
    let world = World::new();
    let start_ns = train(&world, &ranks("r1"), 3, 1);
    block(async {
        let drawn = timeline(&world, "part=spans&step=2").await;
        assert_eq!((drawn["total"].clone(), drawn["left_out"].clone()), (json!(16), json!(0)));
        assert_eq!(drawn["steps"], json!({ "first": 1, "last": 3 }));
        assert_eq!((drawn["step"].clone(), drawn["traces"].clone()), (json!(2), json!([TRACE])));
        assert_eq!(drawn["origin_ns"], json!((start_ns + 4 * S).to_string()));
        let lanes = drawn["lanes"].as_array().unwrap();
        let told: Vec<_> = lanes
            .iter()
            .map(|l| (l["rank"].as_u64().unwrap(), l["spans"].as_u64(), l["depth"].as_u64()))
            .collect();
        assert_eq!(told, [0, 1, 2, 3].map(|rank| (rank, Some(4), Some(3))));
        let columns = &drawn["spans"];
        let of = |key: &str| columns[key].as_array().unwrap().clone();
        for (at, name) in of("name").iter().enumerate() {
            let name = drawn["names"][name.as_u64().unwrap() as usize].as_str().unwrap();
            let (start, length, depth) = match name {
                "megatron.train.iteration" => (0.0, 4e6, 0),
                "megatron.train.iteration.forward_backward" => (5e5, 2e6, 1),
                "megatron.grad_sync.finish" => (1e6, 5e5, 2),
                "megatron.train.iteration.optimizer" => (3e6, 5e5, 1),
                other => panic!("{other}"),
            };
            assert_eq!(
                (of("start_us")[at].as_f64(), of("length_us")[at].as_f64(), of("depth")[at].as_u64()),
                (Some(start), Some(length), Some(depth)),
                "{name}"
            );
        }
        let chosen = timeline(&world, "part=spans&step=2&ranks=1-2&names=megatron.grad_sync.finish").await;
        assert_eq!((chosen["total"].clone(), chosen["phases"].clone()), (json!(2), json!(["communication"])));
        let last = timeline(&world, "part=spans&limit=3").await;
        assert_eq!(
            (last["step"].clone(), last["total"].clone(), last["left_out"].clone()),
            (json!(3), json!(16), json!(13))
        );
        let six = timeline(&world, "part=spans&step=2&limit=6").await;
        let mut longest = numbers(&six["spans"]["length_us"]);
        longest.sort_by(f64::total_cmp);
        assert_eq!(longest, [2e6, 2e6, 4e6, 4e6, 4e6, 4e6], "the shortest are left out");
        let ms = |seconds: i64| (start_ns / S + seconds) * 1_000;
        let range = timeline(&world, &format!("part=spans&from={}&to={}", ms(-5), ms(60))).await;
        assert_eq!((range["total"].clone(), range["step"].clone()), (json!(48), Value::Null));
    });
}

#[test]
fn a_host_whose_clock_is_off_is_laid_beside_the_others_and_named() {
    let world = World::new();
    let start_ns = now_ns() - 100 * S;
    for rank in 0..6 {
        let rank = Process::new("r1", rank);
        let off_ns = if rank.host == "host-2" { 250_000_000 } else { 0 };
        let all: Vec<Sent> =
            (0..8).flat_map(|n| Process::iteration(n + 1, start_ns + off_ns + n * 4 * S)).collect();
        rank.spans(&world.running, &all);
    }
    block(async {
        let drawn = timeline(&world, "part=spans&step=4").await;
        let shifts: Vec<Option<f64>> =
            drawn["lanes"].as_array().unwrap().iter().map(|lane| lane["clock_shift_ms"].as_f64()).collect();
        assert_eq!(shifts, [None, None, None, None, Some(-250.0), Some(-250.0)]);
        let columns = &drawn["spans"];
        let starts = numbers(&columns["start_us"]).into_iter().zip(numbers(&columns["depth"]));
        let roots: Vec<f64> = starts.filter(|(_, depth)| *depth == 0.0).map(|(start, _)| start).collect();
        assert_eq!(roots, [0.0; 6]);
    });
}

#[test]
fn one_span_is_told_whole_and_beside_its_like() {
    let world = World::new();
    let start_ns = now_ns() - 20 * S;
    for (at, rank) in ranks("r1").into_iter().enumerate() {
        let mut spans = Process::iteration(7, start_ns);
        spans[3].to_ns += at as i64 * S / 10;
        spans[3].links = vec![70];
        spans[3].attributes = json!({ "dl.microbatch_id": 3, "gen_ai.prompt": "tell me" });
        rank.spans(&world.running, &spans);
    }
    block(async {
        let one =
            timeline(&world, &format!("part=span&instance=r1-rank2&trace={TRACE}&id=0000000000000049")).await;
        let span = &one["span"];
        assert_eq!(
            (span["name"].clone(), span["rank"].clone()),
            (json!("megatron.train.iteration.optimizer"), json!(2))
        );
        assert_eq!((span["iteration"].clone(), span["host"].clone()), (json!(7), json!("host-1")));
        assert_eq!(
            (span["parent"].clone(), span["kind"].clone()),
            (json!("0000000000000046"), json!("internal"))
        );
        assert_eq!(span["attributes"], json!([["dl.microbatch_id", 3]]));
        assert_eq!(span["links"], json!([{ "trace": TRACE, "id": "0000000000000046", "attributes": [] }]));
        assert_eq!(span["length_us"], json!(700_000.0));
        assert_eq!(
            one["others"],
            json!({ "ranks": 3, "median_us": 600_000.0, "min_us": 500_000.0, "max_us": 800_000.0 })
        );
        let whole =
            timeline(&world, &format!("part=span&instance=r1-rank2&trace={TRACE}&id=0000000000000046")).await;
        let from: Vec<&str> = whole["span"]["linked_from"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| l["instance"].as_str().unwrap())
            .collect();
        assert_eq!(from.len(), 4, "equal ids: a pointer says no process: {from:?}");
    });
}

#[test]
fn spans_without_usable_ids_are_refused_one_by_one_and_odd_times_are_kept() {
    let world = World::new();
    let rank = Process::new("r1", 0);
    let at = now_ns() - 10 * S;
    let mut spans = Process::iteration(1, at);
    spans[1].id = 0;
    spans[2].to_ns = spans[2].from_ns - S;
    spans[3].to_ns = at + 4 * 3_600 * S;
    let answer = rank.spans(&world.running, &spans);
    assert_eq!(answer["partialSuccess"]["rejectedSpans"], json!("2"), "{answer}");
    block(async {
        let drawn = timeline(&world, "part=spans&step=1").await;
        assert_eq!(drawn["total"], json!(2));
        let one =
            timeline(&world, &format!("part=span&instance=r1-rank0&trace={TRACE}&id=000000000000000c")).await;
        assert_eq!(
            (one["span"]["reversed"].clone(), one["span"]["length_us"].clone()),
            (json!(true), json!(0.0))
        );
    });
}

#[test]
fn questions_that_make_no_sense_are_told_so() {
    let world = World::new();
    train(&world, &[Process::new("r1", 0)], 1, 1);
    block(async {
        let id = world.the_run().await["run_id"].as_str().unwrap().to_owned();
        for query in [
            "",
            "part=other",
            "part=breakdown&buckets=0",
            "part=breakdown&from=9&to=2",
            "part=breakdown&rank=x",
            "part=spans&limit=100001",
            "part=spans&ranks=3-1",
            "part=spans&ranks=0-4000000000",
            "part=spans&from=9&to=2",
            "part=span&trace=1&id=2",
        ] {
            let url = format!("{}/api/tg/v1/runs/{id}/timeline?{query}", world.running.url);
            let asked = tokio::task::spawn_blocking(move || {
                let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
                agent.get(&url).call().unwrap().status().as_u16()
            });
            assert_eq!(asked.await.unwrap(), 400, "{query}");
        }
    });
}

async fn training(world: &World) -> Value {
    let id = world.the_run().await["run_id"].as_str().unwrap().to_owned();
    world.get(&format!("runs/{id}/training")).await
}

#[test]
fn points_without_steps_are_placed_by_the_iterations_that_spans_tell() {
    let world = World::new();
    let rank = Process::new("r1", 3);
    let start_ns = train(&world, std::slice::from_ref(&rank), 5, 10);
    for (seconds, loss) in [(2, 9.0), (9, 3.0), (13, 2.5), (21, 2.0)] {
        rank.gauges(&world.running, start_ns + seconds * S, &[("loss", loss)]);
    }
    block(async {
        let id = world.the_run().await["run_id"].as_str().unwrap().to_owned();
        let points = world.get(&format!("runs/{id}/points?metric=megatron_training_loss&axis=step")).await;
        let series = &points["series"][0];
        // The first point is of a time before any iteration had ended.
        assert_eq!(
            (numbers(&series["x"]), numbers(&series["last"])),
            (vec![2.0, 3.0, 5.0], vec![3.0, 2.5, 2.0])
        );
        let few = world
            .get(&format!("runs/{id}/points?metric=megatron_training_loss&axis=step&buckets=1&from=2"))
            .await;
        assert_eq!(
            (few["series"][0]["count"].clone(), few["series"][0]["x"].clone()),
            (json!([3]), json!([5]))
        );
        let metrics = world.get(&format!("runs/{id}/metrics")).await;
        let loss =
            metrics["metrics"].as_array().unwrap().iter().find(|m| m["name"] == "megatron_training_loss");
        assert_eq!(loss.unwrap()["last_step"], json!(5));
        let timed = world.get(&format!("runs/{id}/points?metric=megatron_training_loss&axis=time")).await;
        assert_eq!(timed["series"][0]["x"].as_array().unwrap().len(), 4);
    });
}

#[test]
fn what_is_known_of_a_training_is_told_with_what_is_missing() {
    let world = World::new();
    let rank = Process::new("r1", 3)
        .with("nv.gpu.model", json!("NVIDIA H100 80GB HBM3"))
        .with("megatron.precision", json!("bf16"));
    let now_ns = now_ns();
    let loss = [f64::NAN, 2.0, f64::INFINITY, f64::NAN, 1.5];
    for (at, loss) in loss.into_iter().enumerate() {
        let time_ns = now_ns - (50 - at as i64 * 10) * S;
        rank.gauges(&world.running, time_ns, &[("loss", loss), ("throughput_tflops", 400.0)]);
    }
    block(async {
        let told = training(&world).await;
        assert_eq!(told["ids"], json!(["r1"]));
        let export = &told["export"];
        assert_eq!((export["ranks"].clone(), export["world_size"].clone()), (json!([3]), json!(4)));
        assert_eq!(
            (export["interval_seconds"].clone(), export["text"].clone()),
            (json!(10.0), json!("Rank 3 of 4 exports."))
        );
        let row = |key: &str| {
            let rows = told["instruments"].as_array().unwrap();
            rows.iter().find(|row| row["key"] == key).unwrap().clone()
        };
        assert_eq!(
            (row("loss")["present"].clone(), row("loss")["metric"].clone()),
            (json!(true), json!("megatron_training_loss"))
        );
        assert_eq!(row("grad_norm")["present"], json!(false));
        assert!(row("memory_allocated_gb")["text"].as_str().unwrap().contains("CUDA"));
        let non_finite = &told["non_finite"];
        assert_eq!(non_finite.as_object().unwrap().len(), 1);
        assert_eq!(
            non_finite["loss"],
            json!({ "nan": 2, "positive_infinite": 1, "negative_infinite": 0,
                    "last_time": (now_ns - 20 * S) / 1_000_000, "last_step": null })
        );
        assert_eq!(told["skipped"]["total"], json!(0.0), "no series of the counter is none");
        let mfu = &told["mfu"];
        assert_eq!(
            (mfu["gpu"].clone(), mfu["dtype"].clone(), mfu["peak_flops"].clone()),
            (json!("h100-sxm"), json!("bf16"), json!(989e12))
        );
        assert_eq!((mfu["ratio"].as_f64().unwrap() * 1e4).round(), 4_044.0);
        assert_eq!(
            (mfu["present"].clone(), mfu["is_error"].clone(), mfu["reason"].clone()),
            (json!(true), json!(false), Value::Null)
        );
        let switches: Vec<&str> =
            told["switches"].as_array().unwrap().iter().map(|s| s["key"].as_str().unwrap()).collect();
        assert_eq!(
            switches,
            ["MEGATRON_OTEL_EXPORT_STRATEGY=all_ranks", "MEGATRON_OTEL_SPAN_GROUPS=per_step"]
        );
    });
    rank.gauges(&world.running, now_ns, &[("throughput_tflops", 1_200.0)]);
    block(async {
        let mfu = training(&world).await["mfu"].clone();
        assert_eq!(mfu["is_error"], json!(true));
        assert!(mfu["text"].as_str().unwrap().contains("more than its peak"), "{mfu}");
    });
}

#[test]
fn a_utilization_that_can_not_be_told_says_why() {
    let check = |gpu: &str, precision: &str, gauge: &str, reason: &str| {
        let world = World::new();
        let said = [("nv.gpu.model", gpu), ("megatron.precision", precision)];
        let said = said.into_iter().filter(|(_, value)| !value.is_empty());
        let rank = said.fold(Process::new("r1", 0), |rank, (key, value)| rank.with(key, json!(value)));
        rank.gauges(&world.running, now_ns(), &[(gauge, 400.0)]);
        block(async {
            let mfu = training(&world).await["mfu"].clone();
            assert_eq!(
                (mfu["reason"].clone(), mfu["present"].clone()),
                (json!(reason), json!(false)),
                "{mfu}"
            );
            assert!(mfu["text"].as_str().unwrap().ends_with('.'), "{mfu}");
        });
    };
    let (h100, throughput) = ("NVIDIA H100 80GB HBM3", "throughput_tflops");
    check("", "", throughput, "no_device");
    check("Frobnicator 9000", "bf16", throughput, "unknown_device");
    check(h100, "", throughput, "no_dtype");
    check(h100, "fp4", throughput, "no_dtype");
    check(h100, "bf16", "loss", "no_throughput");
}

#[test]
fn facts_that_utilization_is_reckoned_from_are_series() {
    let world = World::with(|config| {
        config.own_metrics = true;
        config.own_metrics_interval = std::time::Duration::from_millis(50);
    });
    let rank = Process::new("r1", 0)
        .with("nv.gpu.model", json!("NVIDIA H100 80GB HBM3"))
        .with("megatron.precision", json!("bf16"))
        .with("nv.dl.training.config.recompute_granularity", json!("full"));
    rank.gauges(&world.running, now_ns(), &[("loss", 2.0)]);
    block(async {
        let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
        loop {
            let url = format!(
                "{}/api/v1/query?query=tg_run_gpus%20*%20on%20(gpu_model,dtype)%20group_left%20()%20tg_peak_flops%7Bkind=%22dense%22%7D%20and%20on%20(run_id)%20tg_run_recompute_factor%20%3E%201.3",
                world.running.url
            );
            let asked = tokio::task::spawn_blocking(move || {
                ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap()
            });
            let answer: Value = serde_json::from_str(&asked.await.unwrap()).unwrap();
            if let Some(found) = answer["data"]["result"].get(0) {
                assert_eq!(found["value"][1], json!("3956000000000000"), "four ranks: {answer}");
                assert_eq!(found["metric"]["run"], json!("r1"));
                break;
            }
            assert!(std::time::Instant::now() < until, "waited in vain: {answer}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
}

/// Bytes of a file as they are, and what is packed in it with zstd.
fn unpacked(all: &[u8]) -> Vec<Vec<u8>> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

    let starts = all.windows(4).enumerate().filter(|(_, part)| *part == MAGIC).map(|(at, _)| at);
    let frame = |at: usize| {
        let mut out = Vec::new();
        let mut decoder = zstd::stream::read::Decoder::with_buffer(&all[at..]).unwrap().single_frame();
        std::io::Read::read_to_end(&mut decoder, &mut out).is_ok().then_some(out)
    };
    starts.filter_map(frame).chain([all.to_vec()]).collect()
}

/// Every file below a folder that holds these bytes, also packed.
fn holding(folder: &std::path::Path, bytes: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, bytes));
        } else if unpacked(&std::fs::read(&path).unwrap())
            .iter()
            .any(|all| all.windows(bytes.len()).any(|part| part == bytes))
        {
            found.push(path);
        }
    }
    found
}

/// A span with what somebody typed, in every place that it may come in.
fn typed() -> Vec<Sent> {
    let mut spans = Process::iteration(1, now_ns() - 10 * S);
    for span in &mut spans {
        span.attributes["gen_ai.prompt"] =
            json!("XYZZYTEXT mail ann@example.org, key sk-abcdefghijklmnop0123456789");
        span.attributes["gen_ai.completion.0.content"] = json!("XYZZYTEXT");
        span.attributes["prompt"] = json!("XYZZYTEXT");
        span.attributes["api_key"] = json!("XYZZYKEY");
        span.attributes["gen_ai.usage.input_tokens"] = json!(12);
    }
    spans
}

#[test]
fn nothing_that_somebody_typed_is_on_the_disk() {
    let world = World::with(|config| config.seal_points = 1);
    let rank = Process::new("r1", 0).with("prompt", json!("XYZZYTEXT"));
    rank.spans(&world.running, &typed());
    block(async {
        let drawn = timeline(&world, "part=spans&step=1").await;
        assert_eq!((drawn["total"].clone(), drawn["texts_hidden"].clone()), (json!(4), json!(false)));
        let one =
            timeline(&world, &format!("part=span&instance=r1-rank0&trace={TRACE}&id=000000000000000b")).await;
        assert_eq!(one["span"]["attributes"], json!([["gen_ai.usage.input_tokens", 12]]));
    });
    let World { running, _folder: folder } = world;
    let data = folder.path().join("data");
    running.stop();
    assert!(!holding(&data, b"megatron").is_empty(), "the search finds what is there");
    for secret in ["XYZZYTEXT", "XYZZYKEY", "ann@example"] {
        assert_eq!(holding(folder.path(), secret.as_bytes()), Vec::<std::path::PathBuf>::new(), "{secret}");
    }
}

#[test]
fn a_project_that_asks_for_texts_has_them_redacted_and_for_admins_only() {
    let world = World::with(|config| {
        config.seal_points = 1;
        config.otlp.keep_text = vec![(String::new(), String::new(), "megatron-lm".into())];
        let variable = |name: &str| (name == "TRUEGAUGE_TOKEN").then(|| "all".to_owned());
        let before = config.clone();
        *config = server::Config::resolve(before, &server::config::Given::new(), &variable, None).unwrap();
    });
    let rank = Process::new("r1", 0);
    let url = world.running.url.clone();
    let ask = |method: &'static str, path: String, token: String, body: Option<Value>| {
        let url = format!("{url}/api/tg/v1/{path}");
        let bearer = format!("Bearer {token}");
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut answer = match (method, body) {
            ("POST", Some(body)) => {
                agent.post(&url).header("authorization", &bearer).send(body.to_string()).unwrap()
            }
            _ => agent.get(&url).header("authorization", &bearer).call().unwrap(),
        };
        serde_json::from_str::<Value>(&answer.body_mut().read_to_string().unwrap()).unwrap()
    };
    rank.spans_with(&world.running, &typed(), &[("authorization", "Bearer all")]);
    let reader = ask("POST", "tokens".into(), "all".into(), Some(json!({ "name": "r", "scopes": ["read"] })));
    let reader = reader["token"].as_str().unwrap_or_else(|| panic!("{reader}")).to_owned();
    let id = ask("GET", "runs".into(), "all".into(), None)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let one = format!("runs/{id}/timeline?part=span&instance=r1-rank0&trace={TRACE}&id=000000000000000b");
    let seen = ask("GET", one.clone(), "all".into(), None);
    let attributes = seen["span"]["attributes"].as_array().unwrap();
    let of = |key: &str| attributes.iter().find(|pair| pair[0] == key).map(|pair| pair[1].clone());
    assert_eq!(of("gen_ai.prompt"), Some(json!("XYZZYTEXT mail [address], key [secret]")));
    assert_eq!((of("prompt"), of("api_key")), (Some(json!("XYZZYTEXT")), None));
    assert_eq!(seen["texts_hidden"], json!(false));
    let hidden = ask("GET", one, reader.clone(), None);
    assert_eq!(hidden["span"]["attributes"], json!([["gen_ai.usage.input_tokens", 12]]));
    assert_eq!(hidden["texts_hidden"], json!(true));
    let drawn = ask("GET", format!("runs/{id}/timeline?part=spans&step=1"), reader, None);
    assert_eq!(drawn["texts_hidden"], json!(true));
    let World { running, _folder: folder } = world;
    running.stop();
    // So that the test of what is not kept looks in the right way.
    assert!(!holding(&folder.path().join("data"), b"XYZZYTEXT").is_empty());
    for secret in ["XYZZYKEY", "ann@example", "sk-abcdef"] {
        assert!(holding(folder.path(), secret.as_bytes()).is_empty(), "{secret}");
    }
}
