//! Asks Debian's `prometheus` and this engine the same random questions about the same random data:
//! `differential [QUERIES] [SEED]`. Needs `prometheus` and `promtool` on the path.
//!
//! Prometheus 2 has closed windows, so no sample time is a whole second and every window edge is
//! one; subqueries step on multiples of ten seconds, are asked three seconds beside them and do not
//! nest. Left out, since Prometheus 3 changed them on purpose: how far a counter is extrapolated
//! into a gap (counters have none here), the metric's name after `atan2`, ties of `topk`.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a check that can't go on ends")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model::Labels;
use promql::{MemorySource, Options, Query, json};
use serde_json::Value;

/// 2026-11-01T00:00:03Z: three seconds beside the grid of the subqueries.
const START: i64 = 1_793_491_203;
/// Length of the data.
const SECONDS: i64 = 5_400;

/// Numbers that repeat for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 30) as f64 / (1 << 30) as f64
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Times in milliseconds and values.
type Stream = Vec<(i64, f64)>;

/// Random series, in memory and as OpenMetrics text.
fn data(random: &mut Random) -> (MemorySource, String) {
    let mut source = MemorySource::new();
    let mut families: BTreeMap<&str, Vec<(Labels, Stream)>> = BTreeMap::new();
    for job in ["api", "db"] {
        for instance in ["0", "1", "2"] {
            for (metric, interval) in
                [("temp", 15), ("load", 30), ("requests_total", 15), ("bytes_total", 60)]
            {
                let labels = Labels::from_pairs([("__name__", metric), ("job", job), ("instance", instance)]);
                let counter = metric.ends_with("_total");
                families.entry(metric).or_default().push((labels, stream(random, interval, counter)));
            }
            let times: Vec<i64> = stream(random, 15, true).iter().map(|(time, _)| *time).collect();
            let mut counts = [5e3, 1e4, 2e4, 3e4, 4e4];
            let mut buckets: Vec<Vec<(i64, f64)>> = vec![Vec::new(); 5];
            for time in times {
                let mut add = 0.0;
                for (place, bucket) in buckets.iter_mut().enumerate() {
                    add += random.below(9) as f64;
                    counts[place] += add;
                    bucket.push((time, counts[place]));
                }
            }
            for (bucket, le) in buckets.into_iter().zip(["0.1", "0.5", "1", "5", "+Inf"]) {
                let labels = Labels::from_pairs([
                    ("__name__", "latency_bucket"),
                    ("job", job),
                    ("instance", instance),
                    ("le", le),
                ]);
                families.entry("latency_bucket").or_default().push((labels, bucket));
            }
        }
    }
    let mut text = String::new();
    for (metric, series) in families {
        writeln!(text, "# TYPE {metric} unknown").unwrap();
        for (labels, samples) in series {
            let pairs: Vec<String> = labels
                .iter()
                .filter(|(name, _)| *name != "__name__")
                .map(|(name, value)| format!("{name}=\"{value}\""))
                .collect();
            for (time, value) in samples {
                source.push(labels.clone(), time * 1_000_000, value);
                let (seconds, millis) = (time / 1000, time % 1000);
                writeln!(text, "{metric}{{{}}} {value} {seconds}.{millis:03}", pairs.join(",")).unwrap();
            }
        }
    }
    text.push_str("# EOF\n");
    (source, text)
}

/// Times in milliseconds, never on a whole second, with gaps; counters with resets.
fn stream(random: &mut Random, interval: i64, counter: bool) -> Stream {
    let mut samples = Vec::new();
    let mut value = 1000.0 * random.unit() + if counter { 5000.0 } else { 0.0 };
    let mut time = START * 1000 + random.below(interval as u64 * 1000) as i64;
    while time < (START + SECONDS) * 1000 {
        if time % 1000 == 0 {
            time += 7;
        }
        samples.push((time, value));
        let jitter = random.below(40) as i64 - 20;
        let gap = if !counter && random.below(60) == 0 { 30 * interval * 1000 } else { 0 };
        time += interval * 1000 + jitter + gap;
        value = if counter {
            if random.below(80) == 0 { random.unit() * 10.0 } else { value + (random.unit() * 50.0).floor() }
        } else {
            value + random.unit() * 10.0 - 5.0
        };
    }
    samples
}

