//! A disk that is full for a while.

use std::path::Path;
use std::process::Command;

use client::{Config, FlushOutcome, Run};

use crate::peer::Peer;
use crate::support::{close, flush, until};

const DIR: &str = "TG_TEST_SMALL_DISK";

/// Run by the test below within a small file system of its own; as a test of its own it does nothing.
#[test]
fn victim() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let dir = Path::new(&dir);
    let mut peer = Peer::start();
    let spools = dir.join("spools");
    let run = Run::start(Config { queue_capacity: 5_000, ..peer.config(&spools) }).unwrap();
    let noise = run.series("noise", &[], "").unwrap();
    peer.stop();
    std::fs::write(dir.join("ballast"), vec![7; 3 << 20]).unwrap();
    let mut value = 0.5f64;
    until("a full disk", || {
        for _ in 0..5_000 {
            value = (value * 9_301.0 + 0.211_327).fract();
            run.log(noise, value, None, None);
        }
        run.counters().dropped.contains_key("spool_unavailable")
    });
    assert!(matches!(flush(&run), FlushOutcome::Incomplete { .. }));
    std::fs::remove_file(dir.join("ballast")).unwrap();
    run.log(noise, 1.0, None, None);
    assert!(matches!(flush(&run), FlushOutcome::Spool { .. }), "the spool recovers by itself");
    peer.start_again();
    assert_eq!(close(&run).hint, None);
    let counters = run.counters();
    let dropped = counters.dropped["spool_unavailable"];
    assert_eq!(peer.count() + dropped, counters.logged, "{counters:?}");
    assert_eq!(peer.dropped()["spool_unavailable"], dropped);
    assert!(spool::list(&spools).is_empty());
}

/// Mounts a file system of 4 MiB in a namespace of its own. Where the system allows none, the bound
/// of the spool is tested all the same, in `limits`.
#[test]
fn points_that_a_full_disk_refuses_are_counted_and_the_rest_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("mount -t tmpfs -o size=4m small \"${DIR}\" || exit 77; exec \"$@\"");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "small_disk::victim", "--nocapture"])
        .env(DIR, dir.path())
        .output();
    let said = output.as_ref().map(|o| String::from_utf8_lossy(&o.stderr).into_owned()).unwrap_or_default();
    match output {
        Ok(output) if output.status.success() => {
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        }
        Ok(output) if output.status.code() != Some(77) && !said.contains("unshare:") => {
            panic!("{}{said}", String::from_utf8_lossy(&output.stdout));
        }
        _ => println!("no namespaces here, so no full disk: {said}"),
    }
}
