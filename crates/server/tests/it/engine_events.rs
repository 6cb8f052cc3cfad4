//! What happens to engines, as events of a server that scrapes them or is written to.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use wire::remote_write::{CONTENT_TYPE, Point, RequestWriter};

use crate::pages::{Pages, Scraping, eventually};

/// A page of vLLM, of a process that began at `started` and has served so many tokens.
fn page(started: u32, tokens: u32) -> String {
    let labels = "model_name=\"chat\",engine=\"0\"";
    format!(
        "process_start_time_seconds {started}\nvllm:generation_tokens_total{{{labels}}} {tokens}\n\
         vllm:prompt_tokens_total{{{labels}}} {tokens}\nvllm:num_requests_running{{{labels}}} {tokens}\n"
    )
}

/// The engine events, the oldest first.
fn events(server: &Scraping) -> Vec<Value> {
    let mut events = server.get("/api/tg/v1/events?kind=engine")["events"].as_array().unwrap().clone();
    events.reverse();
    events
}

/// What happened, in short.
fn whats(server: &Scraping) -> Vec<String> {
    events(server).iter().map(|event| event["body"]["what"].as_str().unwrap().to_owned()).collect()
}

fn told(server: &Scraping, wanted: &[&str]) -> Value {
    eventually(&format!("{wanted:?}"), || (whats(server) == wanted).then_some(()));
    events(server).pop().unwrap_or_default()
}

#[test]
fn a_restart_is_told_once_also_when_the_server_is_started_in_between() {
    let pages = Pages::start();
    pages.set("e", page(1_000, 1_234_567));
    let mut server = Scraping::of(&pages, &["e"]);
    server.becomes("tg_engine_requests_running", 1_234_567.0);
    pages.settle("e");
    assert_eq!(events(&server), [] as [Value; 0]);
    pages.set("e", page(2_500, 12));
    let event = told(&server, &["restart"]);
    let text = event["text"].as_str().unwrap();
    assert!(
        text.starts_with("vllm on 127.0.0.1:")
            && text.ends_with(
                " restarted: its process began 1,500 s after the one before; \
                 2 counters fell, vllm:generation_tokens_total from 1,234,567 to 12"
            ),
        "{text}"
    );
    assert_eq!(event["severity"], "info");
    let labels = &event["labels"];
    assert_eq!((&labels["engine"], &labels["model"]), (&json!("vllm"), &json!("chat")));
    assert_eq!(labels["source"], "engine");
    assert!(labels["job"].is_string() && labels["instance"].is_string(), "{labels}");
    server.restart();
    pages.settle("e");
    assert_eq!(whats(&server), ["restart"]);
    // An idle engine has no counter that could fall.
    pages.set("e", page(2_600, 12));
    server.restart();
    told(&server, &["restart"; 2]);
    pages.set("e", page(2_700, 12));
    let third = told(&server, &["restart"; 3]);
    assert_eq!(third["severity"], "warning");
    assert!(third["text"].as_str().unwrap().ends_with("; 3 restarts within an hour"), "{third}");
    pages.settle("e");
    assert_eq!(whats(&server).len(), 3);
}

#[test]
fn a_target_that_is_down_is_told_with_what_its_scrape_met_and_once_over_a_start() {
    let pages = Pages::start();
    pages.set("e", page(1_000, 5));
    pages.set("other", "up_to_date 1\n");
    let mut server = Scraping::of(&pages, &["e", "other"]);
    server.becomes("tg_engine_requests_running", 5.0);
    pages.remove("e");
    pages.remove("other");
    let down = told(&server, &["down"]);
    assert_eq!(down["severity"], "warning");
    assert!(
        down["text"].as_str().unwrap().ends_with("the target answers with status 404 Not Found"),
        "{down}"
    );
    server.restart();
    server.becomes("sum(up)", 0.0);
    server.becomes("count(count_over_time(up[1m]) > 4)", 2.0);
    pages.set("e", page(1_000, 5));
    pages.set("other", "up_to_date 1\n");
    let up = told(&server, &["down", "up"]);
    assert!(up["text"].as_str().unwrap().contains(" answers again after "), "{up}");
    pages.settle("e");
    assert_eq!(whats(&server), ["down", "up"], "no restart: its counters went on");
}

