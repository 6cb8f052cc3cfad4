//! Runs files in Prometheus' test notation; shared by the tests and `examples/promqltest.rs`.

use std::fmt::Write as _;
use std::path::Path;

use model::Labels;
use promql::notation::{Entry, parse_duration_ms, parse_labels, parse_values};
use promql::{Answer, Data, Matcher, MemorySource, Options, Query, QueryError};

/// What became of the cases of one file.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) file: String,
    pub(crate) cases: usize,
    pub(crate) passed: usize,
    /// Line, query, reason.
    pub(crate) failed: Vec<(usize, String, String)>,
    pub(crate) unsupported: Vec<(usize, String, String)>,
    /// Passed, but beyond a relative 1e-9.
    pub(crate) loose: usize,
}

/// Runs one file.
pub(crate) fn run_file(path: &Path) -> Tally {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut tally = run_text(&text);
    tally.file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    tally
}

#[derive(Default)]
struct Expect {
    fails: bool,
    fail_text: Option<Text>,
    warns: Wanted,
    infos: Wanted,
    no_warn: bool,
    no_info: bool,
    ordered: bool,
    string: Option<String>,
    grid: Option<(i64, i64)>,
    scalar: Option<f64>,
    series: Vec<(Labels, Vec<Entry>)>,
    histogram: bool,
}

/// What is wanted of warnings or infos.
#[derive(Default)]
enum Wanted {
    #[default]
    Anything,
    Some,
    Text(Text),
}

impl From<Option<Text>> for Wanted {
    fn from(text: Option<Text>) -> Self {
        text.map_or(Self::Some, Self::Text)
    }
}

enum Text {
    Exact(String),
    Pattern(regex::Regex),
}

impl Text {
    fn fits(&self, text: &str) -> bool {
        match self {
            Text::Exact(exact) => exact == text,
            Text::Pattern(pattern) => pattern.is_match(text),
        }
    }
}

struct Case {
    line: usize,
    query: String,
    /// Start, end, step; step 0 for an instant.
    times: (i64, i64, i64),
    expect: Expect,
}

/// Runs the commands of one text.
pub(crate) fn run_text(text: &str) -> Tally {
    let mut tally = Tally::default();
    let mut source = MemorySource::new();
    let mut histograms: Vec<Labels> = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let line = strip(lines[at]);
        at += 1;
        let mut block = Vec::new();
        if line.is_empty() {
            continue;
        }
        let first = at;
        while at < lines.len() && !strip(lines[at]).is_empty() && lines[at].starts_with([' ', '\t']) {
            block.push(strip(lines[at]));
            at += 1;
        }
        // A comment inside a block does not end it.
        while at < lines.len()
            && lines[at].trim_start().starts_with('#')
            && lines[at].starts_with([' ', '\t'])
        {
            at += 1;
            while at < lines.len() && !strip(lines[at]).is_empty() && lines[at].starts_with([' ', '\t']) {
                block.push(strip(lines[at]));
                at += 1;
            }
        }
        let mut words = line.split_whitespace();
        match words.next().unwrap_or_default() {
            "clear" => {
                source.clear();
                histograms.clear();
            }
            command @ ("load" | "load_with_nhcb") => {
                let converted = command == "load_with_nhcb";
                let step = words.next().and_then(parse_duration_ms).unwrap_or(60_000);
                for series in &block {
                    load(series, converted, step, &mut source, &mut histograms);
                }
            }
            word if word.starts_with("eval") => {
                tally.cases += 1;
                match parse_case(line, &block, first) {
                    Ok(case) => judge(&case, &source, &histograms, &mut tally),
                    Err(reason) => tally.failed.push((first, line.to_owned(), reason)),
                }
            }
            other => tally.failed.push((first, line.to_owned(), format!("unknown command {other}"))),
        }
    }
    tally
}

fn strip(line: &str) -> &str {
    let trimmed = line.trim();
    if trimmed.starts_with('#') { "" } else { trimmed }
}

