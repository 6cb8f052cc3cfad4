//! A query confined to some series can't reach others, however it is written.

use model::Labels;
use promql::{MatchOp, Matcher, MemorySource, Options, Query, restrict};

fn conditions() -> Vec<Matcher> {
    vec![
        Matcher::new("organization", MatchOp::Equal, "acme").unwrap(),
        Matcher::new("project", MatchOp::Equal, "mi\"ne\\").unwrap(),
    ]
}

#[test]
fn every_selector_gets_the_conditions() {
    let added = r#"organization="acme",project="mi\"ne\\""#;
    for (text, want) in [
        ("up", format!("up{{{added}}}")),
        ("1 + 2", "1 + 2".to_owned()),
        (
            r#"sum by (job) (rate({__name__=~".+",project="x"}[5m] offset 1m))"#,
            format!(r#"sum by (job) (rate({{__name__=~".+",{added},project="x"}}[5m] offset 1m))"#),
        ),
        ("topk(scalar(a), b)", format!("topk(scalar(a{{{added}}}), b{{{added}}})")),
        (
            "max_over_time((a or -b)[1h:5m] @ end())",
            format!("max_over_time((a{{{added}}} or -b{{{added}}})[1h:5m] @ end())"),
        ),
        (
            r#"label_replace(a, "project", "x", "", "")"#,
            format!(r#"label_replace(a{{{added}}}, "project", "x", "", "")"#),
        ),
        ("absent(a)", format!("absent(a{{{added}}})")),
    ] {
        assert_eq!(restrict(text, &conditions()).unwrap(), want, "{text}");
        // What was written is read back: quotes and backslashes of a name don't end it.
        restrict(&want, &[]).unwrap();
    }
}

#[test]
fn alternatives_in_braces_are_confined_each() {
    let text = restrict(r#"{__name__="a" or project="theirs"}"#, &conditions()).unwrap();
    assert_eq!(text.matches(r#"organization="acme""#).count(), 2, "{text}");
    let read = promql::parse_selector(&text).unwrap();
    assert!(read.iter().all(|one| conditions().iter().all(|condition| one.contains(condition))), "{read:?}");
}

#[test]
fn nothing_of_others_is_in_the_answers() {
    let mut source = MemorySource::new();
    for (project, value) in [("mi\"ne\\", 1.0), ("theirs", 40.0), ("", 700.0)] {
        for metric in ["a", "b"] {
            let labels = [("__name__", metric), ("organization", "acme"), ("project", project)];
            source.push(Labels::from_pairs(labels), 0, value);
        }
    }
    for (text, want) in [
        ("sum(a)", 1.0),
        ("sum(a or b)", 1.0),
        (r#"sum({__name__=~".+",project=~".*"})"#, 2.0),
        (r#"count({__name__=~"a|b",project!=""})"#, 2.0),
        (r#"sum({__name__="a" or project="theirs"})"#, 1.0),
        ("sum(max_over_time(a[1h:1m]))", 1.0),
        ("sum(a @ 0)", 1.0),
        (r#"sum(label_replace(a, "project", "theirs", "", ""))"#, 1.0),
        ("sum(a and ignoring(project) b)", 1.0),
        (r#"sum(a unless a{project="theirs"})"#, 1.0),
        (r#"sum(absent(a{project="theirs"}))"#, 1.0),
        ("sum(a * on (organization) group_left b)", 1.0),
    ] {
        let confined = restrict(text, &conditions()).unwrap();
        let answer = Query::parse(&confined).unwrap().instant(&source, 0, &Options::default());
        let promql::Data::Vector { samples, .. } = answer.unwrap().data else { panic!("{text}") };
        assert_eq!(samples.iter().map(|s| s.1).collect::<Vec<_>>(), [want], "{text} is {confined}");
    }
}
