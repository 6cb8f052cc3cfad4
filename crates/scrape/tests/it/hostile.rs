//! Targets that mean harm cost a bounded amount of memory and time, and leave `up 0` with a reason.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::support::{Request, Target, head, job, ok, reason, report, samples, start, wait};

/// Starts a scraper on a target that answers so; the first batch is down. Returns the reason.
fn down(settings: &str, answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> String {
    let target = Target::new(answer);
    let (scraper, landed) = start(&job(&target.address, settings).replace("500ms", "5s"));
    let batch = landed.next();
    assert_eq!(report(&batch, "up"), 0.0, "{batch:?}");
    assert_eq!(samples(&batch).len(), 1, "{batch:?}");
    reason(&scraper)
}

const CHUNKED: &str = "content-type: text/plain\r\ntransfer-encoding: chunked\r\n";

#[test]
fn an_endless_page_ends_at_its_limit() {
    let why = down("body_size_limit: 1MB", |_, stream| {
        head(stream, "200 OK", CHUNKED);
        let chunk = format!("{:x}\r\n{}\r\n", 60_000, "a 1\n".repeat(15_000));
        while stream.write_all(chunk.as_bytes()).is_ok() {}
    });
    assert_eq!(why, "the page is over 1048576 bytes: raise `body_size_limit` if it is wanted");
}

#[test]
fn a_bomb_of_gzip_ends_at_its_limit() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&vec![b'\n'; 64 << 20]).unwrap();
    let packed = packed.finish().unwrap();
    assert!(packed.len() < 100_000);
    let why = down("body_size_limit: 1MB", move |_, stream| {
        let headers = format!(
            "content-type: text/plain\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\nconnection: close\r\n",
            packed.len()
        );
        head(stream, "200 OK", &headers);
        _ = stream.write_all(&packed);
    });
    assert_eq!(why, "the page is over 1048576 bytes: raise `body_size_limit` if it is wanted");
}

#[test]
fn what_is_not_gzip_is_told() {
    let why = down("", |_, stream| {
        head(
            stream,
            "200 OK",
            "content-type: text/plain\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\nconnection: close\r\n",
        );
        _ = stream.write_all(b"a 1\n");
    });
    assert!(why.starts_with("the page breaks off: "), "{why}");
    let why = down("", |_, stream| {
        head(
            stream,
            "200 OK",
            "content-type: text/plain\r\ncontent-encoding: br\r\ncontent-length: 4\r\nconnection: close\r\n",
        );
        _ = stream.write_all(b"a 1\n");
    });
    assert_eq!(why, "the page is packed as \"br\", only gzip is asked for");
}

#[test]
fn a_line_without_end_and_a_million_labels_are_the_parsers_to_refuse() {
    let why = down("", |_, stream| ok(stream, "text/plain", "a".repeat(10 << 20).as_bytes()));
    assert!(why.starts_with("line 1: "), "{why}");
    let labels: Vec<String> = (0..1_000_000).map(|n| format!("l{n}=\"\"")).collect();
    let page = format!("a{{{}}} 1\n", labels.join(","));
    let why = down("", move |_, stream| ok(stream, "text/plain", page.as_bytes()));
    assert_eq!(why, "line 1: over 100 labels");
}

fn many_series() -> String {
    let mut page = String::new();
    for number in 0..200_000 {
        page.push_str("a{n=\"");
        page.push_str(&number.to_string());
        page.push_str("\"} 1\n");
    }
    page
}

#[test]
fn more_series_than_anybody_wants_are_refused() {
    let why = down("sample_limit: 1000", |_, stream| {
        ok(stream, "text/plain", many_series().as_bytes());
    });
    assert_eq!(why, "the page has over 1000 samples: raise `sample_limit` if they are wanted");
    // Also where relabelling drops them all.
    let rule = "sample_limit: 1000\nmetric_relabel_configs: [{source_labels: [n], regex: .+, action: drop}]";
    let why = down(rule, |_, stream| {
        ok(stream, "text/plain", many_series().as_bytes());
    });
    assert_eq!(why, "the page has over 4000 series before relabelling");
}