/// Name, labels beside the target's, and value of a series.
type Written<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

/// Samples of one target that a Prometheus writes.
struct Writing<'s> {
    server: &'s Scraping,
    from_ms: i64,
}

impl<'s> Writing<'s> {
    fn to(server: &'s Scraping, from_ms: i64) -> Self {
        Self { server, from_ms }
    }

    /// Writes one sample of each series, `at` seconds on.
    fn write(&self, at: i64, series: &[Written<'_>]) {
        let mut writer = RequestWriter::new();
        for (name, labels, value) in series {
            let own = [("__name__", *name), ("instance", "n1:8000"), ("job", "serving"), ("pod", "chat-0")];
            let point = Point { time_ms: self.from_ms + at * 1_000, value: *value };
            writer.series(own.into_iter().chain(labels.iter().copied()), &[point]);
        }
        let url = format!("{}/api/v1/write", self.server.url());
        let request =
            ureq::post(&url).header("content-type", CONTENT_TYPE).header("content-encoding", "snappy");
        assert_eq!(request.send(writer.finish().unwrap()).unwrap().status().as_u16(), 204);
    }

    /// A scrape in two requests.
    fn scrape(&self, at: i64, model: &str, kv: &str, tokens: f64) {
        let labels: &[(&str, &str)] = &[("model_name", model)];
        self.write(
            at,
            &[("up", &[], 1.0), ("vllm:generation_tokens_total", labels, tokens), (kv, labels, 0.5)],
        );
        self.write(at, &[("vllm:prompt_tokens_total", labels, tokens * 2.0)]);
    }
}

#[test]
fn what_is_written_by_a_prometheus_tells_the_same() {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let from_ms = now_ms - 600_000;
    let (old, new) = ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc");
    let mut server = Scraping::with_config(|_| ());
    let writing = Writing::to(&server, from_ms);
    writing.scrape(0, "chat", old, 100.0);
    writing.scrape(15, "chat", old, 200.0);
    writing.write(30, &[("up", &[], 0.0)]);
    writing.scrape(45, "chat", old, 300.0);
    assert_eq!(whats(&server), [""; 0], "one scrape that fails is no fall");
    for _ in 0..2 {
        writing.scrape(60, "chat", old, 10.0);
    }
    assert_eq!(whats(&server), ["restart"], "one event of two requests, sent twice");
    writing.write(75, &[("up", &[], 0.0)]);
    writing.write(90, &[("up", &[], 0.0)]);
    assert_eq!(whats(&server), ["restart", "down"]);
    let down = &events(&server)[1];
    assert_eq!(down["time"], from_ms + 75_000, "the first scrape that failed");
    assert_eq!(down["labels"]["pod"], "chat-0");
    server.restart();
    let writing = Writing::to(&server, from_ms);
    writing.write(105, &[("up", &[], 0.0)]);
    writing.scrape(120, "chat-2", new, 20.0);
    assert_eq!(whats(&server), ["restart", "down", "up"], "one scrape with other names is not enough");
    writing.scrape(135, "chat-2", new, 30.0);
    // What happened at one time has no order.
    let mut all = events(&server);
    all.retain(|event| ["model", "names"].contains(&event["body"]["what"].as_str().unwrap()));
    let texts: Vec<&str> = all.iter().map(|event| event["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts.contains(&"vllm on n1:8000 serves chat-2 in place of chat"), "{texts:?}");
    let renamed =
        "The page of vllm on n1:8000 renamed: vllm:kv_cache_usage_perc in place of vllm:gpu_cache_usage_perc";
    assert!(texts.contains(&renamed), "{texts:?}");
    assert!(all.iter().all(|event| event["time"] == from_ms + 120_000), "{all:?}");
    writing.scrape(150, "chat-2", new, 40.0);
    server.restart();
    let writing = Writing::to(&server, from_ms);
    writing.scrape(165, "chat-2", new, 50.0);
    writing.scrape(180, "chat-2", new, 60.0);
    assert_eq!(whats(&server).len(), 5);
}
