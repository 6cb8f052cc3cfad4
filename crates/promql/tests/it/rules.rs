//! Rule files, groups and their tests.

use std::collections::BTreeMap;

use model::{Labels, is_stale_marker};
use promql::MemorySource;
use promql::rules::{AlertState, Group, Moment, Outcome, RuleKind, Setting, check, parse, test};

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
