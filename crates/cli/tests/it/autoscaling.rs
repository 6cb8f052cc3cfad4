//! What lies in `examples/autoscaling`: YAML of the shape that is asked for there, of series that rules record.

use std::path::Path;

use serde_json::Value;

fn parsed(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/autoscaling");
    serde_saphyr::from_str(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

/// The recorded series that a query reads; it is one that can be asked.
fn recorded(query: &str) -> String {
    assert!(promql_parser::parser::parse(query).is_ok(), "{query}");
    let word = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let name = word.into_iter().find(|word| word.contains(':')).unwrap();
    assert!(semconv::canonical::find(name).is_some(), "no rule records {name}");
    name.to_owned()
}

#[test]
fn the_adapter_has_the_metric_that_the_autoscaler_of_kubernetes_asks_for() {
    let rules = parsed("prometheus-adapter.yaml")["rules"]["external"].as_array().unwrap().clone();
    let mut told = Vec::new();
    for rule in &rules {
        let name = recorded(&rule["metricsQuery"].as_str().unwrap().replace("<<.LabelMatchers>>", ""));
        assert_eq!(rule["seriesQuery"], name);
        assert_eq!(rule["name"]["as"], name.replace(':', "_"));
        assert_eq!(rule["resources"]["namespaced"], false);
        told.push(rule["name"]["as"].clone());
    }
    let scaler = parsed("hpa.yaml");
    assert_eq!(
        (&scaler["apiVersion"], &scaler["kind"]),
        (&"autoscaling/v2".into(), &"HorizontalPodAutoscaler".into())
    );
    let spec = &scaler["spec"];
    assert!(spec["scaleTargetRef"]["name"].is_string());
    assert!(spec["minReplicas"].as_u64().unwrap() < spec["maxReplicas"].as_u64().unwrap());
    for metric in spec["metrics"].as_array().unwrap() {
        let external = &metric["external"];
        assert!(told.contains(&external["metric"]["name"]), "{external}");
        assert!(external["metric"]["selector"]["matchLabels"]["model"].is_string());
        assert_eq!((&metric["type"], &external["target"]["type"]), (&"External".into(), &"Value".into()));
        assert!(external["target"]["value"].is_string(), "a quantity");
    }
}

#[test]
fn keda_asks_for_series_that_rules_record() {
    let object = parsed("keda.yaml");
    assert_eq!(
        (&object["apiVersion"], &object["kind"]),
        (&"keda.sh/v1alpha1".into(), &"ScaledObject".into())
    );
    let triggers = object["spec"]["triggers"].as_array().unwrap();
    assert!(!triggers.is_empty());
    for trigger in triggers {
        assert_eq!((&trigger["type"], &trigger["metricType"]), (&"prometheus".into(), &"Value".into()));
        let metadata = trigger["metadata"].as_object().unwrap();
        recorded(metadata["query"].as_str().unwrap());
        assert!(metadata.values().all(Value::is_string), "KEDA takes texts only: {metadata:?}");
        assert!(metadata["threshold"].as_str().unwrap().parse::<f64>().is_ok());
    }
}
