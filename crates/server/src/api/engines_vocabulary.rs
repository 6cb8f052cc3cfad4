//! What is known of the names on pages of engines and exporters: matched, unknown, missing.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::Params;
use super::engines::{failed, window_of};
use crate::access::Caller;
use crate::app::App;
use crate::engines::{Compared, compare};
use crate::error::ApiError;
use crate::query::ask_several;

/// How long back a page counts unless a time is asked for, milliseconds.
const WINDOW_MS: i64 = 10 * 60_000;

/// Pages compared with the vocabulary.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VocabularyAnswer {
    targets: Vec<PageRow>,
    /// Whether there are more targets: ask for one by `instance`.
    cut: bool,
}

/// One target's page.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PageRow {
    job: String,
    instance: String,
    /// The engine or exporter that it is a page of.
    engine: String,
    title: String,
    /// Which releases have its names; null where that does not follow.
    version: Option<String>,
    /// Where the names were read.
    url: String,
    /// When they were read.
    read: String,
    matched: Vec<MatchedRow>,
    /// Names that look like the engine's and are not known.
    unknown: Vec<String>,
    missing: Vec<MissingRow>,
}

/// A name that is known.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MatchedRow {
    source: String,
    /// Null where it is known and has no canonical series.
    canonical: Option<&'static str>,
    note: String,
}

/// A canonical metric that the page gives nothing for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MissingRow {
    canonical: &'static str,
    /// Names that would give it.
    expected: Vec<String>,
    text: String,
}

/// How the pages of engines and exporters differ from what is known of them.
#[utoipa::path(get, operation_id = "engines_vocabulary", path = "/api/tg/v1/engines/vocabulary",
    params(
        ("instance" = Option<String>, Query, description = "of this target only"),
        ("from" = Option<i64>, Query, description = "milliseconds since the epoch; 10 minutes before `to` unless given"),
        ("to" = Option<i64>, Query, description = "milliseconds since the epoch; now unless given"),
    ),
    responses((status = 200, body = VocabularyAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn vocabulary(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<VocabularyAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let window = window_of(&params, WINDOW_MS)?;
    let instance = params.get("instance").map(str::to_owned);
    let shared = Arc::clone(&app);
    let answer = ask_several(&app, &caller, move |source, _options| {
        let (compared, cut) = compare(source, shared.canon.vocabulary(), window, instance.as_deref())?;
        Ok((VocabularyAnswer { targets: compared.iter().map(row).collect(), cut }, 0))
    });
    Ok(Json(answer.await.map_err(failed)?))
}

fn row(of: &Compared<'_>) -> PageRow {
    let matched = of.drift.matched.iter().map(|one| MatchedRow {
        source: one.source.to_owned(),
        canonical: one.canonical.map(|desc| desc.name),
        note: one.note.to_owned(),
    });
    let missing = of.drift.missing.iter().map(|one| MissingRow {
        canonical: one.canonical.name,
        expected: one.expected.iter().map(|name| (*name).to_owned()).collect(),
        text: one.text.clone(),
    });
    PageRow {
        job: of.job.to_string(),
        instance: of.instance.to_string(),
        engine: of.source.name.clone(),
        title: of.source.title.clone(),
        version: Some(of.drift.version.clone()).filter(|version| !version.is_empty()),
        url: of.source.url.clone(),
        read: of.source.read.clone(),
        matched: matched.collect(),
        unknown: of.drift.unknown.clone(),
        missing: missing.collect(),
    }
}
