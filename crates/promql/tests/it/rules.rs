//! Rule files, groups and their tests.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Labels, is_stale_marker};
use promql::rules::{
    AlertState, Bounds, Group, GroupTimes, Moment, Moments, Outcome, RuleKind, RuleText, Setting, check,
    order, parse, replay, test, test_within,
};
use promql::{MemorySource, Message, bars, notation};

const FILE: &str = r#"
groups:
  - name: gpu
    interval: 30s
    labels: {team: infra}
    rules:
      - record: host:power_watts
        expr: sum by (host) (power)
        labels: {source: "agent"}
      - alert: PowerHigh
        expr: host:power_watts > 100
        for: 1m
        keep_firing_for: 1m
        labels:
          severity: '{{ if gt $value 150.0 }}page{{ else }}ticket{{ end }}'
        annotations:
          summary: "{{ $labels.host }} takes {{ $value | humanize }}W ({{ $externalLabels.site }})"
"#;

fn group() -> Group {
    Group::new(&parse(FILE).unwrap().groups[0], 60_000).unwrap()
}

fn setting() -> Setting {
    Setting { external_labels: Labels::from_pairs([("site", "lab")]), ..Setting::default() }
}

fn power(source: &mut MemorySource, time_ms: i64, host: &str, value: f64) {
    source.push(Labels::from_pairs([("__name__", "power"), ("host", host)]), time_ms * 1_000_000, value);
}

/// Evaluates all rules and stores what they write.
fn run(group: &mut Group, source: &mut MemorySource, time_ms: i64, moment: Moment) -> Vec<Outcome> {
    let outcomes: Vec<Outcome> = (0..group.len())
        .map(|index| {
            let outcome = group.evaluate(index, source, (time_ms, moment), &setting());
            for write in &outcome.writes {
                source.push(write.labels.clone(), write.time_ms * 1_000_000, write.value);
            }
            outcome
        })
        .collect();
    group.done(time_ms);
    outcomes
}

fn texts(outcome: &Outcome) -> Vec<String> {
    outcome.writes.iter().map(|write| format!("{} {}", write.labels, write.value)).collect()
}

