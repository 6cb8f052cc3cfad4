//! Pages of metrics that a server scrapes, and what it answers about them now.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use server::Running;

use crate::metrana::config;
use crate::otlp_points::escape;

/// How long anything may take before a test gives up on it.
const DEADLINE: Duration = Duration::from_mins(1);

/// How often a page is looked at. It may take a second, which is long enough for a busy machine.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);

/// Waits until `ready` gives something.
pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < until, "waited {DEADLINE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Pages by path, served until the process ends. A path without a page is not found.
#[derive(Clone)]
pub(crate) struct Pages {
    address: SocketAddr,
    pages: Arc<Mutex<BTreeMap<String, Page>>>,
}

#[derive(Clone, Default)]
struct Page {
    body: Vec<u8>,
    asked: u64,
}

impl Pages {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pages = Self { address: listener.local_addr().unwrap(), pages: Arc::default() };
        let serving = pages.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.answer(stream));
            }
        });
        pages
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let mut request = Vec::new();
        let mut buffer = [0; 4_096];
        while !request.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
            request.extend_from_slice(&buffer[..read]);
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        let path = request.split(' ').nth(1)?.trim_start_matches('/').to_owned();
        let body = {
            let mut pages = self.pages.lock().unwrap();
            pages.get_mut(&path).map(|page| {
                page.asked += 1;
                page.body.clone()
            })
        };
        let (status, body) = body.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&body).ok()
    }

    /// Puts a page in place.
    pub(crate) fn set(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.pages.lock().unwrap().entry(path.to_owned()).or_default().body = body.into();
    }

    /// Takes a page away.
    pub(crate) fn remove(&self, path: &str) {
        self.pages.lock().unwrap().remove(path);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// How often a page was asked for.
    pub(crate) fn asked(&self, path: &str) -> u64 {
        self.pages.lock().unwrap().get(path).map_or(0, |page| page.asked)
    }

    /// Waits until what a page says now was scraped and stored: two more scrapes have begun.
    pub(crate) fn settle(&self, path: &str) {
        let before = self.asked(path);
        eventually("the page is scraped", || (self.asked(path) >= before + 3).then_some(()));
    }
}

/// A file of the samples that come with the project's specification, where they are there.
pub(crate) fn sample(name: &str) -> Option<String> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/expositions"));
    std::fs::read_to_string(folder.join(name)).ok()
}

/// A server that scrapes pages.
pub(crate) struct Scraping {
    folder: tempfile::TempDir,
    running: Option<Running>,
    change: Box<dyn Fn(&mut server::Config)>,
}

impl Scraping {
    pub(crate) fn of(pages: &Pages, paths: &[&str]) -> Self {
        let urls: Vec<String> = paths.iter().map(|path| pages.url(path)).collect();
        Self::with_config(move |config| config.scrape.clone_from(&urls))
    }

    /// One with settings of its own.
    pub(crate) fn with_config(change: impl Fn(&mut server::Config) + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut scraping = Self { folder, running: None, change: Box::new(change) };
        scraping.restart();
        scraping
    }

    /// Stops the server and starts it again.
    pub(crate) fn restart(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
        let mut config = config(self.folder.path());
        config.scrape_interval = INTERVAL;
        (self.change)(&mut config);
        self.running = Some(server::start(config).unwrap());
    }

    pub(crate) fn url(&self) -> &str {
        &self.running.as_ref().unwrap().url
    }

    pub(crate) fn text(&self, path: &str) -> String {
        let url = format!("{}{path}", self.url());
        let mut answer = ureq::get(&url).config().http_status_as_error(false).build().call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(path)).unwrap()
    }

    /// A query now: labels and value of each row.
    pub(crate) fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let answer = self.get(&format!("/api/v1/query?query={}", escape(query)));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let row = |row: &Value| {
            let text = row["value"][1].as_str().unwrap().replace("Inf", "inf");
            (row["metric"].clone(), text.parse().unwrap())
        };
        answer["data"]["result"].as_array().unwrap().iter().map(row).collect()
    }

    /// The one value of a query now, none where there is no row.
    pub(crate) fn value(&self, query: &str) -> Option<f64> {
        match &self.query(query)[..] {
            [] => None,
            [(_, value)] => Some(*value),
            other => panic!("{query}: {other:?}"),
        }
    }

    /// Waits until a query has this value, to the digits that the samples' expected values are written with.
    pub(crate) fn becomes(&self, query: &str, wanted: f64) {
        let until = Instant::now() + DEADLINE;
        loop {
            let found = self.value(query);
            if found.is_some_and(|found| (found - wanted).abs() <= f64::max(wanted.abs() * 1e-6, 6e-7)) {
                return;
            }
            assert!(Instant::now() < until, "{query} is {found:?}, not {wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a query has no row.
    pub(crate) fn vanishes(&self, query: &str) {
        eventually(query, || self.query(query).is_empty().then_some(()));
    }

    /// Every series of these names now, as text by labels, with its value.
    pub(crate) fn all(&self, pattern: &str) -> BTreeMap<String, f64> {
        let found = self.query(&format!("{{__name__=~\"{pattern}\"}}"));
        found.into_iter().map(|(labels, value)| (labels.to_string(), value)).collect()
    }
}
