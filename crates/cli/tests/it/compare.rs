//! Runs beside each other.

use serde_json::{Value, json};
use wire::push::{Attribute, Series};

use crate::process::{Server, T0, id, request, series};

/// Three runs: `a` and `b` with one learning rate, `c` with another and half as long.
fn three() -> Server {
    let server = Server::start(&[]);
    for (name, writer, lr, steps) in [("a", 1, 0.1, 1_000), ("b", 2, 0.1, 1_000), ("c", 3, 0.3, 500)] {
        let loss: Vec<f64> =
            (0..steps).map(|at| f64::from((at - 400_i32).abs()) + f64::from(writer)).collect();
        let samples: Vec<model::Sample> = (0..2)
            .map(|at| model::Sample { time_ns: T0 + at, value: f64::from(writer), step: None })
            .collect();
        let rank = |rank: &str| vec![("rank".to_owned(), rank.to_owned())];
        let mut all = vec![
            series("train/loss", &loss),
            Series::new("busy", &rank("0"), "", &samples),
            Series::new("busy", &rank("1"), "", &samples),
        ];
        if name == "a" {
            all.push(series("only/a", &[1.0]));
        }
        let mut pushed = request(name, writer as u8, 1, all);
        pushed.attributes = vec![
            Attribute::new("config/lr", &model::AttributeValue::Float(lr), false),
            Attribute::new("config/seed", &model::AttributeValue::Int(7), false),
        ];
        assert_eq!(server.push(&pushed).0, 200);
    }
    server
}

fn compare(server: &Server, more: &str) -> Value {
    let runs = ["a", "b", "c"].map(|name| format!("&run_id={}", id(name))).concat();
    server.get(&format!("/api/tg/v1/compare?x=1{runs}{more}"))
}

#[test]
fn differences_and_outcomes_are_exact() {
    let server = three();
    let answer = compare(&server, "");
    assert_eq!(
        answer["differences"],
        json!([{"key": "config/lr", "values": [0.1, 0.1, 0.3], "has": [true, true, true]}])
    );
    let names: Vec<&str> = answer["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| metric["display"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["train/loss", "busy"], "what two have, the loss first");
    let loss = &answer["metrics"][0];
    assert_eq!(loss["best"], "min");
    assert_eq!(
        loss["runs"][1],
        json!({"series": 1, "points": 1_000, "last": 601.0, "last_step": 999, "min": 2.0, "min_step": 400,
            "max": 601.0, "max_step": 999})
    );
    let at_step = compare(&server, "&step=300&metric=train/loss");
    let reading = &at_step["metrics"][0]["runs"][2];
    assert_eq!((&reading["last"], &reading["last_step"]), (&json!(103.0), &json!(300)));
    assert_eq!(
        (&reading["points"], &reading["max"], &reading["max_step"]),
        (&json!(301), &json!(403.0), &json!(0))
    );
    let own = compare(&server, "&metric=only_a");
    assert_eq!(own["metrics"][0]["runs"][1], Value::Null, "absent is not zero");
    let ranks = &compare(&server, "&group=rank&metric=busy")["metrics"][0]["groups"];
    assert_eq!(
        ranks[1],
        json!({"name": "1", "runs": 3, "series": 3, "mean": 2.0, "min": 1.0, "max": 3.0, "best": null})
    );
    let by_lr = &compare(&server, "&group=config/lr&metric=train/loss")["metrics"][0]["groups"];
    assert_eq!(
        by_lr[0],
        json!({"name": "0.1", "runs": 2, "series": 2, "mean": 600.5, "min": 600.0, "max": 601.0, "best": 1.0})
    );
    let none = server.ask("GET", "/api/tg/v1/compare", &[], b"");
    assert_eq!((none.status, none.error_code().as_str()), (400, "bad_request"));
    let unknown = server.ask("GET", &format!("/api/tg/v1/compare?run_id={}&metric=nope", id("a")), &[], b"");
    assert_eq!(unknown.error_code(), "not_found");
}

#[test]
fn the_terminal_shows_it_as_a_table_and_as_csv() {
    let server = three();
    let (code, out, err) = server.cli(&["runs", "compare", "a", "b", "c", "--metric", "train/loss"]);
    assert_eq!(code, 0, "{err}");
    let has = |line: &[&str]| {
        let wanted = line.join(" ");
        let squeezed = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(squeezed.into_iter().any(|line| line == wanted), "`{wanted}` is not in\n{out}");
    };
    has(&["ATTRIBUTE", "a", "b", "c"]);
    has(&["config/lr", "0.1", "0.1", "0.3"]);
    has(&["train/loss", "a", "600 @ 999", "1 @ 400 *", "600 @ 999", "1000"]);
    has(&["c", "102 @ 499", "3 @ 400 *", "403 @ 0", "500"]);
    let (code, out, err) = server.cli(&["runs", "compare", "a", "c", "--metric", "train/loss", "--csv"]);
    assert_eq!(code, 0, "{err}");
    let wanted = format!(
        "metric,run,run_id,series,points,last,last_step,min,min_step,max,max_step\n\
         train/loss,a,{},1,1000,600.0,999,1.0,400,600.0,999\n\
         train/loss,c,{},1,500,102.0,499,3.0,400,403.0,0\n",
        id("a"),
        id("c")
    );
    assert_eq!(out, wanted);
    let grouped = server.cli(&[
        "runs",
        "compare",
        "a",
        "b",
        "c",
        "--group",
        "config/lr",
        "--metric",
        "train_loss",
        "--csv",
    ]);
    assert_eq!(
        grouped.1,
        "metric,group,runs,series,mean,min,max,best\n\
         train/loss,0.1,2,2,600.5,600.0,601.0,1.0\ntrain/loss,0.3,1,1,102.0,102.0,102.0,3.0\n"
    );
    let (code, _, err) = server.cli(&["runs", "compare", "a"]);
    assert!(code == 2 && err.contains("2 values required"), "{err}");
    let (code, _, err) = server.cli(&["runs", "compare", "a", "nobody"]);
    assert!(code == 2 && err.contains("no run named `nobody`"), "{err}");
}
