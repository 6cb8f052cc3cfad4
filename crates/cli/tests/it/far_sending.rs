//! Samples toward a cluster: all of them, once, in order, through outages; what it refuses is shown.

use model::Sample;
use serde_json::{Value, json};
use wire::push::Series;

use crate::far_cluster::{ANY_TIME, Cluster, drained, now_ms, write};
use crate::process::{Server, T0, eventually, id, request, series, session};
use crate::prometheus::{T0_SECONDS, escape};

/// Points of `loss`: milliseconds and nanoseconds behind [`T0`], and a step.
fn points(of: &[(i64, i64, i64)]) -> Vec<Sample> {
    let sample = |(ms, ns, step): &(i64, i64, i64)| Sample {
        time_ns: T0 + ms * 1_000_000 + ns,
        value: *step as f64,
        step: Some(*step),
    };
    of.iter().map(sample).collect()
}

fn at(seconds: i64) -> f64 {
    (T0_SECONDS + seconds) as f64
}

/// Times and values of the one series that a range selector finds, milliseconds behind `T0`.
fn raw(cluster: &Cluster, selector: &str) -> Vec<(i64, f64)> {
    let rows = cluster.query(&format!("{selector}[1h]"), at(3_000));
    let values = rows.first().map(|row| row["values"].as_array().unwrap().clone()).unwrap_or_default();
    assert!(rows.len() <= 1, "{rows:?}");
    values
        .iter()
        .map(|pair| {
            let ms = (pair[0].as_f64().unwrap() * 1e3).round() as i64 - T0 / 1_000_000;
            (ms, pair[1].as_str().unwrap().parse().unwrap())
        })
        .collect()
}

#[test]
fn what_every_door_takes_reaches_the_cluster() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    let values: Vec<f64> = (0..2_000).map(f64::from).collect();
    assert_eq!(server.push(&request("far", 1, 1, vec![series("loss", &values)])).0, 200);
    assert_eq!(write(&server, &[("__name__", "up"), ("job", "a")], &[(T0 / 1_000_000, 1.0)]), 204);
    let check = |query: &str, want: &str| {
        eventually(query, || (cluster.value(query, at(2_000)).as_deref() == Some(want)).then_some(()));
    };
    check("count_over_time(loss{run=\"far\",project=\"p\"}[1h])", "2000");
    check("sum_over_time(loss{run=\"far\"}[1h])", "1999000");
    check("max_over_time(truegauge_step{run=\"far\"}[1h])", "1999");
    check("count_over_time(up{job=\"a\"}[1h])", "1");
    drained(&server);
    assert_eq!(server.metric("truegauge_far_samples_total{outcome=\"sent\",reason=\"\"}"), 4_001.0);
    assert_eq!(server.metric("truegauge_far_queue_bytes "), 0.0);
}

#[test]
fn a_delivery_that_comes_again_is_sent_once() {
    let cluster = Cluster::start(ANY_TIME);
    let mut server = cluster.server(&[]);
    let sent = request("far", 1, 1, vec![Series::new("loss", &[], "", &points(&[(0, 0, 1), (0, 1, 2)]))]);
    for _ in 0..3 {
        assert_eq!(server.push(&sent).0, 200);
    }
    drained(&server);
    assert_eq!(server.metric("truegauge_far_samples_total{outcome=\"sent\",reason=\"\"}"), 4.0);
    server.kill();
    server.restart();
    // It is not known any more that it was sent: it goes again, with the same times.
    assert_eq!(server.push(&sent).0, 200);
    drained(&server);
    assert_eq!(raw(&cluster, "loss"), [(0, 1.0), (1, 2.0)]);
    assert_eq!(raw(&cluster, "truegauge_step"), [(0, 1.0), (1, 2.0)]);
}

