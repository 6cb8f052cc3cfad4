//! What the evaluator asks of a source: no chunk is decoded without need, damage is an error.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{Labels, stale_marker};
use promql::{Chunk, Columns, Data, Options, Query, Select, Series, Source, SourceError, Summary};

/// One series in chunks of ten samples, one a second; counts what is decoded.
struct Counting {
    samples: usize,
    decoded: AtomicUsize,
    damaged: Option<usize>,
}

struct One<'a>(&'a Counting);

struct Piece<'a> {
    source: &'a Counting,
    number: usize,
    columns: Columns,
}

impl Source for Counting {
    fn select<'s>(&'s self, _: &Select<'_>) -> Result<Vec<Box<dyn Series + 's>>, SourceError> {
        Ok(vec![Box::new(One(self))])
    }
}

impl Series for One<'_> {
    fn labels(&self) -> Arc<Labels> {
        Arc::new(Labels::from_pairs([("__name__", "x_total")]))
    }

    fn chunks(
        &self,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&dyn Chunk) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        for number in 0..self.0.samples / 10 {
            let times_ns: Vec<i64> = (0..10).map(|at| (number as i64 * 10 + at) * 1_000_000_000).collect();
            if times_ns[9] < from_ns || times_ns[0] > to_ns {
                continue;
            }
            let values = (0..10).map(|at| (number * 10 + at) as f64).collect();
            let piece = Piece { source: self.0, number, columns: Columns { times_ns, values } };
            if visit(&piece).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Chunk for Piece<'_> {
    fn summary(&self) -> Summary {
        Summary::of(&self.columns.times_ns, &self.columns.values).unwrap()
    }

    fn decode(&self, into: &mut Columns) -> Result<(), SourceError> {
        self.source.decoded.fetch_add(1, Ordering::Relaxed);
        if self.source.damaged == Some(self.number) {
            return Err(SourceError { reason: "chunk 3 is damaged".to_owned() });
        }
        into.times_ns.extend(&self.columns.times_ns);
        into.values.extend(&self.columns.values);
        Ok(())
    }
}

fn counting(samples: usize) -> Counting {
    Counting { samples, decoded: AtomicUsize::new(0), damaged: None }
}

fn first(data: &Data) -> f64 {
    match data {
        Data::Vector { samples, .. } => samples[0].1,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_value_needs_no_decoding() {
    let source = counting(100);
    let answer = Query::parse("x_total").unwrap().instant(&source, 200_000, &Options::default()).unwrap();
    assert_eq!(first(&answer.data), 99.0);
    assert_eq!(source.decoded.load(Ordering::Relaxed), 0);
    let answer = Query::parse("x_total").unwrap().instant(&source, 95_500, &Options::default()).unwrap();
    assert_eq!(first(&answer.data), 95.0);
    assert_eq!(source.decoded.load(Ordering::Relaxed), 1);
}

#[test]
fn chunks_between_windows_stay_closed() {
    let source = counting(10_000);
    let query = Query::parse("rate(x_total[20s])").unwrap();
    let answer = query.range(&source, (0, 9_000_000, 1_000_000), &Options::default()).unwrap();
    assert_eq!(answer.data.len(), 1);
    let decoded = source.decoded.load(Ordering::Relaxed);
    assert!(decoded <= 31, "{decoded} of 1000 chunks were decoded");
    let query = Query::parse("x_total").unwrap();
    query.range(&source, (0, 9_000_000, 1_000_000), &Options::default()).unwrap();
    let more = source.decoded.load(Ordering::Relaxed) - decoded;
    assert!(more <= 10, "{more} chunks were decoded");
}

#[test]
fn whole_chunks_answer_from_their_summary() {
    for (query, wanted, most) in [
        ("count_over_time(x_total[1h])", 1000.0, 0),
        ("max_over_time(x_total[1h])", 999.0, 0),
        ("min_over_time(x_total[995s])", 5.0, 1),
        ("last_over_time(x_total[1h])", 999.0, 0),
        ("count_over_time(x_total[995s])", 995.0, 1),
        ("sum_over_time(x_total[995s])", 499_490.0, 100),
    ] {
        let source = counting(1000);
        let answer = Query::parse(query).unwrap().instant(&source, 999_000, &Options::default()).unwrap();
        assert_eq!(first(&answer.data), wanted, "{query}");
        let decoded = source.decoded.load(Ordering::Relaxed);
        assert!(decoded <= most, "{query} decoded {decoded} chunks");
    }
}

#[test]
fn damage_is_an_error_with_its_reason() {
    let source = Counting { damaged: Some(3), ..counting(100) };
    let query = Query::parse("sum_over_time(x_total[1h])").unwrap();
    let error = query.instant(&source, 100_000, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "expanding series: chunk 3 is damaged");
    assert_eq!(error.kind(), "execution");
}

#[test]
fn markers_survive_the_summary() {
    let columns = Columns { times_ns: vec![1, 2], values: vec![1.0, stale_marker()] };
    let summary = Summary::of(&columns.times_ns, &columns.values).unwrap();
    assert!(model::is_stale_marker(summary.last));
    assert_eq!((summary.count, summary.non_finite, summary.min, summary.max), (2, 1, 1.0, 1.0));
}

#[test]
fn only_samples_in_the_window_count_as_read() {
    let source = counting(1000);
    let query = Query::parse("sum_over_time(x_total[5s])").unwrap();
    let answer = query.instant(&source, 504_000, &Options::default()).unwrap();
    assert_eq!(first(&answer.data), 2510.0);
    assert_eq!(answer.stats.samples_read, 5);
    let answer =
        Query::parse("x_total[12s]").unwrap().instant(&source, 504_000, &Options::default()).unwrap();
    assert_eq!(answer.stats.samples_read, 12);
    let Data::Matrix(runs) = &answer.data else { panic!("no matrix") };
    assert_eq!(runs[0].points().next(), Some((493_000, 493.0)));
}
