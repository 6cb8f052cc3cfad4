//! Charts: buckets keep extremes, attempts stay apart, the shared grid fits.

use serde_json::{Value, json};

use crate::far_cluster::both;
use crate::process::{Answer, T0, id, request, series, session};

/// A curve with two spikes that no average would keep.
fn spiky(points: usize) -> Vec<f64> {
    let mut values: Vec<f64> = (0..points).map(|at| (at as f64 / 50.0).sin()).collect();
    values[points / 3] = 1_000.0;
    values[points / 2] = -1_000.0;
    values
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap_or(f64::NAN)).collect()
}

#[test]
fn buckets_keep_every_point_and_both_extremes() {
    for (_cluster, server) in both() {
        let values = spiky(20_000);
        assert_eq!(server.push(&request("r", 1, 1, vec![series("loss", &values)])).0, 200);
        for (axis, first, last) in [
            ("step", 0.0, 19_999.0),
            ("time", T0 as f64 / 1e6, T0 as f64 / 1e6 + 19_999e3),
            ("relative", 0.0, 19_999.0),
        ] {
            let answer = server
                .get(&format!("/api/tg/v1/runs/{}/points?metric=loss&axis={axis}&buckets=200", id("r")));
            assert_eq!(answer["points_read"], 20_000);
            let columns = &answer["series"][0];
            for column in ["x", "first", "last", "min", "max", "count", "nan", "pos_inf", "neg_inf"] {
                assert_eq!(columns[column].as_array().unwrap().len(), 200, "{axis} {column}");
            }
            assert_eq!(numbers(&columns["count"]).iter().sum::<f64>(), 20_000.0);
            assert_eq!(numbers(&columns["max"]).into_iter().fold(f64::MIN, f64::max), 1_000.0);
            assert_eq!(numbers(&columns["min"]).into_iter().fold(f64::MAX, f64::min), -1_000.0);
            let x = numbers(&columns["x"]);
            assert!(x.is_sorted(), "{axis}");
            assert!(x[0] >= first && x[199] == last, "{axis}: {} {}", x[0], x[199]);
            assert_eq!(numbers(&columns["last"])[199], values[19_999]);
        }
    }
}

#[test]
fn few_points_come_through_as_they_are_with_nan_and_infinities_marked() {
    for (_cluster, server) in both() {
        let values = [1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2.5];
        assert_eq!(server.push(&request("r", 1, 1, vec![series("θ loss", &values)])).0, 200);
        let answer =
            server.get(&format!("/api/tg/v1/runs/{}/points?metric=%CE%B8%20loss&axis=step", id("r")));
        let columns = &answer["series"][0];
        assert_eq!(columns["x"], json!([0, 1, 2, 3, 4]));
        assert_eq!(columns["last"], json!([1.0, "NaN", "+Inf", "-Inf", 2.5]));
        assert_eq!(columns["count"], json!([1, 1, 1, 1, 1]));
        assert_eq!(
            (&columns["nan"], &columns["pos_inf"]),
            (&json!([0, 1, 0, 0, 0]), &json!([0, 0, 1, 0, 0]))
        );
        let one = server.get(&format!("/api/tg/v1/runs/{}/points?metric=__loss&buckets=1", id("r")));
        let columns = &one["series"][0];
        assert_eq!((&columns["count"], &columns["nan"]), (&json!([5]), &json!([1])));
        assert_eq!((&columns["min"], &columns["max"]), (&json!([1.0]), &json!([2.5])));
        let near = server.ask("GET", &format!("/api/tg/v1/runs/{}/points?metric=_los", id("r")), &[], b"");
        assert_eq!(near.status, 404);
    }
}

