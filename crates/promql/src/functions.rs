//! The functions of PromQL: their names, and what the evaluator needs to know of each.

/// Functions over one value at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Deg,
    Exp,
    Floor,
    Ln,
    Log10,
    Log2,
    Rad,
    Sgn,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
}

/// Parts of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Date {
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    DaysInMonth,
    Hour,
    Minute,
    Month,
    Year,
}

/// Functions over a window of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Absent,
    Avg,
    Changes,
    Count,
    Delta,
    Deriv,
    DoubleExponentialSmoothing,
    First,
    Idelta,
    Increase,
    Irate,
    Last,
    Mad,
    Max,
    Min,
    PredictLinear,
    Present,
    Quantile,
    Rate,
    Resets,
    Stddev,
    Stdvar,
    Sum,
    TsOfFirst,
    TsOfLast,
    TsOfMax,
    TsOfMin,
}

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Element(Element),
    Date(Date),
    Over(Over),
    Absent,
    Clamp,
    ClampMax,
    ClampMin,
    End,
    HistogramFraction,
    HistogramQuantile,
    HistogramQuantiles,
    Info,
    LabelJoin,
    LabelReplace,
    MaxOf,
    MinOf,
    Pi,
    Range,
    Round,
    Scalar,
    Sort,
    SortByLabel,
    SortByLabelDesc,
    SortDesc,
    Start,
    Step,
    Time,
    Timestamp,
    Vector,
}

/// The function whose second argument is no selector.
pub(crate) const INFO: &str = "info";

/// Functions that the parser knows and this engine refuses, with what to do instead.
pub(crate) const UNSUPPORTED: [(&str, &str); 7] = [
    ("histogram_avg", "it works on native histograms only, divide `rate(x_sum[5m])` by `rate(x_count[5m])`"),
    ("histogram_count", "it works on native histograms only, use the `_count` series"),
    (
        "histogram_stddev",
        "it works on native histograms only, compare two `histogram_quantile` of classic buckets",
    ),
    (
        "histogram_stdvar",
        "it works on native histograms only, compare two `histogram_quantile` of classic buckets",
    ),
    ("histogram_sum", "it works on native histograms only, use the `_sum` series"),
    ("integral", "it is not part of Prometheus, multiply `avg_over_time` by the seconds of its window"),
    (
        "start_timestamp",
        "samples carry no start time here, use `foo_created` or `process_start_time_seconds` where there is one",
    ),
];

