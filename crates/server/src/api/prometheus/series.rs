//! What series there are: `series`, `labels`, `label/<name>/values`, `metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use model::Labels;
use promql::Matcher;
use promql::json::{push_labels, push_text};
use serde_json::json;
use store::Store;

use super::asked::{Asked, CUT};
use super::forwarded::{self, From};
use super::{Failure, add_total, json as json_body, push_texts, success, whole};
use crate::app::{App, Shared, read};
use crate::source::{self, conditions, spelled_out};

/// The label sets of the series that are selected.
pub(super) async fn series(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    let limit = asked.limit("limit")?;
    let span = asked.span_ns()?;
    let selectors = asked.selectors(true)?;
    let away = match forwarded::ask(&app, &asked, "/api/v1/series").await? {
        From::Far(response) => return Ok(response),
        From::Here(warnings) => warnings,
    };
    let (data, total) = read(&app, move |shared| {
        let found = find(shared, &selectors, span);
        let mut data = String::from("[");
        for (at, labels) in found.iter().take(limit).enumerate() {
            if at > 0 {
                data.push(',');
            }
            push_labels(&mut data, labels);
        }
        data.push(']');
        Ok((data, found.len()))
    })
    .await?;
    Ok(first(&data, away, limit, total))
}

/// Names of labels.
pub(super) async fn names(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    list(app, asked, "/api/v1/labels", |store, matchers, (from_ns, to_ns)| {
        store.label_names(matchers, from_ns, to_ns)
    })
    .await
}

/// Values of one label.
pub(super) async fn values(
    State(app): State<App>,
    Path(name): Path<String>,
    asked: Asked,
) -> Result<Response, Failure> {
    let path = format!("/api/v1/label/{}/values", escaped(&name));
    list(app, asked, &path, move |store, matchers, (from_ns, to_ns)| {
        store.label_values(&name, matchers, from_ns, to_ns)
    })
    .await
}

/// A sorted list of what `take` finds for each of the selectors.
async fn list(
    app: App,
    asked: Asked,
    path: &str,
    take: impl Fn(&Store, &[store::Matcher<'_>], (i64, i64)) -> Vec<String> + Send + 'static,
) -> Result<Response, Failure> {
    let limit = asked.limit("limit")?;
    let span = asked.span_ns()?;
    let selectors = asked.selectors(false)?;
    let away = match forwarded::ask(&app, &asked, path).await? {
        From::Far(response) => return Ok(response),
        From::Here(warnings) => warnings,
    };
    let found = read(&app, move |shared| {
        let selectors = if selectors.is_empty() { vec![Vec::new()] } else { selectors };
        let mut found = BTreeSet::new();
        for matchers in &selectors {
            for matchers in spelled_out(&shared.store, &shared.streams, matchers, span) {
                found.extend(take(&shared.store, &conditions(&matchers), span));
            }
        }
        Ok(found)
    })
    .await?;
    let total = found.len();
    let list: Vec<String> = found.into_iter().take(limit).collect();
    let mut data = String::new();
    push_texts(&mut data, &list);
    Ok(first(&data, away, limit, total))
}

/// A label's name as it stands in a path: names in UTF-8 may hold anything.
fn escaped(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

/// An answer of the first `limit` entries; one that was cut says how many there are.
fn first(data: &str, mut warnings: Vec<String>, limit: usize, total: usize) -> Response {
    if total <= limit {
        return success(data, &warnings);
    }
    warnings.push(CUT.to_owned());
    let mut body = whole(data, &warnings);
    add_total(&mut body, total);
    json_body(body)
}

/// Each series once that one of the selectors fits.
fn find(shared: &Shared, selectors: &[Vec<Matcher>], span_ns: (i64, i64)) -> BTreeSet<Arc<Labels>> {
    let select = |matchers: &Vec<Matcher>| source::select(&shared.store, &shared.streams, matchers, span_ns);
    selectors.iter().flat_map(select).map(|found| found.labels).collect()
}

/// What the names of a family's series have behind the family's.
const PARTS: [&str; 5] = ["", "_bucket", "_count", "_sum", "_total"];

/// What is known of metrics.
pub(super) async fn metadata(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    let limit = asked.limit("limit")?;
    asked.limit("limit_per_metric")?;
    let wanted = asked.get("metric").to_owned();
    let (metric, caller) = (wanted.clone(), asked.caller().clone());
    let told = read(&app, move |shared| {
        let mut told = shared.store.metadata((!metric.is_empty()).then_some(metric.as_str()));
        if caller.is_bounded() {
            let matchers = caller.matchers();
            let seen = shared.store.label_values("__name__", &conditions(&matchers), i64::MIN, i64::MAX);
            let is_seen = |name: String| seen.binary_search(&name).is_ok();
            told.retain(|about| PARTS.iter().any(|part| is_seen(format!("{}{part}", about.metric))));
        }
        Ok(told)
    })
    .await?;
    let mut metrics = BTreeMap::new();
    let canonical = semconv::canonical::all().chain(semconv::canonical::DERIVED).copied();
    for desc in app.config.catalog.iter().copied().chain(canonical) {
        let mut entry = json!({"type": desc.kind.name(), "help": desc.help, "unit": desc.unit.symbol()});
        // How a metric misleads is ours to tell; Prometheus has no field for it.
        if !desc.caveat.is_empty() {
            entry["caveat"] = json!(desc.caveat);
        }
        metrics.insert(model::prometheus_name(desc.name), entry);
    }
    for about in told {
        let entry = metrics.entry(about.metric.clone()).or_insert_with(|| json!({}));
        entry["type"] = json!(about.kind.name());
        entry["help"] = json!(about.help);
        entry["unit"] = json!(about.unit);
    }
    let (theirs, away) = forwarded::metadata(&app, &asked).await;
    for (name, entry) in theirs {
        metrics.entry(name).or_insert(entry);
    }
    let mut data = String::from("{");
    for (name, entry) in metrics.iter().filter(|(name, _)| wanted.is_empty() || **name == wanted).take(limit)
    {
        if data.len() > 1 {
            data.push(',');
        }
        push_text(&mut data, name);
        data.push(':');
        data.extend(["[", &entry.to_string(), "]"]);
    }
    data.push('}');
    Ok(success(&data, &away))
}
