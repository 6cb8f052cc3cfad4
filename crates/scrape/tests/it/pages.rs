//! What a page comes to: labels, times, reports, ends.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use model::MetricKind;
use scrape::{Config, Health, MetricMetadata};

use crate::support::{Target, head, job, ok, reason, report, samples, start, start_with, wait};

#[test]
fn a_page_carries_the_targets_labels_and_reports() {
    let target = Target::page("# TYPE a counter\na{x=\"1\"} 5\nb 7\nc 8\n");
    let rule = "metric_relabel_configs: [{source_labels: [__name__], regex: c, action: drop}]";
    let (scraper, landed) = start(&job(&target.address, rule));
    // The first pages, however late this looks for them.
    let page = |number: usize| {
        let up = |b: &&scrape::ScrapeBatch| report(b, "up") == 1.0;
        landed.wait("a page", |batches| batches.iter().filter(up).nth(number).cloned())
    };
    let first = page(0);
    let own = format!("instance=\"{}\",job=\"j\"", target.address);
    assert_eq!(
        samples(&first),
        [format!("a{{{own},x=\"1\"}} 5"), format!("b{{{own}}} 7"), format!("up{{{own}}} 1")]
    );
    assert_eq!(
        (report(&first, "scrape_samples_scraped"), report(&first, "scrape_samples_post_metric_relabeling")),
        (3.0, 2.0)
    );
    assert_eq!(report(&first, "scrape_series_added"), 2.0);
    assert!(report(&first, "scrape_duration_seconds") > 0.0);
    assert!(first.samples.iter().all(|s| s.sample.time_ns == first.time_ms * 1_000_000));
    assert_eq!(
        first.metadata,
        [MetricMetadata { metric: "a".into(), kind: MetricKind::Counter, ..MetricMetadata::default() }]
    );

    let second = page(1);
    assert_eq!((report(&second, "scrape_series_added"), second.metadata.len()), (0.0, 0));
    let same =
        |b: &scrape::ScrapeBatch| b.samples.iter().find(|s| s.labels.metric() == "b").unwrap().labels.clone();
    assert!(std::sync::Arc::ptr_eq(&same(&first), &same(&second)));
    let status = wait("status", || scraper.targets().active.into_iter().find(|t| t.health == Health::Up));
    assert_eq!((status.samples, status.last_error.as_str()), (3, ""));
}

#[test]
fn scrapes_come_at_the_targets_place_in_the_interval() {
    let target = Target::page("a 1\n");
    let (_scraper, landed) = start(&job(&target.address, ""));
    // The first comes early; on a busy machine a later one may be late.
    let place = landed.wait("three at one place", |batches| {
        let places = batches.iter().map(|b| b.time_ms.rem_euclid(500));
        places.clone().find(|place| places.clone().filter(|other| other == place).count() >= 3)
    });
    let next = landed.batch("next at that place", |b| b.time_ms.rem_euclid(500) == place);
    assert!(next.samples.iter().all(|s| s.sample.time_ns == next.time_ms * 1_000_000));
}

#[test]
fn a_label_that_both_have_is_renamed_or_honored() {
    let page = "a{job=\"own\",instance=\"\",exported_job=\"taken\"} 1\n";
    let target = Target::page(page);
    let (_scraper, landed) = start(&job(&target.address, ""));
    let address = &target.address;
    assert_eq!(
        samples(&landed.next())[0],
        format!(
            "a{{exported_exported_job=\"own\",exported_job=\"taken\",instance=\"{address}\",job=\"j\"}} 1"
        )
    );
    let (_scraper, landed) = start(&job(&target.address, "honor_labels: true"));
    // An empty label of the page takes the target's away.
    assert_eq!(samples(&landed.next())[0], "a{exported_job=\"taken\",job=\"own\"} 1");
}

#[test]
fn times_of_the_page_are_honored_or_not() {
    let target = Target::page("a 1 1234\nb 2\n");
    let time = |batch: &scrape::ScrapeBatch, name: &str| {
        batch.samples.iter().find(|s| s.labels.metric() == name).unwrap().sample.time_ns / 1_000_000
    };
    let (_scraper, landed) = start(&job(&target.address, ""));
    let batch = landed.next();
    assert_eq!((time(&batch, "a"), time(&batch, "b")), (1234, batch.time_ms));
    let (_scraper, landed) = start(&job(&target.address, "honor_timestamps: false"));
    let batch = landed.next();
    assert_eq!(time(&batch, "a"), batch.time_ms);
}

