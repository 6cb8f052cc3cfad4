//! The rules that come with the program, and the pages that say what to do about each alert.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use promql::rules::Verdict;
use rust_embed::RustEmbed;

use crate::error::ApiError;

#[derive(RustEmbed)]
#[folder = "../../rules"]
struct Rules;

#[derive(RustEmbed)]
#[folder = "../../docs/runbooks"]
struct Runbooks;

/// Name and text of each file, by name.
pub fn rules() -> Vec<(String, String)> {
    let text = |name: &str| Rules::get(name).map(|file| String::from_utf8_lossy(&file.data).into_owned());
    // Their tests lie in a folder beside them; what the rules of mapping do, ingest does here.
    let is_starter = |name: &str| {
        let is_yaml = std::path::Path::new(name).extension().is_some_and(|extension| extension == "yml");
        is_yaml && !name.contains('/') && !name.starts_with("mapping-")
    };
    let names = Rules::iter().filter(|name| is_starter(name));
    let mut files: Vec<(String, String)> =
        names.filter_map(|name| Some((name.to_string(), text(&name)?))).collect();
    files.sort();
    files
}

/// How the tests of a file of rules fare, found once; none where it has no tests.
pub(crate) fn tests(name: &str) -> Option<Arc<Vec<Verdict>>> {
    static FOUND: OnceLock<Mutex<HashMap<String, Arc<Vec<Verdict>>>>> = OnceLock::new();
    let found = FOUND.get_or_init(Mutex::default);
    if let Some(known) = found.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Some(Arc::clone(known));
    }
    let text = Rules::get(&format!("tests/{name}"))?;
    let text = String::from_utf8_lossy(&text.data);
    let read = |pattern: &str| {
        let name = pattern.trim_start_matches("../");
        let file = Rules::get(name).ok_or_else(|| format!("no file `{name}` comes with the program"))?;
        Ok(vec![(name.to_owned(), String::from_utf8_lossy(&file.data).into_owned())])
    };
    let verdicts = promql::rules::test(&text, &read).unwrap_or_else(|findings| {
        let failures = findings.iter().map(ToString::to_string).collect();
        vec![Verdict { name: name.to_owned(), failures, about: Vec::new() }]
    });
    let verdicts = Arc::new(verdicts);
    found.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Arc::clone(&verdicts));
    Some(verdicts)
}

/// The page of an alert, as Markdown: alerts' `runbook_url` leads here.
pub(crate) async fn runbook(Path(page): Path<String>) -> Result<Response, ApiError> {
    let file = Runbooks::get(&page).ok_or_else(|| {
        ApiError::missing(format!("there is no runbook `{}`", crate::api::shown(&page)))
            .hint("pages are named after alerts, such as `/docs/runbooks/TargetDown.md`")
    })?;
    let text = String::from_utf8_lossy(&file.data).into_owned();
    // Read as text by a browser, not saved as a file.
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}
