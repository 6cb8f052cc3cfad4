//! A copy of the data directory, made under load.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::process::{Server, id, request, run, series};

/// Exports everything that is known of a run, as NDJSON, sorted by series and time.
fn points(server: &Server, name: &str) -> String {
    let (code, out, err) = server.cli(&["export", "--run", name, "--format", "ndjson"]);
    assert_eq!(code, 0, "{err}");
    out
}

#[test]
fn a_backup_under_load_holds_all_that_was_acknowledged_before_it() {
    let server = Server::start(&[]);
    let before: Vec<f64> = (0..20_000).map(f64::from).collect();
    assert_eq!(server.push(&request("before", 1, 1, vec![series("loss", &before)])).0, 200);
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let copy = server.home.join("copy");
    let made = std::thread::scope(|scope| {
        for writer in 2..4 {
            let (server, acknowledged, stop) = (&server, &acknowledged, &stop);
            scope.spawn(move || {
                for sequence in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("m{sequence}");
                    let pushed = request("load", writer, sequence, vec![series(&name, &[1.0; 50])]);
                    assert_eq!(server.push(&pushed).0, 200);
                    acknowledged.fetch_add(50, Ordering::SeqCst);
                }
            });
        }
        while acknowledged.load(Ordering::SeqCst) < 500 {
            std::thread::yield_now();
        }
        let least = acknowledged.load(Ordering::SeqCst);
        let (code, out, err) = server.cli(&["backup", copy.to_str().unwrap(), "--json"]);
        // Writes go on after it.
        let then = acknowledged.load(Ordering::SeqCst);
        while acknowledged.load(Ordering::SeqCst) < then + 100 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(code, 0, "{err}");
        let told: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(told["dir"], copy.canonicalize().unwrap().to_str().unwrap());
        assert!(told["bytes"].as_u64() > Some(0));
        least
    });
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o700, "tokens are in it");
    let home = tempfile::tempdir().unwrap();
    fs::rename(&copy, home.path().join("data")).unwrap();
    let second = Server::start_in(home.path(), &[]);
    assert!(points(&second, "before") == points(&server, "before"), "points are lost");
    let loaded = second.get(&format!("/api/tg/v1/runs/{}", id("load")))["points"].as_u64().unwrap();
    let all = acknowledged.load(Ordering::SeqCst);
    assert!((made..=all).contains(&loaded), "{made} acknowledged before, {loaded} in the copy, {all} in all");
    // Both live on, each for itself.
    assert_eq!(second.push(&request("after", 9, 1, vec![series("loss", &[1.0])])).0, 200);
    assert!(!server.get("/api/tg/v1/runs").to_string().contains("\"after\""));
}

#[test]
fn a_backup_goes_to_a_new_folder_of_the_servers_own_and_nowhere_else() {
    let server = Server::start(&[]);
    let refused = |dir: &str, want: &str| {
        let answer = server.post_json("/api/tg/v1/backup", &json!({"dir": dir}));
        assert_eq!((answer.status, answer.error_code().as_str()), (400, "bad_request"), "{dir}");
        assert!(
            answer.json()["error"]["message"].as_str().unwrap().contains(want),
            "{dir}: {}",
            answer.json()
        );
    };
    let home = server.home.canonicalize().unwrap().display().to_string();
    fs::create_dir_all(server.home.join("spool")).unwrap();
    refused("copy", "from the root on");
    refused(&format!("{home}/x/../copy"), "from the root on");
    refused(&format!("{home}/spool"), "exists already");
    refused(&format!("{home}/data/copy"), "within the data directory");
    refused(&format!("{home}/nowhere/copy"), "No such file");
    assert_eq!(server.post_json("/api/tg/v1/backup", &json!({"to": "/x"})).status, 400);
    let (code, _, err) = server.cli(&["backup", &format!("{home}/spool")]);
    assert!(code == 2 && err.contains("exists already") && err.contains("hint: "), "{err}");
}

#[test]
fn a_directory_without_a_server_is_backed_up_as_well() {
    let mut server = Server::start(&[]);
    assert_eq!(server.push(&request("r", 1, 1, vec![series("loss", &[1.0, 2.0])])).0, 200);
    let wanted = points(&server, "r");
    assert_eq!(server.terminate(), 0);
    let home = tempfile::tempdir().unwrap();
    let data = server.home.join("data");
    let copy = home.path().join("data");
    let args = ["backup", copy.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
    let (code, out, err) = run(&server.home, &args);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("starts a server on it"), "{err}");
    assert_eq!(run(&server.home, &args).0, 2, "it exists already");
    let second = Server::start_in(home.path(), &[]);
    assert_eq!(points(&second, "r"), wanted);
}