#[test]
fn a_series_that_vanishes_is_ended_once() {
    let target = Target::page("a{x=\"1\"} 1\na{x=\"2\"} 2\nown 3 1234\n");
    let (_scraper, landed) = start(&job(&target.address, ""));
    landed.next();
    target.set_page("a{x=\"1\"} 1\n");
    let own = format!("instance=\"{}\",job=\"j\"", target.address);
    let ended = landed.batch("marker", |b| samples(b).iter().any(|s| s.ends_with("stale")));
    // The series with times of its own is not ended.
    assert_eq!(
        samples(&ended),
        [format!("a{{{own},x=\"1\"}} 1"), format!("a{{{own},x=\"2\"}} stale"), format!("up{{{own}}} 1")]
    );
    assert!(samples(&landed.next()).iter().all(|s| !s.ends_with("stale")));
    target.set_page("a{x=\"1\"} 1\na{x=\"2\"} 2\n");
    landed.batch("series that is back", |b| b.time_ms > ended.time_ms && samples(b).len() == 3);
}

#[test]
fn a_series_with_its_own_times_is_ended_where_asked_for() {
    let target = Target::page("own 3 1234\nb 1\n");
    let (_scraper, landed) = start(&job(&target.address, "track_timestamps_staleness: true"));
    landed.next();
    target.set_page("b 1\n");
    let ended = landed.batch("marker", |b| samples(b).iter().any(|s| s.ends_with("stale")));
    assert!(samples(&ended)[1].starts_with("own{"), "{ended:?}");
}

#[test]
fn two_spellings_of_one_series_end_together() {
    let target = Target::page("a{x=\"1\"} 1\na{x=\"2\"} 1\n");
    let (_scraper, landed) =
        start(&job(&target.address, "metric_relabel_configs: [{regex: x, action: labeldrop}]"));
    landed.next();
    target.set_page("a{x=\"1\"} 1\nmore 1\n");
    let turned = landed.batch("second page", |b| samples(b).iter().any(|s| s.starts_with("more")));
    assert!(samples(&turned).iter().all(|s| !s.ends_with("stale")), "{turned:?}");
    target.set_page("more 1\n");
    let ended = landed.batch("marker", |b| samples(b).iter().any(|s| s.ends_with("stale")));
    assert_eq!(samples(&ended).iter().filter(|s| s.ends_with("stale")).count(), 1);
}