#[test]
fn a_rule_sees_what_the_one_before_wrote() {
    let (mut group, mut source) = (group(), MemorySource::new());
    power(&mut source, 0, "a", 120.0);
    let outcomes = run(&mut group, &mut source, 0, Moment::Now);
    assert_eq!(texts(&outcomes[0]), [r#"host:power_watts{host="a",source="agent",team="infra"} 120"#]);
    assert_eq!(
        texts(&outcomes[1]),
        [
            r#"ALERTS{alertname="PowerHigh",alertstate="pending",host="a",severity="ticket",source="agent",team="infra"} 1"#,
            r#"ALERTS_FOR_STATE{alertname="PowerHigh",host="a",severity="ticket",source="agent",team="infra"} 0"#,
        ]
    );
    assert_eq!(group.interval_ms, 30_000);
}

#[test]
fn an_alert_goes_from_pending_to_firing_and_holds_on() {
    let (mut group, mut source) = (group(), MemorySource::new());
    let mut states = Vec::new();
    for step in 0..10_i64 {
        let time = step * 30_000;
        power(&mut source, time, "a", if step < 4 { 120.0 } else { 50.0 });
        run(&mut group, &mut source, time, Moment::Now);
        states.push(group.alerts(1).map(|alert| alert.state.as_str()).collect::<Vec<_>>().join(","));
    }
    assert_eq!(
        states,
        [
            "pending", "pending", "firing", "firing", "firing", "firing", "inactive", "inactive", "inactive",
            "inactive"
        ]
    );
    let alert = group.alerts(1).next().unwrap();
    assert_eq!(alert.annotations["summary"], "a takes 120W (lab)");
    assert_eq!(
        (alert.active_at_ms, alert.fired_at_ms, alert.resolved_at_ms),
        (0, Some(60_000), Some(180_000))
    );
}

#[test]
fn series_that_end_get_a_marker() {
    let (mut group, mut source) = (group(), MemorySource::new());
    power(&mut source, 0, "a", 10.0);
    run(&mut group, &mut source, 0, Moment::Now);
    let outcomes = run(&mut group, &mut source, 600_000, Moment::Now);
    assert_eq!(outcomes[0].writes.len(), 1);
    assert!(is_stale_marker(outcomes[0].writes[0].value));
    assert!(run(&mut group, &mut source, 630_000, Moment::Now)[0].writes.is_empty());
}

#[test]
fn series_of_a_rule_that_is_gone_get_a_marker_unless_another_writes_them() {
    let (mut before, mut source) = (group(), MemorySource::new());
    power(&mut source, 0, "a", 120.0);
    run(&mut before, &mut source, 0, Moment::Now);
    let changed = FILE.replace("sum by (host) (power)", "max by (host) (power)").replace("PowerHigh", "Hot");
    let mut after = Group::new(&parse(&changed).unwrap().groups[0], 60_000).unwrap();
    assert!(!after.is_like(&before) && before.is_like(&group()));
    after.restore(serde_json::from_str(&serde_json::to_string(&before.state()).unwrap()).unwrap());
    assert_eq!(after.state().series().count(), 3);
    power(&mut source, 30_000, "a", 120.0);
    run(&mut after, &mut source, 30_000, Moment::Now);
    let ended = after.leftovers(30_000);
    let names: Vec<&str> = ended.iter().map(|write| write.labels.metric()).collect();
    assert_eq!(names, ["ALERTS", "ALERTS_FOR_STATE"], "{ended:?}");
    assert!(ended.iter().all(|write| is_stale_marker(write.value) && write.time_ms == 30_000));
    assert!(after.leftovers(60_000).is_empty());
}

#[test]
fn a_firing_alert_is_told_again_after_a_while_and_its_end_is_told() {
    let (mut group, mut source) = (group(), MemorySource::new());
    let mut told = Vec::new();
    for step in 0..12_i64 {
        let time = step * 30_000;
        power(&mut source, time, "a", if step < 6 { 120.0 } else { 50.0 });
        run(&mut group, &mut source, time, Moment::Now);
        let notices = group.notices(1, time, 45_000);
        told.extend(notices.into_iter().map(|n| (step, n.starts_at_ms, n.ends_at_ms, n.is_resolved)));
    }
    let fires = |step: i64| (step, 60_000, step * 30_000 + 180_000, false);
    let ended = |step| (step, 60_000, 240_000, true);
    assert_eq!(told, [fires(2), fires(4), fires(6), ended(8), ended(10)]);
    let mut restarted = self::group();
    restarted.restore(group.state());
    assert!(restarted.notices(1, 360_000, 45_000)[0].is_resolved);
}

#[test]
fn an_alert_outlives_a_change_of_its_query_and_no_change_of_its_labels() {
    let (mut before, mut source) = (group(), MemorySource::new());
    power(&mut source, 0, "a", 120.0);
    run(&mut before, &mut source, 0, Moment::Now);
    let restored = |change: (&str, &str)| {
        let changed = FILE.replace(change.0, change.1);
        let mut after = Group::new(&parse(&changed).unwrap().groups[0], 60_000).unwrap();
        after.restore(before.state());
        after.alerts(1).count()
    };
    assert_eq!(restored(("> 100", "> 110")), 1);
    assert_eq!(restored(("page{{ else }}", "wake{{ else }}")), 1);
    let both = FILE.replace("> 100", "> 110").replace("severity:", "urgency:");
    let mut after = Group::new(&parse(&both).unwrap().groups[0], 60_000).unwrap();
    after.restore(before.state());
    assert_eq!(after.alerts(1).count(), 0);
}

#[test]
fn time_in_which_nobody_looked_does_not_count() {
    let (mut before, mut source) = (group(), MemorySource::new());
    power(&mut source, 0, "a", 120.0);
    run(&mut before, &mut source, 0, Moment::Now);
    let mut after = group();
    after.restore(before.state());
    let mut states = Vec::new();
    run(&mut after, &mut source, 3_570_000, Moment::Missed);
    for time in [3_600_000, 3_630_000] {
        power(&mut source, time, "a", 120.0);
        run(&mut after, &mut source, time, Moment::Now);
        let alert = after.alerts(1).next().unwrap();
        states.push((alert.state, alert.active_at_ms));
    }
    assert_eq!(states, [(AlertState::Pending, 3_570_000), (AlertState::Firing, 3_570_000)]);
}

#[test]
fn an_evaluation_that_is_missed_now_and_then_delays_no_alert() {
    let (mut group, mut source) = (group(), MemorySource::new());
    for (time, moment) in [(0, Moment::Now), (30_000, Moment::Missed), (60_000, Moment::Now)] {
        power(&mut source, time, "a", 120.0);
        run(&mut group, &mut source, time, moment);
    }
    assert_eq!(group.alerts(1).next().unwrap().state, AlertState::Firing);
}

#[test]
fn state_survives_a_restart() {
    let (mut before, mut source) = (group(), MemorySource::new());
    for step in 0..3_i64 {
        power(&mut source, step * 30_000, "a", 120.0);
        run(&mut before, &mut source, step * 30_000, Moment::Now);
    }
    let text = serde_json::to_string(&before.state()).unwrap();
    let mut after = group();
    after.restore(serde_json::from_str(&text).unwrap());
    assert_eq!(after.state(), before.state());
    let alert = after.alerts(1).next().unwrap();
    assert_eq!((alert.state, alert.active_at_ms), (AlertState::Firing, 0));
    power(&mut source, 90_000, "a", 120.0);
    let outcomes = run(&mut after, &mut source, 90_000, Moment::Now);
    assert!(texts(&outcomes[1])[0].contains("firing"));
}

#[test]
fn missed_evaluations_are_made_up_without_alerts() {
    let mut group = group();
    assert_eq!(group.due(95_000, 10), [90_000]);
    group.done(90_000);
    assert!(group.due(95_000, 10).is_empty());
    assert_eq!(group.due(185_000, 10), [120_000, 150_000, 180_000]);
    assert_eq!(group.due(185_000, 2), [150_000, 180_000]);
    assert_eq!(group.due(i64::MAX / 4, 3).len(), 3);
    let mut source = MemorySource::new();
    power(&mut source, 0, "a", 120.0);
    let outcomes = run(&mut group, &mut source, 0, Moment::Missed);
    assert_eq!(outcomes[0].writes.len(), 1);
    assert_eq!(outcomes[1], Outcome::default());
}

#[test]
fn errors_write_nothing_and_say_why() {
    let file = "groups: [{name: g, limit: 1, rules: [{record: a, expr: 'power'}, {record: b, expr: '{__name__=~\"power.*\"}'}, {record: c, expr: 'power[5m]'}, {record: d, expr: '\"x\"'}]}]";
    let mut group = Group::new(&parse(file).unwrap().groups[0], 60_000).unwrap();
    let mut source = MemorySource::new();
    power(&mut source, 0, "a", 1.0);
    power(&mut source, 0, "b", 1.0);
    source.push(Labels::from_pairs([("__name__", "power2"), ("host", "a")]), 0, 1.0);
    let errors: Vec<String> = run(&mut group, &mut source, 0, Moment::Now)
        .into_iter()
        .filter_map(|outcome| outcome.error)
        .collect();
    assert_eq!(
        errors,
        [
            "exceeded limit of 1 with 2 series",
            "vector contains metrics with the same labelset after applying rule labels",
            "rule result is not a vector or scalar",
            "rule result is not a vector or scalar",
        ]
    );
}

#[test]
fn findings_name_line_group_and_rule() {
    for (text, wanted) in [
        ("groups:\n  - rules: []\n", "a group has no name"),
        ("groups:\n  - name: a\n  - name: a\n", "3: group `a` is repeated in the same file"),
        (
            "groups:\n  - name: a\n    rules:\n      - expr: up\n",
            "4: a rule of group `a` has neither `record` nor `alert`: add one",
        ),
        (
            "groups:\n  - name: a\n    rules:\n      - {record: x, alert: y, expr: up}\n",
            "4: a rule of group `a` has both `record` and `alert`: keep one",
        ),
        (
            "groups:\n  - name: a\n    rules:\n      - record: x\n        expr: sum(\n",
            "5: rule `x` of group `a`: 1:5: parse error: unexpected end of input, expected an expression",
        ),
        ("groups:\n  - name: a\n    rules:\n      - record: x\n", "4: rule `x` of group `a` has no `expr`"),
        (
            "groups:\n  - name: a\n    rules:\n      - {record: x-y, expr: up}\n",
            "4: rule `x-y` of group `a`: `x-y` is no metric name: letters, digits, `_` and `:` are allowed",
        ),
        (
            "groups:\n  - name: a\n    rules:\n      - {record: x, expr: up, for: 5m}\n",
            "4: rule `x` of group `a` is a recording rule, where `for` has no meaning: remove it",
        ),
        (
            "groups:\n  - name: a\n    rules:\n      - {record: x, expr: up, annotations: {a: b}}\n",
            "4: rule `x` of group `a` is a recording rule, where `annotations` has no meaning: remove it",
        ),
        (
            "groups:\n  - name: a\n    interval: 5 minutes\n",
            "3: `5 minutes` of the interval of group `a` is no duration: write one such as `5m`",
        ),
        (
            "groups:\n  - name: a\n    rules:\n      - {alert: x, expr: up, for: 5}\n",
            "4: `5` of `for` of rule `x` of group `a` is no duration: write one such as `5m`",
        ),
        (
            "groups:\n  - name: a\n    rules:\n      - {alert: x, expr: up, labels: {a-b: c}}\n",
            "4: rule `x` of group `a`: `a-b` is no label name",
        ),
        (
            "groups:\n  - name: a\n    rules:\n      - {alert: x, expr: up, labels: {a: '{{ $lbl }}'}}\n",
            "4: rule `x` of group `a`: label `a`: template: undefined variable \"$lbl\"",
        ),
        (
            "groups:\n  - name: a\n    rules:\n      - {alert: x, expr: up, annotations: {a: '{{ $value | human }}'}}\n",
            "4: rule `x` of group `a`: annotation `a`: template: function \"human\" not defined",
        ),
        ("groups:\n  - name: a\n    ruels: []\n", "unknown field"),
        ("groups: {", "no YAML of the right shape"),
    ] {
        let findings: Vec<String> = check(text).iter().map(ToString::to_string).collect();
        assert!(findings.len() == 1 && findings[0].contains(wanted), "{text}: {findings:?}");
    }
    assert!(check("").is_empty());
    assert!(check(FILE).is_empty());
    assert!(check("groups:\n  - name: a\n    rules:\n      - {record: x, expr: 1}\n").is_empty());
}

#[test]
fn group_labels_are_the_rules_own_unless_set() {
    let file = parse(
        "groups: [{name: g, labels: {a: '1', b: '1'}, rules: [{record: x, expr: up, labels: {b: '2'}}]}]",
    );
    let rule = &file.unwrap().groups[0].rules[0];
    assert_eq!(rule.kind, RuleKind::Recording);
    assert_eq!(
        rule.labels,
        BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())])
    );
}

