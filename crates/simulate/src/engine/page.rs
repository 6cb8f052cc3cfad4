//! The `/metrics` page of an engine, as each of them writes it.

use std::fmt::Write;

use super::{Engine, Histogram};
use crate::scenario::Vocabulary;

impl Engine {
    /// Its page; `epoch` is the time of the scenario's start, seconds since 1970.
    pub fn page(&self, epoch: f64) -> String {
        match self.group.engine {
            Vocabulary::Vllm => self.vllm(epoch),
            Vocabulary::Sglang => self.sglang(),
            Vocabulary::Llamacpp => self.llamacpp(),
        }
    }

    fn vllm(&self, epoch: f64) -> String {
        let totals = &self.totals;
        let labels = format!("engine=\"0\",model_name=\"{}\"", self.group.model);
        let mut page = Page { text: String::new(), prefix: "vllm:", created: Some(epoch + self.started) };
        page.gauge("num_requests_running", &labels, self.running.len() as f64);
        page.gauge("num_requests_waiting", &labels, self.waiting.len() as f64);
        let reason = |name| format!("{labels},reason=\"{name}\"");
        page.rows(
            "num_requests_waiting_by_reason",
            "gauge",
            &[(reason("capacity"), self.waiting.len() as f64), (reason("deferred"), 0.0)],
        );
        page.gauge("kv_cache_usage_perc", &labels, self.kv_usage());
        page.counter("num_preemptions", &labels, totals.preemptions);
        page.counter("prefix_cache_queries", &labels, totals.prompt);
        page.counter("prefix_cache_hits", &labels, totals.prompt - totals.computed);
        page.counter("prompt_tokens", &labels, totals.prompt);
        let source = |name| format!("{labels},source=\"{name}\"");
        page.counters(
            "prompt_tokens_by_source",
            &[
                (source("local_compute"), totals.computed),
                (source("local_cache_hit"), totals.prompt - totals.computed),
            ],
        );
        page.counter("generation_tokens", &labels, totals.output);
        let finished = |name| format!("finished_reason=\"{name}\",{labels}");
        page.counters(
            "request_success",
            &[(finished("stop"), totals.stopped), (finished("length"), totals.cut), (finished("abort"), 0.0)],
        );
        page.histogram("time_to_first_token_seconds", &labels, &totals.ttft);
        page.histogram("inter_token_latency_seconds", &labels, &totals.itl);
        page.histogram("request_time_per_output_token_seconds", &labels, &totals.tpot);
        page.histogram("e2e_request_latency_seconds", &labels, &totals.e2e);
        page.histogram("request_queue_time_seconds", &labels, &totals.queue);
        page.text
    }

    fn sglang(&self) -> String {
        let totals = &self.totals;
        let model = format!("model_name=\"{}\"", self.group.model);
        let scheduler = format!("engine_type=\"unified\",{model},pp_rank=\"0\",tp_rank=\"0\"");
        let mut page = Page { text: String::new(), prefix: "sglang:", created: None };
        page.gauge("num_running_reqs", &scheduler, self.running.len() as f64);
        page.gauge("num_queue_reqs", &scheduler, self.waiting.len() as f64);
        page.gauge("token_usage", &scheduler, self.kv_usage());
        page.counter("num_retracted_requests", &scheduler, totals.preemptions);
        let mode = |name| format!("mode=\"{name}\",{scheduler}");
        page.counters(
            "realtime_tokens",
            &[
                (mode("prefill_compute"), totals.computed),
                (mode("prefill_cache"), totals.prompt - totals.computed),
                (mode("decode"), totals.output),
            ],
        );
        page.counter("prompt_tokens", &model, totals.prompt);
        page.counter("num_requests", &model, totals.stopped + totals.cut);
        page.counter("num_aborted_requests", &model, 0.0);
        page.histogram("time_to_first_token_seconds", &model, &totals.ttft);
        page.histogram("inter_token_latency_seconds", &model, &totals.itl);
        page.histogram("e2e_request_latency_seconds", &model, &totals.e2e);
        page.histogram("queue_time_seconds", &scheduler, &totals.queue);
        page.text
    }

    fn llamacpp(&self) -> String {
        let totals = &self.totals;
        let mut page = Page { text: String::new(), prefix: "llamacpp:", created: None };
        page.counter("prompt_tokens", "", totals.computed);
        page.counter("prompt_tokens_cached", "", totals.prompt - totals.computed);
        page.counter("prompt_seconds", "", totals.prefill_seconds);
        page.counter("tokens_predicted", "", totals.output);
        page.counter("tokens_predicted_seconds", "", totals.decode_seconds);
        page.gauge("requests_processing", "", self.running.len() as f64);
        page.gauge("requests_deferred", "", self.waiting.len() as f64);
        page.text
    }
}

struct Page {
    text: String,
    prefix: &'static str,
    /// When counters were made; told where the engine's client library tells it.
    created: Option<f64>,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str) {
        let prefix = self.prefix;
        let _ = writeln!(self.text, "# HELP {prefix}{name} Simulated.\n# TYPE {prefix}{name} {kind}");
    }

    fn row(&mut self, name: &str, labels: &str, value: f64) {
        let prefix = self.prefix;
        let _ = if labels.is_empty() {
            writeln!(self.text, "{prefix}{name} {value}")
        } else {
            writeln!(self.text, "{prefix}{name}{{{labels}}} {value}")
        };
    }

    fn rows(&mut self, name: &str, kind: &str, rows: &[(String, f64)]) {
        self.head(name, kind);
        for (labels, value) in rows {
            self.row(name, labels, *value);
        }
    }

    fn gauge(&mut self, name: &str, labels: &str, value: f64) {
        self.rows(name, "gauge", &[(labels.to_owned(), value)]);
    }

    fn counter(&mut self, name: &str, labels: &str, value: f64) {
        self.counters(name, &[(labels.to_owned(), value)]);
    }

    fn counters(&mut self, name: &str, rows: &[(String, f64)]) {
        self.rows(&format!("{name}_total"), "counter", rows);
        let Some(created) = self.created else { return };
        let rows: Vec<(String, f64)> = rows.iter().map(|(labels, _)| (labels.clone(), created)).collect();
        self.rows(&format!("{name}_created"), "gauge", &rows);
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        self.head(name, "histogram");
        let bucket = format!("{name}_bucket");
        let mut sum = 0.0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            sum += count;
            self.row(&bucket, &format!("le=\"{bound:?}\",{labels}"), sum);
        }
        self.row(&bucket, &format!("le=\"+Inf\",{labels}"), histogram.count());
        self.row(&format!("{name}_count"), labels, histogram.count());
        self.row(&format!("{name}_sum"), labels, histogram.sum);
        if let Some(created) = self.created {
            self.rows(&format!("{name}_created"), "gauge", &[(labels.to_owned(), created)]);
        }
    }
}