/// Name, function, arguments and help, sorted by name.
const TABLE: [(&str, Function, &str, &str); 84] = {
    use Function as F;
    [
        ("abs", F::Element(Element::Abs), "v instant-vector", "Absolute value."),
        ("absent", F::Absent, "v instant-vector", "1 where the vector is empty, nothing otherwise."),
        (
            "absent_over_time",
            F::Over(Over::Absent),
            "v range-vector",
            "1 where the window holds no sample of any series.",
        ),
        ("acos", F::Element(Element::Acos), "v instant-vector", "Arc cosine, radians."),
        ("acosh", F::Element(Element::Acosh), "v instant-vector", "Inverse hyperbolic cosine."),
        ("asin", F::Element(Element::Asin), "v instant-vector", "Arc sine, radians."),
        ("asinh", F::Element(Element::Asinh), "v instant-vector", "Inverse hyperbolic sine."),
        ("atan", F::Element(Element::Atan), "v instant-vector", "Arc tangent, radians."),
        ("atanh", F::Element(Element::Atanh), "v instant-vector", "Inverse hyperbolic tangent."),
        (
            "avg_over_time",
            F::Over(Over::Avg),
            "v range-vector",
            "Mean of the samples in the window, each counting the same.",
        ),
        ("ceil", F::Element(Element::Ceil), "v instant-vector", "Rounds up to a whole number."),
        (
            "changes",
            F::Over(Over::Changes),
            "v range-vector",
            "How often the value changed within the window.",
        ),
        (
            "clamp",
            F::Clamp,
            "v instant-vector, min scalar, max scalar",
            "Keeps values between two bounds; nothing when min is above max.",
        ),
        ("clamp_max", F::ClampMax, "v instant-vector, max scalar", "Keeps values at or below a bound."),
        ("clamp_min", F::ClampMin, "v instant-vector, min scalar", "Keeps values at or above a bound."),
        ("cos", F::Element(Element::Cos), "v instant-vector", "Cosine of radians."),
        ("cosh", F::Element(Element::Cosh), "v instant-vector", "Hyperbolic cosine."),
        ("count_over_time", F::Over(Over::Count), "v range-vector", "Number of samples in the window."),
        (
            "day_of_month",
            F::Date(Date::DayOfMonth),
            "v=vector(time()) instant-vector",
            "Day of the month in UTC, 1 to 31.",
        ),
        (
            "day_of_week",
            F::Date(Date::DayOfWeek),
            "v=vector(time()) instant-vector",
            "Day of the week in UTC, 0 is Sunday.",
        ),
        (
            "day_of_year",
            F::Date(Date::DayOfYear),
            "v=vector(time()) instant-vector",
            "Day of the year in UTC, 1 to 366.",
        ),
        (
            "days_in_month",
            F::Date(Date::DaysInMonth),
            "v=vector(time()) instant-vector",
            "Days of the month in UTC, 28 to 31.",
        ),
        ("deg", F::Element(Element::Deg), "v instant-vector", "Radians to degrees."),
        (
            "delta",
            F::Over(Over::Delta),
            "v range-vector",
            "Difference over the window, extrapolated to its edges; for gauges.",
        ),
        (
            "deriv",
            F::Over(Over::Deriv),
            "v range-vector",
            "Slope per second of the line nearest to the samples; for gauges.",
        ),
        (
            "double_exponential_smoothing",
            F::Over(Over::DoubleExponentialSmoothing),
            "v range-vector, sf scalar, tf scalar",
            "Smoothed value; sf weighs new samples, tf the trend, both between 0 and 1.",
        ),
        ("end", F::End, "", "End of the query, seconds since 1970."),
        ("exp", F::Element(Element::Exp), "v instant-vector", "e to the power of the value."),
        ("first_over_time", F::Over(Over::First), "v range-vector", "Earliest sample in the window."),
        ("floor", F::Element(Element::Floor), "v instant-vector", "Rounds down to a whole number."),
        (
            "histogram_fraction",
            F::HistogramFraction,
            "lower scalar, upper scalar, b instant-vector",
            "Share of observations between two bounds, interpolated within buckets.",
        ),
        (
            "histogram_quantile",
            F::HistogramQuantile,
            "q scalar, b instant-vector",
            "q-quantile of classic buckets, interpolated within a bucket: as exact as the buckets are narrow.",
        ),
        (
            "histogram_quantiles",
            F::HistogramQuantiles,
            "b instant-vector, label string, q scalar, ...",
            "Several quantiles at once, told apart by a label.",
        ),
        ("hour", F::Date(Date::Hour), "v=vector(time()) instant-vector", "Hour of the day in UTC, 0 to 23."),
        (
            "idelta",
            F::Over(Over::Idelta),
            "v range-vector",
            "Difference of the last two samples; for gauges.",
        ),
        (
            "increase",
            F::Over(Over::Increase),
            "v range-vector",
            "Growth over the window, resets allowed for, extrapolated to its edges: not always whole; for counters.",
        ),
        (
            INFO,
            F::Info,
            "v instant-vector, labels={__name__=\"target_info\"} label-selector",
            "Adds the labels of the info series with the same `instance` and `job`: all of them, or those that the braces name.",
        ),
        (
            "irate",
            F::Over(Over::Irate),
            "v range-vector",
            "Growth per second between the last two samples; for counters.",
        ),
        (
            "label_join",
            F::LabelJoin,
            "v instant-vector, dst string, separator string, src string, ...",
            "Sets a label to the values of others, joined.",
        ),
        (
            "label_replace",
            F::LabelReplace,
            "v instant-vector, dst string, replacement string, src string, regex string",
            "Sets a label where the pattern fits the whole value of another.",
        ),
        ("last_over_time", F::Over(Over::Last), "v range-vector", "Latest sample in the window."),
        ("ln", F::Element(Element::Ln), "v instant-vector", "Natural logarithm."),
        ("log10", F::Element(Element::Log10), "v instant-vector", "Decimal logarithm."),
        ("log2", F::Element(Element::Log2), "v instant-vector", "Binary logarithm."),
        (
            "mad_over_time",
            F::Over(Over::Mad),
            "v range-vector",
            "Median of the distances from the median in the window.",
        ),
        ("max_of", F::MaxOf, "a scalar, b scalar", "The larger of two numbers."),
        ("max_over_time", F::Over(Over::Max), "v range-vector", "Greatest value in the window."),
        ("min_of", F::MinOf, "a scalar, b scalar", "The smaller of two numbers."),
        ("min_over_time", F::Over(Over::Min), "v range-vector", "Least value in the window."),
        (
            "minute",
            F::Date(Date::Minute),
            "v=vector(time()) instant-vector",
            "Minute of the hour in UTC, 0 to 59.",
        ),
        (
            "month",
            F::Date(Date::Month),
            "v=vector(time()) instant-vector",
            "Month of the year in UTC, 1 to 12.",
        ),
        ("pi", F::Pi, "", "The number pi."),
        (
            "predict_linear",
            F::Over(Over::PredictLinear),
            "v range-vector, t scalar",
            "Value in t seconds on the line nearest to the samples; for gauges.",
        ),
        ("present_over_time", F::Over(Over::Present), "v range-vector", "1 where the window holds a sample."),
        (
            "quantile_over_time",
            F::Over(Over::Quantile),
            "q scalar, v range-vector",
            "q-quantile of the samples in the window.",
        ),
        ("rad", F::Element(Element::Rad), "v instant-vector", "Degrees to radians."),
        ("range", F::Range, "", "Length of the query, seconds."),
        (
            "rate",
            F::Over(Over::Rate),
            "v range-vector",
            "Growth per second over the window, resets allowed for, extrapolated to its edges; for counters.",
        ),
        (
            "resets",
            F::Over(Over::Resets),
            "v range-vector",
            "How often the value fell within the window; for counters.",
        ),
        (
            "round",
            F::Round,
            "v instant-vector, to_nearest=1 scalar",
            "Rounds to the nearest multiple, halves up.",
        ),
        (
            "scalar",
            F::Scalar,
            "v instant-vector",
            "The value of the only series, NaN when there are none or several.",
        ),
        ("sgn", F::Element(Element::Sgn), "v instant-vector", "1, 0 or -1, by the sign."),
        ("sin", F::Element(Element::Sin), "v instant-vector", "Sine of radians."),
        ("sinh", F::Element(Element::Sinh), "v instant-vector", "Hyperbolic sine."),
        ("sort", F::Sort, "v instant-vector", "Rising order of values; no effect on range queries."),
        (
            "sort_by_label",
            F::SortByLabel,
            "v instant-vector, label string, ...",
            "Natural order of labels; no effect on range queries.",
        ),
        (
            "sort_by_label_desc",
            F::SortByLabelDesc,
            "v instant-vector, label string, ...",
            "Falling natural order of labels; no effect on range queries.",
        ),
        (
            "sort_desc",
            F::SortDesc,
            "v instant-vector",
            "Falling order of values; no effect on range queries.",
        ),
        ("sqrt", F::Element(Element::Sqrt), "v instant-vector", "Square root."),
        ("start", F::Start, "", "Start of the query, seconds since 1970."),
        (
            "stddev_over_time",
            F::Over(Over::Stddev),
            "v range-vector",
            "Standard deviation of the samples in the window.",
        ),
        (
            "stdvar_over_time",
            F::Over(Over::Stdvar),
            "v range-vector",
            "Variance of the samples in the window.",
        ),
        ("step", F::Step, "", "Step of the query, seconds; 0 at one time."),
        (
            "sum_over_time",
            F::Over(Over::Sum),
            "v range-vector",
            "Sum of the samples in the window; depends on how often one was taken.",
        ),
        ("tan", F::Element(Element::Tan), "v instant-vector", "Tangent of radians."),
        ("tanh", F::Element(Element::Tanh), "v instant-vector", "Hyperbolic tangent."),
        ("time", F::Time, "", "Time of evaluation, seconds since 1970."),
        ("timestamp", F::Timestamp, "v instant-vector", "Time of each sample, seconds since 1970."),
        (
            "ts_of_first_over_time",
            F::Over(Over::TsOfFirst),
            "v range-vector",
            "Time of the earliest sample in the window.",
        ),
        (
            "ts_of_last_over_time",
            F::Over(Over::TsOfLast),
            "v range-vector",
            "Time of the latest sample in the window.",
        ),
        (
            "ts_of_max_over_time",
            F::Over(Over::TsOfMax),
            "v range-vector",
            "Time of the last greatest sample in the window.",
        ),
        (
            "ts_of_min_over_time",
            F::Over(Over::TsOfMin),
            "v range-vector",
            "Time of the last least sample in the window.",
        ),
        ("vector", F::Vector, "s scalar", "The number as a vector without labels."),
        ("year", F::Date(Date::Year), "v=vector(time()) instant-vector", "Year in UTC."),
    ]
};

impl Function {
    /// The function of that name, if this engine has it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    /// Whether its value changes with the time of evaluation even for constant arguments.
    pub(crate) fn depends_on_time(self) -> bool {
        matches!(self, Self::Date(_) | Self::Over(Over::PredictLinear) | Self::Time | Self::Timestamp)
    }
}

/// Names of every function that this engine has, sorted; for completion.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.0)
}

/// What completion says of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionHelp {
    /// Its name.
    pub name: &'static str,
    /// Its arguments with their types, `q scalar, v range-vector`.
    pub arguments: &'static str,
    /// What it computes and how it misleads, one sentence.
    pub help: &'static str,
}

/// Every function that this engine has, by name; for completion.
pub fn function_help() -> impl Iterator<Item = FunctionHelp> {
    TABLE.iter().map(|(name, _, arguments, help)| FunctionHelp { name, arguments, help })
}
