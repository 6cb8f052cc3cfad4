//! Points for charts: one metric as JSON, or many runs and metrics on one grid as binary columns.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use model::nearest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Params, json_number};
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::error::ApiError;
use crate::grid::{Axis, Cells};
use crate::m4::Bucket;
use crate::points::{Pick, Placed, Reading, by_key, shown_labels};
use crate::smooth::{Smoothing, WINDOW_MAX};

/// Buckets of the JSON answer unless asked otherwise, and at most.
const BUCKETS: u32 = 1_000;
const BUCKETS_MAX: u32 = 10_000;
/// Most buckets of all series together in the JSON answer.
const JSON_POINTS_MAX: u64 = 500_000;
/// Most buckets of the shared grid.
const GRID_MAX: u32 = 2_000;
/// Most queries in one request.
const QUERIES_MAX: usize = 1_000;
/// Series of one query unless asked otherwise.
const SERIES_LIMIT: usize = 50;
/// Most values in one answer: 32 MiB.
const VALUES_MAX: usize = 4 << 20;
/// Most series in one answer.
const SERIES_MAX: usize = 2_000;
/// Said when not everything fits.
const FULL: &str = "the answer is full: ask for fewer series or buckets";
/// Most attempts of a series that are drawn apart; the newest are kept.
const ATTEMPTS_MAX: usize = 20;

/// Points of one metric.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PointsAnswer {
    axis: &'static str,
    /// Symbol of the unit, empty when it has none or it is not known.
    unit: &'static str,
    /// One entry a series; on the step axis one a series and attempt.
    series: Vec<Columns>,
    /// Points that the answer stands for.
    points_read: u64,
}

/// Columns of equal length, one row a bucket that is not empty.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Columns {
    labels: BTreeMap<String, String>,
    scale: String,
    attempt: u32,
    /// Of the bucket's last point: step, milliseconds since the epoch, or seconds since the run's start.
    #[schema(value_type = Vec<f64>)]
    x: Vec<Value>,
    /// Value of the first point.
    #[schema(value_type = Vec<f64>)]
    first: Vec<Value>,
    /// Value of the last point.
    #[schema(value_type = Vec<f64>)]
    last: Vec<Value>,
    /// Least finite value, `"NaN"` when there is none.
    #[schema(value_type = Vec<f64>)]
    min: Vec<Value>,
    /// Greatest finite value, `"NaN"` when there is none.
    #[schema(value_type = Vec<f64>)]
    max: Vec<Value>,
    count: Vec<u64>,
    nan: Vec<u64>,
    pos_inf: Vec<u64>,
    neg_inf: Vec<u64>,
}

impl Columns {
    fn push(&mut self, axis: Axis, bucket: &Bucket) {
        self.x.push(match axis {
            Axis::Step => bucket.key.into(),
            Axis::Time | Axis::Relative => json_number(axis.x(bucket.key)),
        });
        self.first.push(json_number(bucket.first));
        self.last.push(json_number(bucket.last));
        self.min.push(json_number(bucket.min));
        self.max.push(json_number(bucket.max));
        self.count.push(bucket.count);
        self.nan.push(bucket.nan);
        self.pos_inf.push(bucket.pos_inf);
        self.neg_inf.push(bucket.neg_inf);
    }
}