#[test]
fn a_range_cuts_exactly_and_labels_choose() {
    for (_cluster, server) in both() {
        let ranked = |rank: &str| {
            let samples: Vec<model::Sample> = (0..100)
                .map(|at| model::Sample { time_ns: T0 + at, value: at as f64, step: Some(at) })
                .collect();
            wire::push::Series::new("loss", &[("rank".into(), rank.into())], "", &samples)
        };
        let ranks: Vec<wire::push::Series> = (0..12).map(|rank| ranked(&rank.to_string())).collect();
        assert_eq!(server.push(&request("r", 1, 1, ranks)).0, 200);
        let all = server.get(&format!("/api/tg/v1/runs/{}/points?metric=loss&from=10&to=19.5", id("r")));
        let order: Vec<&str> =
            all["series"].as_array().unwrap().iter().map(|s| s["labels"]["rank"].as_str().unwrap()).collect();
        assert_eq!(order, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"]);
        assert_eq!(numbers(&all["series"][3]["x"]), (10..20).map(f64::from).collect::<Vec<_>>());
        let one = server.get(&format!("/api/tg/v1/runs/{}/points?metric=loss&label.rank=7", id("r")));
        assert_eq!(one["series"].as_array().unwrap().len(), 1);
        assert_eq!(one["series"][0]["labels"]["rank"], "7");
    }
}

#[test]
fn attempts_are_apart_by_step_and_together_by_time() {
    for (_cluster, server) in both() {
        let mut first = request("r", 1, 1, vec![series("loss", &[3.0, 2.0, 1.0])]);
        first.session = Some(session(0, 1));
        assert_eq!(server.push(&first).0, 200);
        let samples: Vec<model::Sample> = (0..3)
            .map(|at| model::Sample {
                time_ns: T0 + (600 + at) * 1_000_000_000,
                value: 9.0,
                step: Some(at + 1),
            })
            .collect();
        let mut second = request("r", 2, 1, vec![wire::push::Series::new("loss", &[], "", &samples)]);
        second.session = Some(session(600, 1));
        assert_eq!(server.push(&second).1.unwrap().attempt, 2);
        let by_step = server.get(&format!("/api/tg/v1/runs/{}/points?metric=loss", id("r")));
        let attempts: Vec<(u64, Vec<f64>)> = by_step["series"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| (s["attempt"].as_u64().unwrap(), numbers(&s["x"])))
            .collect();
        assert_eq!(attempts, [(1, vec![0.0, 1.0, 2.0]), (2, vec![1.0, 2.0, 3.0])]);
        let by_time = server.get(&format!("/api/tg/v1/runs/{}/points?metric=loss&axis=relative", id("r")));
        assert_eq!(by_time["series"].as_array().unwrap().len(), 1);
        assert_eq!(numbers(&by_time["series"][0]["x"]), [0.0, 1.0, 2.0, 600.0, 601.0, 602.0]);
    }
}

/// A binary answer taken apart: head and columns by offset.
fn sheet(answer: &Answer) -> (Value, Vec<f64>) {
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert!(answer.head.contains("content-type: application/octet-stream"));
    assert_eq!(&answer.body[..4], b"TGP1");
    let length = u32::from_le_bytes(answer.body[4..8].try_into().unwrap()) as usize;
    assert_eq!((8 + length) % 8, 0);
    let head = serde_json::from_slice(&answer.body[8..8 + length]).unwrap();
    let columns = answer.body[8 + length..].chunks_exact(8);
    (head, columns.map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect())
}

fn column(head: &Value, columns: &[f64], series: usize, name: &str) -> Vec<f64> {
    let grid = head["grid"].as_u64().unwrap() as usize;
    let series = &head["series"][series];
    let at = series["columns"].as_array().unwrap().iter().position(|c| c == name).unwrap();
    let start = series["offset"].as_u64().unwrap() as usize / 8 + at * grid;
    columns[start..start + grid].to_vec()
}

#[test]
fn many_runs_share_one_grid_of_binary_columns() {
    for (_cluster, server) in both() {
        let values = spiky(10_000);
        assert_eq!(server.push(&request("a", 1, 1, vec![series("loss", &values)])).0, 200);
        assert_eq!(server.push(&request("b", 2, 1, vec![series("loss", &values[..5_000])])).0, 200);
        let body = json!({
            "axis": "step", "buckets": 100, "smooth": {"kind": "ema", "weight": 0.9},
            "queries": [{"run_id": id("a"), "metric": "loss"}, {"run_id": id("b"), "metric": "loss"}, {"run_id": id("gone"), "metric": "loss"}],
        });
        let answer = server.post_json("/api/tg/v1/points", &body);
        let (head, columns) = sheet(&answer);
        assert_eq!((&head["grid"], &head["points_read"]), (&json!(100), &json!(15_000)));
        assert_eq!(head["warnings"].as_array().unwrap().len(), 1, "{}", head["warnings"]);
        assert_eq!(columns[..100].last(), Some(&9_999.0));
        assert_eq!(columns.len(), 100 + 2 * 6 * 100);
        assert_eq!(column(&head, &columns, 0, "max").into_iter().fold(f64::MIN, f64::max), 1_000.0);
        assert_eq!(column(&head, &columns, 0, "min").into_iter().fold(f64::MAX, f64::min), -1_000.0);
        assert_eq!(column(&head, &columns, 1, "count").iter().sum::<f64>(), 5_000.0);
        let shorter = column(&head, &columns, 1, "last");
        assert!(shorter[49].is_finite() && shorter[50..].iter().all(|v| v.is_nan()));
        assert!(column(&head, &columns, 0, "smooth").iter().all(|v| v.is_finite()));
        assert_eq!(head["series"][0]["interval"], 1.0);
        let again = server.post_json("/api/tg/v1/points", &body);
        assert_eq!(answer.body, again.body, "the same question has the same answer");
    }
}

#[test]
fn few_points_make_a_grid_of_their_own_x_and_the_rest_is_marked() {
    for (_cluster, server) in both() {
        let sent = vec![series("loss", &[4.0, f64::NAN, 2.0]), series("acc", &[0.5])];
        assert_eq!(server.push(&request("r", 1, 1, sent)).0, 200);
        let body = json!({"axis": "step", "buckets": 50, "format": "json", "smooth": {"kind": "window", "size": 3},
        "queries": [{"run_id": id("r"), "metric": "loss"}, {"run_id": id("r"), "metric": "acc"}]});
        let answer = server.post_json("/api/tg/v1/points", &body).json();
        assert_eq!((&answer["grid"], &answer["x"]), (&json!(3), &json!([0.0, 1.0, 2.0])));
        let loss = &answer["series"][0];
        assert_eq!((&loss["last"], &loss["count"]), (&json!([4.0, "NaN", 2.0]), &json!([1.0, 1.0, 1.0])));
        assert_eq!(loss["non_finite"], json!([{"x": 1.0, "kind": "NaN", "count": 1}]));
        assert_eq!(loss["smooth"], json!([3.0, "NaN", 3.0]));
        assert_eq!(answer["series"][1]["count"], json!([1.0, 0.0, 0.0]));
    }
}

#[test]
fn a_series_without_steps_says_so_on_the_step_axis() {
    for (_cluster, server) in both() {
        let samples: Vec<model::Sample> = (0..5)
            .map(|at| model::Sample { time_ns: T0 + at * 1_000_000_000, value: 1.0, step: None })
            .collect();
        let stepless = wire::push::Series::new("system/cpu/utilization", &[], "", &samples);
        assert_eq!(server.push(&request("r", 1, 1, vec![stepless])).0, 200);
        let ask = |axis: &str| {
            let body = json!({"axis": axis, "format": "json", "queries": [{"run_id": id("r"), "metric": "system_cpu_utilization"}]});
            server.post_json("/api/tg/v1/points", &body).json()
        };
        let by_step = ask("step");
        assert_eq!((by_step["grid"].as_u64(), by_step["series"].as_array().unwrap().len()), (Some(0), 0));
        assert!(by_step["warnings"][0].as_str().unwrap().contains("has no steps"), "{}", by_step["warnings"]);
        assert_eq!(ask("relative")["x"], json!([0.0, 1.0, 2.0, 3.0, 4.0]));
        assert_eq!(ask("time")["series"][0]["unit"], "%");
    }
}

#[test]
fn more_series_than_an_answer_holds_are_refused_or_cut_with_a_warning() {
    for (_cluster, server) in both() {
        let ranked = |rank: usize| {
            let samples: Vec<model::Sample> =
                (0..2).map(|at| model::Sample { time_ns: T0 + at, value: 1.0, step: Some(at) }).collect();
            wire::push::Series::new("loss", &[("rank".into(), rank.to_string())], "", &samples)
        };
        assert_eq!(server.push(&request("r", 1, 1, (0..2_500).map(ranked).collect())).0, 200);
        let one = server.ask("GET", &format!("/api/tg/v1/runs/{}/points?metric=loss", id("r")), &[], b"");
        assert_eq!((one.status, one.error_code().as_str()), (413, "too_large"));
        let body = json!({"axis": "step", "buckets": 50, "format": "json",
        "queries": [{"run_id": id("r"), "metric": "loss", "limit": 100_000}]});
        let many = server.post_json("/api/tg/v1/points", &body).json();
        assert_eq!(many["series"].as_array().unwrap().len(), 2_000);
        assert_eq!(many["series"][0]["total"], 2_500);
        assert!(many["warnings"][0].as_str().unwrap().contains("full"), "{}", many["warnings"]);
        let few =
            json!({"axis": "step", "queries": [{"run_id": id("r"), "metric": "loss"}], "format": "json"});
        assert_eq!(
            server.post_json("/api/tg/v1/points", &few).json()["series"].as_array().unwrap().len(),
            50
        );
    }
}

#[test]
fn many_series_are_read_in_parts_and_only_in_the_columns_asked_for() {
    for (_cluster, server) in both() {
        let ranked = |rank: i64| {
            let samples: Vec<model::Sample> = (0..100)
                .map(|at| model::Sample { time_ns: T0 + at, value: (rank * 100 + at) as f64, step: Some(at) })
                .collect();
            wire::push::Series::new("loss", &[("rank".into(), rank.to_string())], "", &samples)
        };
        assert_eq!(server.push(&request("r", 1, 1, (0..30).map(ranked).collect())).0, 200);
        let body = json!({"axis": "step", "buckets": 10, "columns": ["max", "count"], "smooth": {"kind": "window", "size": 1},
            "queries": [{"run_id": id("r"), "metric": "loss", "skip": 20, "limit": 7}]});
        let (head, columns) = sheet(&server.post_json("/api/tg/v1/points", &body));
        let ranks: Vec<&str> = head["series"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["labels"]["rank"].as_str().unwrap())
            .collect();
        assert_eq!(ranks, ["20", "21", "22", "23", "24", "25", "26"]);
        assert_eq!((&head["series"][0]["total"], columns.len()), (&json!(30), 10 + 7 * 3 * 10));
        assert_eq!(head["series"][0]["columns"], json!(["max", "count", "smooth"]));
        assert_eq!(column(&head, &columns, 6, "max")[9], 2_699.0);
        assert_eq!(column(&head, &columns, 6, "smooth")[9], 2_699.0);
        assert_eq!(column(&head, &columns, 3, "count"), [10.0; 10]);
        for wrong in [json!(["mean"]), json!([])] {
            let body = json!({"axis": "step", "columns": wrong, "queries": []});
            assert_eq!(server.post_json("/api/tg/v1/points", &body).status, 400, "{wrong}");
        }
    }
}

#[test]
fn times_steps_and_values_at_the_edge_of_their_range_are_drawn() {
    for (_cluster, server) in both() {
        let edge = 1i64 << 61;
        let samples: Vec<model::Sample> = [
            (-edge, i64::MIN, f64::MIN),
            (0, 0, f64::NAN),
            (1, -1, 5e-324),
            (T0, i64::MAX, f64::INFINITY),
            (edge, i64::MAX - 1, f64::MAX),
        ]
        .into_iter()
        .map(|(time_ns, step, value)| model::Sample { time_ns, value, step: Some(step) })
        .collect();
        let sent = wire::push::Series::new("edge", &[], "", &samples);
        assert_eq!(server.push(&request("r", 1, 1, vec![sent])).1.unwrap().stored, 5);
        for axis in ["step", "time", "relative"] {
            for buckets in [1, 2, 3, 1_000] {
                let path =
                    format!("/api/tg/v1/runs/{}/points?metric=edge&axis={axis}&buckets={buckets}", id("r"));
                assert_eq!(server.get(&path)["points_read"], 5, "{axis} {buckets}");
                for smooth in
                    [json!(null), json!({"kind": "ema", "weight": 0.9}), json!({"kind": "window", "size": 3})]
                {
                    let body = json!({"axis": axis, "buckets": buckets, "smooth": smooth, "format": "json",
                    "queries": [{"run_id": id("r"), "metric": "edge"}]});
                    let answer = server.post_json("/api/tg/v1/points", &body).json();
                    assert_eq!(answer["points_read"], 5, "{axis} {buckets} {smooth}");
                }
            }
        }
        assert_eq!(server.get("/api/tg/v1/runs")["total"], 1);
        assert_eq!(server.get(&format!("/api/tg/v1/runs/{}", id("r")))["points"], 5);
    }
}
