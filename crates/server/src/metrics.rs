//! The server's own counters and the page `/metrics`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::own::Unstored;

/// Labels of one count, in the order of their names' declaration.
type Key = Vec<String>;

/// Most label combinations of one family; what comes later is counted together as `other`.
const COMBINATIONS_MAX: usize = 1_000;

/// A counter with labels.
#[derive(Debug)]
pub(crate) struct Family {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    counts: Mutex<BTreeMap<Key, u64>>,
}

impl Family {
    pub(crate) const fn new(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, help, labels, counts: Mutex::new(BTreeMap::new()) }
    }

    /// Label values and their counts, by label values.
    pub(crate) fn rows(&self) -> Vec<(Vec<String>, u64)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(values, count)| (values.clone(), *count)).collect()
    }

    /// Adds `count` under the given label values.
    pub(crate) fn add(&self, values: &[&str], count: u64) {
        debug_assert_eq!(values.len(), self.labels.len(), "{}", self.name);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key: Key = values.iter().map(|v| (*v).to_owned()).collect();
        if counts.len() >= COMBINATIONS_MAX && !counts.contains_key(&key) {
            key = values.iter().map(|_| "other".to_owned()).collect();
        }
        *counts.entry(key).or_default() += count;
    }

    pub(crate) fn write(&self, page: &mut String) {
        head(page, self.name, "counter", self.help);
        for (values, count) in &*self.counts.lock().unwrap_or_else(PoisonError::into_inner) {
            let labels: Vec<String> =
                self.labels.iter().zip(values).map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
            let _ = writeln!(page, "{}{{{}}} {count}", self.name, labels.join(","));
        }
    }
}

/// Everything the server counts of itself.
#[derive(Debug)]
pub(crate) struct Metrics {
    started: Instant,
    started_ms: i64,
    /// Points stored, by door.
    pub(crate) samples: Family,
    /// What comes in by OTLP.
    pub(crate) otlp: Otlp,
    /// Points refused for a label that each of them has another value of.
    pub(crate) refused_labels: Family,
    /// Points whose label is folded.
    pub(crate) folded_labels: Family,
    /// Points refused, by door and reason.
    pub(crate) rejected: Family,
    /// Requests that brought points, by door and outcome.
    pub(crate) requests: Family,
    /// Data points of OTLP that were taken and were odd, by door and what was.
    pub(crate) odd_points: Family,
    /// Exemplars that came by remote write and scrapes; none is kept.
    pub(crate) exemplars: Family,
    /// Answers, by route, method and status.
    pub(crate) answers: Family,
    /// Orphaned spools taken in, by outcome.
    pub(crate) spools: Family,
    /// Requests turned away by the guard, by reason.
    pub(crate) refused: Family,
    /// Attempts to show who one is, by what and how they ended.
    pub(crate) access: Family,
    /// Certificates read again, by outcome.
    pub(crate) tls_reloads: Family,
    /// Rules evaluated, by group and outcome.
    pub(crate) rules: Family,
    /// See [`Family`]: what rules know, written to disk.
    pub(crate) rules_kept: Family,
    /// What the page said last and the store did not take.
    pub(crate) unstored: Unstored,
    /// PromQL queries, by outcome.
    pub(crate) queries: Family,
    /// Samples that queries read.
    pub(crate) query_samples: AtomicU64,
    /// Microseconds spent evaluating queries.
    pub(crate) querying_us: AtomicU64,
    /// Microseconds spent answering.
    pub(crate) answering_us: AtomicU64,
    /// Panics caught.
    pub(crate) panics: AtomicU64,
    /// Open connections.
    pub(crate) connections: AtomicU64,
    /// Open event streams.
    pub(crate) streams: AtomicU64,
}

/// Counters of what comes in by OTLP beside its samples.
#[derive(Debug)]
pub(crate) struct Otlp {
    /// Spans taken, by door.
    pub(crate) spans: Family,
    /// Log records taken, by door.
    pub(crate) records: Family,
    /// Bytes of requests, by door.
    pub(crate) bytes: Family,
}