/// Points of one metric of a run, gathered into buckets; with no more points than buckets, the points
/// themselves.
#[utoipa::path(get, operation_id = "readPoints", path = "/api/tg/v1/runs/{run_id}/points",
    params(
        ("run_id" = String, Path, description = "16 hex digits"),
        ("metric" = String, Query, description = "display or PromQL name"),
        ("axis" = Option<String>, Query, description = "`step` (default), `time` or `relative`"),
        ("from" = Option<f64>, Query, description = "first x"),
        ("to" = Option<f64>, Query, description = "last x"),
        ("buckets" = Option<u32>, Query, description = "1000 unless given, at most 10000"),
        ("label.<name>" = Option<String>, Query, description = "only series with this label; `label.scale` for the scale"),
    ),
    responses(
        (status = 200, body = PointsAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn one(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<PointsAnswer>, ApiError> {
    let id = super::run_id(&id)?;
    let params = Params::of(&uri)?;
    let axis = axis(params.get("axis").unwrap_or("step"))?;
    let range = range(axis, params.number("from")?, params.number("to")?)?;
    let buckets: u32 = params.number("buckets")?.unwrap_or(BUCKETS);
    if !(1..=BUCKETS_MAX).contains(&buckets) {
        return Err(ApiError::bad(format!("`buckets` is {buckets}, 1 to {BUCKETS_MAX} are possible")));
    }
    let metric = params.get("metric").ok_or_else(|| {
        ApiError::bad("`metric` is missing").hint(format!("`GET /api/tg/v1/runs/{id}/metrics` lists all"))
    })?;
    let labels = params
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("label.")?.to_owned(), value.to_owned())));
    let pick = Pick { metric: metric.to_owned(), labels: labels.collect() };
    read(&app, move |shared| {
        let run = super::find_run(shared, &caller, id)?;
        let all = shared.store.run_series(id);
        if !all.iter().any(|s| *s.display == *pick.metric || s.labels.metric() == pick.metric) {
            let names: BTreeSet<&str> = all.iter().map(|s| &*s.display).collect();
            let hint = nearest(&pick.metric, names).map(|near| format!("did you mean `{near}`?"));
            let message = format!("the run has no metric `{}`", super::shown(&pick.metric));
            return Err(ApiError::missing(message).hint(hint.unwrap_or_default()));
        }
        let unit =
            unit(shared, all.iter().find(|s| *s.display == *pick.metric || s.labels.metric() == pick.metric));
        let mut answer = PointsAnswer { axis: axis.as_str(), unit, series: Vec::new(), points_read: 0 };
        let chosen = pick.of(&all);
        let points: u64 = chosen.iter().map(|s| s.points.min(u64::from(buckets))).sum();
        if chosen.len() > SERIES_MAX || points > JSON_POINTS_MAX {
            let message = format!("`{}` has {} series", super::shown(&pick.metric), chosen.len());
            return Err(ApiError::too_large(message)
                .hint("choose some with `label.<name>=`, ask for fewer buckets, or use `POST points`"));
        }
        for series in chosen {
            let reading = Reading::new(shared, series, &run, axis, range)?;
            append(shared, &reading, range, buckets, &mut answer)?;
        }
        Ok(Json(answer))
    })
    .await
}

fn unit(shared: &Shared, series: Option<&store::SeriesInfo>) -> &'static str {
    series
        .and_then(|series| shared.config.catalog.iter().find(|desc| desc.name == &*series.display))
        .map_or("", |desc| desc.unit.symbol())
}

/// Adds a series' columns to the answer.
fn append(
    shared: &Shared,
    reading: &Reading,
    range: (i64, i64),
    buckets: u32,
    answer: &mut PointsAnswer,
) -> Result<(), ApiError> {
    let Some(keys) = reading.survey.keys else { return Ok(()) };
    let axis = reading.lens.axis;
    let columns = |attempt| Columns {
        labels: shown_labels(&reading.series.labels),
        scale: reading.series.labels.get("scale").unwrap_or(model::DEFAULT_SCALE).to_owned(),
        attempt,
        ..Columns::default()
    };
    let mut by_attempt: BTreeMap<u32, Columns> = BTreeMap::new();
    let raw = if reading.survey.inside <= u64::from(buckets) {
        Some(reading.raw(&shared.store, range)?).filter(|points| points.len() <= buckets as usize)
    } else {
        None
    };
    if let Some(mut points) = raw {
        points.sort_by_key(|point| (point.key, point.sample.time_ns));
        for Placed { attempt, key, sample } in points {
            answer.points_read += 1;
            by_attempt
                .entry(attempt)
                .or_insert_with(|| columns(attempt))
                .push(axis, &Bucket::of(key, sample.value));
        }
    } else {
        let (attempts, _) = reading.cells(&shared.store, Cells::new(keys.0, keys.1, buckets))?;
        for (attempt, cells) in attempts {
            let columns = by_attempt.entry(attempt).or_insert_with(|| columns(attempt));
            for bucket in cells.values() {
                answer.points_read += bucket.count;
                columns.push(axis, bucket);
            }
        }
    }
    answer.series.extend(by_attempt.into_values());
    Ok(())
}

fn axis(word: &str) -> Result<Axis, ApiError> {
    Axis::parse(word).ok_or_else(|| {
        ApiError::bad(format!("`axis` is `{}`", super::shown(word))).hint("use `step`, `time` or `relative`")
    })
}

