//! Relabelling by hand-worked cases.

use proptest::prelude::*;
use scrape::relabel::{Action, LabelSet, Rule, RuleText, apply};

fn rule(action: &str, change: impl FnOnce(&mut RuleText)) -> Rule {
    let (_, action) = Action::ALL.into_iter().find(|(name, _)| *name == action).unwrap();
    let mut text = RuleText { action, ..RuleText::default() };
    change(&mut text);
    Rule::new(text).unwrap()
}

fn sources(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Applies `rules` to labels written as `a=1,b=2`; the result in the same form, `dropped` when dropped.
fn after(labels: &str, rules: &[Rule]) -> String {
    let pairs = labels.split(',').filter(|p| !p.is_empty()).map(|p| p.split_once('=').unwrap());
    let mut set: LabelSet = pairs.collect();
    if !apply(rules, &mut set) {
        return "dropped".into();
    }
    let mut pairs: Vec<String> = set.iter().map(|(n, v)| format!("{n}={v}")).collect();
    pairs.sort();
    pairs.join(",")
}

#[test]
fn replace_sets_expands_and_removes() {
    let check = |labels: &str, change: &dyn Fn(&mut RuleText), want: &str| {
        assert_eq!(after(labels, &[rule("replace", change)]), want);
    };
    check(
        "a=foo,b=bar",
        &|r| {
            r.source_labels = sources(&["a", "b"]);
            r.regex = "f(.*);(.*)r".into();
            r.target_label = "d".into();
            r.replacement = "ch${1}-${2}".into();
        },
        "a=foo,b=bar,d=choo-ba",
    );
    // The whole value has to match.
    check(
        "a=foobar",
        &|r| {
            r.source_labels = sources(&["a"]);
            r.regex = "foo".into();
            r.target_label = "a".into();
            r.replacement = "x".into();
        },
        "a=foobar",
    );
    // Alternatives are anchored as one.
    check(
        "a=foox",
        &|r| {
            r.source_labels = sources(&["a"]);
            r.regex = "foo|x".into();
            r.target_label = "a".into();
            r.replacement = "y".into();
        },
        "a=foox",
    );
    // An empty result removes the label.
    check(
        "a=foo,b=bar",
        &|r| {
            r.source_labels = sources(&["a"]);
            r.regex = "(f).*".into();
            r.target_label = "b".into();
            r.replacement = "$2".into();
        },
        "a=foo",
    );
}

#[test]
fn replace_expands_names_and_odd_groups() {
    let check = |labels: &str, change: &dyn Fn(&mut RuleText), want: &str| {
        assert_eq!(after(labels, &[rule("replace", change)]), want);
    };
    // The name is expanded too; one that comes out empty changes nothing.
    check(
        "a=foo",
        &|r| {
            r.source_labels = sources(&["a"]);
            r.target_label = "${1}_x".into();
            r.replacement = "v".into();
        },
        "a=foo,foo_x=v",
    );
    check(
        "a=foo",
        &|r| {
            r.source_labels = sources(&["a"]);
            r.target_label = "$9".into();
            r.replacement = "v".into();
        },
        "a=foo",
    );
    // `$1x` is the group called `1x`, which there is not.
    check(
        "a=foo",
        &|r| {
            r.source_labels = sources(&["a"]);
            r.target_label = "b".into();
            r.replacement = "$1x$$".into();
        },
        "a=foo,b=$",
    );
    // Without sources the empty text is matched.
    check(
        "",
        &|r| {
            r.target_label = "b".into();
            r.replacement = "v".into();
        },
        "b=v",
    );
    // A line break is a character like any other.
    let newline: LabelSet = [("a", "x\ny")].into_iter().collect();
    let mut set = newline.clone();
    let copied = rule("replace", |r| {
        r.source_labels = sources(&["a"]);
        r.target_label = "b".into();
    });
    assert!(copied.apply(&mut set));
    assert_eq!(set.get("b"), "x\ny");
}

#[test]
fn keep_and_drop_look_at_joined_sources() {
    let on = |action: &str, regex: &str| {
        let regex = regex.to_owned();
        rule(action, |r| {
            r.source_labels = sources(&["a", "missing"]);
            r.regex = regex;
        })
    };
    assert_eq!(after("a=foo", &[on("keep", "foo;")]), "a=foo");
    assert_eq!(after("a=foo", &[on("keep", "foo")]), "dropped");
    assert_eq!(after("a=foo", &[on("drop", "foo;")]), "dropped");
    assert_eq!(after("a=foo", &[on("drop", "fo;")]), "a=foo");
    let with_separator = rule("keep", |r| {
        r.source_labels = sources(&["a", "b"]);
        r.separator = String::new();
        r.regex = "foobar".into();
    });
    assert_eq!(after("a=foo,b=bar", &[with_separator]), "a=foo,b=bar");
}

#[test]
fn equal_labels_keep_or_drop() {
    let on = |action: &str| {
        rule(action, |r| {
            r.source_labels = sources(&["a"]);
            r.target_label = "b".into();
        })
    };
    assert_eq!(after("a=x,b=x", &[on("keepequal")]), "a=x,b=x");
    assert_eq!(after("a=x,b=y", &[on("keepequal")]), "dropped");
    assert_eq!(after("a=x,b=x", &[on("dropequal")]), "dropped");
    assert_eq!(after("a=x", &[on("dropequal")]), "a=x");
}

#[test]
fn label_names_are_mapped_kept_and_dropped() {
    let map = rule("labelmap", |r| r.regex = "__meta_(.+)".into());
    assert_eq!(after("__meta_host=h,a=1", &[map]), "__meta_host=h,a=1,host=h");
    let numbered = rule("labelmap", |r| {
        r.regex = "(b)(\\d)".into();
        r.replacement = "bar$2$1".into();
    });
    assert_eq!(after("b1=x,b2=y", &[numbered]), "b1=x,b2=y,bar1b=x,bar2b=y");
    // Of two that map to one the later name wins.
    let one = rule("labelmap", |r| {
        r.regex = "x.".into();
        r.replacement = "x".into();
    });
    assert_eq!(after("x2=second,x1=first", &[one]), "x1=first,x2=second,x=second");
    let drop = rule("labeldrop", |r| r.regex = "b.*".into());
    assert_eq!(after("a=1,b1=2,b2=3", &[drop]), "a=1");
    let keep = rule("labelkeep", |r| r.regex = "b.*|a".into());
    assert_eq!(after("a=1,b1=2,c=3", &[keep]), "a=1,b1=2");
}

#[test]
fn hashes_are_those_of_prometheus() {
    let of = |labels: &str, names: &[&str], modulus: u64| {
        let names = sources(names);
        after(
            labels,
            &[rule("hashmod", |r| {
                r.source_labels = names;
                r.target_label = "d".into();
                r.modulus = modulus;
            })],
        )
    };
    // printf 'foo;bar;baz' | md5sum, the last 16 digits modulo 1000.
    assert_eq!(of("a=foo,b=bar,c=baz", &["a", "b", "c"], 1000), "a=foo,b=bar,c=baz,d=719");
    assert_eq!(of("c=baz", &["c"], 1000), "c=baz,d=976");
    assert_eq!(of("a=foo", &["a"], 1), "a=foo,d=0");
}

#[test]
fn case_is_changed() {
    let on = |action: &str| {
        rule(action, |r| {
            r.source_labels = sources(&["a"]);
            r.target_label = "b".into();
        })
    };
    assert_eq!(after("a=FoÖ", &[on("lowercase")]), "a=FoÖ,b=foö");
    assert_eq!(after("a=FoÖ", &[on("uppercase")]), "a=FoÖ,b=FOÖ");
    assert_eq!(after("b=x", &[on("uppercase")]), "");
}

#[test]
fn rules_go_on_from_what_the_one_before_left() {
    let first = rule("replace", |r| {
        r.target_label = "b".into();
        r.replacement = "v".into();
    });
    let second = rule("keep", |r| {
        r.source_labels = sources(&["b"]);
        r.regex = "v".into();
    });
    let third = rule("drop", |r| {
        r.source_labels = sources(&["b"]);
        r.regex = "w".into();
    });
    assert_eq!(after("a=1", &[first, second, third]), "a=1,b=v");
}

#[test]
fn unusable_rules_say_what_is_missing_or_too_much() {
    let check = |action: &str, change: &dyn Fn(&mut RuleText), want: &str| {
        let (_, action) = Action::ALL.into_iter().find(|(name, _)| *name == action).unwrap();
        let mut text = RuleText { action, ..RuleText::default() };
        change(&mut text);
        assert_eq!(Rule::new(text).unwrap_err().to_string(), want);
    };
    check("replace", &|_| (), "the action `replace` needs `target_label`");
    check("hashmod", &|r| r.target_label = "a".into(), "the action `hashmod` needs `modulus`");
    check(
        "labeldrop",
        &|r| r.target_label = "a".into(),
        "the action `labeldrop` has no use for `target_label`",
    );
    check(
        "lowercase",
        &|r| {
            r.target_label = "a".into();
            r.replacement = "b".into();
        },
        "the action `lowercase` has no use for `replacement`",
    );
    check("keep", &|r| r.regex = "a(".into(), "the regex `a(` is not usable: unclosed group");
    check(
        "keep",
        &|r| r.regex = "a(?=b)".into(),
        "the regex `a(?=b)` is not usable: look-around, including look-ahead and look-behind, is not supported",
    );
    // A pattern can't grow without bound.
    let huge =
        Rule::new(RuleText { action: Action::Keep, regex: "(a{1000}){1000}".into(), ..RuleText::default() });
    assert!(huge.is_err());
}

proptest! {
    #[test]
    fn no_rule_panics_and_none_leaves_an_empty_label(
        action in 0usize..11,
        regex in "[a-c$^.*()|]{0,6}",
        replacement in "[a$0-9{}]{0,6}",
        target in "[a$0-9{}]{1,4}",
        pairs in prop::collection::vec(("[a-c]{1,2}", "[a-c]{0,3}"), 0..4),
    ) {
        let (_, action) = Action::ALL[action];
        let text = RuleText { action, regex, replacement, target_label: target, modulus: 7, source_labels: sources(&["a", "b"]), ..RuleText::default() };
        let Ok(rule) = Rule::new(text) else { return Ok(()) };
        let mut set: LabelSet = pairs.into_iter().collect();
        rule.apply(&mut set);
        prop_assert!(set.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()));
    }
}