impl Otlp {
    fn new() -> Self {
        let door = |name, help| Family::new(name, &["door"], help);
        Self {
            spans: door("truegauge_ingest_spans_total", "Spans stored, repetitions included."),
            records: door("truegauge_ingest_records_total", "Log records stored, repetitions included."),
            bytes: door(
                "truegauge_ingest_bytes_total",
                "Bytes of requests of OTLP, unpacked and as protobuf.",
            ),
        }
    }
}

fn rules_kept() -> Family {
    Family::new(
        "truegauge_rules_kept_total",
        &["what", "outcome"],
        "Times that the state of rules, or when they were evaluated, was written to disk, or could not be.",
    )
}

impl Metrics {
    pub(crate) fn new(now_ms: i64) -> Self {
        let door = &["door"];
        Self {
            started: Instant::now(),
            started_ms: now_ms,
            samples: Family::new("truegauge_ingest_samples_total", door, "Points stored."),
            otlp: Otlp::new(),
            refused_labels: Family::new(
                "truegauge_ingest_refused_labels_total",
                &["door", "label", "job"],
                "Points refused for a label whose values never repeat, by the label and the job or project.",
            ),
            folded_labels: Family::new(
                "truegauge_ingest_folded_labels_total",
                &["door", "label", "job"],
                "Points with a label of which the busiest values are kept, by the label and the job.",
            ),
            rejected: Family::new(
                "truegauge_ingest_rejected_total",
                &["door", "reason"],
                "Points, spans and log records refused at a door.",
            ),
            requests: Family::new(
                "truegauge_ingest_requests_total",
                &["door", "outcome"],
                "Requests that brought points, spans or log records.",
            ),
            odd_points: Family::new(
                "truegauge_ingest_odd_points_total",
                &["door", "note"],
                "Data points of OTLP that were taken and repeat an earlier one, come late, begin anew or overlap another.",
            ),
            exemplars: Family::new(
                "truegauge_ingest_exemplars_total",
                door,
                "Exemplars that came with scraped and remote-written points; none is kept.",
            ),
            answers: Family::new(
                "truegauge_http_requests_total",
                &["route", "method", "code"],
                "HTTP requests answered.",
            ),
            spools: Family::new(
                "truegauge_spool_adopted_total",
                &["outcome"],
                "Orphaned spools and their records taken in, set aside or found damaged.",
            ),
            refused: Family::new(
                "truegauge_http_refused_total",
                &["reason"],
                "HTTP requests refused before they were looked at.",
            ),
            access: Family::new(
                "truegauge_access_attempts_total",
                &["by", "outcome"],
                "Attempts to show who one is: by token, session, certificate or login, and how they ended.",
            ),
            tls_reloads: Family::new(
                "truegauge_tls_reloads_total",
                &["outcome"],
                "Times that changed certificate files were read, or refused.",
            ),
            rules: Family::new(
                "truegauge_rule_evaluations_total",
                &["group", "outcome"],
                "Rules evaluated, and those that failed.",
            ),
            rules_kept: rules_kept(),
            unstored: Unstored::default(),
            queries: Family::new(
                "truegauge_query_requests_total",
                &["outcome"],
                "PromQL queries, by outcome: answered, or the kind of error.",
            ),
            query_samples: AtomicU64::new(0),
            querying_us: AtomicU64::new(0),
            answering_us: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            streams: AtomicU64::new(0),
        }
    }

    /// When the server started, as RFC 3339 writes it.
    pub(crate) fn started_rfc3339(&self) -> String {
        crate::clock::rfc3339(self.started_ms)
    }