/// The keys between two x of the outside; open ends reach as far as there is data.
fn range(axis: Axis, from: Option<f64>, to: Option<f64>) -> Result<(i64, i64), ApiError> {
    if from.is_some_and(f64::is_nan) || to.is_some_and(f64::is_nan) {
        return Err(ApiError::bad("`from` and `to` are numbers"));
    }
    let from = from.map_or(i64::MIN, |x| axis.first_key(x));
    let to = to.map_or(i64::MAX, |x| axis.last_key(x));
    if from > to { Err(ApiError::bad("`from` lies behind `to`")) } else { Ok((from, to)) }
}

/// What a page of charts asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManyBody {
    /// `step`, `time` or `relative`.
    axis: String,
    /// First x; open when null.
    #[serde(default)]
    from: Option<f64>,
    /// Last x; open when null.
    #[serde(default)]
    to: Option<f64>,
    /// Cells of the grid, at most 2000.
    #[serde(default = "buckets_default")]
    buckets: u32,
    /// Adds a column `smooth`, computed on raw points of the whole series.
    #[serde(default)]
    smooth: Option<SmoothBody>,
    /// Which of `last`, `min`, `max`, `first` and `count` to send; all of them unless given.
    #[serde(default)]
    columns: Option<Vec<String>>,
    queries: Vec<QueryBody>,
    /// `binary` (default) or `json`.
    #[serde(default)]
    format: Option<String>,
}

fn buckets_default() -> u32 {
    BUCKETS
}

/// How to smooth.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SmoothBody {
    /// `ema` or `window`.
    kind: String,
    /// For `ema`: from 0 to below 1.
    #[serde(default)]
    weight: Option<f64>,
    /// For `window`: points, odd.
    #[serde(default)]
    size: Option<usize>,
}

/// One metric of one run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueryBody {
    run_id: String,
    /// Display or PromQL name.
    metric: String,
    /// Labels that must be exactly so.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Series left out at the front, so that many can be read in parts.
    #[serde(default)]
    skip: usize,
    /// Most series, 50 unless given.
    #[serde(default)]
    limit: Option<usize>,
}

/// Head of the answer; the columns follow it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ManyHead {
    axis: &'static str,
    from: Option<f64>,
    to: Option<f64>,
    /// Values of every column; the first column is x itself, at offset 0.
    grid: usize,
    series: Vec<SeriesHead>,
    /// Points that the answer stands for.
    points_read: u64,
    warnings: Vec<String>,
}

/// Where a series' columns lie and what they are.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeriesHead {
    /// Index of the query that it answers.
    query: usize,
    run_id: String,
    metric: String,
    display: String,
    labels: BTreeMap<String, String>,
    scale: String,
    attempt: u32,
    unit: &'static str,
    columns: Vec<&'static str>,
    /// Bytes from the start of the columns to this series' first; the others follow.
    offset: usize,
    non_finite: Vec<NonFinite>,
    /// Series that the query matched, before its limit.
    total: usize,
    /// Usual distance of two points on the axis.
    interval: f64,
}

/// Values that are no numbers to draw.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NonFinite {
    x: f64,
    /// `NaN`, `+Inf` or `-Inf`.
    kind: &'static str,
    count: u64,
}

