//! A parsed query, asked at one time or over a range.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::NANOS_PER_MILLI;

use crate::advice::{Advice, advise};
use crate::answer::{Answer, Data, Stats};
use crate::error::QueryError;
use crate::eval::{Evaluator, Grid, Value, finish};
use crate::limits::{Budget, Cancel, Limits, Memory};
use crate::notes::Notes;
use crate::plan::{Kind, Node, Type};
use crate::source::{Matcher, Source};
use crate::syntax;

/// How queries are evaluated.
#[derive(Debug, Clone)]
pub struct Options {
    /// How old the last sample may be to count as current.
    pub lookback: Duration,
    /// Step of a subquery that gives none; Prometheus takes its evaluation interval.
    pub subquery_step: Duration,
    /// Whether roll-ups may answer; without them there is nothing where single samples are gone.
    pub rollups: bool,
    /// What a query may cost.
    pub limits: Limits,
    /// What it shares with others.
    pub memory: Memory,
    /// Stops the query from outside.
    pub cancel: Cancel,
}

impl Default for Options {
    /// 5 minutes of lookback, 1 minute for subqueries, the default limits.
    fn default() -> Self {
        Self {
            lookback: Duration::from_mins(5),
            subquery_step: Duration::from_mins(1),
            rollups: true,
            limits: Limits::default(),
            memory: Memory::default(),
            cancel: Cancel::new(),
        }
    }
}

/// What a query evaluates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// One number.
    Scalar,
    /// A text.
    String,
    /// One value per series.
    Vector,
    /// Samples over time per series.
    Matrix,
}

/// A parsed query; parse once, ask often.
#[derive(Debug)]
pub struct Query {
    text: String,
    root: Option<Box<Node>>,
    depth: usize,
}

impl Query {
    /// Parses `text`. Errors name the place, what is not supported and the first mistake.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let (root, depth) = syntax::parse(text)?;
        Ok(Self { text: text.to_owned(), root: Some(root), depth })
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the query evaluates to at one time.
    pub fn value_type(&self) -> ValueType {
        match self.root.as_ref().map(|root| root.of) {
            Some(Type::Scalar) => ValueType::Scalar,
            Some(Type::Vector) => ValueType::Vector,
            Some(Type::Range) => ValueType::Matrix,
            Some(Type::Text) | None => ValueType::String,
        }
    }

    /// The matchers of every selector in the query.
    pub fn selectors(&self) -> Vec<&[Matcher]> {
        let mut found = Vec::new();
        let mut todo: Vec<&Node> = self.root.iter().map(|root| &**root).collect();
        while let Some(node) = todo.pop() {
            match &node.kind {
                Kind::Number(_) | Kind::Text(_) => {}
                Kind::Selector(selector) | Kind::Range { selector, .. } => {
                    found.extend(selector.any_of.iter().map(Vec::as_slice));
                }
                Kind::Subquery(subquery) => todo.push(&subquery.inner),
                Kind::Call { arguments, .. } => todo.extend(arguments),
                Kind::Aggregate(aggregate) => {
                    todo.push(&aggregate.inner);
                    todo.extend(aggregate.parameter.as_deref());
                }
                Kind::Negate(inner) => todo.push(inner),
                Kind::Binary(binary) => todo.extend([&*binary.left, &*binary.right]),
            }
        }
        found
    }

    /// What the query probably gets wrong. `grows` says of a metric whether its values only grow;
    /// nothing where that is not known.
    pub fn advise(&self, grows: &(dyn Fn(&str) -> Option<bool> + Sync)) -> Vec<Advice> {
        let Some(root) = &self.root else { return Vec::new() };
        syntax::with_stack(self.depth, || advise(&self.text, root, grows)).unwrap_or_default()
    }

    /// Evaluates at `time_ms`, milliseconds since the Unix epoch.
    pub fn instant(
        &self,
        source: &dyn Source,
        time_ms: i64,
        options: &Options,
    ) -> Result<Answer, QueryError> {
        let time_ns = nanos(time_ms)?;
        self.run(source, (time_ns, time_ns, 0), options)
    }

