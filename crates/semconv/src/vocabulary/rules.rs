//! The mapping as recording rules, for those who keep a Prometheus of their own.
//!
//! What [`Source::map`] and [`Row::value`] do to one series, an expression does to all of them here. Two
//! things PromQL can't say: the energy counter is what the source tells, not made monotone; and blanks are
//! left out, but not remembered as unsupported.

use std::fmt::Write as _;

use super::{Condition, Of, Part, Rename, Rewrite, Row, Source, Transform, Vocabulary};

/// The files that the sources known here go to; what a user adds goes to a file of its own.
const FILES: [(&str, &str, &[&str]); 3] = [
    (
        "engines",
        "inference engines",
        &["vllm", "sglang", "tgi", "triton", "trtllm", "dynamo", "nim", "llamacpp", "gen_ai"],
    ),
    ("dcgm", "dcgm-exporter", &["dcgm"]),
    ("amd", "AMD's device-metrics-exporter", &["amd"]),
];

const HEAD: &str = "\
# Canonical series (tg_*) of WHAT, made from their own by recording rules.
#
# For a Prometheus, Mimir or VictoriaMetrics of yours; the server does this itself where series come in, so don't load
# it there. Written by `truegauge rules export --mapping`; a change belongs into the vocabulary.
";
const ENERGY: &str = "\
# tg_gpu_energy_joules_total is the source's counter in joules: the server also takes out its steps back, which
# PromQL can't.
";

/// Name and text of each file of rules.
pub fn files(vocabulary: &Vocabulary) -> Vec<(String, String)> {
    let known = FILES.iter().map(|(name, what, sources)| {
        let sources = sources.iter().filter_map(|name| vocabulary.source(name)).collect();
        (*name, *what, sources)
    });
    let is_new = |source: &&Source| !FILES.iter().any(|(_, _, known)| known.contains(&source.name.as_str()));
    let new = vocabulary.sources().iter().filter(is_new);
    known
        .chain(new.map(|source| (source.name.as_str(), source.title.as_str(), vec![source])))
        .map(|(name, what, sources)| (format!("mapping-{name}.yml"), file(what, &sources)))
        .collect()
}

fn file(what: &str, sources: &[&Source]) -> String {
    let mut text = HEAD.replace("WHAT", what);
    if sources.iter().any(|source| source.of == Of::Gpu) {
        text.push_str(ENERGY);
    }
    text.push_str("groups:\n");
    for source in sources {
        let _written = write!(text, "  - name: mapping_{}\n    rules:\n", source.name);
        for Rule { record, labels, expr } in rules(source) {
            let _written = write!(text, "      - record: {record}\n        expr: |\n          {expr}\n");
            if !labels.is_empty() {
                let labels: Vec<String> =
                    labels.iter().map(|(label, value)| format!("{label}: \"{value}\"")).collect();
                let _written = writeln!(text, "        labels: {{{}}}", labels.join(", "));
            }
        }
    }
    text
}

/// Between expressions of one rank.
const TOGETHER: &str = "\n          or\n          ";

/// A recording rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The canonical series.
    pub record: String,
    /// Labels that it has beside what the expression gives.
    pub labels: Vec<(String, String)>,
    /// What makes it.
    pub expr: String,
}

/// The rules of a source, in the order of its rows.
pub fn rules(source: &Source) -> Vec<Rule> {
    let mut done = Vec::new();
    let mut found = Vec::new();
    for row in &source.rows {
        let Some(group) = row.group().filter(|group| !done.contains(group)) else { continue };
        done.push(group);
        let mut rows: Vec<&Row> = source.rows.iter().filter(|row| row.group() == Some(group)).collect();
        rows.sort_by_key(|row| row.rank);
        let parts: &[Part] = if row.is_histogram() { &Part::OF_HISTOGRAM } else { &[Part::Whole] };
        for &part in parts {
            let record = format!("{}{}", group.0, part.suffix());
            let mut labels = row.set.clone();
            if source.of == Of::Engine {
                labels.push(("engine".to_owned(), source.name.clone()));
            }
            found.push(Rule { record, labels, expr: alternatives(source, &rows, part) });
        }
    }
    found
}

/// Rows of one group: those of a rank together, a later rank where an earlier one has nothing of the page.
fn alternatives(source: &Source, rows: &[&Row], part: Part) -> String {
    let page = match source.of {
        Of::Engine => "job, instance",
        Of::Gpu => "host, gpu, uuid",
    };
    let mut ranks: Vec<(u16, Vec<String>)> = Vec::new();
    for row in rows {
        let expr = expression(source, row, part);
        match ranks.last_mut().filter(|(rank, _)| *rank == row.rank) {
            Some((_, together)) => together.push(expr),
            None => ranks.push((row.rank, vec![expr])),
        }
    }
    let ranks: Vec<String> = ranks.into_iter().map(|(_, together)| together.join(TOGETHER)).collect();
    let bracketed = |expr: String| match ranks_of(&expr) {
        1 => expr,
        _ => format!("({expr})"),
    };
    let join = format!("\n          or on ({page})\n          ");
    if ranks.len() == 1 {
        return ranks.concat();
    }
    ranks.into_iter().map(bracketed).collect::<Vec<_>>().join(&join)
}