#[test]
fn the_page_of_a_target_that_refuses_is_quoted_within_bounds() {
    let shown = [
        ("  model is\n\tloading ", " \"model is loading\"".to_owned()),
        ("it's \"<b>\" \u{1b}[31m \u{202e}", r#" "it's \"<b>\" \u{1b}[31m \u{202e}""#.to_owned()),
        (&"ä".repeat(3_000), format!(" \"{}…\"", "ä".repeat(98))),
    ];
    for (body, wanted) in shown {
        let target = Target::page("a 1\n");
        let (scraper, landed) = start(&job(&target.address, ""));
        landed.next();
        let body = body.to_owned();
        target.set(move |_, stream| {
            let length = format!("content-length: {}\r\nconnection: close\r\n", body.len());
            head(stream, "503 Service Unavailable", &length);
            _ = stream.write_all(body.as_bytes());
        });
        let down = landed.batch("batch that is down", |b| report(b, "up") == 0.0);
        let why = format!("the target answers with status 503 Service Unavailable:{wanted}");
        assert_eq!(down.error.as_deref(), Some(why.as_str()));
        assert_eq!(reason(&scraper), why);
    }
}

#[test]
fn a_target_that_fails_ends_its_series_and_says_why() {
    let target = Target::page("a 1\n");
    let (scraper, landed) = start(&job(&target.address, ""));
    landed.next();
    target.set(|_, stream| {
        head(stream, "503 Service Unavailable", "content-length: 0\r\nconnection: close\r\n");
    });
    let own = format!("instance=\"{}\",job=\"j\"", target.address);
    let down = landed.batch("batch that is down", |b| report(b, "up") == 0.0);
    assert_eq!(samples(&down), [format!("a{{{own}}} stale"), format!("up{{{own}}} 0")]);
    assert_eq!(reason(&scraper), "the target answers with status 503 Service Unavailable");
    assert_eq!(scraper.targets().active[0].health, Health::Down);
    assert_eq!(samples(&landed.next()), [format!("up{{{own}}} 0")]);
    target.set_page("a 2\n");
    let back = landed.batch("target that is back", |b| b.time_ms > down.time_ms && report(b, "up") == 1.0);
    assert_eq!(samples(&back), [format!("a{{{own}}} 2"), format!("up{{{own}}} 1")]);
    wait("reason that is gone", || scraper.targets().active[0].last_error.is_empty().then_some(()));
}

#[test]
fn nobody_there_is_told() {
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (scraper, landed) = start(&job(&address, ""));
    assert_eq!(report(&landed.next(), "up"), 0.0);
    assert!(reason(&scraper).to_lowercase().contains("refused"), "{}", reason(&scraper));
}

#[test]
fn half_a_page_is_no_page() {
    let target = Target::page("a 1\nb 2\nthis is no sample\n");
    let (scraper, landed) = start(&job(&target.address, ""));
    let batch = landed.next();
    assert_eq!(samples(&batch), [format!("up{{instance=\"{}\",job=\"j\"}} 0", target.address)]);
    assert_eq!(report(&batch, "scrape_samples_scraped"), 2.0);
    assert_eq!(reason(&scraper), "line 3: \"this is no sample\"");
    target.set(|_, stream| {
        head(stream, "200 OK", "content-type: text/plain\r\ncontent-length: 100\r\nconnection: close\r\n");
        _ = stream.write_all(b"a 1\n");
    });
    wait("reason", || reason(&scraper).starts_with("the page breaks off").then_some(()));
    assert!(landed.all().iter().all(|b| report(b, "up") == 0.0));
}

#[test]
fn limits_fail_the_page_as_a_whole_and_name_themselves() {
    let target = Target::page("metric{x=\"12345\",yyyyy=\"1\"} 1\nb 1\n");
    let check = |setting: &str, want: &str| {
        let (scraper, landed) = start(&job(&target.address, setting));
        assert_eq!(report(&landed.next(), "up"), 0.0, "{setting}");
        assert_eq!(reason(&scraper), want);
    };
    check("sample_limit: 1", "the page has over 1 samples: raise `sample_limit` if they are wanted");
    check("label_limit: 4", "a series of `metric` has 5 labels, `label_limit` is 4");
    check(
        "label_name_length_limit: 4",
        "a label of `metric` has a name of 8 bytes, `label_name_length_limit` is 4",
    );
    check(
        "label_value_length_limit: 4",
        "the label `__name__` of `metric` has 6 bytes, `label_value_length_limit` is 4",
    );
    check("body_size_limit: 10B", "the page is over 10 bytes: raise `body_size_limit` if it is wanted");
    check(
        "metric_relabel_configs: [{regex: __name__, action: labeldrop}]",
        "the series `metric` has no name after relabelling",
    );
    // What relabelling drops does not count.
    let (_scraper, landed) = start(&job(
        &target.address,
        "sample_limit: 1\nmetric_relabel_configs: [{source_labels: [__name__], regex: b, action: drop}]",
    ));
    assert_eq!(report(&landed.next(), "up"), 1.0);
}

#[test]
fn gzip_is_asked_for_and_read() {
    let target = Target::new(|request, stream| {
        assert_eq!(request.headers["accept-encoding"], "gzip");
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(b"a 1\n").unwrap();
        let packed = packed.finish().unwrap();
        head(
            stream,
            "200 OK",
            &format!(
                "content-type: text/plain\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\nconnection: close\r\n",
                packed.len()
            ),
        );
        _ = stream.write_all(&packed);
    });
    let (_scraper, landed) = start(&job(&target.address, ""));
    assert_eq!(report(&landed.next(), "up"), 1.0);
}

#[test]
fn a_request_says_who_asks_for_what() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "first\n").unwrap();
    let target = Target::page("a 1\n");
    let settings = format!(
        "authorization: {{type: Token, credentials_file: '{}'}}\nparams: {{q: ['1']}}",
        token.display()
    );
    let (_scraper, landed) = start(&job(&target.address, &settings));
    landed.next();
    let request = target.requests().remove(0);
    assert_eq!(request.path, "/metrics?q=1");
    assert_eq!(request.headers["authorization"], "Token first");
    assert_eq!(request.headers["x-prometheus-scrape-timeout-seconds"], "0.5");
    assert!(request.headers["user-agent"].starts_with("truegauge/"));
    let accept = &request.headers["accept"];
    assert!(
        accept.starts_with("application/openmetrics-text;version=1.0.0") && accept.ends_with("*/*;q=0.1"),
        "{accept}"
    );
    std::fs::write(&token, "second").unwrap();
    wait("the new token", || {
        target.requests().iter().any(|r| r.headers["authorization"] == "Token second").then_some(())
    });
    let (_scraper, landed) = start(&job(&target.address, "basic_auth: {username: u, password: 'p:w'}"));
    landed.next();
    assert!(target.requests().iter().any(|r| r.headers["authorization"] == "Basic dTpwOnc="));
    let missing = "authorization: {credentials_file: /nowhere/token}";
    let (scraper, _landed) = start(&job(&target.address, missing));
    assert!(reason(&scraper).starts_with("cannot read `/nowhere/token`"), "{}", reason(&scraper));
}