/// Writes random valid queries.
struct Writer<'r>(&'r mut Random, bool);

impl Writer<'_> {
    fn matchers(&mut self) -> &'static str {
        self.0.pick(&[
            "",
            "",
            "{job=\"api\"}",
            "{instance!=\"1\"}",
            "{job=~\"a.*|d.\"}",
            "{instance=~\"[12]\",job=\"db\"}",
            "{job!~\"a.+\"}",
            "{nothing=\"\"}",
        ])
    }

    fn shift(&mut self) -> String {
        match self.0.below(12) {
            0 => " offset 1m".into(),
            1 => " offset -2m10s".into(),
            2 => format!(" @ {}", START + 10 * self.0.below(540) as i64),
            3 => " @ end()".into(),
            4 => " @ start() offset 5m".into(),
            _ => String::new(),
        }
    }

    fn selector(&mut self) -> String {
        let metric = self.0.pick(&["temp", "load", "requests_total", "bytes_total", "latency_bucket"]);
        format!("{metric}{}", self.matchers())
    }

    /// Windows for functions over counters.
    fn counter_range(&mut self) -> String {
        let metric = self.0.pick(&["requests_total", "bytes_total", "latency_bucket"]);
        let length = self.0.pick(&["1m", "2m", "5m", "10m", "23m", "1h"]);
        format!("{metric}{}[{length}]{}", self.matchers(), self.shift())
    }

    fn range(&mut self, depth: u32) -> String {
        let length = self.0.pick(&["30s", "1m", "2m", "5m", "10m", "23m", "1h"]);
        if depth > 0 && !self.1 && self.0.below(4) == 0 {
            let step = self.0.pick(&["10s", "30s", "1m"]);
            self.1 = true;
            let inner = self.vector(depth - 1);
            self.1 = false;
            return format!("({inner})[{length}:{step}]{}", self.shift());
        }
        format!("{}[{length}]{}", self.selector(), self.shift())
    }

    fn scalar(&mut self, depth: u32) -> String {
        match self.0.below(if depth == 0 { 3 } else { 6 }) {
            0 => "time()".into(),
            1 => format!("{}", self.0.below(100) as f64 / 10.0),
            2 => "pi()".into(),
            3 => format!("scalar({})", self.vector(depth - 1)),
            4 => format!(
                "({} {} {})",
                self.scalar(depth - 1),
                self.0.pick(&["+", "-", "*", "/"]),
                self.scalar(depth - 1)
            ),
            _ => format!(
                "({} {} bool {})",
                self.scalar(depth - 1),
                self.0.pick(&["==", "<", ">="]),
                self.scalar(depth - 1)
            ),
        }
    }

    fn over(&mut self, depth: u32) -> String {
        match self.0.below(8) {
            0 => format!("quantile_over_time({}, {})", self.0.below(11) as f64 / 10.0, self.range(depth)),
            1 => format!("predict_linear({}, {})", self.range(depth), self.0.below(600)),
            2 => format!("{}({})", self.0.pick(&["irate", "delta", "idelta"]), self.range(depth)),
            3 => format!("{}({})", self.0.pick(&["rate", "increase"]), self.counter_range()),
            _ => format!(
                "{}({})",
                self.0.pick(&[
                    "avg_over_time",
                    "sum_over_time",
                    "min_over_time",
                    "max_over_time",
                    "count_over_time",
                    "last_over_time",
                    "stddev_over_time",
                    "stdvar_over_time",
                    "changes",
                    "resets",
                    "deriv",
                    "present_over_time",
                    "absent_over_time",
                ]),
                self.range(depth)
            ),
        }
    }

    fn grouping(&mut self) -> &'static str {
        self.0.pick(&[
            "",
            "by (job) ",
            "by (instance) ",
            "without (instance) ",
            "by (job, instance) ",
            "without (le) ",
            "by (le) ",
        ])
    }

    /// A vector whose values are hardly ever equal.
    fn distinct(&mut self) -> String {
        let metric = self.0.pick(&["temp", "load"]);
        let over = self.0.pick(&["avg_over_time", "sum_over_time", "stddev_over_time"]);
        format!("{over}({metric}{}[5m]{})", self.matchers(), self.shift())
    }

    fn aggregate(&mut self, depth: u32) -> String {
        let grouping = self.grouping();
        let inner = self.vector(depth - 1);
        match self.0.below(10) {
            0 => format!("topk {grouping}({}, {})", 1 + self.0.below(4), self.distinct()),
            1 => format!("bottomk {grouping}({}, {})", 1 + self.0.below(4), self.distinct()),
            2 => format!("quantile {grouping}({}, {inner})", self.0.below(11) as f64 / 10.0),
            3 => format!("count_values {grouping}(\"v\", round({inner}))"),
            _ => format!(
                "{} {grouping}({inner})",
                self.0.pick(&["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"])
            ),
        }
    }

    fn element(&mut self, depth: u32) -> String {
        let inner = self.vector(depth - 1);
        match self.0.below(9) {
            0 => format!("clamp({inner}, {}, {})", self.0.below(100), self.0.below(2000)),
            1 => format!("clamp_min({inner}, {})", self.scalar(depth - 1)),
            2 => format!("clamp_max({inner}, {})", self.scalar(depth - 1)),
            3 => format!("round({inner}, 0.5)"),
            4 => format!("label_replace({inner}, \"job\", \"$1-x\", \"instance\", \"(.*)\")"),
            5 => format!("label_join({inner}, \"both\", \"/\", \"job\", \"instance\")"),
            6 => format!("timestamp({inner})"),
            7 => format!(
                "{}({inner})",
                self.0.pick(&[
                    "hour",
                    "minute",
                    "month",
                    "day_of_week",
                    "days_in_month",
                    "year",
                    "day_of_year"
                ])
            ),
            _ => format!(
                "{}({inner})",
                self.0.pick(&[
                    "abs", "ceil", "floor", "exp", "ln", "log2", "log10", "sqrt", "sgn", "sin", "cos",
                    "atan", "tanh", "deg", "rad", "absent", "sort", "-"
                ])
            ),
        }
    }

    fn binary(&mut self, depth: u32) -> String {
        let left = self.vector(depth - 1);
        let arithmetic = self.0.pick(&["+", "-", "*", "/", "%", "^"]);
        let comparison = self.0.pick(&["==", "!=", ">", "<", ">=", "<="]);
        match self.0.below(8) {
            0 => format!("({left}) {arithmetic} {}", self.scalar(depth - 1)),
            1 => format!("{} {comparison} ({left})", self.scalar(depth - 1)),
            2 => format!("({left}) {comparison} bool ({})", self.vector(depth - 1)),
            3 => format!("({left}) {comparison} ({})", self.vector(depth - 1)),
            4 => format!("({left}) {} ({})", self.0.pick(&["and", "or", "unless"]), self.vector(depth - 1)),
            5 => format!(
                "({left}) {} on (job) ({})",
                self.0.pick(&["and", "or", "unless"]),
                self.vector(depth - 1)
            ),
            6 => format!(
                "({left}) {arithmetic} on (job) group_left () sum by (job) ({})",
                self.vector(depth - 1)
            ),
            _ => format!("({left}) {arithmetic} ({})", self.vector(depth - 1)),
        }
    }

    fn vector(&mut self, depth: u32) -> String {
        if depth == 0 {
            return format!("{}{}", self.selector(), self.shift());
        }
        match self.0.below(12) {
            0 => format!("{}{}", self.selector(), self.shift()),
            1..=4 => self.over(depth),
            5..=7 => self.aggregate(depth),
            8 => self.element(depth),
            9 => format!("vector({})", self.scalar(depth - 1)),
            10 => {
                let q = self.0.below(11) as f64 / 10.0;
                let by = self.0.pick(&["le", "le, job", "le, job, instance"]);
                format!("histogram_quantile({q}, sum by ({by}) (rate(latency_bucket[5m]{})))", self.shift())
            }
            _ => self.binary(depth),
        }
    }
}