fn expand(template: &str) -> String {
    let file = format!(
        "groups: [{{name: g, rules: [{{alert: A, expr: 'm', annotations: {{t: {}}}}}]}}]",
        serde_json::to_string(template).unwrap()
    );
    let mut group = Group::new(&parse(&file).unwrap().groups[0], 60_000).unwrap();
    let mut source = MemorySource::new();
    let labels = [("__name__", "m"), ("instance", "node7.lab.org:9100"), ("job", "x")];
    source.push(Labels::from_pairs(labels), 0, 1_234_567.5);
    source.push(Labels::from_pairs([("__name__", "other"), ("gpu", "1")]), 0, 7.0);
    source.push(Labels::from_pairs([("__name__", "other"), ("gpu", "0")]), 0, 8.0);
    let setting = Setting { external_url: "http://tg:9494/base".to_owned(), ..Setting::default() };
    assert_eq!(group.evaluate(0, &source, (0, Moment::Now), &setting).error, None);
    group.alerts(0).next().unwrap().annotations["t"].clone()
}

#[test]
fn templates_expand_as_in_prometheus() {
    for (template, text) in [
        ("plain", "plain"),
        ("{{ $value }}", "1.2345675e+06"),
        ("{{ .Value }} {{ .Labels.job }}", "1.2345675e+06 x"),
        ("{{ $labels.missing }}|", "|"),
        ("{{ $value | humanize }}", "1.235M"),
        ("{{ humanize1024 $value }}", "1.177Mi"),
        ("{{ humanizeDuration $value }}", "14d 6h 56m 7s"),
        (
            "{{ 0.0123 | humanizeDuration }} {{ 95.5 | humanizeDuration }} {{ 3.25 | humanizeDuration }}",
            "12.3ms 1m 35s 3.25s",
        ),
        ("{{ 0.1234567 | humanizePercentage }}", "12.35%"),
        ("{{ humanizeTimestamp 1793491203.5 }}", "2026-11-01 00:00:03.5 +0000 UTC"),
        (
            "{{ printf \"%.2f %s %5d|%-5d|%05.1f %q %%\" $value $labels.job 7 7 2.25 \"a\" }}",
            "1234567.50 x     7|7    |002.2 \"a\" %",
        ),
        ("{{ if eq $labels.job \"x\" }}yes{{ else }}no{{ end }}", "yes"),
        ("{{ if gt $value 1e9 }}a{{ else if and (gt $value 1e6) (ne $labels.job \"y\") }}b{{ end }}", "b"),
        ("{{ with query \"other{gpu='0'}\" }}{{ . | first | value }}{{ end }}", "8"),
        (
            "{{ range query \"other\" | sortByLabel \"gpu\" }}{{ .Labels.gpu }}={{ .Value }};{{ end }}",
            "0=8;1=7;",
        ),
        ("{{ range $i, $s := query \"other\" }}{{ $i }}:{{ label \"gpu\" $s }} {{ end }}", "0:0 1:1 "),
        ("{{ with query \"nothing\" }}x{{ else }}none{{ end }}", "none"),
        (
            "{{ $labels.instance | stripPort }} {{ $labels.instance | stripDomain }} {{ stripDomain \"10.0.0.1:80\" }}",
            "node7.lab.org node7:9100 10.0.0.1:80",
        ),
        ("{{ reReplaceAll \"(.*):.*\" \"$1\" $labels.instance | toUpper }}", "NODE7.LAB.ORG"),
        ("{{ title \"hello wORLD\" }} {{ match \"^n\" $labels.instance }}", "Hello WORLD true"),
        ("a {{- /* comment */ -}} b", "ab"),
        ("a {{- \" x \" -}} b", "a x b"),
        ("{{ $x := 5 }}{{ $x = 6 }}{{ $x }}", "6"),
        ("{{ define \"t\" }}<{{ .arg0 }}>{{ end }}{{ template \"t\" (args $labels.job) }}", "<x>"),
        (
            "{{ externalURL }} {{ pathPrefix }} {{ graphLink \"a b\" }}",
            "http://tg:9494/base /base /graph?g0.expr=a+b&g0.tab=0",
        ),
        ("{{ len $labels }} {{ index $labels \"job\" }} {{ not true }} {{ or \"\" \"z\" }}", "3 x false z"),
        ("{{ parseDuration \"1h\" }} {{ toTime 0.0 }}", "3600 1970-01-01 00:00:00 +0000 UTC"),
        (
            "{{ query \"sum(\" }}",
            "<error expanding template: 1:5: parse error: unexpected end of input, expected an expression>",
        ),
        (
            "{{ first (query \"nothing\") }}",
            "<error expanding template: first() called on vector with no elements>",
        ),
        ("{{ $value.x }}", "<error expanding template: `1.2345675e+06` has no field x>"),
    ] {
        assert_eq!(expand(template), text, "{template}");
    }
}

