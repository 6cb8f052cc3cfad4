//! A target that answers what a test wants, a parser for simple pages, and a place where batches land.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use model::MetricKind;
use scrape::{
    Config, Options, PageEntry, PageExemplar, PageFormat, PageSample, ScrapeBatch, Scraper, TakeEntry,
};

/// Longest wait for something that should happen at once.
const PATIENCE: Duration = Duration::from_mins(1);

/// A request as the target saw it: the path with its query, and headers in lower case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
}

type Answer = Arc<dyn Fn(&Request, &mut TcpStream) + Send + Sync>;

/// A server on loopback; its threads end with the test's process.
pub(crate) struct Target {
    pub(crate) address: String,
    answer: Arc<Mutex<Answer>>,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Target {
    pub(crate) fn new(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Arc::new(answer)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answers, requests) = (Arc::clone(&answer), Arc::clone(&seen));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answers, requests) = (Arc::clone(&answers), Arc::clone(&requests));
                let Ok(mut stream) = stream else { continue };
                std::thread::spawn(move || {
                    let Some(request) = read_request(&stream) else { return };
                    requests.lock().unwrap().push(request.clone());
                    let answer = Arc::clone(&answers.lock().unwrap());
                    answer(&request, &mut stream);
                });
            }
        });
        Self { address, answer, seen }
    }

    /// Answers with a page of text.
    pub(crate) fn page(page: &str) -> Self {
        let page = page.to_owned();
        Self::new(move |_, stream| ok(stream, "text/plain; version=0.0.4", page.as_bytes()))
    }

    /// Answers with another page from now on.
    pub(crate) fn set_page(&self, page: &str) {
        let page = page.to_owned();
        self.set(move |_, stream| ok(stream, "text/plain", page.as_bytes()));
    }

    pub(crate) fn set(&self, answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) {
        *self.answer.lock().unwrap() = Arc::new(answer);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let mut request =
        Request { path: lines.next()?.ok()?.split(' ').nth(1)?.to_owned(), ..Request::default() };
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { return Some(request) };
        request.headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    None
}

/// Writes a whole answer. The scraper may have hung up, which is its right.
pub(crate) fn ok(stream: &mut TcpStream, content_type: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// Writes a head only.
pub(crate) fn head(stream: &mut TcpStream, status: &str, headers: &str) {
    _ = stream.write_all(format!("HTTP/1.1 {status}\r\n{headers}\r\n").as_bytes());
}

/// Reads `name{label="value"} value [ms] [# trace]` and `# TYPE name kind`; nothing fancy.
pub(crate) fn parse(format: PageFormat, page: &[u8], take: &mut TakeEntry<'_>) -> Result<(), String> {
    let page = std::str::from_utf8(page).map_err(|e| e.to_string())?;
    for (at, line) in page.lines().enumerate() {
        let wrong = || format!("line {}: {:?}", at + 1, line.chars().take(40).collect::<String>());
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let metric = rest.split(' ').next().unwrap_or_default();
            _ = take(PageEntry::Kind { metric, kind: MetricKind::Counter });
            continue;
        }
        if line.is_empty() || line.starts_with("# ") {
            continue;
        }
        let (line, trace) = line.split_once(" # ").map_or((line, None), |(line, trace)| (line, Some(trace)));
        let (series, rest) = match line.split_once('}') {
            Some((series, rest)) => (&line[..=series.len()], rest),
            None => line.split_once(' ').ok_or_else(wrong)?,
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let pairs = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
        let pairs: Vec<(&str, &str)> = pairs
            .map(|pair| pair.split_once('=').map(|(n, v)| (n, v.trim_matches('"'))).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        if pairs.len() > 100 {
            return Err(format!("line {}: over 100 labels", at + 1));
        }
        let mut words = rest.split_whitespace();
        let value = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        let went_on = take(PageEntry::Sample(PageSample {
            series,
            name,
            labels: &mut pairs.into_iter(),
            value,
            time_ms: words.next().and_then(|word| word.parse().ok()),
            exemplar: trace.filter(|_| format == PageFormat::OpenMetrics).map(|trace| PageExemplar {
                labels: vec![("trace_id", trace)],
                value,
                time_ms: None,
            }),
        }));
        if went_on == ControlFlow::Break(()) {
            return Ok(());
        }
    }
    Ok(())
}

/// Everything that was scraped so far.
#[derive(Clone, Default)]
pub(crate) struct Landed(Arc<Mutex<Vec<ScrapeBatch>>>);

impl Landed {
    pub(crate) fn all(&self) -> Vec<ScrapeBatch> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until `found` finds something among the batches.
    pub(crate) fn wait<T>(&self, what: &str, found: impl Fn(&[ScrapeBatch]) -> Option<T>) -> T {
        wait(what, || found(&self.all()))
    }

    /// Waits for the first batch that `wanted` says yes to.
    pub(crate) fn batch(&self, what: &str, wanted: impl Fn(&ScrapeBatch) -> bool) -> ScrapeBatch {
        self.wait(what, |batches| batches.iter().find(|b| wanted(b)).cloned())
    }

    /// The next batch after those that are here now.
    pub(crate) fn next(&self) -> ScrapeBatch {
        let before = self.all().len();
        self.wait("another batch", |batches| batches.get(before).cloned())
    }
}

pub(crate) fn wait<T>(what: &str, found: impl Fn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn config(text: &str) -> Config {
    Config::parse(text, "test.yml", Path::new("/nowhere")).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a scraper on a configuration's text.
pub(crate) fn start(text: &str) -> (Scraper, Landed) {
    start_with(config(text))
}

pub(crate) fn start_with(config: Config) -> (Scraper, Landed) {
    let landed = Landed::default();
    let sink = landed.clone();
    let sink = Box::new(move |batch| sink.0.lock().unwrap().push(batch));
    let scraper = Scraper::start(config, Arc::new(parse), sink, Options::new()).unwrap();
    (scraper, landed)
}

/// One job at 500 ms with more settings, one static target.
pub(crate) fn job(address: &str, settings: &str) -> String {
    format!(
        "scrape_configs:\n- job_name: j\n  scrape_interval: 500ms\n  static_configs: [{{targets: ['{address}']}}]\n{}",
        settings.lines().fold(String::new(), |text, line| text + "  " + line + "\n")
    )
}

/// Samples as text: series, then the value, `stale` for the marker; the slow-changing reports left out.
pub(crate) fn samples(batch: &ScrapeBatch) -> Vec<String> {
    let mut lines: Vec<String> = batch
        .samples
        .iter()
        .filter(|s| !s.labels.metric().starts_with("scrape_"))
        .map(|s| {
            let value = s.sample.value;
            let value = if model::is_stale_marker(value) { "stale".to_owned() } else { value.to_string() };
            format!("{} {value}", s.labels)
        })
        .collect();
    lines.sort();
    lines
}

/// The value of a report, `up` or `scrape_*`.
pub(crate) fn report(batch: &ScrapeBatch, name: &str) -> f64 {
    let mut found = batch.samples.iter().filter(|s| s.labels.metric() == name);
    let value = found.next_back().unwrap_or_else(|| panic!("no `{name}`")).sample.value;
    if model::is_stale_marker(value) { -1.0 } else { value }
}

/// The reason why the only target is down.
pub(crate) fn reason(scraper: &Scraper) -> String {
    wait("target that is down", || {
        let targets = scraper.targets().active;
        targets.first().map(|t| t.last_error.clone()).filter(|error| !error.is_empty())
    })
}