struct Peer {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Peer {
    fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("data.txt"), text).unwrap();
        std::fs::write(path("prometheus.yml"), "global: {scrape_interval: 1m}\n").unwrap();
        let made = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&path("data.txt"), &path("data")])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "promtool could not make blocks");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--storage.tsdb.retention.time=100y")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(Path::new(&path("log"))).unwrap())
            .spawn()
            .unwrap();
        let peer = Self { child, port, _folder: folder };
        let until = Instant::now() + Duration::from_mins(1);
        while peer.ask("/api/v1/query", "query=temp").is_none() {
            assert!(Instant::now() < until, "prometheus did not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        peer
    }

    /// The answer, parsed and as it came.
    fn ask(&self, path: &str, form: &str) -> Option<(Value, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
            form.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(form.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let text = String::from_utf8_lossy(&answer);
        let body = text.split_once("\r\n\r\n")?.1;
        Some((serde_json::from_str(body).ok()?, body.to_owned()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(byte as char);
        } else {
            write!(out, "%{byte:02X}").unwrap();
        }
        out
    })
}

type Points = BTreeMap<String, Vec<(String, f64)>>;

/// Series with their points, from an answer's JSON.
fn points(answer: &Value) -> Points {
    let point = |pair: &Value| {
        let text = pair[1].as_str().unwrap_or_default();
        (pair[0].to_string(), text.parse().unwrap_or(f64::NAN))
    };
    match answer["data"]["result"].as_array() {
        Some(list) if answer["data"]["resultType"] != "scalar" => list
            .iter()
            .map(|series| {
                let key = series["metric"].to_string();
                let points = match series["values"].as_array() {
                    Some(values) => values.iter().map(point).collect(),
                    None => vec![point(&series["value"])],
                };
                (key, points)
            })
            .collect(),
        Some(_) => BTreeMap::from([("scalar".to_owned(), vec![point(&answer["data"]["result"])])]),
        None => BTreeMap::new(),
    }
}

/// The first difference beyond 1e-9 relative.
fn difference(ours: &Points, theirs: &Points) -> Option<String> {
    for (key, wanted) in theirs {
        let Some(found) = ours.get(key) else { return Some(format!("{key} is missing")) };
        if found.len() != wanted.len() {
            return Some(format!("{key}: {} points, not {}", found.len(), wanted.len()));
        }
        for (a, b) in found.iter().zip(wanted) {
            let same = a.1 == b.1 || (a.1.is_nan() && b.1.is_nan());
            let near = (a.1 - b.1).abs() <= 1e-9 * a.1.abs().max(b.1.abs());
            if a.0 != b.0 || !(same || near) {
                return Some(format!("{key}: {a:?}, not {b:?}"));
            }
        }
    }
    ours.keys().find(|key| !theirs.contains_key(*key)).map(|key| format!("{key} is too much"))
}

/// Why a difference is meant, where it is: what Prometheus changed after 2.42, and plain rounding.
fn intended(query: &str, difference: &str) -> Option<&'static str> {
    let has = |word: &str| query.contains(word);
    if has("predict_linear") && has("@") {
        Some("predict_linear over a pinned range: 2.42 moved the window with the step")
    } else if has("timestamp") && has("@") {
        Some("timestamp of a pinned selector: 2.42 forgot its offset")
    } else if has("count_values") && difference.contains("\"v\"") {
        Some("a value that is rounded into a label, from a mean or power that differs in its last digit")
    } else if (has("stddev") || has("stdvar")) && difference.contains("NaN), not") {
        Some("stddev and stdvar of NaN are NaN since 3")
    } else if (has("stddev") || has("stdvar")) && has("timestamp") {
        Some("a variance of times: nearly equal large numbers, the order of series decides the last digits")
    } else if has("%") && has("sum") && is_close(difference) {
        Some("a remainder by a sum: 3 sums with compensation, and the quotient multiplies the last digit")
    } else if ["year(", "month(", "day", "hour(", "minute("].iter().any(|word| has(word))
        && (has("^") || has("exp(") || difference.contains("2922770"))
    {
        Some("dates of numbers that no integer holds")
    } else {
        None
    }
}

