//! Which targets there are, and what becomes of them when that changes.

use std::path::Path;

use scrape::{Config, Health};

use crate::support::{Target, config, samples, start, wait};

#[test]
fn addresses_become_urls_and_labels() {
    let (scraper, _) = start(
        r#"
scrape_configs:
- job_name: j
  metrics_path: m x
  params: {module: [a b, c], "p[]": ["&"]}
  static_configs:
  - targets: ['127.0.0.1:1', 'drop:1', '', 'a b:1', '127.0.0.1:2/x']
    labels: {rack: r1, __meta_rack: "7", __param_module: overridden-by-params}
  relabel_configs:
  - {source_labels: [__address__], regex: 'drop:.*', action: drop}
  - {source_labels: [__meta_rack], target_label: shelf}
  - {source_labels: [__param_module], target_label: module}
  - {source_labels: [__address__], regex: '(.*):1', target_label: __param_target}
"#,
    );
    let targets = scraper.targets();
    let [target] = &targets.active[..] else { panic!("{targets:?}") };
    assert_eq!(target.url, "http://127.0.0.1:1/m%20x?module=a%20b&module=c&p%5B%5D=%26&target=127.0.0.1");
    let labels = r#"{instance="127.0.0.1:1",job="j",module="a b",rack="r1",shelf="7"}"#;
    assert_eq!(target.labels.to_string(), labels);
    assert_eq!(target.discovered.get("__scrape_interval__"), Some("1m"));
    assert_eq!(target.discovered.get("__meta_rack"), Some("7"));
    assert_eq!(target.health, Health::Unknown);
    assert_eq!(
        (targets.dropped_count, targets.dropped[0].discovered.get("__address__")),
        (1, Some("drop:1"))
    );
    assert_eq!(
        targets.problems,
        [
            "job `j`: a target has no address after relabelling",
            "job `j`: target `a b:1` is no `host:port`",
            "job `j`: target `127.0.0.1:2/x` is no `host:port`",
        ]
    );
}