#[test]
fn the_content_type_says_how_to_read() {
    let target = Target::new(|_, stream| {
        ok(stream, "application/openmetrics-text; version=1.0.0", b"a 1 # t1\n# EOF\n");
    });
    let (_scraper, landed) = start(&job(&target.address, ""));
    let batch = landed.next();
    assert_eq!((batch.exemplars.len(), batch.exemplars[0].labels.get("trace_id")), (1, Some("t1")));
    assert_eq!(batch.exemplars[0].series.metric(), "a");
    // Without a known type only a fallback helps.
    target.set(|_, stream| ok(stream, "application/octet-stream", b"a 1 # t1\n"));
    let (scraper, _landed) = start(&job(&target.address, ""));
    assert_eq!(
        reason(&scraper),
        "content type \"application/octet-stream\" is no page of metrics: set `fallback_scrape_protocol` if it is one"
    );
    let (_scraper, landed) = start(&job(&target.address, "fallback_scrape_protocol: PrometheusText0.0.4"));
    assert_eq!(report(&landed.next(), "up"), 1.0);
}

#[test]
fn a_redirect_within_the_host_is_followed_or_not() {
    let target = Target::new(|request, stream| match request.path.as_str() {
        "/metrics" => {
            head(stream, "302 Found", "location: /real\r\ncontent-length: 0\r\nconnection: close\r\n");
        }
        _ => ok(stream, "text/plain", b"a 1\n"),
    });
    let (_scraper, landed) = start(&job(&target.address, ""));
    assert_eq!(report(&landed.next(), "up"), 1.0);
    let (scraper, _landed) = start(&job(&target.address, "follow_redirects: false"));
    assert_eq!(reason(&scraper), "the target answers with status 302 Found");
}

#[test]
fn a_url_whose_page_takes_longer_than_the_interval_is_up_and_asked_once_at_a_time() {
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&open), Arc::clone(&most));
    let target = Target::new(move |_, stream| {
        counts.1.fetch_max(counts.0.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // What is tested: a page that comes later than the next scrapes are due.
        std::thread::sleep(Duration::from_millis(250));
        counts.0.fetch_sub(1, Ordering::SeqCst);
        ok(stream, "text/plain; version=0.0.4", b"a 1\n");
    });
    let urls = [format!("http://{}", target.address)];
    let (scraper, landed) = start_with(Config::of_urls(&urls, Duration::from_millis(100)).unwrap());
    let batches = landed.wait("three pages", |batches| {
        let up = batches.iter().filter(|batch| report(batch, "up") == 1.0).count();
        (up >= 3).then(|| batches.to_vec())
    });
    assert!(batches.is_sorted_by(|one, next| next.time_ms - one.time_ms >= 200), "{batches:?}");
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_eq!(scraper.targets().active.len(), 1);
}