/// Whether the two values of a difference agree in their first six digits.
fn is_close(difference: &str) -> bool {
    let part_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | '-' | '+');
    let numbers = difference.split(|c| !part_of_number(c)).filter_map(|text| text.parse::<f64>().ok());
    let numbers: Vec<f64> = numbers.collect();
    let [.., ours, _, theirs] = numbers[..] else { return false };
    (ours - theirs).abs() <= 1e-6 * ours.abs()
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let (count, seed) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(1));
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (source, text) = data(&mut random);
    let peer = Peer::start(&text);
    let options = Options::default();
    let mut meant: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut ranges, mut bytes, mut same, mut empty, mut failed, mut differ) = (0, 0, 0, 0, 0, Vec::new());
    for _ in 0..count {
        let depth = 1 + random.below(3) as u32;
        let query = if random.below(15) == 0 {
            Writer(&mut random, false).scalar(depth)
        } else {
            Writer(&mut random, false).vector(depth)
        };
        let time = START + 600 + 10 * random.below(480) as i64;
        let ranged = random.below(2) == 0;
        let parsed = Query::parse(&query);
        let step = 10 * (1 + random.below(12) as i64);
        let end = time + step * random.below(30) as i64;
        let form = escape(&query);
        let (theirs, ours) = if ranged {
            (
                peer.ask("/api/v1/query_range", &format!("query={form}&start={time}&end={end}&step={step}")),
                parsed.and_then(|parsed| {
                    parsed.range(&source, (time * 1000, end * 1000, step * 1000), &options)
                }),
            )
        } else {
            (
                peer.ask("/api/v1/query", &format!("query={form}&time={time}")),
                parsed.and_then(|parsed| parsed.instant(&source, time * 1000, &options)),
            )
        };
        let found = differ.len();
        let Some((theirs, body)) = theirs else { panic!("no answer to {query}") };
        let kind = if ranged { format!("{time}..{end} step {step}") } else { format!("at {time}") };
        match (ours, theirs["status"] == "success") {
            (Err(_), false) => failed += 1,
            (Err(error), true) => differ.push(format!("{kind} {query}\n    we fail: {error}")),
            (Ok(_), false) => differ.push(format!("{kind} {query}\n    they fail: {}", theirs["error"])),
            (Ok(answer), true) => {
                if ranged {
                    let mut data = String::new();
                    json::write_data(&answer.data, &mut data);
                    ranges += 1;
                    bytes += usize::from(body.contains(&data));
                }
                let ours: Value = serde_json::from_str(&json::write_answer(&answer).unwrap().text).unwrap();
                let (ours, theirs) = (points(&ours), points(&theirs));
                match difference(&ours, &theirs) {
                    None if theirs.is_empty() => empty += 1,
                    None => same += 1,
                    Some(difference) => differ.push(format!("{kind} {query}\n    {difference}")),
                }
            }
        }
        if let Some(reason) = differ.get(found).and_then(|text| intended(&query, text)) {
            differ.truncate(found);
            *meant.entry(reason).or_insert(0_usize) += 1;
        }
    }
    for (reason, count) in &meant {
        println!("{count} x {reason}");
    }
    for line in &differ {
        println!("{line}");
    }
    println!(
        "queries {count}  seed {seed}  same {same}  both empty {empty}  both fail {failed}  meant {}  differ {}",
        meant.values().sum::<usize>(),
        differ.len()
    );
    println!("of {ranges} answers over a range {bytes} are the same to the byte");
}