/// Points of many metrics of many runs on one shared grid.
///
/// `binary`: the bytes `TGP1`, a little-endian u32 with the head's length, the head as JSON padded
/// with spaces to a multiple of 8 from the start, then columns of little-endian f64. NaN marks a cell
/// without a finite point. With no more distinct x than buckets, the grid is those x.
#[utoipa::path(post, operation_id = "readManyPoints", path = "/api/tg/v1/points", request_body = ManyBody,
    responses(
        (status = 200, content_type = "application/octet-stream", body = ManyHead),
        (status = 400, body = crate::error::ErrorBody), (status = 413, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn many(State(app): State<App>, caller: Caller, body: Bytes) -> Result<Response, ApiError> {
    let body: ManyBody = super::json_body(&body)?;
    let axis = axis(&body.axis)?;
    let range = range(axis, body.from, body.to)?;
    if !(1..=GRID_MAX).contains(&body.buckets) {
        return Err(ApiError::bad(format!("`buckets` is {}, 1 to {GRID_MAX} are possible", body.buckets)));
    }
    if body.queries.len() > QUERIES_MAX {
        return Err(ApiError::bad(format!("more than {QUERIES_MAX} queries: send them in parts")));
    }
    let smoothing = body.smooth.as_ref().map(smoothing).transpose()?;
    let as_json = match body.format.as_deref() {
        None | Some("binary") => false,
        Some("json") => true,
        Some(other) => {
            let message = format!("`format` is `{}`", super::shown(other));
            return Err(ApiError::bad(message).hint("use `binary` or `json`"));
        }
    };
    read(&app, move |shared| {
        let sheet = Sheet::gather((shared, &caller), &body, axis, range, smoothing)?;
        Ok(if as_json { sheet.json() } else { sheet.binary() })
    })
    .await
}

fn smoothing(body: &SmoothBody) -> Result<Smoothing, ApiError> {
    match body.kind.as_str() {
        "ema" => match body.weight {
            Some(weight) if (0.0..1.0).contains(&weight) => Ok(Smoothing::Ema { weight }),
            _ => Err(ApiError::bad("`smooth.weight` is a number from 0 to below 1")),
        },
        "window" => match body.size {
            Some(size) if (1..=WINDOW_MAX).contains(&size) => Ok(Smoothing::Window { size }),
            _ => Err(ApiError::bad(format!("`smooth.size` is a number of points from 1 to {WINDOW_MAX}"))),
        },
        other => Err(ApiError::bad(format!("`smooth.kind` is `{}`", super::shown(other)))
            .hint("use `ema` or `window`")),
    }
}

/// The x of the shared grid.
enum Grid {
    Cells(Cells),
    Keys(Vec<i64>),
}

impl Grid {
    fn len(&self) -> usize {
        match self {
            Self::Cells(cells) => cells.count() as usize,
            Self::Keys(keys) => keys.len(),
        }
    }

    /// The place of a key.
    fn place(&self, key: i64) -> Option<usize> {
        match self {
            Self::Cells(cells) => cells.index(key).map(|cell| cell as usize),
            Self::Keys(keys) => keys.binary_search(&key).ok(),
        }
    }

    /// The key that stands for a place: a cell's last.
    fn key(&self, at: usize) -> i64 {
        match self {
            Self::Cells(cells) => cells.last_key(at as u32),
            Self::Keys(keys) => keys[at],
        }
    }
}

/// A series chosen by a query.
struct Chosen {
    query: usize,
    run_id: String,
    total: usize,
    unit: &'static str,
    reading: Reading,
}

/// An answer in the making: the grid and the columns, without their heads.
struct Sheet {
    head: ManyHead,
    columns: Vec<f64>,
    /// Places in [`COLUMNS`] of those sent.
    sent: Vec<usize>,
}

/// Columns of a series, without `smooth`.
const COLUMNS: [&str; 5] = ["last", "min", "max", "first", "count"];

/// Places in [`COLUMNS`] of those that are wanted, in the order asked for.
fn columns(body: &ManyBody) -> Result<Vec<usize>, ApiError> {
    let Some(names) = &body.columns else { return Ok((0..COLUMNS.len()).collect()) };
    let mut places = Vec::new();
    for name in names {
        let Some(place) = COLUMNS.iter().position(|column| column == name) else {
            let message = format!("`columns` has `{}`", super::shown(name));
            return Err(ApiError::bad(message).hint(format!("use {}", COLUMNS.join(", "))));
        };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    if places.is_empty() { Err(ApiError::bad("`columns` is empty")) } else { Ok(places) }
}

impl Sheet {
    fn gather(
        (shared, caller): (&Shared, &Caller),
        body: &ManyBody,
        axis: Axis,
        range: (i64, i64),
        smoothing: Option<Smoothing>,
    ) -> Result<Self, ApiError> {
        let mut warnings = Vec::new();
        let chosen = choose((shared, caller), body, axis, range, &mut warnings)?;
        let raw = raw(shared, &chosen, range, body.buckets)?;
        let keys =
            chosen.iter().filter_map(|c| c.reading.survey.keys).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let grid = match (&raw, keys) {
            (Some(raw), _) => {
                let keys: BTreeSet<i64> = raw.iter().flatten().map(|point| point.key).collect();
                Grid::Keys(keys.into_iter().collect())
            }
            (None, Some((from, to))) => Grid::Cells(Cells::new(from, to, body.buckets)),
            (None, None) => Grid::Keys(Vec::new()),
        };
        let x = (0..grid.len()).map(|at| axis.x(grid.key(at))).collect();
        let ends = keys.map(|(from, to)| (axis.x(from), axis.x(to)));
        let head = ManyHead {
            axis: axis.as_str(),
            from: body.from.or(ends.map(|e| e.0)),
            to: body.to.or(ends.map(|e| e.1)),
            grid: grid.len(),
            series: Vec::new(),
            points_read: 0,
            warnings,
        };
        let mut sheet = Self { head, columns: x, sent: columns(body)? };
        for (at, one) in chosen.iter().enumerate() {
            let buckets = match &raw {
                Some(raw) => placed(&grid, by_key(&raw[at])),
                None => match &grid {
                    Grid::Cells(cells) => {
                        let (attempts, _) = one.reading.cells(&shared.store, *cells)?;
                        let sparse = |cells: BTreeMap<u32, Bucket>| {
                            cells.into_iter().map(|(cell, bucket)| (cell as usize, bucket)).collect()
                        };
                        attempts.into_iter().map(|(attempt, cells)| (attempt, sparse(cells))).collect()
                    }
                    Grid::Keys(_) => BTreeMap::new(),
                },
            };
            let smooth = match smoothing {
                Some(smoothing) => {
                    Some(one.reading.smooth(&shared.store, smoothing, &|key| grid.place(key))?)
                }
                None => None,
            };
            sheet.add(one, &grid, &buckets, smooth.as_ref());
        }
        Ok(sheet)
    }

    /// Adds a series' attempts, each with columns of its own.
    fn add(
        &mut self,
        one: &Chosen,
        grid: &Grid,
        buckets: &BTreeMap<u32, BTreeMap<usize, Bucket>>,
        smooth: Option<&BTreeMap<u32, BTreeMap<usize, f64>>>,
    ) {
        let axis = one.reading.lens.axis;
        let width = self.sent.len() + usize::from(smooth.is_some());
        let labels = shown_labels(&one.reading.series.labels);
        for (attempt, cells) in buckets.iter().skip(buckets.len().saturating_sub(ATTEMPTS_MAX)) {
            let rows = grid.len();
            if self.columns.len() + rows * width > VALUES_MAX {
                if !self.head.warnings.iter().any(|warning| warning == FULL) {
                    self.head.warnings.push(FULL.to_owned());
                }
                return;
            }
            let start = self.columns.len();
            self.columns.resize(start + rows * width, f64::NAN);
            let columns = &mut self.columns[start..];
            for (column, place) in self.sent.iter().enumerate() {
                if COLUMNS[*place] == "count" {
                    columns[column * rows..(column + 1) * rows].fill(0.0);
                }
            }
            let mut non_finite = Vec::new();
            for (at, bucket) in cells {
                let values =
                    [bucket.last_finite, bucket.min, bucket.max, bucket.first_finite, bucket.count as f64];
                for (column, place) in self.sent.iter().enumerate() {
                    columns[column * rows + at] = values[*place];
                }
                self.head.points_read += bucket.count;
                let x = axis.x(bucket.key);
                let kinds = [("NaN", bucket.nan), ("+Inf", bucket.pos_inf), ("-Inf", bucket.neg_inf)];
                let found = kinds.into_iter().filter(|(_, count)| *count > 0);
                non_finite.extend(found.map(|(kind, count)| NonFinite { x, kind, count }));
            }
            for (at, value) in smooth.and_then(|smooth| smooth.get(attempt)).into_iter().flatten() {
                columns[self.sent.len() * rows + at] = *value;
            }
            let names =
                self.sent.iter().map(|place| COLUMNS[*place]).chain(smooth.is_some().then_some("smooth"));
            self.head.series.push(SeriesHead {
                query: one.query,
                run_id: one.run_id.clone(),
                metric: one.reading.series.labels.metric().to_owned(),
                display: one.reading.series.display.to_string(),
                labels: labels.clone(),
                scale: one.reading.series.labels.get("scale").unwrap_or(model::DEFAULT_SCALE).to_owned(),
                attempt: *attempt,
                unit: one.unit,
                columns: names.collect(),
                offset: start * size_of::<f64>(),
                non_finite,
                total: one.total,
                interval: axis.distance(one.reading.survey.interval),
            });
        }
    }

    fn binary(self) -> Response {
        let mut head = serde_json::to_vec(&self.head).unwrap_or_default();
        while !(8 + head.len()).is_multiple_of(8) {
            head.push(b' ');
        }
        let mut bytes = Vec::with_capacity(8 + head.len() + self.columns.len() * size_of::<f64>());
        bytes.extend(b"TGP1");
        bytes.extend(u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(head);
        for value in &self.columns {
            bytes.extend(value.to_le_bytes());
        }
        ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
    }

    fn json(self) -> Response {
        let column = |at: usize| -> Vec<Value> {
            self.columns[at..at + self.head.grid].iter().map(|v| json_number(*v)).collect()
        };
        let mut answer = serde_json::to_value(&self.head).unwrap_or_default();
        answer["x"] = column(0).into();
        for (at, series) in self.head.series.iter().enumerate() {
            let start = series.offset / size_of::<f64>();
            for (place, name) in series.columns.iter().enumerate() {
                answer["series"][at][name] = column(start + place * self.head.grid).into();
            }
        }
        Json(answer).into_response()
    }
}

/// Puts raw points, merged by key, at their places.
fn placed(
    grid: &Grid,
    points: BTreeMap<u32, BTreeMap<i64, Bucket>>,
) -> BTreeMap<u32, BTreeMap<usize, Bucket>> {
    let place = |points: BTreeMap<i64, Bucket>| {
        points.into_iter().filter_map(|(key, bucket)| Some((grid.place(key)?, bucket))).collect()
    };
    points.into_iter().map(|(attempt, points)| (attempt, place(points))).collect()
}

/// The series that the queries ask for, each looked over.
fn choose(
    (shared, caller): (&Shared, &Caller),
    body: &ManyBody,
    axis: Axis,
    range: (i64, i64),
    warnings: &mut Vec<String>,
) -> Result<Vec<Chosen>, ApiError> {
    let width = columns(body)?.len() + usize::from(body.smooth.is_some());
    let most = (VALUES_MAX / (body.buckets as usize * width)).clamp(1, SERIES_MAX);
    let mut chosen = Vec::new();
    // Queries of one run are often many: its series are listed once.
    let mut listed: BTreeMap<model::RunId, Vec<store::SeriesInfo>> = BTreeMap::new();
    for (at, query) in body.queries.iter().enumerate() {
        let id = super::run_id(&query.run_id)?;
        let Ok(run) = super::find_run(shared, caller, id) else {
            warnings.push(format!("query {at}: there is no run `{id}`"));
            continue;
        };
        let all = listed.entry(id).or_insert_with(|| shared.store.run_series(id));
        let labels = query.labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let found = Pick { metric: query.metric.clone(), labels }.of(all);
        let total = found.len();
        for series in found.into_iter().skip(query.skip).take(query.limit.unwrap_or(SERIES_LIMIT)) {
            if chosen.len() >= most {
                warnings.push(FULL.to_owned());
                return Ok(chosen);
            }
            let unit = unit(shared, Some(&series));
            let reading = Reading::new(shared, series, &run, axis, range)?;
            let stepless = axis == Axis::Step && reading.survey.keys.is_none();
            if stepless && reading.series.points > 0 && reading.series.max_step.is_none() {
                let name = super::shown(&reading.series.display);
                warnings.push(format!("query {at}: `{name}` has no steps, ask for it by time"));
            }
            chosen.push(Chosen { query: at, run_id: id.to_string(), total, unit, reading });
        }
    }
    Ok(chosen)
}

/// The points themselves, if they have no more distinct x than there are buckets.
fn raw(
    shared: &Shared,
    chosen: &[Chosen],
    range: (i64, i64),
    buckets: u32,
) -> Result<Option<Vec<Vec<Placed>>>, ApiError> {
    let many = |one: &Chosen| one.reading.survey.inside > u64::from(buckets);
    if chosen.iter().any(many) {
        return Ok(None);
    }
    let mut keys = BTreeSet::new();
    let mut all = Vec::with_capacity(chosen.len());
    for one in chosen {
        let points = one.reading.raw(&shared.store, range)?;
        keys.extend(points.iter().map(|point| point.key));
        if keys.len() > buckets as usize {
            return Ok(None);
        }
        all.push(points);
    }
    Ok(Some(all))
}
