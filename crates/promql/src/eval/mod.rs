//! The evaluator: walks the plan and computes every step of a node at once.

mod aggregate;
mod binary;
mod element;
mod finish;
mod histogram;
mod info;
mod over;
mod relabel;
mod rolled;
mod rolling;
mod select;
mod table;

use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use finish::finish;
use model::{Labels, RollupBucket};
pub(crate) use table::{Grid, Row, Table, Value};

use crate::error::{QueryError, Span};
use crate::functions::Function;
use crate::limits::Budget;
use crate::notes::{Note, Notes};
use crate::number::seconds;
use crate::plan::{Kind, Node, Pin, Type};
use crate::source::{Columns, Source};

/// One evaluation of a query.
pub(crate) struct Evaluator<'q> {
    pub(crate) source: &'q dyn Source,
    pub(crate) budget: Arc<Budget>,
    /// Start, end and step of the whole query.
    pub(crate) outer: (i64, i64, i64),
    pub(crate) lookback_ns: i64,
    pub(crate) subquery_step_ns: i64,
    pub(crate) rollups: bool,
    pub(crate) notes: Mutex<Notes>,
}

/// Samples of one series, for functions over windows and for answers that are matrices.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) labels: Arc<Labels>,
    pub(crate) drop_name: bool,
    pub(crate) columns: Columns,
    /// What comes before the columns and is known as roll-ups; only for functions that take these.
    pub(crate) rolled: Vec<RollupBucket>,
}

impl Evaluator<'_> {
    pub(crate) fn note(&self, note: Note, span: Span) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).add(note, span);
    }

    /// The time that `pin` means.
    pub(crate) fn pinned(&self, pin: Pin) -> i64 {
        match pin {
            Pin::Start => self.outer.0,
            Pin::End => self.outer.1,
            Pin::At(time_ns) => time_ns,
        }
    }

    pub(crate) fn table(&self, rows: Vec<Row>) -> Result<Table, QueryError> {
        Table::of(rows, &self.budget)
    }

    /// Evaluates `node` at every step of `grid`.
    pub(crate) fn node(&self, node: &Node, grid: Grid) -> Result<Value, QueryError> {
        self.budget.check()?;
        self.budget.plan(1, grid.steps as u64)?;
        let leaf = matches!(node.kind, Kind::Number(_) | Kind::Text(_));
        if node.constant && grid.steps > 1 && !leaf && node.of != Type::Range {
            let once = self.node(node, Grid { steps: 1, ..grid })?;
            return self.repeat(once, grid.steps);
        }
        match &node.kind {
            Kind::Number(value) => Ok(Value::Scalar(vec![*value; grid.steps])),
            Kind::Text(text) => Ok(Value::Text(text.clone())),
            Kind::Selector(selector) => self.instants(selector, node.span, grid, false).map(Value::Vector),
            Kind::Range { .. } | Kind::Subquery(_) => Err(QueryError::Execution(
                "a range vector stands where an instant vector is needed".to_owned(),
            )),
            Kind::Negate(inner) => self.negate(inner, grid),
            Kind::Call { function, arguments } => self.call(*function, arguments, node.span, grid),
            Kind::Aggregate(aggregate) => self.aggregate(aggregate, node.span, grid).map(Value::Vector),
            Kind::Binary(binary) => self.binary(binary, grid),
        }
    }

    /// Evaluates a node that the parser says is an instant vector.
    pub(crate) fn vector(&self, node: &Node, grid: Grid) -> Result<Table, QueryError> {
        match self.node(node, grid)? {
            Value::Vector(table) => Ok(table),
            other => Err(QueryError::Internal(format!("an instant vector is needed, not {other:?}"))),
        }
    }

    /// Evaluates a node that the parser says is a scalar.
    pub(crate) fn scalar(&self, node: &Node, grid: Grid) -> Result<Vec<f64>, QueryError> {
        match self.node(node, grid)? {
            Value::Scalar(values) => Ok(values),
            other => Err(QueryError::Internal(format!("a scalar is needed, not {other:?}"))),
        }
    }

    /// The same value at every one of `steps` steps.
    fn repeat(&self, once: Value, steps: usize) -> Result<Value, QueryError> {
        Ok(match once {
            Value::Scalar(values) => Value::Scalar(vec![values.first().copied().unwrap_or(f64::NAN); steps]),
            Value::Text(text) => Value::Text(text),
            Value::Vector(table) => {
                self.budget.plan(table.rows.len() as u64, steps as u64)?;
                let rows = table.rows.into_iter().filter_map(|row| {
                    let value = row.get(0)?;
                    Some(Row {
                        values: vec![value; steps],
                        present: table::Bits::all(steps),
                        labels: row.labels,
                        drop_name: row.drop_name,
                    })
                });
                Value::Vector(self.table(rows.collect())?)
            }
        })
    }

    fn negate(&self, inner: &Node, grid: Grid) -> Result<Value, QueryError> {
        Ok(match self.node(inner, grid)? {
            Value::Scalar(values) => Value::Scalar(values.into_iter().map(|value| -value).collect()),
            Value::Vector(table) => Value::Vector(table.with(|mut rows| {
                for row in &mut rows {
                    row.drop_name = true;
                    row.values.iter_mut().for_each(|value| *value = -*value);
                }
                rows
            })),
            Value::Text(_) => return Err(QueryError::Internal("a string can't be negated".to_owned())),
        })
    }

    fn call(
        &self,
        function: Function,
        arguments: &[Node],
        span: Span,
        grid: Grid,
    ) -> Result<Value, QueryError> {
        use Function as F;
        let (start, end, step) = self.outer;
        let same = |value: f64| Ok(Value::Scalar(vec![value; grid.steps]));
        match function {
            F::Pi => same(std::f64::consts::PI),
            F::Start => same(seconds(start)),
            F::End => same(seconds(end)),
            F::Range => same((end - start) as f64 / 1e9),
            F::Step => same(if start == end { 0.0 } else { step as f64 / 1e9 }),
            F::Time => Ok(Value::Scalar((0..grid.steps).map(|step| seconds(grid.at(step))).collect())),
            F::MaxOf | F::MinOf => self.pairwise(function, arguments, grid),
            F::Scalar => self.to_scalar(arguments, grid),
            F::Vector => self.to_vector(arguments, grid).map(Value::Vector),
            F::Timestamp => self.timestamp(arguments, grid).map(Value::Vector),
            F::Element(element) => self.elementwise(element, arguments, grid).map(Value::Vector),
            F::Date(date) => self.date(date, arguments, grid).map(Value::Vector),
            F::Clamp | F::ClampMax | F::ClampMin => self.clamp(function, arguments, grid).map(Value::Vector),
            F::Round => self.round(arguments, grid).map(Value::Vector),
            F::Over(over) => self.over(over, arguments, grid).map(Value::Vector),
            F::Absent => self.absent(arguments, grid).map(Value::Vector),
            F::HistogramQuantile | F::HistogramFraction | F::HistogramQuantiles => {
                self.histogram(function, arguments, grid).map(Value::Vector)
            }
            F::Info => self.info(arguments, grid).map(Value::Vector),
            F::LabelReplace => self.label_replace(arguments, grid).map(Value::Vector),
            F::LabelJoin => self.label_join(arguments, grid).map(Value::Vector),
            F::Sort | F::SortDesc | F::SortByLabel | F::SortByLabelDesc => {
                if self.outer.0 != self.outer.1 {
                    self.note(Note::SortInRange, span);
                }
                self.sort(function, arguments, grid).map(Value::Vector)
            }
        }
    }
}

