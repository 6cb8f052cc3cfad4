//! What was acknowledged is kept, and kept once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{DEADLINE, Server, eventually, exported, id, request, run, series, session, truegauge};

/// Values `from..to` as a series with those steps.
fn slice(from: i64, to: i64) -> wire::push::Series {
    let samples: Vec<model::Sample> = (from..to)
        .map(|at| model::Sample {
            time_ns: crate::process::T0 + at * 1_000_000,
            value: at as f64,
            step: Some(at),
        })
        .collect();
    wire::push::Series::new("v", &[], "", &samples)
}

#[test]
fn acknowledged_points_survive_kill_9_and_resends_are_not_doubled() {
    let mut server = Server::start(&[]);
    for round in 0..3u64 {
        for part in 0..10u64 {
            let sequence = round * 10 + part + 1;
            let from = (sequence as i64 - 1) * 500;
            let sent = request("crash", 1, sequence, vec![slice(from, from + 500)]);
            let (status, response) = server.push(&sent);
            assert_eq!((status, response.unwrap().stored), (200, 500));
        }
        server.kill();
        server.restart();
        // The client never saw the last answer and sends it again.
        let again = (round * 10 + 10) as i64;
        let (status, response) =
            server.push(&request("crash", 1, again as u64, vec![slice((again - 1) * 500, again * 500)]));
        assert_eq!((status, response.unwrap().duplicate), (200, true));
    }
    let want: Vec<(i64, f64)> = (0..15_000).map(|at| (at, at as f64)).collect();
    assert_eq!(exported(&server, "crash", "v"), want);
    assert_eq!(server.terminate(), 0);
    server.restart();
    assert_eq!(exported(&server, "crash", "v").len(), 15_000, "a clean stop keeps all as well");
}

#[test]
fn a_second_server_on_one_directory_is_refused_in_words() {
    let server = Server::start(&[]);
    let data = server.home.join("data");
    let (code, _, err) =
        run(&server.home, &["up", "--data-dir", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 2);
    let pid = server.child.id().to_string();
    assert!(err.contains("error: another truegauge server") && err.contains(&pid), "{err}");
    assert!(err.contains("hint: "), "{err}");
}

/// Makes the spool that a dead client left: a header and records.
fn orphan(folder: &Path, name: &str, target: Option<&str>, records: &[Vec<u8>]) -> PathBuf {
    let dir = folder.join(name);
    fs::create_dir_all(folder).unwrap();
    let header = serde_json::json!({"version": 1, "target": target, "project": "p", "run": "r"});
    let mut writer =
        spool::Writer::create(&dir, header.to_string().as_bytes(), spool::Options::default()).unwrap();
    for record in records {
        writer.append(record).unwrap();
    }
    writer.sync().unwrap();
    dir
}

fn record(name: &str, sequence: u64, from: i64, to: i64) -> Vec<u8> {
    // Every run has a writer of its own, as every session has.
    let writer = name.bytes().fold(7, u8::wrapping_add);
    wire::push::encode(&request(name, writer, sequence, vec![slice(from, to)])).unwrap()
}

#[test]
fn orphaned_spools_are_taken_in_and_the_poisoned_record_is_set_aside() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("spool");
    let records = [record("adopted", 1, 0, 100), b"poison".to_vec(), record("adopted", 2, 100, 200)];
    let ours = orphan(&folder, "a", None, &records);
    let foreign = orphan(&folder, "b", Some("http://metrics.example.org"), &[record("foreign", 1, 0, 5)]);
    let server = Server::start_in(home.path(), &[]);
    eventually("the spool is taken in", || (!ours.exists()).then_some(()));
    assert_eq!(exported(&server, "adopted", "v").len(), 200);
    assert!(foreign.exists(), "a spool of another server is left alone");
    let kept: Vec<_> = fs::read_dir(folder.join(".refused")).unwrap().collect();
    assert_eq!(fs::read(kept[0].as_ref().unwrap().path()).unwrap(), b"poison");
    assert_eq!(server.metric("truegauge_spool_adopted_total{outcome=\"unusable_record\"}"), 1.0);
    assert_eq!(server.metric("truegauge_ingest_samples_total{door=\"spool\"}"), 200.0);
}

#[test]
fn a_live_writers_spool_is_left_to_it() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("spool");
    fs::create_dir_all(&folder).unwrap();
    let header = serde_json::json!({"version": 1, "target": null});
    let mut writer = spool::Writer::create(
        &folder.join("alive"),
        header.to_string().as_bytes(),
        spool::Options::default(),
    )
    .unwrap();
    writer.append(&record("alive", 1, 0, 10)).unwrap();
    let dead = orphan(&folder, "dead", None, &[record("dead", 1, 0, 10)]);
    let server = Server::start_in(home.path(), &[]);
    eventually("the dead one is taken in", || (!dead.exists()).then_some(()));
    assert_eq!(server.get("/api/tg/v1/runs")["total"], 1);
    drop(writer);
    eventually("and the other once its writer is gone", || {
        (server.get("/api/tg/v1/runs")["total"] == 2).then_some(())
    });
}

#[test]
fn sync_sends_a_spool_elsewhere_and_twice_is_once() {
    let server = Server::start(&[]);
    let folder = server.home.join("far");
    let keep = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let dir = orphan(&folder, "x", Some("http://127.0.0.1:1"), &[record("synced", 1, 0, 300)]);
        let (code, out, err) = server.cli(&["sync", folder.to_str().unwrap(), "--json"]);
        assert_eq!(code, 0, "{out}{err}");
        let sent: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&sent["spools"], &sent["batches"]), (&1.into(), &1.into()), "{out}");
        assert!(!dir.exists());
    }
    assert_eq!(exported(&server, "synced", "v").len(), 300);
    drop(keep);
}

