//! The messages of OTLP as a table: what a field is called in JSON, its number and its type.

use Shape::{
    Base64, Bool, Double, Enum, Fixed32, Fixed64, Hex, Int64, Of, Signed64, Text, Unsigned32, Unsigned64,
    Zigzag32,
};

/// A message.
pub(super) struct Message {
    /// Its name, for errors.
    pub name: &'static str,
    pub fields: &'static [Field],
}

/// A field of a message.
pub(super) struct Field {
    /// In JSON.
    pub name: &'static str,
    /// In protobuf.
    pub number: u32,
    pub shape: Shape,
    /// Whether it is a list.
    pub repeated: bool,
}

/// The type of a field.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Text,
    /// Bytes, as hex in JSON: ids.
    Hex,
    /// Bytes, as base64 in JSON.
    Base64,
    Bool,
    Double,
    Fixed64,
    /// A signed number of 64 bits.
    Signed64,
    Int64,
    Unsigned64,
    Unsigned32,
    Enum,
    /// A signed number of 32 bits, in zigzag.
    Zigzag32,
    Fixed32,
    Of(&'static Message),
}

impl Shape {
    /// For errors.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Hex => "an id in hex",
            Self::Base64 => "bytes in base64",
            Self::Bool => "true or false",
            Self::Double => "a number, \"NaN\", \"Infinity\" or \"-Infinity\"",
            Self::Fixed64 | Self::Unsigned64 => "a whole number of 64 bits from 0",
            Self::Signed64 | Self::Int64 => "a whole number of 64 bits",
            Self::Unsigned32 | Self::Fixed32 => "a whole number of 32 bits from 0",
            Self::Enum => "the number of a choice",
            Self::Zigzag32 => "a whole number of 32 bits",
            Self::Of(message) => message.name,
        }
    }
}

const fn one(name: &'static str, number: u32, shape: Shape) -> Field {
    Field { name, number, shape, repeated: false }
}

const fn list(name: &'static str, number: u32, shape: Shape) -> Field {
    Field { name, number, shape, repeated: true }
}

pub(super) static METRICS: Message = Message {
    name: "ExportMetricsServiceRequest",
    fields: &[list("resourceMetrics", 1, Of(&RESOURCE_METRICS))],
};

static RESOURCE_METRICS: Message = Message {
    name: "ResourceMetrics",
    fields: &[one("resource", 1, Of(&RESOURCE)), list("scopeMetrics", 2, Of(&SCOPE_METRICS))],
};

static SCOPE_METRICS: Message =
    Message { name: "ScopeMetrics", fields: &[one("scope", 1, Of(&SCOPE)), list("metrics", 2, Of(&METRIC))] };

static METRIC: Message = Message {
    name: "Metric",
    fields: &[
        one("name", 1, Text),
        one("description", 2, Text),
        one("unit", 3, Text),
        one("gauge", 5, Of(&GAUGE)),
        one("sum", 7, Of(&SUM)),
        one("histogram", 9, Of(&HISTOGRAM)),
        one("exponentialHistogram", 10, Of(&EXPONENTIAL)),
        one("summary", 11, Of(&SUMMARY)),
    ],
};

static GAUGE: Message = Message { name: "Gauge", fields: &[list("dataPoints", 1, Of(&NUMBER_POINT))] };

static SUM: Message = Message {
    name: "Sum",
    fields: &[
        list("dataPoints", 1, Of(&NUMBER_POINT)),
        one("aggregationTemporality", 2, Enum),
        one("isMonotonic", 3, Bool),
    ],
};

static HISTOGRAM: Message = Message {
    name: "Histogram",
    fields: &[list("dataPoints", 1, Of(&HISTOGRAM_POINT)), one("aggregationTemporality", 2, Enum)],
};

static EXPONENTIAL: Message = Message {
    name: "ExponentialHistogram",
    fields: &[list("dataPoints", 1, Of(&EXPONENTIAL_POINT)), one("aggregationTemporality", 2, Enum)],
};

static SUMMARY: Message = Message { name: "Summary", fields: &[list("dataPoints", 1, Of(&SUMMARY_POINT))] };

static NUMBER_POINT: Message = Message {
    name: "NumberDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, Fixed64),
        one("timeUnixNano", 3, Fixed64),
        one("asDouble", 4, Double),
        list("exemplars", 5, Of(&EXEMPLAR)),
        one("asInt", 6, Signed64),
        list("attributes", 7, Of(&PAIR)),
        one("flags", 8, Unsigned32),
    ],
};

static HISTOGRAM_POINT: Message = Message {
    name: "HistogramDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, Fixed64),
        one("timeUnixNano", 3, Fixed64),
        one("count", 4, Fixed64),
        one("sum", 5, Double),
        list("bucketCounts", 6, Fixed64),
        list("explicitBounds", 7, Double),
        list("exemplars", 8, Of(&EXEMPLAR)),
        list("attributes", 9, Of(&PAIR)),
        one("flags", 10, Unsigned32),
        one("min", 11, Double),
        one("max", 12, Double),
    ],
};

static EXPONENTIAL_POINT: Message = Message {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        list("attributes", 1, Of(&PAIR)),
        one("startTimeUnixNano", 2, Fixed64),
        one("timeUnixNano", 3, Fixed64),
        one("count", 4, Fixed64),
        one("sum", 5, Double),
        one("scale", 6, Zigzag32),
        one("zeroCount", 7, Fixed64),
        one("positive", 8, Of(&BUCKETS)),
        one("negative", 9, Of(&BUCKETS)),
        one("flags", 10, Unsigned32),
        list("exemplars", 11, Of(&EXEMPLAR)),
        one("min", 12, Double),
        one("max", 13, Double),
        one("zeroThreshold", 14, Double),
    ],
};

