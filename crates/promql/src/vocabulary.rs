//! The words of PromQL beside its functions: aggregations, operators and modifiers, with their help.

use crate::functions::FunctionHelp;

const AGGREGATIONS: [FunctionHelp; 14] = [
    help("avg", "v instant-vector", "Mean over series: says nothing of how far apart they are."),
    help(
        "bottomk",
        "k scalar, v instant-vector",
        "The k lowest series of each group, with all their labels.",
    ),
    help("count", "v instant-vector", "Number of series."),
    help(
        "count_values",
        "label string, v instant-vector",
        "Number of series that have each value; the value becomes a label.",
    ),
    help("group", "v instant-vector", "1 for each group that has a series."),
    help(
        "limit_ratio",
        "ratio scalar, v instant-vector",
        "A share of the series, always the same ones; a negative ratio takes the others.",
    ),
    help("limitk", "k scalar, v instant-vector", "Any k series of each group."),
    help("max", "v instant-vector", "Greatest value over series."),
    help("min", "v instant-vector", "Least value over series."),
    help("quantile", "q scalar, v instant-vector", "q-quantile over series, q between 0 and 1."),
    help("stddev", "v instant-vector", "Standard deviation over series."),
    help("stdvar", "v instant-vector", "Variance over series."),
    help("sum", "v instant-vector", "Sum over series: of counters, take `rate` first."),
    help("topk", "k scalar, v instant-vector", "The k highest series of each group, with all their labels."),
];

/// Modifiers of an aggregation.
const GROUPINGS: [FunctionHelp; 2] = [
    help("by", "label, ...", "Keeps these labels: one result for each combination of their values."),
    help("without", "label, ...", "Drops these labels and keeps all others."),
];

/// What may follow a vector.
const AFTER_VECTOR: [FunctionHelp; 5] = [
    help("and", "", "Series of the left side that the right side has too."),
    help("atan2", "", "Arc tangent of left over right, radians."),
    help("offset", "duration", "The past: values of that long ago."),
    help("or", "", "Series of the left side, and those of the right side that the left lacks."),
    help("unless", "", "Series of the left side that the right side lacks."),
];

/// What may follow an operator between vectors.
const AFTER_OPERATOR: [FunctionHelp; 3] = [
    help("bool", "", "0 or 1 for the comparison, in place of leaving series out."),
    help("ignoring", "label, ...", "Pairs series by all labels but these."),
    help("on", "label, ...", "Pairs series by these labels only."),
];

/// What may follow `on (...)` and `ignoring (...)`.
const AFTER_MATCHING: [FunctionHelp; 2] = [
    help("group_left", "label, ...", "Many series on the left for each on the right; labels to bring over."),
    help("group_right", "label, ...", "Many series on the right for each on the left; labels to bring over."),
];

/// What may stand behind `@`.
const MOMENTS: [FunctionHelp; 2] = [
    help("end", "", "The end of the query, at every step."),
    help("start", "", "The start of the query, at every step."),
];

const fn help(name: &'static str, arguments: &'static str, help: &'static str) -> FunctionHelp {
    FunctionHelp { name, arguments, help }
}

/// Every aggregation, by name; for completion.
pub fn aggregation_help() -> impl Iterator<Item = FunctionHelp> {
    AGGREGATIONS.into_iter()
}

/// Places in a query where words of the grammar may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordPlace {
    /// Behind the name of an aggregation, or its arguments.
    Grouping,
    /// Behind a vector.
    AfterVector,
    /// Behind an operator.
    AfterOperator,
    /// Behind `on (...)` or `ignoring (...)`.
    AfterMatching,
    /// Behind `@`.
    Moment,
}

/// The words that may stand at a place, by name; for completion.
pub fn keyword_help(place: WordPlace) -> impl Iterator<Item = FunctionHelp> {
    let words: &[FunctionHelp] = match place {
        WordPlace::Grouping => &GROUPINGS,
        WordPlace::AfterVector => &AFTER_VECTOR,
        WordPlace::AfterOperator => &AFTER_OPERATOR,
        WordPlace::AfterMatching => &AFTER_MATCHING,
        WordPlace::Moment => &MOMENTS,
    };
    words.iter().copied()
}

/// Whether `word`, in any case, is an aggregation.
pub(crate) fn is_aggregation(word: &str) -> bool {
    AGGREGATIONS.iter().any(|row| word.eq_ignore_ascii_case(row.name))
}
