//! What may stand where a query is still being typed.

use promql::{Matcher, Place, Wants, WordPlace, place_at};

/// What is wanted at the `§` of a query, and the text that a choice replaces.
fn at(marked: &str) -> (Place, String) {
    let cursor = marked.find('§').unwrap();
    let text = marked.replacen('§', "", 1);
    let place = place_at(&text, cursor);
    let replaced = text[place.replaces.clone()].to_owned();
    (place, replaced)
}

fn told(matchers: &[Matcher]) -> String {
    matchers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// One line that says all of a place.
fn line(marked: &str) -> String {
    let (place, replaced) = at(marked);
    let wants = match &place.wants {
        Wants::Nothing => "nothing".to_owned(),
        Wants::Expression { function, words } => {
            format!("expression in {} {words:?}", function.as_deref().unwrap_or("-"))
        }
        Wants::Words(words) => format!("words {words:?}"),
        Wants::Label { of, taken } => {
            let of: Vec<String> = of.iter().map(|matchers| told(matchers)).collect();
            format!("label of {of:?} taken {taken:?}")
        }
        Wants::Comparison => "comparison".to_owned(),
        Wants::Value { label, of, .. } => format!("value of {label} with {}", told(of)),
        Wants::Duration => "duration".to_owned(),
    };
    format!("{wants} typed {:?} for {replaced:?}", place.typed)
}

#[test]
fn expressions_are_wanted_at_the_start_in_arguments_and_behind_operators() {
    for (query, want) in [
        ("§", r#"expression in - [] typed "" for """#),
        ("ra§", r#"expression in - [] typed "ra" for "ra""#),
        ("ra§te", r#"expression in - [] typed "ra" for "rate""#),
        ("rate(lo§", r#"expression in rate [] typed "lo" for "lo""#),
        ("sum by (x) (lo§", r#"expression in - [] typed "lo" for "lo""#),
        ("topk(5, lo§", r#"expression in topk [] typed "lo" for "lo""#),
        ("a + b§", r#"expression in - [AfterOperator] typed "b" for "b""#),
        ("a + on (x) b§", r#"expression in - [AfterMatching] typed "b" for "b""#),
        ("a + on (x) group_left (y) b§", r#"expression in - [] typed "b" for "b""#),
        ("-lo§", r#"expression in - [] typed "lo" for "lo""#),
        ("a > bool b§", r#"expression in - [] typed "b" for "b""#),
    ] {
        assert_eq!(line(query), want, "{query}");
    }
}

#[test]
fn words_are_wanted_behind_what_is_whole() {
    let words = |query: &str| match at(query).0.wants {
        Wants::Words(words) => words,
        other => panic!("{query}: {other:?}"),
    };
    assert_eq!(words("a §"), [WordPlace::AfterVector]);
    assert_eq!(words("a{b=\"c\"} an§"), [WordPlace::AfterVector]);
    assert_eq!(words("rate(a[5m]) o§"), [WordPlace::AfterVector]);
    assert_eq!(words("a[5m] o§"), [WordPlace::AfterVector]);
    assert_eq!(words("sum b§"), [WordPlace::Grouping]);
    assert_eq!(words("sum(a) b§"), [WordPlace::Grouping, WordPlace::AfterVector]);
    assert_eq!(words("sum(a) by (c) o§"), [WordPlace::AfterVector]);
    assert_eq!(words("a @ s§"), [WordPlace::Moment]);
    assert_eq!(words("a offset 5m o§"), [WordPlace::AfterVector]);
}

#[test]
fn labels_are_those_of_the_metrics_that_are_meant() {
    for (query, want) in [
        ("up{§", r#"label of ["__name__=\"up\""] taken [] typed "" for """#),
        ("{j§", r#"label of [] taken [] typed "j" for "j""#),
        (
            "up{a=\"1\", j§, b!=\"2\"}",
            r#"label of ["__name__=\"up\",a=\"1\",b!=\"2\""] taken ["a", "b"] typed "j" for "j""#,
        ),
        ("sum by (h§) (rate(up[5m]))", r#"label of ["__name__=\"up\""] taken [] typed "h" for "h""#),
        (
            "sum(up{a=\"1\"}) by (x, h§",
            r#"label of ["__name__=\"up\",a=\"1\""] taken ["x"] typed "h" for "h""#,
        ),
        ("a * on (§) b", r#"label of ["__name__=\"a\"", "__name__=\"b\""] taken [] typed "" for """#),
        ("max(by) by (§", r#"label of ["__name__=\"by\""] taken [] typed "" for """#),
    ] {
        assert_eq!(line(query), want, "{query}");
    }
    assert_eq!(line("up{job §"), r#"comparison typed "" for """#);
    assert_eq!(line("up{job=\"a\"§"), r#"nothing typed "" for """#);
}

#[test]
fn values_know_their_label_their_selector_and_their_quotes() {
    let value = |query: &str, value: &str| {
        let (place, replaced) = at(query);
        let Wants::Value { label, of, form } = place.wants else { panic!("{query}: {:?}", place.wants) };
        let written = form.write(value).unwrap_or_else(|| "-".to_owned());
        format!("{label} with {} typed {:?}: {replaced:?} to {written}", told(&of), place.typed)
    };
    assert_eq!(value("up{job=\"a§\"}", "api"), r#"job with __name__="up" typed "a": "a" to api"#);
    assert_eq!(value("up{job=\"a§pix\"}", "api"), r#"job with __name__="up" typed "a": "apix" to api"#);
    assert_eq!(value("up{job=\"a§", "api"), r#"job with __name__="up" typed "a": "a" to api""#);
    assert_eq!(value("up{job=§}", "api"), r#"job with __name__="up" typed "": "" to "api""#);
    assert_eq!(
        value("up{job=\"§, b=\"2\"}", "api"),
        r#"job with __name__="up" typed "": "" to api""#,
        "the next quote belongs to `b`"
    );
    assert_eq!(value("{b=\"2\",job=\"a§\"}", "a\"b\\"), r#"job with b="2" typed "a": "a" to a\"b\\"#);
    assert_eq!(value("{job='a§'}", "it's"), r#"job with  typed "a": "a" to it\'s"#);
    assert_eq!(value("{job=`a§`}", "a\\b"), r#"job with  typed "a": "a" to a\b"#);
    assert_eq!(value("{job=`a§`}", "a`b"), r#"job with  typed "a": "a" to -"#);
    assert_eq!(
        value(r#"{job=~"x|a\\.b§"}"#, "a.b.c"),
        r#"job with  typed "a.b": "a\\\\.b" to a\\.b\\.c"#,
        "of a pattern the last part"
    );
    assert_eq!(value("{\"the job\"=\"a§\"}", "x"), r#"the job with  typed "a": "a" to x"#);
}

#[test]
fn durations_stand_in_ranges_and_behind_offset() {
    assert_eq!(line("rate(a[§"), r#"duration typed "" for """#);
    assert_eq!(line("rate(a[5§"), r#"duration typed "5" for "5""#);
    assert_eq!(line("rate(a[5§m])"), r#"duration typed "5" for "5m""#);
    assert_eq!(line("a[1h:§]"), r#"duration typed "" for """#);
    assert_eq!(line("a offset §"), r#"duration typed "" for """#);
    assert_eq!(line("a offset -5§"), r#"duration typed "5" for "5""#);
}

#[test]
fn nothing_is_wanted_in_comments_numbers_and_texts_of_functions() {
    for query in
        ["a # com§ment", "1.§5", "label_replace(a, \"d§\", \"\", \"\", \"\")", "a[5m §", "sum by (x) §"]
    {
        assert!(matches!(at(query).0.wants, Wants::Nothing), "{query}: {}", line(query));
    }
}

#[test]
fn any_text_and_any_place_has_an_answer_inside_the_text() {
    use proptest::prelude::*;
    proptest!(|(text in "[a-c{}()\\[\\]\"'`=~!,| 5m#@:\\\\é-]{0,40}", at in 0_usize..60)| {
        let place = place_at(&text, at);
        prop_assert!(place.replaces.start <= place.replaces.end && place.replaces.end <= text.len());
        prop_assert!(text.get(place.replaces.clone()).is_some());
    });
}