fn load(text: &str, converted: bool, step_ms: i64, source: &mut MemorySource, histograms: &mut Vec<Labels>) {
    let Ok((labels, rest)) = parse_labels(text) else { return };
    // A trailing `@ST...` or the like belongs to an experiment.
    let Ok(entries) = parse_values(rest) else {
        histograms.push(labels);
        return;
    };
    if entries.contains(&Entry::Histogram) {
        histograms.push(labels.clone());
    }
    if converted && let Some(name) = labels.metric().strip_suffix("_bucket") {
        let kept = labels.iter().filter(|(label, _)| *label != "le" && *label != "__name__");
        histograms.push(Labels::from_pairs(kept.chain([("__name__", name)])));
    }
    for (index, entry) in entries.iter().enumerate() {
        if let Entry::Value(value) = entry {
            source.push(labels.clone(), index as i64 * step_ms * 1_000_000, *value);
        }
    }
}

fn parse_case(line: &str, block: &[&str], number: usize) -> Result<Case, String> {
    let mut expect = Expect::default();
    let (head, rest) = line.split_once(char::is_whitespace).ok_or("no query")?;
    match head {
        "eval_fail" => expect.fails = true,
        "eval_warn" => expect.warns = Wanted::Some,
        "eval_info" => expect.infos = Wanted::Some,
        "eval_ordered" => expect.ordered = true,
        _ => {}
    }
    let rest = rest.trim_start();
    let (times, query) = if let Some(rest) = rest.strip_prefix("instant") {
        let rest = rest.trim_start().strip_prefix("at").ok_or("no time")?.trim_start();
        let (time, query) = rest.split_once(char::is_whitespace).ok_or("no query")?;
        let time = parse_duration_ms(time).ok_or("no time")?;
        ((time, time, 0), query.trim())
    } else if let Some(rest) = rest.strip_prefix("range") {
        let mut rest = rest;
        let mut times = [0; 3];
        for (place, word) in ["from", "to", "step"].iter().enumerate() {
            rest = rest.trim_start().strip_prefix(word).ok_or("no range")?.trim_start();
            let (time, after) = rest.split_once(char::is_whitespace).ok_or("no range")?;
            times[place] = parse_duration_ms(time).ok_or("no time")?;
            rest = after;
        }
        ((times[0], times[1], times[2]), rest.trim())
    } else {
        return Err("neither instant nor range".into());
    };
    for line in block {
        expectation(line, &mut expect)?;
    }
    Ok(Case { line: number, query: query.to_owned(), times, expect })
}

fn expectation(line: &str, expect: &mut Expect) -> Result<(), String> {
    let text = |rest: &str| -> Result<Option<Text>, String> {
        let rest = rest.trim();
        if let Some(exact) = rest.strip_prefix("msg:") {
            Ok(Some(Text::Exact(exact.trim().to_owned())))
        } else if let Some(pattern) = rest.strip_prefix("regex:") {
            regex::Regex::new(pattern.trim()).map(|p| Some(Text::Pattern(p))).map_err(|e| e.to_string())
        } else {
            Ok(None)
        }
    };
    if let Some(message) = line.strip_prefix("expected_fail_message") {
        expect.fail_text = Some(Text::Exact(message.trim().to_owned()));
        return Ok(());
    }
    if let Some(pattern) = line.strip_prefix("expected_fail_regexp") {
        expect.fail_text =
            Some(Text::Pattern(regex::Regex::new(pattern.trim()).map_err(|error| error.to_string())?));
        return Ok(());
    }
    if let Some(rest) = line.strip_prefix("expect ") {
        let rest = rest.trim();
        let (word, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        match word {
            "fail" => {
                expect.fails = true;
                expect.fail_text = text(rest)?;
            }
            "warn" => expect.warns = text(rest)?.into(),
            "info" => expect.infos = text(rest)?.into(),
            "no_warn" => expect.no_warn = true,
            "no_info" => expect.no_info = true,
            "ordered" => expect.ordered = true,
            "string" => {
                let rest = rest.trim();
                let inner = rest.trim_matches(['"', '`', '\'']);
                expect.string = Some(inner.replace("\\\"", "\""));
            }
            "range" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let time = |name: &str| {
                    let at = words.iter().position(|word| *word == name)?;
                    parse_duration_ms(words.get(at + 1)?)
                };
                expect.grid = time("from").zip(time("step"));
            }
            other => return Err(format!("unknown expectation {other}")),
        }
        return Ok(());
    }
    if let Ok(number) = line.parse::<f64>() {
        expect.scalar = Some(number);
        return Ok(());
    }
    let (labels, rest) = parse_labels(line).map_err(|error| error.to_string())?;
    let entries = parse_values(rest).map_err(|error| error.to_string())?;
    expect.histogram |= entries.contains(&Entry::Histogram);
    expect.series.push((labels, entries));
    Ok(())
}

