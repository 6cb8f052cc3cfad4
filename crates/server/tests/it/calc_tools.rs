//! The list of calculators: what a form needs to ask each of them.

use serde_json::{Value, json};

use crate::pages::Scraping;

fn read(mut answer: ureq::http::Response<ureq::Body>) -> Value {
    serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
}

fn input<'a>(tools: &'a Value, tool: &str, name: &str) -> &'a Value {
    let all = tools["tools"].as_array().unwrap();
    let tool = all.iter().find(|one| one["name"] == tool).unwrap();
    tool["inputs"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()
}

#[test]
fn each_calculator_is_listed_with_what_it_takes_and_answers_to_it() {
    let server = Scraping::with_config(|_| ());
    let base = format!("{}/api/tg/v1/calc", server.url());
    let tools: Value = read(ureq::get(&base).call().unwrap());
    let known: Vec<&str> = tools["gpus"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(known.contains(&"h100-sxm"), "{known:?}");
    assert_eq!(input(&tools, "roofline", "params")["bounds"], "above 0");
    assert_eq!(input(&tools, "roofline", "batch")["kind"], "numbers");
    assert_eq!(input(&tools, "mfu", "moe")["kind"], "switch");
    assert_eq!(input(&tools, "mfu", "flops_model")["words"][0], "6N");
    let times = input(&tools, "stream", "times");
    assert_eq!((&times["kind"], &times["is_file"]), (&json!("table"), &json!(true)));
    assert!(times["columns"].as_array().unwrap().iter().any(|column| column["name"] == "t"), "{times}");
    for tool in tools["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        assert!(!tool["about"].as_str().unwrap().is_empty() && tool["examples"][0].is_string(), "{tool}");
        // None of a calculator's own inputs is unknown to it; another one is, and is named.
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let answer = agent.post(format!("{base}/{name}")).send(r#"{"nonsense":1}"#).unwrap();
        assert_eq!(answer.status(), 400, "{name}");
        let error = read(answer);
        assert_eq!(error["error"]["field"], "nonsense", "{error}");
    }
}
