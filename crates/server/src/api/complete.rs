//! What a query that is being typed may become.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use promql::{Wants, place_at};
use serde::Serialize;
use utoipa::ToSchema;

use super::Params;
use crate::about::Catalog;
use crate::access::Caller;
use crate::app::{App, read};
use crate::complete::{Choice, Names, Sort};
use crate::error::ApiError;

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 1_000;

/// What may stand at the cursor.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompleteAnswer {
    /// What is wanted there: `expression`, `word`, `label`, `comparison`, `value`, `duration` or
    /// `nothing`.
    wants: &'static str,
    /// First character that a choice replaces, from 0.
    from: usize,
    /// One behind the last character that a choice replaces.
    to: usize,
    /// What is typed of it before the cursor.
    typed: String,
    /// The best first.
    options: Vec<CompleteOption>,
    /// Whether there are more than `limit`.
    more: bool,
}

/// One choice.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompleteOption {
    /// What it is called.
    text: String,
    /// What replaces the characters from `from` to `to`; quotes and brackets are in it where needed.
    insert: String,
    /// `metric`, `label`, `value`, `function`, `aggregation`, `keyword` or `duration`.
    kind: &'static str,
    /// Series that have it, which is what it costs; of metrics, labels and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<u64>,
    /// Different values of a label.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<u64>,
    /// Type of a metric, as `metadata` names it; `unknown` when nobody said.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    of: Option<&'static str>,
    /// Unit of a metric.
    #[serde(skip_serializing_if = "String::is_empty")]
    unit: String,
    /// Arguments of a function or aggregation with their types.
    #[serde(skip_serializing_if = "str::is_empty")]
    arguments: &'static str,
    /// What it is or does.
    #[serde(skip_serializing_if = "String::is_empty")]
    help: String,
    /// How a metric misleads.
    #[serde(skip_serializing_if = "str::is_empty")]
    caveat: &'static str,
}

impl CompleteOption {
    fn of(choice: Choice) -> Self {
        let kind = match choice.sort {
            Sort::Metric => "metric",
            Sort::Label => "label",
            Sort::Value => "value",
            Sort::Function => "function",
            Sort::Aggregation => "aggregation",
            Sort::Keyword => "keyword",
            Sort::Duration => "duration",
        };
        Self {
            text: choice.text,
            insert: choice.insert,
            kind,
            series: choice.series,
            values: choice.values,
            of: (choice.sort == Sort::Metric).then(|| choice.kind.name()),
            unit: choice.unit,
            arguments: choice.arguments,
            help: choice.help,
            caveat: choice.caveat,
        }
    }
}

/// What may stand at the cursor of a query: names that are stored, with what they cost, and words of
/// PromQL.
#[utoipa::path(get, operation_id = "complete", path = "/api/tg/v1/complete",
    params(
        ("query" = String, Query, description = "the query as far as it is typed"),
        ("cursor" = Option<usize>, Query, description = "characters before the cursor; all when it is left out"),
        ("limit" = Option<usize>, Query, description = "most options, 50 when it is left out, at most 1,000")
    ),
    responses((status = 200, body = CompleteAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn complete(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<CompleteAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let query = params.get("query").unwrap_or_default().to_owned();
    let chars = query.chars().count();
    let cursor = params.number::<usize>("cursor")?.unwrap_or(chars);
    if cursor > chars {
        return Err(ApiError::bad(format!("`cursor` is {cursor}, the query has {chars} characters")));
    }
    let limit = params.number::<usize>("limit")?.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
    read(&app, move |shared| {
        let byte = query.char_indices().nth(cursor).map_or(query.len(), |(byte, _)| byte);
        let place = place_at(&query, byte);
        let catalog = Catalog::new(&shared.config.catalog);
        let within = caller.matchers();
        let names =
            Names { store: &shared.store, streams: &shared.streams, catalog: &catalog, within: &within };
        let (choices, more) = names.choices(&query, &place, limit);
        let characters = |byte: usize| query[..byte].chars().count();
        Ok(Json(CompleteAnswer {
            wants: word(&place.wants),
            from: characters(place.replaces.start),
            to: characters(place.replaces.end),
            options: choices.into_iter().map(CompleteOption::of).collect(),
            typed: place.typed,
            more,
        }))
    })
    .await
}

fn word(wants: &Wants) -> &'static str {
    match wants {
        Wants::Nothing => "nothing",
        Wants::Expression { .. } => "expression",
        Wants::Words(_) => "word",
        Wants::Label { .. } => "label",
        Wants::Comparison => "comparison",
        Wants::Value { .. } => "value",
        Wants::Duration => "duration",
    }
}