fn judge(case: &Case, source: &MemorySource, histograms: &[Labels], tally: &mut Tally) {
    let touches_histograms = |query: &Query| {
        let fits = |matchers: &[Matcher]| {
            histograms.iter().any(|labels| matchers.iter().all(|matcher| matcher.fits_series(labels)))
        };
        query.selectors().iter().any(|matchers| fits(matchers))
    };
    let options = Options::default();
    let query = match Query::parse(&case.query) {
        Ok(query) => query,
        Err(error @ QueryError::Unsupported { .. }) => {
            tally.unsupported.push((case.line, case.query.clone(), error.to_string()));
            return;
        }
        Err(error) => {
            match (case.expect.fails, &case.expect.fail_text) {
                (true, None) => tally.passed += 1,
                (true, Some(text)) if text.fits(&error.to_string()) => tally.passed += 1,
                _ => tally.failed.push((case.line, case.query.clone(), error.to_string())),
            }
            return;
        }
    };
    let histogram = case.expect.histogram || touches_histograms(&query);
    let fail = |tally: &mut Tally, reason: String| {
        // The floats beside native histograms are judged too, but only to their favour.
        let list = if histogram { &mut tally.unsupported } else { &mut tally.failed };
        list.push((case.line, case.query.clone(), reason));
    };
    let answer = if case.times.2 == 0 {
        query.instant(source, case.times.0, &options)
    } else {
        query.range(source, case.times, &options)
    };
    let answer = match answer {
        Ok(answer) if case.expect.fails => {
            return fail(tally, format!("should fail, gave {:?}", answer.data));
        }
        Ok(answer) => answer,
        Err(error) => {
            match (case.expect.fails, &case.expect.fail_text) {
                (true, None) => tally.passed += 1,
                (true, Some(text)) if text.fits(&error.to_string()) => tally.passed += 1,
                _ => fail(tally, error.to_string()),
            }
            return;
        }
    };
    let result = notes(&answer, &case.expect).and_then(|()| compare(&answer.data, case)).and_then(|loose| {
        as_range(&query, source, case, &options)?;
        Ok(loose)
    });
    match result {
        Ok(loose) => {
            tally.passed += 1;
            tally.loose += usize::from(loose);
        }
        Err(reason) => fail(tally, reason),
    }
}