#[test]
fn broken_templates_are_found_before_they_are_used() {
    for template in [
        "{{ ",
        "{{ }}",
        "{{ end }}",
        "{{ if true }}",
        "{{ else }}",
        "{{ $x }}",
        "{{ nosuch 1 }}",
        "{{ \"a }}",
        "{{ (1 }}",
        "{{ 1 | 2 }}",
        "{{ range }}{{ end }}",
        "{{ /* spaced */ }}",
        "{{ if true }}{{ else nonsense }}{{ end }}",
        "{{/* open }}",
    ] {
        let text = serde_json::to_string(template).unwrap();
        let file =
            format!("groups: [{{name: g, rules: [{{alert: A, expr: m, annotations: {{t: {text}}}}}]}}]");
        assert_eq!(check(&file).len(), 1, "{template}");
    }
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000));
    let file = format!("groups: [{{name: g, rules: [{{alert: A, expr: m, annotations: {{t: '{deep}'}}}}]}}]");
    assert_eq!(check(&file).len(), 1);
}

#[test]
fn a_template_without_end_is_stopped() {
    let text = expand("{{ define \"t\" }}{{ template \"t\" }}{{ end }}{{ template \"t\" }}");
    assert!(text.contains("nested deeper"), "{text}");
}

fn rule_files(pattern: &str) -> Result<Vec<(String, String)>, String> {
    match pattern {
        "rules.yml" => Ok(vec![("rules.yml".to_owned(), FILE.to_owned())]),
        other => Err(format!("no file `{other}`")),
    }
}