#[test]
fn a_series_finds_the_places_of_the_others_after_a_restart() {
    let cluster = Cluster::start(ANY_TIME);
    let mut server = cluster.server(&[]);
    let loss: Vec<(i64, i64, i64)> = (0..10).map(|n| (0, n, n)).collect();
    let one = |sequence, series| request("far", 1, sequence, vec![series]);
    let lr = one(2, Series::new("lr", &[], "", &points(&[(0, 0, 4)])));
    assert_eq!(server.push(&one(1, Series::new("loss", &[], "", &points(&loss)))).0, 200);
    assert_eq!(server.push(&lr).0, 200);
    drained(&server);
    server.kill();
    server.restart();
    // The delivery comes again as after a lost answer, then a series that is new.
    assert_eq!(server.push(&lr).0, 200);
    let accuracy = Series::new("accuracy", &[], "", &points(&[(0, 0, 7), (0, 1, 9)]));
    assert_eq!(server.push(&one(3, accuracy)).0, 200);
    drained(&server);
    assert_eq!(raw(&cluster, "lr"), [(4, 4.0)]);
    assert_eq!(raw(&cluster, "accuracy"), [(7, 7.0), (9, 9.0)]);
    let want: Vec<(i64, f64)> = (0..10).map(|n| (n, n as f64)).collect();
    assert_eq!(raw(&cluster, "truegauge_step"), want);
    assert_eq!(server.get("/api/tg/v1/storage")["far"]["refused"]["entries"], 0);
}

#[test]
fn points_within_a_millisecond_stay_apart_and_keep_their_steps() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    let burst: Vec<(i64, i64, i64)> = (0..50).map(|n| (0, n, n)).collect();
    let both = vec![
        Series::new("loss", &[], "", &points(&burst)),
        Series::new("lr", &[], "", &points(&[(0, 7, 7)])),
    ];
    assert_eq!(server.push(&request("far", 1, 1, both)).0, 200);
    assert_eq!(
        server.push(&request("far", 1, 2, vec![Series::new("loss", &[], "", &points(&[(10, 0, 50)]))])).0,
        200
    );
    drained(&server);
    let want: Vec<(i64, f64)> = (0..51).map(|n| (n, n as f64)).collect();
    assert_eq!(raw(&cluster, "loss"), want);
    assert_eq!(raw(&cluster, "truegauge_step"), want);
    assert_eq!(raw(&cluster, "lr"), [(7, 7.0)]);
}

#[test]
fn a_series_of_every_fifth_step_shares_the_milliseconds_of_those_of_every_step() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    let fifths: Vec<(i64, i64, i64)> = (0..10).map(|n| (0, n, 5 * n + 4)).collect();
    let steps: Vec<(i64, i64, i64)> = (0..50).map(|n| (0, n, n)).collect();
    let back = [(60, 0, 9), (60, 1, 8), (60, 2, 7)];
    let series = vec![
        Series::new("accuracy", &[], "", &points(&fifths)),
        Series::new("back", &[], "", &points(&back)),
        Series::new("loss", &[], "", &points(&steps)),
    ];
    assert_eq!(server.push(&request("far", 1, 1, series)).0, 200);
    drained(&server);
    let (first, then) = (|n: i64| (n, n as f64), [(60, 9.0), (61, 8.0), (62, 7.0)]);
    assert_eq!(raw(&cluster, "loss"), (0..50).map(first).collect::<Vec<_>>());
    assert_eq!(raw(&cluster, "back"), then, "a series keeps its order");
    assert_eq!(raw(&cluster, "truegauge_step"), (0..50).map(first).chain(then).collect::<Vec<_>>());
    let accuracy: Vec<(i64, f64)> = (0..10).map(|n| first(5 * n + 4)).collect();
    assert_eq!(raw(&cluster, "accuracy"), accuracy);
}

#[test]
fn points_beyond_a_second_of_shifting_are_counted_as_collapsed() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    let burst: Vec<(i64, i64, i64)> = (0..1_500).map(|n| (0, n, n)).collect();
    assert_eq!(
        server.push(&request("far", 1, 1, vec![Series::new("loss", &[], "", &points(&burst))])).0,
        200
    );
    drained(&server);
    assert_eq!(raw(&cluster, "loss").len(), 1_001);
    let far = &server.get("/api/tg/v1/storage")["far"];
    assert_eq!(far["left_out"][0]["reason"], "collapsed", "{far}");
    assert_eq!(far["left_out"][0]["samples"], 499);
    let left_out = "truegauge_far_samples_total{outcome=\"left_out\",reason=\"collapsed\"}";
    assert_eq!(server.metric(left_out), 499.0);
}