/// How many expressions stand side by side.
fn ranks_of(expr: &str) -> usize {
    expr.split(TOGETHER).count()
}

/// What one row does, as an aggregation over all its originals.
fn expression(source: &Source, row: &Row, part: Part) -> String {
    let mut expr = selected(source, row, part);
    // The inner function acts first, and of several names for one label the first counts: it acts last.
    let renames = row.rename.iter().chain(&source.rename).rev().filter(|rename| source.has(row, rename));
    for rename in renames.filter(|rename| rename.from != rename.to || rename.how != Rewrite::As) {
        expr = renamed(&expr, rename);
    }
    let value = computed(row, &format!("max {} ({expr})", grouping(source, row)));
    scaled(row, value)
}

/// The originals of a row that are no blank.
fn selected(source: &Source, row: &Row, part: Part) -> String {
    let matchers: Vec<String> = source.only.iter().chain(&row.only).map(matcher).collect();
    let names: Vec<String> = row.from.iter().map(|name| format!("{name}{}", part.suffix())).collect();
    let (name, matchers) = match names.as_slice() {
        [name] => (name.clone(), matchers),
        names => {
            let pattern = names.iter().map(|name| escaped(name)).collect::<Vec<_>>().join("|");
            let mut all = vec![format!("__name__=~\"{pattern}\"")];
            all.extend(matchers);
            // Two spellings on one page would be two series of the same labels without their names.
            (String::new(), all)
        }
    };
    let selector = if matchers.is_empty() { name } else { format!("{name}{{{}}}", matchers.join(", ")) };
    let blanks =
        source.blanks.iter().chain(row.is_narrow().then_some(&source.blanks_narrow).into_iter().flatten());
    let mut expr = selector;
    for blank in blanks {
        let _written = write!(expr, " != {blank}");
    }
    expr
}

fn escaped(name: &str) -> String {
    name.replace('.', "\\\\.")
}

fn matcher(condition: &Condition) -> String {
    let Condition { label, values, not } = condition;
    match (values.as_slice(), not) {
        ([value], false) => format!("{label}=\"{value}\""),
        ([value], true) => format!("{label}!=\"{value}\""),
        (values, not) => format!("{label}{}\"{}\"", if *not { "!~" } else { "=~" }, values.join("|")),
    }
}

fn renamed(expr: &str, rename: &Rename) -> String {
    let Rename { from, to, how } = rename;
    match how {
        Rewrite::As => format!("label_replace({expr}, \"{to}\", \"$1\", \"{from}\", \"(.+)\")"),
        Rewrite::Host => {
            format!("label_replace({expr}, \"{to}\", \"$1\", \"{from}\", \"(.+?)(?::[0-9]+)?\")")
        }
        Rewrite::Pci => lower_pci(
            &format!(
                "label_replace({expr}, \"{to}\", \"$1\", \"{from}\", \"(?:0000)?([0-9A-Fa-f]{{4}}:.+)\")"
            ),
            to,
        ),
    }
}

/// PromQL has no lower case: each capital of an address is replaced by itself, last first.
fn lower_pci(expr: &str, label: &str) -> String {
    let mut expr = expr.to_owned();
    for (upper, lower) in [("A", "a"), ("B", "b"), ("C", "c"), ("D", "d"), ("E", "e"), ("F", "f")] {
        for _ in 0..HEX_DIGITS {
            expr = format!(
                "label_replace({expr}, \"{label}\", \"${{1}}{lower}${{2}}\", \"{label}\", \"(.*){upper}(.*)\")"
            );
        }
    }
    expr
}

/// Digits of an address that may be letters: four of the domain, two of the bus, one of the device.
const HEX_DIGITS: usize = 7;

fn grouping(source: &Source, row: &Row) -> String {
    if source.of == Of::Engine {
        let renames = row.rename.iter().chain(&source.rename);
        // A label that is renamed goes, unless the canonical series has one of that name.
        let canonical = |label: &str| {
            label == "engine" || row.rename.iter().chain(&source.rename).any(|other| other.to == label)
        };
        let gone = renames.map(|rename| rename.from.as_str()).filter(|from| !canonical(from));
        let mut labels: Vec<&str> = Vec::new();
        for label in gone.chain(source.drop.iter().chain(&row.drop).map(String::as_str)) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        return format!("without ({})", labels.join(", "));
    }
    let mut labels: Vec<&str> = vec!["host", "gpu", "uuid"];
    let renames = row.rename.iter().chain(&source.rename).filter(|rename| source.has(row, rename));
    for label in renames.map(|rename| rename.to.as_str()) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    format!("by ({})", labels.join(", "))
}

fn computed(row: &Row, expr: &str) -> String {
    match row.transform {
        Transform::None => expr.to_owned(),
        Transform::One => format!("{expr} * 0 + 1"),
        Transform::Bit(bit) => format!("floor({expr} / {bit}) % 2"),
        Transform::PcieGeneration => format!("floor(log2({expr}))"),
    }
}

#[expect(clippy::float_cmp, reason = "1 is written in the table, not computed")]
fn scaled(row: &Row, mut expr: String) -> String {
    if row.scale != 1.0 {
        let _written = write!(expr, " * {}", row.scale);
    }
    if row.per != 1.0 {
        let _written = write!(expr, " / {}", row.per);
    }
    expr
}