/// Drips until the other side hangs up.
fn drip(stream: &mut TcpStream, bytes: &[u8]) {
    while stream.write_all(bytes).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_drip_ends_with_the_timeout() {
    let timeout = "scrape_timeout: 200ms";
    let why = down(timeout, |_, stream| {
        head(stream, "200 OK", CHUNKED);
        drip(stream, b"1\r\n\n\r\n");
    });
    assert_eq!(why, "no whole page within 200ms");
    // In the head.
    let why = down(timeout, |_, stream| {
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        drip(stream, b"x-a: b\r\n");
    });
    assert_eq!(why, "no whole page within 200ms");
    // In gzip that never yields a byte.
    let why = down(timeout, |_, stream| {
        head(stream, "200 OK", &format!("{CHUNKED}content-encoding: gzip\r\n"));
        let empty = GzEncoder::new(Vec::new(), Compression::fast()).finish().unwrap();
        let mut chunk = format!("{:x}\r\n", empty.len()).into_bytes();
        chunk.extend_from_slice(&empty);
        chunk.extend_from_slice(b"\r\n");
        drip(stream, &chunk);
    });
    assert_eq!(why, "no whole page within 200ms");
    // And silence.
    let why = down(timeout, |_, stream| {
        _ = stream.read(&mut [0]);
    });
    assert_eq!(why, "no whole page within 200ms");
}

#[test]
fn slow_targets_leave_threads_for_the_others() {
    let silent = Target::new(|_, stream| {
        _ = stream.read(&mut [0]);
    });
    let well = Target::page("a 1\n");
    // Ten names for the silent one, four threads.
    let mut groups = format!("[{{targets: ['{}']}}", well.address);
    for number in 0..10 {
        write!(groups, ", {{targets: ['{}'], labels: {{n: '{number}'}}}}", silent.address).unwrap();
    }
    let (scraper, landed) = start(&format!(
        "scrape_configs:\n- job_name: j\n  scrape_interval: 400ms\n  scrape_timeout: 400ms\n  static_configs: {groups}]\n"
    ));
    wait("silent targets to be known", || {
        let known =
            scraper.targets().active.iter().filter(|t| t.last_error.contains("no whole page")).count();
        (known == 10).then_some(())
    });
    let from = landed.all().len();
    let batches = landed.wait("pages of the well one", |batches| {
        let since = &batches[from..];
        (since.iter().filter(|b| report(b, "up") == 1.0).count() >= 5).then(|| since.to_vec())
    });
    // Two threads for the silent ones answer twice as often as the well one comes; without threads of
    // its own it would come once in ten of theirs.
    let silent = batches.iter().filter(|b| report(b, "up") == 0.0).count();
    assert!(silent <= 20, "{silent} to 5");
}

#[test]
fn a_redirect_never_leads_elsewhere() {
    let elsewhere = Target::page("a 1\n");
    let check = |location: String| {
        let shown = location.clone();
        let why = down("", move |_, stream| {
            head(
                stream,
                "302 Found",
                &format!("location: {location}\r\ncontent-length: 0\r\nconnection: close\r\n"),
            );
        });
        assert_eq!(
            why,
            format!("the target redirects to {shown:?}, another host: name that one if it is meant")
        );
    };
    check(format!("http://{}/metrics", elsewhere.address));
    check("http://169.254.169.254/latest/meta-data".into());
    assert_eq!(elsewhere.requests().len(), 0);
    let why = down("", |_, stream| {
        head(stream, "302 Found", "location: //x/y\r\ncontent-length: 0\r\nconnection: close\r\n");
    });
    assert!(why.starts_with("the target redirects to \"//x/y\", "), "{why}");
    let why = down("", |_, stream| {
        head(
            stream,
            "307 Temporary Redirect",
            "location: /metrics\r\ncontent-length: 0\r\nconnection: close\r\n",
        );
    });
    assert_eq!(why, "the target redirects over 5 times");
}

#[test]
fn metadata_services_are_not_asked() {
    let check = |address: &str, want: &str| {
        let (scraper, landed) = start(&job(address, ""));
        assert_eq!(report(&landed.next(), "up"), 0.0);
        assert!(reason(&scraper).contains(want), "{}", reason(&scraper));
    };
    check("169.254.169.254", "169.254.169.254 is a link-local address, where metadata services are");
    check("[fe80::1]:80", "is a link-local address");
    check("100.100.100.200:80", "is a cloud's metadata service");
    check("0.0.0.0:80", "is no address");
}

#[test]
fn heads_that_lie_are_refused() {
    let why = down("", |_, stream| {
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(format!("x: {}\r\n", "y".repeat(1000)).as_bytes()).is_ok() {}
    });
    assert!(!why.is_empty());
    let why = down("", |_, stream| _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n"));
    assert!(!why.is_empty());
    let why = down("", |_, stream| ok(stream, "text/html", b"<html>"));
    assert!(why.starts_with("content type \"text/html\" is no page of metrics"), "{why}");
    let why = down("", |_, stream| ok(stream, "text/plain", b"a 1\nb{c=\"\xff\"} 1\n"));
    assert!(why.contains("utf-8"), "{why}");
}