const TEST: &str = r#"
rule_files: [rules.yml]
evaluation_interval: 30s
tests:
  - name: power
    interval: 30s
    external_labels: {site: lab}
    input_series:
      - series: 'power{host="a"}'
        values: '50 120x6 160x6'
    promql_expr_test:
      - expr: host:power_watts
        eval_time: 1m
        exp_samples:
          - labels: 'host:power_watts{host="a", source="agent", team="infra"}'
            value: 120
      - expr: sum(nothing)
        eval_time: 1m
    alert_rule_test:
      - eval_time: 1m
        alertname: PowerHigh
      - eval_time: 2m
        alertname: PowerHigh
        exp_alerts:
          - exp_labels: {host: a, severity: ticket, source: agent, team: infra}
            exp_annotations: {summary: a takes 120W (lab)}
"#;

#[test]
fn tests_of_rules_pass_and_fail_for_cause() {
    let verdicts = test(TEST, &rule_files).unwrap();
    assert_eq!(verdicts.len(), 1);
    assert_eq!((verdicts[0].name.as_str(), &verdicts[0].failures[..]), ("power", &[][..]));
    let wrong = TEST.replace("value: 120", "value: 121").replace("severity: ticket", "severity: page");
    let failures = &test(&wrong, &rule_files).unwrap()[0].failures;
    assert_eq!(failures.len(), 2);
    assert!(failures[0].starts_with("alert `PowerHigh` at 2m: expected "), "{failures:?}");
    assert_eq!(
        failures[1],
        r#"expr `host:power_watts` at 1m: expected host:power_watts{host="a",source="agent",team="infra"} 121, got host:power_watts{host="a",source="agent",team="infra"} 120"#
    );
}