#[test]
fn a_label_may_set_interval_timeout_and_job() {
    let (scraper, _) = start(
        "scrape_configs:\n- job_name: j\n  static_configs:\n  - targets: ['127.0.0.1:1']\n    labels: {__scrape_interval__: 5m, __scrape_timeout__: 3s, job: other, instance: me}\n  - targets: ['127.0.0.1:2']\n    labels: {__scrape_interval__: soon}\n",
    );
    let targets = scraper.targets();
    assert_eq!((targets.active[0].interval.as_secs(), targets.active[0].timeout.as_secs()), (300, 3));
    assert_eq!(targets.active[0].labels.to_string(), r#"{instance="me",job="other"}"#);
    assert_eq!(
        targets.problems,
        ["job `j`: target `127.0.0.1:2`: label `__scrape_interval__` is \"soon\", no duration above zero"]
    );
}

#[test]
fn a_job_beyond_its_target_limit_is_not_scraped() {
    let (scraper, _) = start(
        "scrape_configs: [{job_name: j, target_limit: 1, static_configs: [{targets: ['a:1', 'b:1']}]}]",
    );
    let targets = scraper.targets();
    assert_eq!(targets.active, []);
    assert_eq!(targets.problems, ["job `j` has 2 targets, `target_limit` is 1: none of them is scraped"]);
}

#[test]
fn files_are_followed_and_a_broken_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Target::page("a 1\n"), Target::page("b 2\n"));
    let file = folder.path().join("x-targets.json");
    let write = |text: &str| {
        let fresh = folder.path().join("fresh");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, &file).unwrap();
    };
    write(&format!(r#"[{{"targets": ["{}"], "labels": {{"from": "file"}}}}]"#, one.address));
    std::fs::write(folder.path().join("other.json"), "[{\"targets\": [\"ignored:1\"]}]").unwrap();
    let pattern = folder.path().join("x-*.json");
    let (scraper, landed) = start(&format!(
        "scrape_configs:\n- job_name: j\n  scrape_interval: 500ms\n  file_sd_configs: [{{files: ['{}'], refresh_interval: 20ms}}]\n",
        pattern.display()
    ));
    let first = landed.batch("page of the first target", |b| samples(b).iter().any(|s| s.starts_with("a{")));
    assert_eq!(first.target.get("from"), Some("file"));
    let found = scraper.targets().active[0].discovered.clone();
    assert_eq!(found.get("__meta_filepath"), Some(file.to_str().unwrap()));

    write("[{\"targets\": [");
    let problem = wait("problem", || scraper.targets().problems.first().cloned());
    assert!(problem.starts_with(&format!("{}:1:", file.display())), "{problem}");
    assert_eq!(scraper.targets().active.len(), 1);

    write(&format!("- targets: ['{}']\n", two.address));
    landed.batch("page of the second target", |b| samples(b).iter().any(|s| s.starts_with("b{")));
    let ended = landed.batch("end of the first target", |b| {
        b.target == first.target && samples(b).iter().all(|s| s.ends_with(" stale"))
    });
    assert_eq!(ended.samples.len(), 6, "the series and the five reports: {ended:?}");
    assert_eq!(scraper.targets().problems, Vec::<String>::new());
    assert_eq!(scraper.targets().active.len(), 1);
}

#[test]
fn a_reload_keeps_what_stays_and_ends_what_goes() {
    let (stays, goes) = (Target::page("a{x=\"1\"} 1\n"), Target::page("b 2\n"));
    let text = |addresses: &[&str], rules: &str| {
        let targets = addresses.join("', '");
        format!(
            "scrape_configs:\n- job_name: j\n  scrape_interval: 500ms\n  static_configs: [{{targets: ['{targets}']}}]\n  metric_relabel_configs: [{rules}]\n"
        )
    };
    let (scraper, landed) = start(&text(&[&stays.address, &goes.address], ""));
    landed.batch("page of one", |b| b.target.get("instance") == Some(&stays.address));
    landed.batch("page of the other", |b| b.target.get("instance") == Some(&goes.address));
    scraper.reload(config(&text(&[&stays.address], "{regex: x, action: labeldrop}"))).unwrap();
    let is_of = |address: &str, batch: &scrape::ScrapeBatch| batch.target.get("instance") == Some(address);
    let ended = landed.batch("end of the other", |b| {
        is_of(&goes.address, b) && samples(b).iter().all(|s| s.ends_with("stale"))
    });
    assert_eq!(ended.samples.len(), 6);
    // The rules changed, so the series has another name; the old one ends with the first new page.
    let turned = landed.batch("page under new rules", |b| {
        samples(b).iter().any(|s| s.contains("x=\"1\"") && s.ends_with("stale"))
    });
    let instance = &stays.address;
    assert_eq!(
        samples(&turned),
        [
            format!("a{{instance=\"{instance}\",job=\"j\",x=\"1\"}} stale"),
            format!("a{{instance=\"{instance}\",job=\"j\"}} 1"),
            format!("up{{instance=\"{instance}\",job=\"j\"}} 1"),
        ]
    );
    // A configuration that can't be put to work changes nothing.
    let broken = "scrape_configs: [{job_name: k, tls_config: {ca_file: /nowhere/ca.pem}}]";
    let error = scraper.reload(config(broken)).unwrap_err().to_string();
    assert!(error.starts_with("job `k` can't be scraped: cannot read `/nowhere/ca.pem`"), "{error}");
    assert_eq!(scraper.targets().active.len(), 1);
    landed.next();
}

#[test]
fn a_stopped_scraper_marks_nothing_and_asks_no_more() {
    let target = Target::page("a 1\n");
    let (scraper, landed) = start(&crate::support::job(&target.address, ""));
    landed.next();
    scraper.stop(std::time::Duration::from_secs(10));
    let asked = target.requests().len();
    let batches = landed.all();
    assert!(batches.iter().flat_map(samples).all(|s| !s.ends_with("stale")));
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!((target.requests().len(), landed.all().len()), (asked, batches.len()));
}

#[test]
fn the_guide_and_the_reader_agree() {
    let guide =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/scraping.md"))
            .unwrap();
    let examples: Vec<&str> =
        guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        if example.contains("scrape_configs") {
            Config::parse(example, "guide", Path::new("."))
                .unwrap_or_else(|error| panic!("{error}\n{example}"));
        }
    }
}
