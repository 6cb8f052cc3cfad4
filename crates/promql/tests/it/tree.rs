//! The tree of a query, as Prometheus' documentation shows it.

use promql::query_tree;

fn selector(name: &str) -> String {
    format!(
        r#"{{"matchers":[{{"name":"__name__","type":"=","value":"{name}"}}],"name":"{name}","offset":0,"startOrEnd":null,"timestamp":null,"type":"vectorSelector"}}"#
    )
}

#[test]
fn trees_are_those_of_prometheus() {
    let check = |query: &str, want: &str| {
        let found: serde_json::Value = serde_json::from_str(&query_tree(query).unwrap()).unwrap();
        let want: serde_json::Value = serde_json::from_str(want).unwrap();
        assert_eq!(found, want, "{query}");
    };
    check("foo", &selector("foo"));
    let matching = r#"{"card":"one-to-one","include":[],"labels":[],"on":false}"#;
    check(
        "foo/bar",
        &format!(
            r#"{{"bool":false,"lhs":{},"matching":{matching},"op":"/","rhs":{},"type":"binaryExpr"}}"#,
            selector("foo"),
            selector("bar")
        ),
    );
    let both = query_tree(r#"foo{a!="b"} offset 5m"#).unwrap();
    let both: serde_json::Value = serde_json::from_str(&both).unwrap();
    assert_eq!(both["matchers"][0]["type"], "!=");
    assert_eq!(
        (both["matchers"][1]["value"].as_str(), both["offset"].as_i64()),
        (Some("foo"), Some(300_000))
    );
    let cards = |query: &str| {
        let tree: serde_json::Value = serde_json::from_str(&query_tree(query).unwrap()).unwrap();
        tree["matching"]["card"].as_str().map(str::to_owned)
    };
    assert_eq!(cards("foo and on (a) bar").as_deref(), Some("many-to-many"));
    assert_eq!(cards("foo or bar").as_deref(), Some("many-to-many"));
    assert_eq!(cards("rate(foo[5m]) * on (a) group_left (b) bar").as_deref(), Some("many-to-one"));
    check(
        "foo * on (a) group_left (b) bar",
        &format!(
            r#"{{"bool":false,"lhs":{},"matching":{{"card":"many-to-one","include":["b"],"labels":["a"],"on":true}},"op":"*","rhs":{},"type":"binaryExpr"}}"#,
            selector("foo"),
            selector("bar")
        ),
    );
    assert_eq!(cards("-(sum(foo)) > (1 + bar)").as_deref(), Some("one-to-one"));
    assert_eq!([cards("foo * 2"), cards("1 + time()")], [None, None]);
    check("1.5", r#"{"type":"numberLiteral","val":"1.5"}"#);
    check(r#""x""#, r#"{"type":"stringLiteral","val":"x"}"#);
    check(&format!("({})", "foo"), &format!(r#"{{"expr":{},"type":"parenExpr"}}"#, selector("foo")));
}

#[test]
fn a_broken_or_endless_query_has_none() {
    assert!(query_tree("sum(").unwrap_err().to_string().contains("1:5"));
    assert!(query_tree(&("(".repeat(100_000) + "1" + &")".repeat(100_000))).is_err());
    assert!(query_tree(&("-(".repeat(300) + "1" + &")".repeat(300))).is_ok());
}