#[test]
fn series_beyond_the_clusters_limits_stay_here_and_are_counted() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&["--storage-labels-max", "3", "--storage-label-value-bytes-max", "10"]);
    let at_ms = T0 / 1_000_000;
    let send = |labels: &[(&str, &str)]| assert_eq!(write(&server, labels, &[(at_ms, 1.0)]), 204);
    send(&[("__name__", "a"), ("b", "1"), ("c", "1"), ("d", "1")]);
    send(&[("__name__", "e"), ("f", "12345678901")]);
    send(&[("__name__", "g"), ("h.i", "1")]);
    send(&[("__name__", "j"), ("k", "1")]);
    drained(&server);
    let far = &server.get("/api/tg/v1/storage")["far"];
    let reasons: Vec<&str> =
        far["left_out"].as_array().unwrap().iter().map(|row| row["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["label_count", "label_name", "label_too_long"], "{far}");
    assert_eq!(far["sent_samples"], 1);
    assert_eq!(cluster.query("{__name__=~\"a|e|g|j\"}", at(0)).len(), 1);
}

#[test]
fn nothing_is_lost_or_doubled_while_the_cluster_is_away_and_the_server_dies() {
    let mut cluster = Cluster::start(ANY_TIME);
    let mut server = cluster.server(&[]);
    let push = |server: &Server, sequence: u64| {
        let first = (sequence as i64 - 1) * 10;
        let of: Vec<(i64, i64, i64)> = (first..first + 10).map(|n| (n / 2, n % 2, n)).collect();
        let sent = request("far", 1, sequence, vec![Series::new("loss", &[], "", &points(&of))]);
        assert_eq!(server.push(&sent).0, 200);
    };
    push(&server, 1);
    drained(&server);
    cluster.kill();
    for sequence in 2..20 {
        push(&server, sequence);
        match sequence {
            8 => {
                server.kill();
                server.restart();
            }
            14 => {
                assert_eq!(server.terminate(), 0);
                server.restart();
            }
            _ => {}
        }
    }
    let failing = eventually("the outage is told of", || {
        let far = server.get("/api/tg/v1/storage")["far"].clone();
        (!far["failing"].is_null()).then_some(far)
    });
    assert!(failing["queue"]["bytes"].as_u64().unwrap() > 0, "{failing}");
    assert_eq!(server.metric("truegauge_far_failing "), 1.0);
    cluster.again();
    drained(&server);
    let want: Vec<(i64, f64)> = (0..190).map(|n| (n, n as f64)).collect();
    assert_eq!(raw(&cluster, "loss"), want);
    assert_eq!(raw(&cluster, "truegauge_step"), want);
}

#[test]
fn a_full_queue_refuses_at_the_doors_and_takes_again_later() {
    let mut cluster = Cluster::prepared(ANY_TIME);
    let server = cluster.server(&["--storage-queue-bytes-max", "64KiB"]);
    let values: Vec<f64> = (0..5_000).map(|n| f64::from(n).sin()).collect();
    let send = |sequence: u64| server.push(&request("far", 1, sequence, vec![series("loss", &values)])).0;
    let taken = (1..100).take_while(|sequence| send(*sequence) == 200).count() as u64;
    assert!((1..99).contains(&taken));
    let refused = server.push_bytes(
        &wire::push::encode(&request("far", 1, taken + 1, vec![series("loss", &values)])).unwrap(),
        &[("content-encoding", "zstd")],
    );
    assert_eq!((refused.status, refused.head.contains("retry-after")), (503, true));
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("`storage_queue_bytes_max`"));
    assert_eq!(write(&server, &[("__name__", "up")], &[(now_ms(), 1.0)]), 503);
    cluster.again();
    eventually("the door opens again", || (send(taken + 1) == 200).then_some(()));
    drained(&server);
    assert_eq!(cluster.value("count(loss)", at(4_999)).as_deref(), Some("1"));
}

