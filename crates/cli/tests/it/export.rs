//! Points out of the store as files.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use model::Sample;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::{Value, json};
use wire::push::{Series, Session};

use crate::process::{Server, T0, eventually, id, request, run, series, session};

/// Two runs: `r` with a metric on two ranks, more points than a piece has, and odd values; `s` small.
fn filled() -> Server {
    let server = Server::start(&[]);
    let values: Vec<f64> = (0..50_000).map(|at| f64::from(at) * 0.1).collect();
    let rank = |rank: &str| [("rank".to_owned(), rank.to_owned())];
    let samples: Vec<Sample> =
        (0..3).map(|at| Sample { time_ns: T0 + at, value: at as f64, step: None }).collect();
    let odd = series("=odd", &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    let all = vec![
        series("train/loss", &values),
        Series::new("busy", &rank("1"), "", &samples),
        Series::new("busy", &rank("0"), "", &samples[..2]),
        odd,
    ];
    assert_eq!(server.push(&request("r", 1, 1, all)).0, 200);
    assert_eq!(server.push(&request("s", 2, 1, vec![series("train/loss", &[7.0])])).0, 200);
    server
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Rows of a Parquet file as the NDJSON of the same export has them, times in nanoseconds.
fn rows(path: &Path) -> Vec<Value> {
    let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let names: Vec<String> = {
        let schema = reader.metadata().file_metadata().schema_descr();
        schema.columns().iter().map(|column| column.name().to_owned()).collect()
    };
    reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| {
            let row = row.unwrap();
            let mut all = serde_json::Map::new();
            for (at, name) in names.iter().enumerate() {
                let value = match name.as_str() {
                    "time" | "step" => row.get_long(at).ok().map(Value::from),
                    "attempt" => row.get_int(at).ok().map(Value::from),
                    "value" => row.get_double(at).ok().map(|value| match value {
                        value if value.is_nan() => "NaN".into(),
                        value if value.is_infinite() => if value > 0.0 { "+Inf" } else { "-Inf" }.into(),
                        // By the same reader as the other file, which may round the last digit.
                        value => serde_json::from_str(&format!("{value:?}")).unwrap(),
                    }),
                    _ => row.get_string(at).ok().map(|text| text.clone().into()),
                };
                // Of labels NDJSON leaves out those that a series lacks.
                if value.is_some() || ["step", "attempt"].contains(&&**name) {
                    all.insert(name.clone(), value.unwrap_or_default());
                }
            }
            Value::Object(all)
        })
        .collect()
}

#[test]
fn the_three_formats_hold_the_same_points_whole_and_exact() {
    let server = filled();
    let file = |name: &str| server.home.join(name).display().to_string();
    let (ndjson, csv, parquet) = (file("p.ndjson"), file("p.csv"), file("p.parquet"));
    for path in [&ndjson, &csv, &parquet] {
        let (code, out, err) = server.cli(&["export", "--run", "r", "-o", path, "--json"]);
        assert_eq!(code, 0, "{err}");
        let told: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&told["points"], &told["series"]), (&json!(50_008), &json!(4)), "{told}");
        assert_eq!(told["bytes"], std::fs::metadata(path).unwrap().len(), "{told}");
    }
    let points = lines(&std::fs::read_to_string(&ndjson).unwrap());
    assert_eq!(points.len(), 50_008);
    let first = json!({"metric": "=odd", "time": "2023-11-14T22:13:20.000000000Z", "step": 0, "attempt": 1,
        "value": "NaN", "project": "p", "run": "r", "run_id": id("r")});
    assert_eq!(points[0], first);
    let busy: Vec<(&Value, &Value)> =
        points.iter().filter(|p| p["metric"] == "busy").map(|p| (&p["rank"], &p["time"])).collect();
    assert_eq!(busy[0], (&json!("0"), &json!("2023-11-14T22:13:20.000000000Z")));
    assert_eq!(busy[4], (&json!("1"), &json!("2023-11-14T22:13:20.000000002Z")));
    let text = std::fs::read_to_string(&csv).unwrap();
    let loss: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("train/loss,"))
        .map(|line| line.split(',').collect())
        .collect();
    let exact = |(at, cells): (usize, &Vec<&str>)| {
        cells[2] == at.to_string() && cells[4].parse() == Ok(at as f64 * 0.1)
    };
    assert!(loss.len() == 50_000 && loss.iter().enumerate().all(exact));
    assert_eq!(text.lines().count(), 50_009);
    assert_eq!(text.lines().next(), Some("metric,time,step,attempt,value,project,rank,run,run_id"));
    assert!(text.contains(&format!("\n'=odd,2023-11-14T22:13:21.000000000Z,1,1,+Inf,p,,r,{}\n", id("r"))));
    let mut as_json = rows(Path::new(&parquet));
    for (row, point) in as_json.iter_mut().zip(&points) {
        let time_ns = row["time"].as_i64().unwrap();
        let (seconds, nanos) = (time_ns.div_euclid(1_000_000_000), time_ns.rem_euclid(1_000_000_000));
        let shown = point["time"].as_str().unwrap();
        assert!(shown.ends_with(&format!(".{nanos:09}Z")), "{shown} {time_ns}");
        assert!(seconds >= T0 / 1_000_000_000);
        row["time"] = point["time"].clone();
    }
    assert_eq!(as_json, points);
}