#[test]
fn broken_test_files_are_findings() {
    for (from, to) in [
        ("rules.yml", "gone.yml"),
        ("evaluation_interval: 30s", "evaluation_interval: 0s"),
        ("evaluation_interval: 30s", "evaluation_intervall: 30s"),
        ("tests:", "group_eval_order: [x]\ntests:"),
    ] {
        let text = TEST.replace(from, to);
        assert_eq!(test(&text, &rule_files).unwrap_err().len(), 1, "{to}");
    }
    let failures =
        |from: &str, to: &str| test(&TEST.replace(from, to), &rule_files).unwrap()[0].failures.clone();
    assert_eq!(failures("'50 120x6 160x6'", "'50 120y6'").len(), 1);
    assert_eq!(failures("alertname: PowerHigh", "alertname: ''").len(), 1);
    assert_eq!(failures("eval_time: 2m", "eval_time: 200000y").len(), 1);
}

#[test]
fn tests_that_ask_for_much_end_at_their_bounds() {
    let within = |text: &str, values: usize, time: Duration| {
        test_within(text, &rule_files, Bounds { values, time })
            .map_err(|findings| findings[0].message.clone())
    };
    let hour = Duration::from_hours(1);
    assert_eq!(within(TEST, 1_000, hour).unwrap(), test(TEST, &rule_files).unwrap());
    let long = TEST.replace("'50 120x6 160x6'", "'50 120x600 160x600'");
    assert_eq!(
        within(&long, 1_000, hour).unwrap_err(),
        "the tests have more than 1000 values: make them shorter"
    );
    let late = within(TEST, 1_000, Duration::ZERO).unwrap_err();
    assert_eq!(late, "the tests took more than 0 s: make them shorter, or fewer");
    // Moments behind the end of time are no reason to end.
    let endless = TEST.replace("    interval: 30s", "    interval: 200000000y");
    assert_ne!(endless, TEST);
    assert_eq!(within(&endless, 1_000, hour).unwrap().len(), 1);
}

fn labels(text: &str) -> Labels {
    notation::parse_labels(text).unwrap().0
}

/// A rule as a file has it.
fn alerting(expr: &str, for_ms: i64, keep_firing_ms: i64) -> RuleText {
    RuleText {
        kind: RuleKind::Alerting { for_ms, keep_firing_ms, annotations: BTreeMap::new() },
        name: "Slow".to_owned(),
        expr: expr.to_owned(),
        labels: BTreeMap::from([("severity".to_owned(), "page".to_owned())]),
        line: 1,
    }
}

/// The minutes at which the condition holds, of minutes 0 to 29 without those that were missed.
fn moments(holds: &[i64], missed: &[i64]) -> Moments {
    let at = |minute: i64| {
        let vector = if holds.contains(&minute) { vec![(labels("{run=\"a\"}"), 2.0)] } else { Vec::new() };
        (minute * 60_000, vector)
    };
    (0..30).filter(|minute| !missed.contains(minute)).map(at).collect()
}