#[test]
fn what_the_cluster_refuses_is_set_aside_with_its_words_and_sent_again_when_asked() {
    let mut cluster = Cluster::start("0s");
    let mut server = cluster.server(&[]);
    let now = now_ms();
    assert_eq!(write(&server, &[("__name__", "late")], &[(now, 1.0)]), 204);
    drained(&server);
    // One request: one series is in order, the other too late.
    let mut writer = wire::remote_write::RequestWriter::new();
    let point = |time_ms, value| wire::remote_write::Point { time_ms, value };
    writer.series([("__name__", "late")], &[point(now - 60_000, 2.0), point(now + 1, 3.0)]);
    writer.series([("__name__", "other")], &[point(now, 4.0)]);
    let headers = [("content-type", wire::remote_write::CONTENT_TYPE), ("content-encoding", "snappy")];
    assert_eq!(server.ask("POST", "/api/v1/write", &headers, &writer.finish().unwrap()).status, 204);
    drained(&server);
    let time = (now + 10) as f64 / 1e3;
    assert_eq!(cluster.value("count_over_time(late[2m])", time).as_deref(), Some("2"));
    assert_eq!(cluster.value("other", time).as_deref(), Some("4"));
    let check = |server: &Server| {
        let refused = server.get("/api/tg/v1/storage")["far"]["refused"].clone();
        assert_eq!(refused["entries"], 1, "{refused}");
        let entry = &refused["list"][0];
        assert_eq!((&entry["samples"], &entry["status"]), (&json!(1), &json!(400)));
        assert_eq!(entry["series"], "late");
        assert_eq!(entry["first_ms"], now - 60_000);
        assert!(entry["words"].as_str().unwrap().contains("out of order"), "{entry}");
    };
    check(&server);
    server.kill();
    server.restart();
    check(&server);
    let (code, page, _) = server.cli(&["doctor", "--json"]);
    let page: Value = serde_json::from_str(&page).unwrap();
    let told = page["checks"].as_array().unwrap().iter().find(|c| c["id"] == "storage.refused").unwrap();
    assert_eq!((code, &told["status"]), (0, &json!("warn")), "{page}");
    cluster.kill();
    cluster.set_window("1h");
    cluster.again();
    let answer = server.post_json("/api/tg/v1/storage/refused/retry", &json!({}));
    assert_eq!((answer.status, answer.json()["samples"].clone()), (200, json!(1)));
    drained(&server);
    assert_eq!(server.get("/api/tg/v1/storage")["far"]["refused"]["entries"], 0);
    assert_eq!(cluster.value("count_over_time(late[2m])", time).as_deref(), Some("3"));
}

#[test]
fn a_run_is_the_same_here_and_its_state_goes_along() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    let mut sent = request("far", 1, 1, vec![series("train/loss", &[3.0, 2.0, 1.0])]);
    sent.session = Some(session(0, 1));
    assert_eq!(server.push(&sent).0, 200);
    let mut last = request("far", 1, 2, Vec::new());
    last.session = Some(session(3, 3));
    assert_eq!(server.push(&last).0, 200);
    let run = server.get(&format!("/api/tg/v1/runs/{}", id("far")));
    assert_eq!((&run["state"], &run["points"]), (&json!("finished"), &json!(3)), "{run}");
    let path = format!("/api/v1/query?query={}&time={}", escape("{\"train/loss\"}"), T0_SECONDS + 2);
    let answer = eventually("the cluster answers by the name as logged", || {
        let answer = server.get(&path);
        (answer["data"]["result"].as_array().unwrap().len() == 1).then_some(answer)
    });
    assert_eq!(answer["data"]["result"][0]["metric"]["__name__"], "train_loss");
}