#[test]
fn selectors_runs_and_times_narrow_what_comes_out() {
    let server = filled();
    let points = |args: &[&str]| {
        let (code, out, err) = server.cli(&[&["export", "--format", "ndjson"], args].concat());
        assert_eq!(code, 0, "{args:?}: {err}");
        lines(&out)
    };
    assert_eq!(points(&["train_loss", "--run", "s"]).len(), 1);
    assert_eq!(points(&["--run", "s", "--run", &id("r")]).len(), 50_009);
    assert_eq!(points(&["busy{rank=\"0\"}", "{run=\"s\"}"]).len(), 3);
    let some = points(&["train_loss{run=\"r\"}", "--start", "1700000010", "--end", "2023-11-14T22:13:40Z"]);
    let steps: Vec<i64> = some.iter().map(|point| point["step"].as_i64().unwrap()).collect();
    assert_eq!(steps, (10..=20).collect::<Vec<i64>>());
    // All three lie in one millisecond, and the last one counts.
    assert_eq!(points(&["busy{rank=\"1\"}", "--end", "1700000000"]).len(), 3);
}

#[test]
fn a_directory_that_no_server_has_gives_the_same_file() {
    let mut server = filled();
    let data = server.home.join("data").display().to_string();
    let from_server = server.home.join("a.parquet").display().to_string();
    assert_eq!(server.cli(&["export", "--run", "r", "-o", &from_server]).0, 0);
    let offline = ["export", "--run", "r", "--data-dir", &data, "--format", "parquet"];
    let (code, _, err) = run(&server.home, &offline);
    assert!(code == 2 && err.contains("another truegauge server") && err.contains("hint: "), "{err}");
    assert_eq!(server.terminate(), 0);
    let from_dir = server.home.join("b.parquet").display().to_string();
    let (code, _, err) = run(&server.home, &[&offline[..], &["-o", &from_dir]].concat());
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("50,008 points of 4 series"), "{err}");
    let bytes = |path: &str| std::fs::read(path).unwrap();
    assert!(bytes(&from_server) == bytes(&from_dir), "the files differ");
    let (code, _, err) = run(&server.home, &["export", "x", "--data-dir", "/nowhere"]);
    assert!(code == 2 && err.contains("no data directory"), "{err}");
}

#[test]
fn what_can_not_be_exported_says_why_and_leaves_no_file() {
    let server = filled();
    let check = |args: &[&str], want: &str| {
        let (code, out, err) = server.cli(&[&["export"], args].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{args:?} {err}");
        assert!(err.contains(want) && err.contains("hint: "), "{args:?} {err}");
    };
    let file = server.home.join("out.parquet").display().to_string();
    check(&["nothing_of_the_kind", "-o", &file], "no series fits");
    check(&["-o", &file], "not said what to export");
    check(&["rate(", "-o", &file], "selector");
    check(&["--run", "nobody", "-o", &file], "no run named `nobody`");
    check(&["train_loss", "-o", &server.home.join("out.xlsx").display().to_string()], "which format");
    check(&["train_loss", "-o", "/nowhere/out.csv"], "cannot write");
    check(&["train_loss", "--start", "noon", "-o", &file], "`start` is `noon`");
    let left = std::fs::read_dir(&server.home)
        .unwrap()
        .filter_map(|file| file.unwrap().file_name().into_string().ok());
    assert!(left.into_iter().all(|name| !name.contains("out")), "a file was left");
}

#[test]
fn an_answer_that_breaks_off_is_no_export() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(&[&head[..], b"7\r\nmetric\n\r\n"].concat()).unwrap();
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("points.csv");
    let (code, _, err) = run(dir.path(), &["export", "x", "--url", &url, "-o", file.to_str().unwrap()]);
    peer.join().unwrap();
    assert!(code == 2 && err.contains("broke off"), "{err}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_the_server_states_of_a_run_comes_out_only_where_it_is_asked_for() {
    let server = Server::start(&["--own-metrics=true", "--own-metrics-interval", "200ms"]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut pushed = request("r", 1, 1, vec![series("loss", &[1.0])]);
    pushed.session = Some(Session { time_ms: now.as_millis() as i64, event: 1, ..session(0, 1) });
    assert_eq!(server.push(&pushed).0, 200);
    let stated = ["export", "tg_run_state{run=\"r\"}", "--format", "ndjson"];
    eventually("the run is stated", || (server.cli(&stated).0 == 0).then_some(()));
    for args in
        [&["export", "--run", "r", "--format", "ndjson"][..], &["runs", "export", "r", "--format", "ndjson"]]
    {
        let (code, out, err) = server.cli(args);
        assert_eq!(code, 0, "{err}");
        let metrics: Vec<Value> = lines(&out).iter().map(|line| line["metric"].clone()).collect();
        assert_eq!(metrics, [json!("loss")], "{args:?}");
    }
}