/// When each episode was active, fired and ended, minutes.
fn episodes(rule: &RuleText, moments: Moments) -> Vec<(i64, Option<i64>, Option<i64>)> {
    let minutes = |ms: i64| ms / 60_000;
    let found = replay(rule, moments, 60_000).unwrap();
    assert!(
        found
            .iter()
            .all(|episode| episode.labels == labels("{alertname=\"Slow\",run=\"a\",severity=\"page\"}"))
    );
    found.iter().map(|e| (minutes(e.active_ms), e.fired_ms.map(minutes), e.ended_ms.map(minutes))).collect()
}

#[test]
fn a_rule_replayed_over_the_past_does_what_it_would_have_done() {
    let rule = alerting("x > 1", 3 * 60_000, 0);
    let holds = [2, 3, 10, 11, 12, 13, 14, 28, 29];
    assert_eq!(
        episodes(&rule, moments(&holds, &[])),
        [(2, None, Some(4)), (10, Some(13), Some(15)), (28, None, None)]
    );
    let keeps = alerting("x > 1", 0, 5 * 60_000);
    assert_eq!(
        episodes(&keeps, moments(&holds, &[])),
        [(2, Some(2), Some(9)), (10, Some(10), Some(20)), (28, Some(28), None)]
    );
}

#[test]
fn a_stop_in_the_past_does_not_count_towards_for() {
    let rule = alerting("x > 1", 5 * 60_000, 0);
    let (holds, stop): (Vec<i64>, Vec<i64>) = ((2..30).collect(), (4..24).collect());
    // Twenty minutes are a stop: it fires when it held for five others.
    let found = episodes(&rule, moments(&holds, &stop));
    assert_eq!(found, [(2, Some(27), None)]);
    assert_eq!(episodes(&rule, moments(&holds, &[])), [(2, Some(7), None)]);
}

#[test]
fn what_a_condition_holds_against_numbers_is_found_in_the_order_of_the_text() {
    let found = |text: &str| -> Vec<String> {
        bars(text).unwrap().iter().map(|bar| format!("{} {} {}", bar.expr, bar.op, bar.value)).collect()
    };
    assert_eq!(found("max by (rank) (x{a=\"b\"}) > 1.1"), ["max by (rank) (x{a=\"b\"}) > 1.1"]);
    assert_eq!(found("(kv > 0.95) and on (m) (w > 0) unless off == 1"), ["kv > 0.95", "w > 0"]);
    assert_eq!(found("-5 >= x"), ["x <= -5"]);
    assert!(found("x > bool 3").is_empty() && found("a > b").is_empty() && found("up").is_empty());
    assert!(bars("x >").is_err());
}

#[test]
fn a_message_is_a_template_over_any_data_and_never_asks() {
    let data = serde_json::json!({
        "Status": "firing", "Count": 2,
        "CommonLabels": {"alertname": "Slow {{ $labels }}"},
        "Alerts": [{"Labels": {"rank": "1"}}, {"Labels": {"rank": "<b>2"}}],
    });
    let text = |template: &str| Message::parse(template).unwrap().expand(&data, "http://x", 0);
    // What labels hold is text, whatever it looks like.
    assert_eq!(text("{{ .CommonLabels.alertname }}: {{ .Count }}").unwrap(), "Slow {{ $labels }}: 2");
    assert_eq!(text("{{ range .Alerts }}{{ .Labels.rank }},{{ end }}").unwrap(), "1,<b>2,");
    assert_eq!(
        text("{{ .Status | toUpper }} {{ .CommonLabels.none }}|{{ externalURL }}").unwrap(),
        "FIRING |http://x"
    );
    assert!(text("{{ query \"up\" }}").unwrap_err().contains("can't ask"));
    assert!(Message::parse("{{ .Status").is_err());
}

/// Groups of one rule each, in the order of the file.
fn groups(rules: &[(&str, &str)]) -> Vec<Group> {
    let group = |(name, expr): &(&str, &str)| {
        let sort = if name.starts_with(char::is_uppercase) { "alert" } else { "record" };
        let text = format!(
            "groups: [{{name: g, rules: [{{{sort}: \"{name}\", expr: '{}'}}]}}]",
            expr.replace('\'', "''")
        );
        Group::new(&parse(&text).unwrap().groups[0], 60_000).unwrap()
    };
    rules.iter().map(group).collect()
}