    /// Evaluates at `start_ms`, `start_ms + step_ms` and so on up to `end_ms`.
    pub fn range(
        &self,
        source: &dyn Source,
        (start_ms, end_ms, step_ms): (i64, i64, i64),
        options: &Options,
    ) -> Result<Answer, QueryError> {
        if !matches!(self.value_type(), ValueType::Scalar | ValueType::Vector) {
            let found = if self.value_type() == ValueType::Matrix { "range vector" } else { "string" };
            return Err(QueryError::Parse {
                place: "1:1".to_owned(),
                reason: format!(
                    "invalid expression type \"{found}\" for range query, must be Scalar or instant Vector"
                ),
            });
        }
        if step_ms <= 0 {
            return Err(QueryError::Execution(
                "zero or negative query resolution step widths are not accepted. Try a positive integer"
                    .to_owned(),
            ));
        }
        if end_ms < start_ms {
            return Err(QueryError::Execution("end timestamp must not be before start time".to_owned()));
        }
        self.run(source, (nanos(start_ms)?, nanos(end_ms)?, nanos(step_ms)?), options)
    }

    fn run(
        &self,
        source: &dyn Source,
        outer: (i64, i64, i64),
        options: &Options,
    ) -> Result<Answer, QueryError> {
        let root = self.root.as_deref().ok_or_else(|| QueryError::Internal("no plan".to_owned()))?;
        let budget = Budget::new(&options.limits, &options.cancel, &options.memory);
        let (start, end, step) = outer;
        let ranged = step > 0;
        let steps = if ranged { (end - start) / step + 1 } else { 1 };
        budget.plan(1, steps as u64)?;
        let grid = Grid { start_ns: start, step_ns: step.max(1), steps: steps as usize };
        let evaluator = Evaluator {
            source,
            budget,
            outer,
            lookback_ns: duration_ns(options.lookback),
            subquery_step_ns: duration_ns(options.subquery_step),
            rollups: options.rollups,
            notes: Mutex::new(Notes::default()),
        };
        let data = syntax::with_stack(self.depth, || evaluate(&evaluator, root, grid, ranged))??;
        let charge = evaluator.budget.hold(data.bytes())?;
        let (warnings, infos) =
            evaluator.notes.lock().unwrap_or_else(PoisonError::into_inner).texts(&self.text);
        let stats = Stats {
            samples_read: evaluator.budget.samples_read(),
            bytes_peak: evaluator.budget.peak_bytes(),
        };
        Ok(Answer { data, warnings, infos, stats, budget: evaluator.budget, charge })
    }
}

impl Drop for Query {
    /// A deep plan is taken apart where there is stack for it.
    fn drop(&mut self) {
        if let Some(root) = self.root.take() {
            // Without a thread the plan is dropped here, which is what happens anyway.
            let _ = syntax::with_stack(self.depth, move || drop(root));
        }
    }
}

fn evaluate(evaluator: &Evaluator<'_>, root: &Node, grid: Grid, ranged: bool) -> Result<Data, QueryError> {
    if root.of == Type::Range {
        let mut series = evaluator.matrix(root, grid)?;
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        return Ok(Data::samples(series));
    }
    Ok(match evaluator.node(root, grid)? {
        Value::Scalar(values) if ranged => Data::scalars(values, grid),
        Value::Scalar(values) => Data::scalar(values.first().copied().unwrap_or(f64::NAN), grid),
        Value::Text(text) => Data::text(text, grid),
        Value::Vector(table) => {
            let (rows, charge) = table.into_parts();
            let mut rows = finish(rows)?;
            if ranged {
                rows.sort_by(|a, b| a.labels.cmp(&b.labels));
            }
            let data = if ranged { Data::rows(rows, grid) } else { Data::vector(rows, grid) };
            drop(charge);
            data
        }
    })
}

fn nanos(millis: i64) -> Result<i64, QueryError> {
    millis.checked_mul(NANOS_PER_MILLI).ok_or_else(|| {
        QueryError::Execution(format!("time {millis} ms is out of range: years 1678 to 2262 are kept"))
    })
}

fn duration_ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