static BUCKETS: Message =
    Message { name: "Buckets", fields: &[one("offset", 1, Zigzag32), list("bucketCounts", 2, Unsigned64)] };

static SUMMARY_POINT: Message = Message {
    name: "SummaryDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, Fixed64),
        one("timeUnixNano", 3, Fixed64),
        one("count", 4, Fixed64),
        one("sum", 5, Double),
        list("quantileValues", 6, Of(&QUANTILE)),
        list("attributes", 7, Of(&PAIR)),
        one("flags", 8, Unsigned32),
    ],
};

static QUANTILE: Message =
    Message { name: "ValueAtQuantile", fields: &[one("quantile", 1, Double), one("value", 2, Double)] };

static EXEMPLAR: Message = Message {
    name: "Exemplar",
    fields: &[
        one("timeUnixNano", 2, Fixed64),
        one("asDouble", 3, Double),
        one("spanId", 4, Hex),
        one("traceId", 5, Hex),
        one("asInt", 6, Signed64),
        list("filteredAttributes", 7, Of(&PAIR)),
    ],
};

pub(super) static TRACES: Message =
    Message { name: "ExportTraceServiceRequest", fields: &[list("resourceSpans", 1, Of(&RESOURCE_SPANS))] };

static RESOURCE_SPANS: Message = Message {
    name: "ResourceSpans",
    fields: &[one("resource", 1, Of(&RESOURCE)), list("scopeSpans", 2, Of(&SCOPE_SPANS))],
};

static SCOPE_SPANS: Message =
    Message { name: "ScopeSpans", fields: &[one("scope", 1, Of(&SCOPE)), list("spans", 2, Of(&SPAN))] };

static SPAN: Message = Message {
    name: "Span",
    fields: &[
        one("traceId", 1, Hex),
        one("spanId", 2, Hex),
        one("traceState", 3, Text),
        one("parentSpanId", 4, Hex),
        one("name", 5, Text),
        one("kind", 6, Enum),
        one("startTimeUnixNano", 7, Fixed64),
        one("endTimeUnixNano", 8, Fixed64),
        list("attributes", 9, Of(&PAIR)),
        one("droppedAttributesCount", 10, Unsigned32),
        list("events", 11, Of(&EVENT)),
        one("droppedEventsCount", 12, Unsigned32),
        list("links", 13, Of(&LINK)),
        one("droppedLinksCount", 14, Unsigned32),
        one("status", 15, Of(&STATUS)),
        one("flags", 16, Fixed32),
    ],
};

static EVENT: Message = Message {
    name: "Event",
    fields: &[
        one("timeUnixNano", 1, Fixed64),
        one("name", 2, Text),
        list("attributes", 3, Of(&PAIR)),
        one("droppedAttributesCount", 4, Unsigned32),
    ],
};

static LINK: Message = Message {
    name: "Link",
    fields: &[
        one("traceId", 1, Hex),
        one("spanId", 2, Hex),
        one("traceState", 3, Text),
        list("attributes", 4, Of(&PAIR)),
        one("droppedAttributesCount", 5, Unsigned32),
        one("flags", 6, Fixed32),
    ],
};

static STATUS: Message = Message { name: "Status", fields: &[one("message", 2, Text), one("code", 3, Enum)] };

pub(super) static LOGS: Message =
    Message { name: "ExportLogsServiceRequest", fields: &[list("resourceLogs", 1, Of(&RESOURCE_LOGS))] };

static RESOURCE_LOGS: Message = Message {
    name: "ResourceLogs",
    fields: &[one("resource", 1, Of(&RESOURCE)), list("scopeLogs", 2, Of(&SCOPE_LOGS))],
};

static SCOPE_LOGS: Message =
    Message { name: "ScopeLogs", fields: &[one("scope", 1, Of(&SCOPE)), list("logRecords", 2, Of(&RECORD))] };

static RECORD: Message = Message {
    name: "LogRecord",
    fields: &[
        one("timeUnixNano", 1, Fixed64),
        one("severityNumber", 2, Enum),
        one("severityText", 3, Text),
        one("body", 5, Of(&VALUE)),
        list("attributes", 6, Of(&PAIR)),
        one("droppedAttributesCount", 7, Unsigned32),
        one("flags", 8, Fixed32),
        one("traceId", 9, Hex),
        one("spanId", 10, Hex),
        one("observedTimeUnixNano", 11, Fixed64),
        one("eventName", 12, Text),
    ],
};

static RESOURCE: Message = Message {
    name: "Resource",
    fields: &[list("attributes", 1, Of(&PAIR)), one("droppedAttributesCount", 2, Unsigned32)],
};

static SCOPE: Message = Message {
    name: "InstrumentationScope",
    fields: &[
        one("name", 1, Text),
        one("version", 2, Text),
        list("attributes", 3, Of(&PAIR)),
        one("droppedAttributesCount", 4, Unsigned32),
    ],
};

static PAIR: Message =
    Message { name: "KeyValue", fields: &[one("key", 1, Text), one("value", 2, Of(&VALUE))] };

static VALUE: Message = Message {
    name: "AnyValue",
    fields: &[
        one("stringValue", 1, Text),
        one("boolValue", 2, Bool),
        one("intValue", 3, Int64),
        one("doubleValue", 4, Double),
        one("arrayValue", 5, Of(&ARRAY)),
        one("kvlistValue", 6, Of(&MAP)),
        one("bytesValue", 7, Base64),
    ],
};

static ARRAY: Message = Message { name: "ArrayValue", fields: &[list("values", 1, Of(&VALUE))] };

static MAP: Message = Message { name: "KeyValueList", fields: &[list("values", 1, Of(&PAIR))] };