fn ordered(rules: &[(&str, &str)]) -> Vec<usize> {
    order(&groups(rules).iter().collect::<Vec<_>>())
}

#[test]
fn a_group_comes_after_those_that_it_reads() {
    assert_eq!(ordered(&[("c", "b * 2"), ("b", "a + 1"), ("a", "x")]), [2, 1, 0]);
    assert_eq!(ordered(&[("a", "x"), ("b", "a"), ("z", "y")]), [0, 1, 2], "what is in order stays");
    assert_eq!(ordered(&[("z", "y"), ("b", "rate(a[5m])"), ("m", "x"), ("a", "x")]), [0, 2, 3, 1]);
    assert_eq!(ordered(&[("b", r#"{__name__=~"a.*"}"#), ("a1", "x")]), [1, 0]);
    assert_eq!(ordered(&[("b", r#"{host="a"}"#), ("a1", "x")]), [0, 1], "any metric says nothing");
    assert_eq!(
        ordered(&[("n", r#"count(ALERTS{alertname="Hot"})"#), ("Cold", "x"), ("Hot", "x > 1")]),
        [1, 2, 0]
    );
    assert_eq!(
        ordered(&[("n", r#"count(ALERTS{alertname="Hot"})"#), ("Hot", "n > 1"), ("Cold", "n")]),
        [0, 1, 2]
    );
}

#[test]
fn groups_that_read_each_other_keep_their_order() {
    assert_eq!(ordered(&[("a", "b"), ("b", "a")]), [0, 1]);
    assert_eq!(ordered(&[("a", "a + x")]), [0]);
    // What reads a circle comes after all of it, what it reads before.
    assert_eq!(ordered(&[("last", "b"), ("a", "b"), ("b", "a + first"), ("first", "x")]), [3, 1, 2, 0]);
    assert_eq!(ordered(&[]), [0; 0]);
}

#[test]
fn a_test_evaluates_groups_in_the_order_of_what_they_read_unless_it_says_one() {
    let files = |_: &str| {
        let group = |name: &str, expr: &str| {
            format!("  - name: {name}\n    rules:\n      - record: {name}\n        expr: {expr}\n")
        };
        let text = format!("groups:\n{}{}{}", group("c", "b * 2"), group("b", "a + 1"), group("a", "x"));
        Ok(vec![("chain.yml".to_owned(), text)])
    };
    let text = "rule_files: [chain.yml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series: \
                [{series: x, values: '1 10'}]\n    promql_expr_test:\n      - {expr: c, eval_time: 1m, \
                exp_samples: [{labels: c, value: 22}]}\n";
    assert_eq!(test(text, &files).unwrap()[0].failures, [""; 0]);
    let asked = format!("group_eval_order: [c, b, a]\n{text}");
    assert_eq!(test(&asked, &files).unwrap()[0].failures.len(), 1, "two rounds later");
}

#[test]
fn what_is_large_changes_only_when_alerts_or_series_do() {
    let (mut group, mut source) = (group(), MemorySource::new());
    assert!(group.take_changed(), "nobody has kept it yet");
    let mut changes = Vec::new();
    let values = [120.0, 121.0, 122.0, 123.0, 50.0, 51.0, 52.0, 53.0];
    for (step, value) in (0_i64..).zip(values) {
        power(&mut source, step * 30_000, "a", value);
        run(&mut group, &mut source, step * 30_000, Moment::Now);
        changes.push(group.take_changed());
    }
    // Pending; not yet; fires, which is another series; the value alone; goes on firing without its
    // condition, twice; over.
    assert_eq!(changes, [true, false, true, false, true, false, true, false]);
    power(&mut source, 240_000, "b", 1.0);
    run(&mut group, &mut source, 240_000, Moment::Now);
    assert!(group.take_changed(), "a series more");
}

#[test]
fn times_that_were_kept_later_count() {
    let (mut before, mut source) = (group(), MemorySource::new());
    power(&mut source, 0, "a", 120.0);
    run(&mut before, &mut source, 0, Moment::Now);
    let mut kept = before.state();
    run(&mut before, &mut source, 30_000, Moment::Now);
    kept.with_times(&before.times());
    assert_eq!(kept, before.state());
    let old = kept.clone();
    kept.with_times(&GroupTimes { last_ms: Some(90_000), looked_ms: vec![None] });
    kept.with_times(&GroupTimes { last_ms: Some(0), looked_ms: vec![None, None] });
    assert_eq!(kept, old, "of other rules, or older");
}
