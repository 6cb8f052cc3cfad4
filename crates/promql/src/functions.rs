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

/// Functions that the parser knows and this engine refuses, with what to do instead.
pub(crate) const UNSUPPORTED: [(&str, &str); 8] = [
    ("histogram_avg", "works on native histograms only: divide `rate(x_sum[5m])` by `rate(x_count[5m])`"),
    ("histogram_count", "works on native histograms only: use the `_count` series"),
    ("histogram_stddev", "works on native histograms only"),
    ("histogram_stdvar", "works on native histograms only"),
    ("histogram_sum", "works on native histograms only: use the `_sum` series"),
    ("info", "is experimental: join with `* on (...) group_left (...)`"),
    ("integral", "is not part of Prometheus"),
    ("start_timestamp", "is experimental: samples carry no start time here"),
];

const TABLE: [(&str, Function); 83] = {
    use Function as F;
    [
        ("abs", F::Element(Element::Abs)),
        ("absent", F::Absent),
        ("absent_over_time", F::Over(Over::Absent)),
        ("acos", F::Element(Element::Acos)),
        ("acosh", F::Element(Element::Acosh)),
        ("asin", F::Element(Element::Asin)),
        ("asinh", F::Element(Element::Asinh)),
        ("atan", F::Element(Element::Atan)),
        ("atanh", F::Element(Element::Atanh)),
        ("avg_over_time", F::Over(Over::Avg)),
        ("ceil", F::Element(Element::Ceil)),
        ("changes", F::Over(Over::Changes)),
        ("clamp", F::Clamp),
        ("clamp_max", F::ClampMax),
        ("clamp_min", F::ClampMin),
        ("cos", F::Element(Element::Cos)),
        ("cosh", F::Element(Element::Cosh)),
        ("count_over_time", F::Over(Over::Count)),
        ("day_of_month", F::Date(Date::DayOfMonth)),
        ("day_of_week", F::Date(Date::DayOfWeek)),
        ("day_of_year", F::Date(Date::DayOfYear)),
        ("days_in_month", F::Date(Date::DaysInMonth)),
        ("deg", F::Element(Element::Deg)),
        ("delta", F::Over(Over::Delta)),
        ("deriv", F::Over(Over::Deriv)),
        ("double_exponential_smoothing", F::Over(Over::DoubleExponentialSmoothing)),
        ("end", F::End),
        ("exp", F::Element(Element::Exp)),
        ("first_over_time", F::Over(Over::First)),
        ("floor", F::Element(Element::Floor)),
        ("histogram_fraction", F::HistogramFraction),
        ("histogram_quantile", F::HistogramQuantile),
        ("histogram_quantiles", F::HistogramQuantiles),
        ("hour", F::Date(Date::Hour)),
        ("idelta", F::Over(Over::Idelta)),
        ("increase", F::Over(Over::Increase)),
        ("irate", F::Over(Over::Irate)),
        ("label_join", F::LabelJoin),
        ("label_replace", F::LabelReplace),
        ("last_over_time", F::Over(Over::Last)),
        ("ln", F::Element(Element::Ln)),
        ("log10", F::Element(Element::Log10)),
        ("log2", F::Element(Element::Log2)),
        ("mad_over_time", F::Over(Over::Mad)),
        ("max_of", F::MaxOf),
        ("max_over_time", F::Over(Over::Max)),
        ("min_of", F::MinOf),
        ("min_over_time", F::Over(Over::Min)),
        ("minute", F::Date(Date::Minute)),
        ("month", F::Date(Date::Month)),
        ("pi", F::Pi),
        ("predict_linear", F::Over(Over::PredictLinear)),
        ("present_over_time", F::Over(Over::Present)),
        ("quantile_over_time", F::Over(Over::Quantile)),
        ("rad", F::Element(Element::Rad)),
        ("range", F::Range),
        ("rate", F::Over(Over::Rate)),
        ("resets", F::Over(Over::Resets)),
        ("round", F::Round),
        ("scalar", F::Scalar),
        ("sgn", F::Element(Element::Sgn)),
        ("sin", F::Element(Element::Sin)),
        ("sinh", F::Element(Element::Sinh)),
        ("sort", F::Sort),
        ("sort_by_label", F::SortByLabel),
        ("sort_by_label_desc", F::SortByLabelDesc),
        ("sort_desc", F::SortDesc),
        ("sqrt", F::Element(Element::Sqrt)),
        ("start", F::Start),
        ("stddev_over_time", F::Over(Over::Stddev)),
        ("stdvar_over_time", F::Over(Over::Stdvar)),
        ("step", F::Step),
        ("sum_over_time", F::Over(Over::Sum)),
        ("tan", F::Element(Element::Tan)),
        ("tanh", F::Element(Element::Tanh)),
        ("time", F::Time),
        ("timestamp", F::Timestamp),
        ("ts_of_first_over_time", F::Over(Over::TsOfFirst)),
        ("ts_of_last_over_time", F::Over(Over::TsOfLast)),
        ("ts_of_max_over_time", F::Over(Over::TsOfMax)),
        ("ts_of_min_over_time", F::Over(Over::TsOfMin)),
        ("vector", F::Vector),
        ("year", F::Date(Date::Year)),
    ]
};

impl Function {
    /// The function of that name, if this engine has it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        TABLE.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    /// Whether its value changes with the time of evaluation even for constant arguments.
    pub(crate) fn depends_on_time(self) -> bool {
        matches!(self, Self::Date(_) | Self::Over(Over::PredictLinear) | Self::Time | Self::Timestamp)
    }
}

/// Names of every function that this engine has, sorted; for completion.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}