/// The value of a text argument.
pub(crate) fn text(node: &Node) -> Result<&str, QueryError> {
    match &node.kind {
        Kind::Text(text) => Ok(text),
        _ => Err(QueryError::Internal("a string literal is needed".to_owned())),
    }
}

/// Splits `items` over threads where that pays and keeps their order. The first error wins.
pub(crate) fn parallel<T: Send, R: Send>(
    budget: &Budget,
    items: Vec<T>,
    work: impl Fn(T) -> Result<R, QueryError> + Sync,
) -> Result<Vec<R>, QueryError> {
    /// Fewer items than this are done by the caller.
    const SHARE_MIN: usize = 16;
    let threads = budget.threads().min(items.len() / SHARE_MIN);
    if threads < 2 {
        return items.into_iter().map(work).collect();
    }
    let count = items.len();
    let slots: Vec<Mutex<Option<T>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let labour = || -> Result<Vec<(usize, R)>, QueryError> {
        let mut done = Vec::new();
        loop {
            let from = next.fetch_add(SHARE_MIN, std::sync::atomic::Ordering::Relaxed);
            if from >= count {
                return Ok(done);
            }
            for (at, slot) in slots.iter().enumerate().skip(from).take(SHARE_MIN) {
                let item = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(item) = item {
                    done.push((at, work(item)?));
                }
            }
        }
    };
    let mut all = std::thread::scope(|scope| {
        let handles: Vec<_> = (1..threads)
            .filter_map(|_| {
                std::thread::Builder::new().name("promql-series".to_owned()).spawn_scoped(scope, labour).ok()
            })
            .collect();
        let mut all = labour()?;
        for handle in handles {
            let lost = |_| QueryError::Internal("a query thread ended".to_owned());
            all.extend(handle.join().map_err(lost)??);
        }
        Ok::<_, QueryError>(all)
    })?;
    all.sort_unstable_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}