#[test]
fn samples_behind_the_clusters_window_do_not_hold_up_the_others() {
    let cluster = Cluster::start("1h");
    let server = cluster.server(&[]);
    let now = now_ms();
    let day_ms = 86_400_000;
    assert_eq!(write(&server, &[("__name__", "late")], &[(now, 1.0)]), 204);
    drained(&server);
    assert_eq!(write(&server, &[("__name__", "late")], &[(now - day_ms, 2.0), (now + 1, 3.0)]), 204);
    drained(&server);
    assert_eq!(cluster.value("count_over_time(late[2m])", (now + 10) as f64 / 1e3).as_deref(), Some("2"));
    let refused = server.get("/api/tg/v1/storage")["far"]["refused"].clone();
    assert_eq!((&refused["entries"], &refused["samples"]), (&json!(1), &json!(1)), "{refused}");
    let forgotten = server.ask("DELETE", "/api/tg/v1/storage/refused", &[], b"");
    assert_eq!((forgotten.status, forgotten.json()["samples"].clone()), (200, json!(1)));
    assert_eq!(server.get("/api/tg/v1/storage")["far"]["refused"]["entries"], 0);
}

#[test]
fn what_metrics_are_is_told_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, bodies) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let send = send.clone();
            std::thread::spawn(move || take_requests(stream.unwrap(), &send));
        }
    });
    let server = Server::start(&[
        "--storage-kind",
        "prometheus",
        "--storage-write-url",
        &url,
        "--storage-query-url",
        &url,
        "--storage-shards",
        "1",
        "--own-metrics=false",
        "--starter-rules=false",
    ]);
    let headers = [("content-type", wire::remote_write::CONTENT_TYPE), ("content-encoding", "snappy")];
    let about = wire::remote_write::Metadata {
        metric: "c_total",
        kind: model::MetricKind::Counter,
        help: "Things.",
        unit: "",
    };
    for at in 0..2 {
        let mut writer = wire::remote_write::RequestWriter::new();
        writer.metadata(&about);
        let point = wire::remote_write::Point { time_ms: T0 / 1_000_000 + at, value: at as f64 };
        writer.series([("__name__", "c_total")], &[point]);
        assert_eq!(server.ask("POST", "/api/v1/write", &headers, &writer.finish().unwrap()).status, 204);
    }
    let (mut told, mut samples) = (0, 0);
    while samples < 2 {
        let body: Vec<u8> = bodies.recv_timeout(crate::process::DEADLINE).unwrap();
        let plain = wire::remote_write::decompress(&body).unwrap();
        wire::remote_write::read(wire::remote_write::Version::V1, &plain, |item| match item {
            wire::remote_write::Item::Series(series) => samples += series.samples.len(),
            wire::remote_write::Item::Metadata(found) => {
                assert_eq!(found, about);
                told += 1;
            }
        })
        .unwrap();
    }
    assert_eq!((told, samples), (1, 2));
}

#[test]
fn a_silent_cluster_does_not_keep_the_server_from_stopping() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Kept open and never answered.
        let streams: Vec<_> = listener.incoming().inspect(|_| send.send(()).unwrap()).collect();
        drop(streams);
    });
    let mut server = Server::start(&[
        "--storage-kind",
        "prometheus",
        "--storage-write-url",
        &url,
        "--storage-query-url",
        &url,
        "--storage-request-time-max",
        "1h",
        "--own-metrics=false",
        "--starter-rules=false",
    ]);
    assert_eq!(write(&server, &[("__name__", "up")], &[(now_ms(), 1.0)]), 204);
    asked.recv_timeout(crate::process::DEADLINE).unwrap();
    assert_eq!(server.terminate(), 0);
}

/// Takes remote write as a far storage does and hands the bodies on.
fn take_requests(mut stream: std::net::TcpStream, send: &std::sync::mpsc::Sender<Vec<u8>>) {
    use std::io::{Read, Write};
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        let split = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let length = split.and_then(|at| {
            let head = String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase();
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok())
        });
        if let (Some(at), Some(length)) = (split, length)
            && bytes.len() >= at + 4 + length
        {
            send.send(bytes[at + 4..at + 4 + length].to_vec()).unwrap();
            bytes.drain(..at + 4 + length);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            continue;
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
    }
}
