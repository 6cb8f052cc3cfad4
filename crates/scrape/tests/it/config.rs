//! Configurations, good and bad.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use scrape::Config;
use scrape::config::{Authorization, BODY_BYTES_DEFAULT, Credential, Protocol, SAMPLES_DEFAULT, Secret};

use crate::support::config;

fn error(text: &str) -> String {
    Config::parse(text, "p.yml", Path::new("/etc/p")).unwrap_err().to_string()
}

#[test]
fn a_whole_configuration_reads() {
    let config = Config::parse(
        r#"
global:
  scrape_interval: 15s
  evaluation_interval: 1m
  external_labels: {cluster: a}
  sample_limit: 1000
rule_files: ["rules/*.yml"]
remote_write: [{url: "http://far"}]
scrape_configs:
  - job_name: node
    static_configs:
      - targets: ["a:9100", 'b:9100']
        labels: {rack: r1, slot: 7}
  - job_name: engine
    scrape_interval: 1m30s
    scrape_timeout: 20s
    metrics_path: /prometheus/metrics
    scheme: https
    params: {module: [http_2xx, other], "match[]": ['{job="x"}']}
    honor_labels: true
    honor_timestamps: false
    track_timestamps_staleness: true
    sample_limit: 0
    label_limit: 30
    label_name_length_limit: 200
    label_value_length_limit: 400
    body_size_limit: 10MB
    target_limit: 5
    follow_redirects: false
    enable_compression: false
    scrape_protocols: [PrometheusProto, PrometheusText0.0.4]
    fallback_scrape_protocol: OpenMetricsText1.0.0
    authorization: {credentials_file: token}
    tls_config: {ca_file: ca.pem, insecure_skip_verify: true}
    file_sd_configs:
      - files: [targets/*.json, /srv/more.yml]
        refresh_interval: 1m
    relabel_configs:
      - source_labels: [__meta_x]
        action: Keep
        regex: ya+y
    metric_relabel_configs:
      - {regex: tmp_.*, action: labeldrop}
"#,
        "p.yml",
        Path::new("/etc/p"),
    )
    .unwrap();
    let [node, engine] = &config.jobs[..] else { panic!("{config:?}") };
    assert_eq!(
        (node.name.as_str(), node.interval, node.timeout),
        ("node", Duration::from_secs(15), Duration::from_secs(10))
    );
    assert_eq!((node.limits.samples, node.limits.body_bytes), (1000, BODY_BYTES_DEFAULT));
    assert_eq!(node.groups[0].targets, ["a:9100", "b:9100"]);
    assert_eq!(node.groups[0].labels, [("rack".into(), "r1".into()), ("slot".into(), "7".into())]);
    assert!(node.access.follow_redirects && node.access.compression && node.honor.timestamps);
    assert_eq!(node.access.protocols.len(), 4);

    assert_eq!((engine.interval, engine.timeout), (Duration::from_secs(90), Duration::from_secs(20)));
    assert_eq!((engine.scheme.as_str(), engine.metrics_path.as_str()), ("https", "/prometheus/metrics"));
    assert_eq!(engine.params[1], ("module".into(), vec!["http_2xx".into(), "other".into()]));
    assert!(engine.honor.labels && !engine.honor.timestamps && engine.honor.track_staleness);
    let limits = engine.limits;
    assert_eq!((limits.samples, limits.labels, limits.targets), (SAMPLES_DEFAULT, 30, 5));
    assert_eq!((limits.label_name_bytes, limits.label_value_bytes, limits.body_bytes), (200, 400, 10 << 20));
    let access = &engine.access;
    assert!(!access.follow_redirects && !access.compression && access.tls.insecure_skip_verify);
    assert_eq!(access.protocols, [Protocol::Text004]);
    assert_eq!(access.fallback, Some(Protocol::OpenMetrics100));
    assert_eq!(access.tls.ca_file.as_deref(), Some(Path::new("/etc/p/ca.pem")));
    let credential = Credential::File("/etc/p/token".into());
    assert_eq!(access.authorization, Some(Authorization::Token { kind: "Bearer".into(), credential }));
    assert_eq!(engine.files[0].patterns, [Path::new("/etc/p/targets/*.json"), Path::new("/srv/more.yml")]);
    assert_eq!((engine.relabel.len(), engine.metric_relabel[0].text().regex.as_str()), (1, "tmp_.*"));
}

#[test]
fn nothing_to_scrape_is_a_configuration_too() {
    assert_eq!(config("").jobs, []);
    assert_eq!(config("global:\nscrape_configs:\n").jobs, []);
    // Anchors are spelled out.
    let shared =
        config("scrape_configs:\n- {job_name: a, params: &p {x: [y]}}\n- {job_name: b, params: *p}\n");
    assert_eq!(shared.jobs[0].params, shared.jobs[1].params);
}

#[test]
fn secrets_are_not_shown() {
    let config = config("scrape_configs: [{job_name: a, basic_auth: {username: u, password: hunter2}}]");
    let password = Some(Credential::Inline(Secret("hunter2".into())));
    assert_eq!(
        config.jobs[0].access.authorization,
        Some(Authorization::Basic { username: "u".into(), password })
    );
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn errors_name_place_and_next_step() {
    let check = |text: &str, want: &str| assert_eq!(error(text), want, "{text}");
    check(
        "scrape_config: []",
        "p.yml:1:1: `scrape_config` is not a setting of the configuration: did you mean `scrape_configs`?",
    );
    check(
        "scrape_configs:\n- job_name: a\n  honour_labels: true\n",
        "p.yml:3:3: `honour_labels` is not a setting of a job of `scrape_configs`: did you mean `honor_labels`?",
    );
    check(
        "scrape_configs:\n- job_name: a\n  zzz: 1\n",
        "p.yml:3:3: `zzz` is not a setting of a job of `scrape_configs`",
    );
    check(
        "scrape_configs:\n- job_name: a\n  kubernetes_sd_configs: []\n",
        "p.yml:3:3: `kubernetes_sd_configs` is a setting of Prometheus that is not supported here",
    );
    check("scrape_configs:\n- scheme: http\n", "p.yml:2:3: a job has no `job_name`");
    check("scrape_configs: [{job_name: a}, {job_name: a}]", "p.yml:1:33: two jobs are called `a`");
    check(
        "scrape_configs:\n- job_name: a\n  scrape_interval: 15\n",
        "p.yml:3:20: `scrape_interval` is \"15\", no duration above zero: write it as `15s` or `1m30s`",
    );
    check(
        "scrape_configs:\n- job_name: a\n  scrape_interval: 0s\n",
        "p.yml:3:20: `scrape_interval` is \"0s\", no duration above zero: write it as `15s` or `1m30s`",
    );
    check(
        "scrape_configs:\n- job_name: a\n  scrape_interval: 5s\n  scrape_timeout: 6s\n",
        "p.yml:4:19: `scrape_timeout` is longer than `scrape_interval`",
    );
    check(
        "scrape_configs: [{job_name: a, scheme: ftp}]",
        "p.yml:1:40: `ftp` is not a scheme: `http` or `https` is wanted",
    );
    check(
        "scrape_configs: [{job_name: a, body_size_limit: 5GiB}]",
        "p.yml:1:49: \"5GiB\" is no size up to 1GB: write it as `10MB`",
    );
    check(
        "scrape_configs: [{job_name: a, sample_limit: -1}]",
        "p.yml:1:46: `sample_limit` is \"-1\", a whole number from 0 is wanted",
    );
    check(
        "scrape_configs: [{job_name: a, honor_labels: maybe}]",
        "p.yml:1:46: `honor_labels` is \"maybe\", `true` or `false` is wanted",
    );
}

#[test]
fn errors_inside_sections_do_too() {
    let check = |text: &str, want: &str| assert_eq!(error(text), want, "{text}");
    check(
        "scrape_configs: [{job_name: a, bearer_token: x, basic_auth: {username: u}}]",
        "p.yml:1:46: one job has two ways to authorize: keep one",
    );
    check(
        "scrape_configs: [{job_name: a, basic_auth: {username: u, password: a, password_file: b}}]",
        "p.yml:1:86: `password` and `password_file` are both set: keep one",
    );
    check(
        "scrape_configs: [{job_name: a, authorization: {type: Bearer}}]",
        "p.yml:1:47: `authorization` has no `credentials`",
    );
    check(
        "scrape_configs: [{job_name: a, tls_config: {cert_file: a}}]",
        "p.yml:1:44: `cert_file` and `key_file` come together",
    );
    check(
        "scrape_configs: [{job_name: a, tls_config: {server_name: a}}]",
        "p.yml:1:45: `server_name` is a setting of Prometheus that is not supported here",
    );
    check(
        "scrape_configs: [{job_name: a, relabel_configs: [{action: reticulate}]}]",
        "p.yml:1:59: `reticulate` is not an action: choose of `replace`, `keep`, `drop`, `keepequal`, `dropequal`, `hashmod`, `labelmap`, `labeldrop`, `labelkeep`, `lowercase`, `uppercase`",
    );
    check(
        "scrape_configs: [{job_name: a, relabel_configs: [{source_label: [b]}]}]",
        "p.yml:1:51: `source_label` is not a setting of a relabelling rule: did you mean `source_labels`?",
    );
    check(
        "scrape_configs: [{job_name: a, metric_relabel_configs: [{regex: '('}]}]",
        "p.yml:1:57: the action `replace` needs `target_label`",
    );
    check(
        "scrape_configs: [{job_name: a, file_sd_configs: [{files: ['*/a.json']}]}]",
        "p.yml:1:59: `*/a.json` can't be watched: a `.json`, `.yml` or `.yaml` file whose last part holds at most one `*` is wanted",
    );
    check("scrape_configs: {a: b}", "p.yml:1:17: a mapping is found, a list is wanted");
    check(
        "scrape_configs: [a]",
        "p.yml:1:18: a job of `scrape_configs` is a single value, a mapping is wanted",
    );
    check("a: 1\na: 2", "p.yml:2:1: the key `a` comes twice");
    assert!(error("scrape_configs: [").starts_with("p.yml:1:"), "{}", error("scrape_configs: ["));
}

#[test]
fn a_document_that_explodes_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let before = level - 1;
        let aliases = vec![format!("*a{before}"); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    assert!(error(&text).contains("more than 1000000 values"), "{}", error(&text));
    let deep = |levels| error(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    assert!(deep(100).contains("nested over 32 levels deep"), "{}", deep(100));
    assert!(deep(10_000).contains("limit"), "{}", deep(10_000));
}

#[test]
fn urls_of_the_command_line_become_jobs() {
    let config = Config::of_urls(
        &["http://engine:8000".into(), "https://b/x/metrics?name%5B%5D=a+b&c=d".into()],
        Duration::from_secs(5),
    )
    .unwrap();
    let [first, second] = &config.jobs[..] else { panic!("{config:?}") };
    assert_eq!(
        (first.name.as_str(), first.metrics_path.as_str(), first.interval),
        ("scrape", "/metrics", Duration::from_secs(5))
    );
    assert_eq!(first.groups[0].targets, ["engine:8000"]);
    assert_eq!((second.scheme.as_str(), second.metrics_path.as_str()), ("https", "/x/metrics"));
    assert_eq!(second.params, [("name[]".into(), vec!["a b".into()]), ("c".into(), vec!["d".into()])]);
    let timeout = |interval| {
        let config = Config::of_urls(&["http://engine:8000".into()], interval).unwrap();
        config.jobs[0].timeout
    };
    let asked = [200, 4_000, 60_000].map(|ms| timeout(Duration::from_millis(ms)).as_millis());
    assert_eq!(asked, [1_000, 4_000, 10_000], "a page has a second at least, and at most ten");
    for bad in ["engine:8000", "ftp://a/", "http://", "http://user:pw@a/", ""] {
        let error = Config::of_urls(&[bad.into()], Duration::from_secs(5)).unwrap_err().to_string();
        assert_eq!(error, format!("`{bad}` can't be scraped: write it as `http://host:port/metrics`"));
    }
}

proptest! {
    #[test]
    fn rubbish_is_an_error_not_a_panic(
        any in ".{0,200}",
        likely in "(scrape_configs:|global:|- |  |job_name: a|\\{|\\}|\\[|\\]|\n|regex: |relabel_configs:|15s|,|&a|\\*a|'|\"){0,60}",
        url in "(http|://|[a-z:/?&=%+@\\[\\]]){0,12}",
    ) {
        let _ = Config::parse(&any, "p.yml", Path::new("."));
        let _ = Config::parse(&likely, "p.yml", Path::new("."));
        let _ = Config::of_urls(&[url], Duration::from_secs(1));
    }
}