    /// Seconds since the start.
    pub(crate) fn uptime_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// The page, in Prometheus' text format.
    pub(crate) fn page(&self, status: &store::Status, (querying, held_bytes): (usize, u64)) -> String {
        let mut page = String::with_capacity(4096);
        head(&mut page, "truegauge_build_info", "gauge", "The running version, always 1.");
        let _ = writeln!(page, "truegauge_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        for family in
            [&self.samples, &self.rejected, &self.requests, &self.answers, &self.spools, &self.refused]
                .into_iter()
                .chain([
                    &self.refused_labels,
                    &self.folded_labels,
                    &self.odd_points,
                    &self.exemplars,
                    &self.otlp.spans,
                    &self.otlp.records,
                    &self.otlp.bytes,
                ])
        {
            family.write(&mut page);
        }
        self.access.write(&mut page);
        self.tls_reloads.write(&mut page);
        self.rules.write(&mut page);
        self.rules_kept.write(&mut page);
        self.queries.write(&mut page);
        let classes = "truegauge_store_class_bytes";
        head(&mut page, classes, "gauge", "Bytes of segments, by what they hold.");
        for (class, bytes) in &status.class_bytes {
            let _ = writeln!(page, "{classes}{{class=\"{class}\"}} {bytes}");
        }
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
        let mut put = |name: &str, kind: &str, value: f64, help: &str| {
            head(&mut page, name, kind, help);
            let _ = writeln!(page, "{name} {value}");
        };
        put(
            "truegauge_http_answering_seconds_total",
            "counter",
            load(&self.answering_us) / 1e6,
            "Time from a request's head to its answer's head, summed over requests.",
        );
        put(
            "truegauge_query_seconds_total",
            "counter",
            load(&self.querying_us) / 1e6,
            "Time spent evaluating PromQL queries, summed over queries.",
        );
        put(
            "truegauge_query_samples_total",
            "counter",
            load(&self.query_samples),
            "Samples read by PromQL queries.",
        );
        put("truegauge_query_running", "gauge", querying as f64, "PromQL queries being evaluated.");
        put(
            "truegauge_query_memory_bytes",
            "gauge",
            held_bytes as f64,
            "What queries hold: intermediate results, answers, and their text until it is sent.",
        );
        put("truegauge_http_panics_total", "counter", load(&self.panics), "Requests whose handler panicked.");
        put("truegauge_http_connections", "gauge", load(&self.connections), "Open connections.");
        put("truegauge_http_streams", "gauge", load(&self.streams), "Open event streams.");
        put_store(status, &mut put);
        put(
            "process_start_time_seconds",
            "gauge",
            self.started_ms as f64 / 1e3,
            "Start of the process since the epoch.",
        );
        if let Some(bytes) = resident_bytes() {
            put("process_resident_memory_bytes", "gauge", bytes as f64, "Resident memory.");
        }
        page
    }
}

/// Hands the store's figures to `put`.
fn put_store(status: &store::Status, put: &mut impl FnMut(&str, &str, f64, &str)) {
    put("truegauge_store_series", "gauge", status.series as f64, "Series known.");
    put(
        "truegauge_store_head_samples",
        "gauge",
        status.head_points as f64,
        "Points in memory, not yet in a segment.",
    );
    put("truegauge_store_segments", "gauge", status.segments as f64, "Segment files.");
    put("truegauge_store_disk_bytes", "gauge", status.disk_bytes as f64, "Bytes on disk.");
    put(
        "truegauge_store_free_bytes",
        "gauge",
        status.free_bytes as f64,
        "Free bytes on the data directory's disk.",
    );
    put("truegauge_store_commits_total", "counter", status.commits_total as f64, "Durable commits.");
    put(
        "truegauge_store_damaged_places",
        "gauge",
        status.damage.len() as f64,
        "Places of damage found in the store, at most 100 are counted.",
    );
    put(
        "truegauge_store_refusing_writes",
        "gauge",
        f64::from(u8::from(status.refusing.is_some())),
        "1 while writes are refused.",
    );
}

/// Writes what is said about a metric.
pub(crate) fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A label's value as the text format writes it.
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Resident memory of this process, bytes.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