fn notes(answer: &Answer, expect: &Expect) -> Result<(), String> {
    for (wanted, none, found, name) in [
        (&expect.warns, expect.no_warn, &answer.warnings, "warning"),
        (&expect.infos, expect.no_info, &answer.infos, "info"),
    ] {
        if none && !found.is_empty() {
            return Err(format!("unexpected {name}: {found:?}"));
        }
        match wanted {
            Wanted::Some if found.is_empty() => return Err(format!("no {name}")),
            Wanted::Text(text) if !found.iter().any(|found| text.fits(found)) => {
                return Err(format!("other {name}: {found:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Compares; `true` when it fits only loosely.
fn compare(data: &Data, case: &Case) -> Result<bool, String> {
    let expect = &case.expect;
    let mut loose = false;
    match data {
        Data::String { value, .. } => match &expect.string {
            Some(wanted) if wanted == value => {}
            other => return Err(format!("gave {value:?}, wanted {other:?}")),
        },
        Data::Scalar { value, .. } => {
            let wanted = expect.scalar.ok_or_else(|| format!("gave the scalar {value}"))?;
            loose |= close(*value, wanted)?;
        }
        Data::Vector { samples, .. } => {
            if expect.scalar.is_some() {
                return Err("gave a vector, wanted a scalar".into());
            }
            if samples.len() != expect.series.len() {
                return Err(format!("gave {samples:?}, wanted {:?}", expect.series));
            }
            for (place, (labels, entries)) in expect.series.iter().enumerate() {
                let found = if expect.ordered {
                    samples.get(place).filter(|(found, _)| **found == *labels)
                } else {
                    samples.iter().find(|(found, _)| **found == *labels)
                };
                let (_, value) = found.ok_or_else(|| format!("no {labels} (at {place}) in {samples:?}"))?;
                match entries[..] {
                    [Entry::Value(wanted)] => {
                        loose |= close(*value, wanted).map_err(|reason| format!("{labels}: {reason}"))?;
                    }
                    _ => return Err("the case wants several values of one".into()),
                }
            }
        }
        Data::Matrix(runs) => {
            let (start, step) = expect.grid.unwrap_or((case.times.0, case.times.2.max(1)));
            if runs.len() != expect.series.len() {
                let mut found = String::new();
                for run in runs {
                    let _ = write!(found, "{} {:?}; ", run.labels, run.points().collect::<Vec<_>>());
                }
                return Err(format!("gave {found}, wanted {:?}", expect.series));
            }
            for (labels, entries) in &expect.series {
                let run = runs.iter().find(|run| *run.labels == *labels).ok_or_else(|| {
                    format!(
                        "no {labels} among {:?}",
                        runs.iter().map(|run| run.labels.to_string()).collect::<Vec<_>>()
                    )
                })?;
                let wanted: Vec<(i64, f64)> = entries
                    .iter()
                    .enumerate()
                    .filter_map(|(index, entry)| match entry {
                        Entry::Value(value) => Some((start + index as i64 * step, *value)),
                        _ => None,
                    })
                    .collect();
                let found: Vec<(i64, f64)> = run.points().collect();
                if found.len() != wanted.len() || found.iter().zip(&wanted).any(|(a, b)| a.0 != b.0) {
                    return Err(format!("{labels}: gave {found:?}, wanted {wanted:?}"));
                }
                for ((_, value), (_, wanted)) in found.iter().zip(&wanted) {
                    loose |= close(*value, *wanted).map_err(|reason| format!("{labels}: {reason}"))?;
                }
            }
        }
    }
    Ok(loose)
}

/// Whether `value` is near enough, and only loosely so.
fn close(value: f64, wanted: f64) -> Result<bool, String> {
    let same = value == wanted || (value.is_nan() && wanted.is_nan());
    let apart = (value - wanted).abs() / (value.abs() + wanted.abs()).min(f64::MAX);
    if same || apart < 1e-9 {
        Ok(false)
    } else if apart < 1e-6 {
        Ok(true)
    } else {
        Err(format!("gave {value}, wanted {wanted}"))
    }
}

/// An instant query must give the same inside a range.
fn as_range(query: &Query, source: &MemorySource, case: &Case, options: &Options) -> Result<(), String> {
    let vector = query.value_type() == promql::ValueType::Vector;
    if case.times.2 != 0 || !vector || case.expect.ordered {
        return Ok(());
    }
    let time = case.times.0;
    // `@ start()` and the like mean something else in a range.
    if ["start(", "end(", "range(", "step("].iter().any(|word| case.query.contains(word)) {
        return Ok(());
    }
    let answer = query
        .range(source, (time - 60_000, time + 60_000, 60_000), options)
        .map_err(|error| format!("as a range: {error}"))?;
    let Data::Matrix(runs) = &answer.data else { return Err("a range is no matrix".into()) };
    let samples = runs
        .iter()
        .filter_map(|run| {
            let (_, value) = run.points().find(|(at, _)| *at == time)?;
            Some((run.labels.clone(), value))
        })
        .collect();
    let data = Data::Vector { time_ms: time, samples };
    compare(&data, case).map(|_| ()).map_err(|reason| format!("as a range: {reason}"))
}