/// Starts a server whose data lies on a small filesystem of its own, where the system allows that; so much of it is
/// its reserve.
pub(crate) fn on_small_disk(home: &Path, reserve: &str, args: &[&str]) -> Option<Server> {
    let data = home.join("data");
    fs::create_dir_all(&data).unwrap();
    let mount = format!("mount -t tmpfs -o size=160m tmpfs '{}'", data.display());
    let may = Command::new("unshare").args(["--mount", "sh", "-c", &mount]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let program = truegauge(home);
    let mut command = Command::new("unshare");
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let script = format!("{mount} && exec '{}' up \"$@\"", program.get_program().display());
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    Some(Server::spawn(command, home, &[&["--reserve-bytes", reserve], args].concat()))
}

/// The data directory of such a server: the mount is seen through its own root only.
pub(crate) fn as_seen(server: &Server, home: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}", server.child.id(), home.join("data").display()))
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let home = tempfile::tempdir().unwrap();
    let Some(server) = on_small_disk(home.path(), "64MiB", &[]) else {
        return refuses_below_an_unreachable_reserve(home.path());
    };
    let first = request("full", 1, 1, vec![series("loss", &[1.0, 2.0])]);
    assert_eq!(server.push(&first).0, 200);
    let fill = as_seen(&server, home.path()).join("fill");
    let file = fs::File::create(&fill).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 120 << 20).unwrap();
    let answer = eventually("writes are refused", || {
        let body = wire::push::encode(&request("full", 1, 2, vec![series("acc", &[1.0])])).unwrap();
        let answer = server.push_bytes(&body, &[("content-encoding", "zstd")]);
        (answer.status != 200).then_some(answer)
    });
    assert_eq!((answer.status, answer.error_code().as_str()), (503, "unavailable"));
    assert!(answer.head.contains("retry-after: "), "{}", answer.head);
    assert_eq!(exported(&server, "full", "loss"), [(0, 1.0), (1, 2.0)], "reads go on");
    let ready = server.ask("GET", "/readyz", &[], b"");
    assert_eq!(ready.status, 503);
    assert!(ready.json()["error"]["reasons"][0].as_str().unwrap().contains("reserve"));
    assert!(server.get("/api/tg/v1/status")["readonly_reason"].is_string());
    drop(file);
    fs::remove_file(&fill).unwrap();
    eventually("writes are taken again", || {
        (server.push(&request("full", 1, 3, vec![series("again", &[5.0])])).0 == 200).then_some(())
    });
    eventually("and it says so", || (server.ask("GET", "/readyz", &[], b"").status == 200).then_some(()));
}

/// The same where nothing can be mounted: a reserve that no disk has, then none.
fn refuses_below_an_unreachable_reserve(home: &Path) {
    let mut server = Server::start_in(home, &[]);
    assert_eq!(server.push(&request("full", 1, 1, vec![series("loss", &[1.0, 2.0])])).0, 200);
    assert_eq!(server.terminate(), 0);
    let server = Server::start_in(home, &["--reserve-bytes", "8000000TiB"]);
    assert_eq!(server.push(&request("full", 1, 2, vec![series("acc", &[1.0])])).0, 503);
    assert_eq!(exported(&server, "full", "loss"), [(0, 1.0), (1, 2.0)], "reads go on");
    drop(server);
    let server = Server::start_in(home, &[]);
    assert_eq!(server.push(&request("full", 1, 2, vec![series("acc", &[1.0])])).0, 200);
}

#[test]
fn a_stop_finishes_within_its_bound_while_a_stream_and_a_slow_sender_are_open() {
    let mut server = Server::start(&[]);
    let mut sent = request("r", 1, 1, vec![series("loss", &[1.0])]);
    sent.session = Some(session(0, 1));
    assert_eq!(server.push(&sent).0, 200);
    let stream = std::net::TcpStream::connect(server.address()).unwrap();
    let ask = format!("GET /api/tg/v1/stream?topics=run:{} HTTP/1.1\r\nhost: localhost\r\n\r\n", id("r"));
    std::io::Write::write_all(&mut &stream, ask.as_bytes()).unwrap();
    let slow = std::net::TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(
        &mut &slow,
        b"POST /api/tg/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nab",
    )
    .unwrap();
    eventually("both connections are open", || {
        (server.metric("truegauge_http_connections") >= 3.0).then_some(())
    });
    let started = std::time::Instant::now();
    assert_eq!(server.terminate(), 0);
    assert!(started.elapsed() < DEADLINE);
}

#[test]
fn a_second_signal_stops_at_once() {
    let mut server = Server::start(&[]);
    let slow = std::net::TcpStream::connect(server.address()).unwrap();
    let head = b"POST /api/tg/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nab";
    std::io::Write::write_all(&mut &slow, head).unwrap();
    eventually("the sender's connection is open", || {
        (server.metric("truegauge_http_connections") >= 2.0).then_some(())
    });
    let pid = rustix::process::Pid::from_child(&server.child);
    let signal = || rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    signal();
    let log = || fs::read_to_string(server.home.join("log")).unwrap();
    eventually("it is stopping", || log().contains("a second signal stops at once").then_some(()));
    signal();
    eventually("it says how it ended", || log().contains("\"forced\":true").then_some(()));
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
