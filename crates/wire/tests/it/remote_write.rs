//! Remote write, held against messages that `prost` derives.

use model::MetricKind;
use proptest::prelude::*;
use prost::Message;
use wire::remote_write::{
    Item, LABELS_MAX, Metadata, Outcome, Point, RemoteWriteError, RequestWriter, SERIES_MAX, Series, Version,
    Written, decompress, read, read_known, version,
};

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    exemplars: Vec<Exemplar>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    histograms: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(int64, tag = "3")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct MetricMetadata {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    metric_family_name: String,
    #[prost(string, tag = "4")]
    help: String,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, PartialEq, Message)]
struct Request2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<TimeSeries2>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries2 {
    #[prost(uint32, repeated, tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    histograms: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "4")]
    exemplars: Vec<Exemplar2>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Metadata2>,
    #[prost(int64, tag = "6")]
    created_timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Exemplar2 {
    #[prost(uint32, repeated, packed = "false", tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(int64, tag = "3")]
    timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Metadata2 {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "3")]
    help_ref: u32,
    #[prost(uint32, tag = "4")]
    unit_ref: u32,
}

type Pairs = Vec<(String, String)>;
/// Labels, and times with the bits of values.
type Owned = (Pairs, Vec<(i64, u64)>);

fn labels(pairs: &[(&str, &str)]) -> Vec<Label> {
    pairs.iter().map(|(name, value)| Label { name: (*name).into(), value: (*value).into() }).collect()
}

fn request(series: Vec<TimeSeries>) -> Vec<u8> {
    WriteRequest { timeseries: series, ..WriteRequest::default() }.encode_to_vec()
}

/// Reads what is expected to be readable: labels and points (as bits) of each series.
fn series(version: Version, plain: &[u8]) -> Result<Vec<Owned>, RemoteWriteError> {
    let mut all = Vec::new();
    read(version, plain, |item| {
        if let Item::Series(series) = item {
            let labels = series.labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            all.push((labels, series.samples.iter().map(|p| (p.time_ms, p.value.to_bits())).collect()));
        }
    })?;
    Ok(all)
}

fn refusal(version: Version, plain: &[u8]) -> String {
    series(version, plain).unwrap_err().to_string()
}

proptest! {
    #[test]
    fn what_is_written_reads_back_and_is_what_prost_derives(
        all in prop::collection::vec(
            (
                prop::collection::btree_map("[a-z_]{1,6}", ".{1,6}", 0..5),
                // The derived writer loses the sign of a zero; ours keeps it, as the next test asks.
                prop::collection::vec((any::<i64>(), any::<f64>().prop_filter("-0", |v| v.to_bits() != 1 << 63)), 0..5),
            ),
            0..6,
        ),
    ) {
        let mut writer = RequestWriter::new();
        let mut derived = WriteRequest::default();
        let mut want = Vec::new();
        for (mut labels, points) in all {
            labels.insert("__name__".into(), "up".into());
            let samples: Vec<Point> = points.iter().map(|(t, v)| Point { time_ms: *t, value: *v }).collect();
            writer.series(labels.iter().map(|(n, v)| (n.as_str(), v.as_str())), &samples);
            derived.timeseries.push(TimeSeries {
                labels: labels.iter().map(|(n, v)| Label { name: n.clone(), value: v.clone() }).collect(),
                samples: points.iter().map(|(t, v)| Sample { value: *v, timestamp: *t }).collect(),
                ..TimeSeries::default()
            });
            let points = points.iter().map(|(t, v)| (*t, v.to_bits())).collect::<Vec<_>>();
            want.push((labels.into_iter().collect::<Pairs>(), points));
        }
        let plain = decompress(&writer.finish().unwrap()).unwrap();
        prop_assert!(writer.is_empty());
        prop_assert_eq!(&series(Version::V1, &plain).unwrap(), &want);
        prop_assert_eq!(&series(Version::V1, &derived.encode_to_vec()).unwrap(), &want);
        let decoded = WriteRequest::decode(plain.as_slice()).unwrap();
        // A NaN is not equal to itself, so the bytes are compared.
        prop_assert_eq!(decoded.encode_to_vec(), derived.encode_to_vec());
    }

    #[test]
    fn rubbish_is_an_error_not_a_panic(body: Vec<u8>) {
        let _ = decompress(&body);
        let _ = series(Version::V1, &body);
        let _ = series(Version::V2, &body);
    }

    #[test]
    fn a_request_cut_or_bent_anywhere_is_no_panic(at in 0usize..200, byte: u8) {
        for (version, mut plain) in [(Version::V1, rich_1()), (Version::V2, rich_2().encode_to_vec())] {
            let at = at % plain.len();
            let _ = series(version, &plain[..at]);
            plain[at] = byte;
            let _ = series(version, &plain);
        }
    }
}

fn rich_1() -> Vec<u8> {
    let request = WriteRequest {
        timeseries: vec![TimeSeries {
            labels: labels(&[("__name__", "a_total"), ("x", "y"), ("z", "")]),
            samples: vec![Sample { value: 1.5, timestamp: 7 }, Sample { value: 0.0, timestamp: 0 }],
            exemplars: vec![Exemplar { labels: labels(&[("trace_id", "t")]), value: 3.0, timestamp: 9 }],
            histograms: vec![vec![0x18, 0]],
        }],
        metadata: vec![MetricMetadata {
            kind: 1,
            metric_family_name: "a".into(),
            help: "h".into(),
            unit: "u".into(),
        }],
    };
    request.encode_to_vec()
}

#[test]
fn version_1_carries_exemplars_and_metadata() {
    let plain = rich_1();
    let (mut rows, mut metadata) = (Vec::new(), Vec::new());
    read(Version::V1, &plain, |item| match item {
        Item::Series(row) => rows.push(row.clone()),
        Item::Metadata(of) => metadata.push(of),
    })
    .unwrap();
    assert_eq!(metadata, [Metadata { metric: "a", kind: MetricKind::Counter, help: "h", unit: "u" }]);
    let want = Series {
        labels: vec![("__name__", "a_total"), ("x", "y")],
        samples: vec![Point { time_ms: 7, value: 1.5 }, Point { time_ms: 0, value: 0.0 }],
        exemplars: vec![wire::remote_write::Exemplar {
            labels: vec![("trace_id", "t")],
            point: Point { time_ms: 9, value: 3.0 },
        }],
        histograms: 1,
        label_bytes: rows[0].label_bytes,
        ..Series::default()
    };
    assert_eq!(rows, [want]);
}

/// Reads with a memory of one series' label bytes: number, labels and values of every series.
fn recalled(plain: &[u8], bytes: &[u8]) -> Vec<(Option<u64>, Vec<String>, Vec<f64>)> {
    let mut rows = Vec::new();
    let known = |labels: &[u8]| (labels == bytes).then_some(7);
    read_known(Version::V1, plain, known, |item| {
        if let Item::Series(row) = item {
            let labels = row.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            rows.push((row.known, labels, row.samples.iter().map(|point| point.value).collect()));
        }
    })
    .unwrap();
    rows
}

#[test]
fn labels_that_are_known_are_not_read_again() {
    let sample = |value| Sample { value, timestamp: 5 };
    let one = |pairs, value| TimeSeries {
        labels: labels(pairs),
        samples: vec![sample(value)],
        ..TimeSeries::default()
    };
    let plain = request(vec![one(&[("__name__", "a"), ("x", "1")], 1.0), one(&[("__name__", "a")], 2.0)]);
    let mut bytes = Vec::new();
    read(Version::V1, &plain, |item| {
        if let Item::Series(row) = item {
            bytes.push(row.label_bytes);
        }
    })
    .unwrap();
    let text = |text: &str| text.to_owned();
    assert_eq!(
        recalled(&plain, bytes[0]),
        [(Some(7), vec![], vec![1.0]), (None, vec![text("__name__=a")], vec![2.0])]
    );
    assert_eq!(recalled(&plain, bytes[1])[1], (Some(7), vec![], vec![2.0]));

    // One label comes behind the sample: the first ones are not the series.
    let late = [one(&[("__name__", "a")], 3.0).encode_to_vec(), one(&[("x", "1")], 4.0).encode_to_vec()];
    let mut plain = vec![0x0a, (late[0].len() + late[1].len()) as u8];
    plain.extend(late.concat());
    assert_eq!(recalled(&plain, bytes[1]), [(None, vec![text("__name__=a"), text("x=1")], vec![3.0, 4.0])]);
    read(Version::V1, &plain, |item| {
        if let Item::Series(row) = item {
            assert_eq!(row.label_bytes, b"");
        }
    })
    .unwrap();
}

#[test]
fn values_travel_bit_for_bit() {
    let bits = [1 << 63, 0x7ff0_0000_0000_0002, 0x7ff8_0000_0000_0001, 0];
    let samples = bits.map(|bits| Point { time_ms: -1, value: f64::from_bits(bits) });
    let mut writer = RequestWriter::new();
    writer.series([("__name__", "a")], &samples);
    let plain = decompress(&writer.finish().unwrap()).unwrap();
    let got = series(Version::V1, &plain).unwrap();
    assert_eq!(got[0].1, bits.map(|bits| (-1, bits)));
}

#[test]
fn metadata_that_is_written_reads_back() {
    let sent = Metadata { metric: "a", kind: MetricKind::StateSet, help: "", unit: "bytes" };
    let mut writer = RequestWriter::new();
    writer.metadata(&sent);
    let plain = decompress(&writer.finish().unwrap()).unwrap();
    let mut got = None;
    read(Version::V1, &plain, |item| {
        if let Item::Metadata(of) = item {
            got = Some(of);
        }
    })
    .unwrap();
    assert_eq!(got, Some(sent));
}

fn rich_2() -> Request2 {
    let symbols = ["", "__name__", "a_total", "x", "y", "trace_id", "t", "help", "unit"];
    Request2 {
        symbols: symbols.iter().map(|s| (*s).to_owned()).collect(),
        timeseries: vec![TimeSeries2 {
            labels_refs: vec![1, 2, 3, 4],
            samples: vec![Sample { value: 1.5, timestamp: 7 }],
            histograms: Vec::new(),
            exemplars: vec![Exemplar2 { labels_refs: vec![5, 6], value: 3.0, timestamp: 9 }],
            metadata: Some(Metadata2 { kind: 2, help_ref: 7, unit_ref: 8 }),
            created_timestamp: 5,
        }],
    }
}

#[test]
fn version_2_resolves_its_symbols() {
    let plain = rich_2().encode_to_vec();
    let mut rows = Vec::new();
    read(Version::V2, &plain, |item| {
        if let Item::Series(row) = item {
            rows.push(row.clone());
        }
    })
    .unwrap();
    let want = Series {
        labels: vec![("__name__", "a_total"), ("x", "y")],
        samples: vec![Point { time_ms: 7, value: 1.5 }],
        exemplars: vec![wire::remote_write::Exemplar {
            labels: vec![("trace_id", "t")],
            point: Point { time_ms: 9, value: 3.0 },
        }],
        histograms: 0,
        metadata: Some(Metadata { metric: "a_total", kind: MetricKind::Gauge, help: "help", unit: "unit" }),
        created_ms: Some(5),
        ..Series::default()
    };
    assert_eq!(rows, [want]);
}

#[test]
fn labels_that_name_no_series_are_refused_by_place() {
    let check = |pairs: &[(&str, &str)], want: &str| {
        let good = TimeSeries { labels: labels(&[("__name__", "up")]), ..TimeSeries::default() };
        let bad = TimeSeries { labels: labels(pairs), ..TimeSeries::default() };
        assert_eq!(refusal(Version::V1, &request(vec![good, bad])), want);
    };
    check(&[("a", "b")], "series 2 (a=\"b\"): it has no `__name__`");
    check(&[("__name__", "")], "series 2 (): it has no `__name__`");
    check(
        &[("__name__", "m"), ("a", "1"), ("a", "2")],
        "series 2 (__name__=\"m\", a=\"1\", a=\"2\"): the label `a` comes twice",
    );
    check(&[("__name__", "m"), ("", "1")], "series 2 (__name__=\"m\", =\"1\"): a label has no name");
    let unsorted = TimeSeries { labels: labels(&[("b", "2"), ("__name__", "m")]), ..TimeSeries::default() };
    let got = series(Version::V1, &request(vec![unsorted])).unwrap();
    assert_eq!(got[0].0[0].0, "__name__");
}

#[test]
fn symbols_are_checked() {
    let check = |bend: &dyn Fn(&mut Request2), want: &str| {
        let mut request = rich_2();
        bend(&mut request);
        assert_eq!(refusal(Version::V2, &request.encode_to_vec()), want);
    };
    check(
        &|r| r.timeseries[0].labels_refs.push(99),
        "series 1 (__name__=\"a_total\", x=\"y\"): it has an odd number of label references",
    );
    check(
        &|r| r.timeseries[0].labels_refs[3] = 99,
        "series 1 (__name__=\"a_total\"): it refers to symbol 99 of 9",
    );
    check(
        &|r| r.timeseries[0].labels_refs = vec![3, 4, 3, 4],
        "series 1 (x=\"y\", x=\"y\"): the label `x` comes twice",
    );
    check(
        &|r| r.timeseries[0].exemplars[0].labels_refs[0] = 9,
        "series 1 (__name__=\"a_total\", x=\"y\"): it refers to symbol 9 of 9",
    );
    check(
        &|r| r.timeseries[0].metadata = Some(Metadata2 { kind: 1, help_ref: 44, unit_ref: 0 }),
        "series 1 (__name__=\"a_total\", x=\"y\"): it refers to symbol 44 of 9",
    );
    check(
        &|r| r.timeseries[0].histograms.push(Vec::new()),
        "series 1 (__name__=\"a_total\", x=\"y\"): it has samples and native histograms",
    );
    check(
        &|r| r.symbols[0] = "x".into(),
        "the body is not a remote-write message: the first symbol is not the empty text",
    );
}

#[test]
fn a_message_of_the_other_version_is_empty() {
    assert!(series(Version::V1, &rich_2().encode_to_vec()).unwrap().is_empty());
    assert!(series(Version::V2, &rich_1()).unwrap().is_empty());
}

#[test]
fn lies_about_length_are_refused_before_memory_is_taken() {
    // The header claims 60 MiB, nothing follows.
    let claimed = 60u32 << 20;
    let mut body = Vec::new();
    prost::encoding::encode_varint(u64::from(claimed), &mut body);
    assert!(matches!(decompress(&body), Err(RemoteWriteError::Lie { .. })));
    let mut body = Vec::new();
    prost::encoding::encode_varint(u64::from(u32::MAX), &mut body);
    assert_eq!(decompress(&body).unwrap_err().status(), 413);
    assert!(matches!(decompress(b""), Err(RemoteWriteError::Compression(_))));
    // The densest block that there is still unpacks.
    let packed = snap::raw::Encoder::new().compress_vec(&vec![0; 60 << 20]).unwrap();
    assert_eq!(decompress(&packed).unwrap().len(), 60 << 20);
    // A field longer than its message.
    assert_eq!(
        refusal(Version::V1, &[0x0a, 0x7f]),
        "the body is not a remote-write message: a field ends behind its message"
    );
    assert_eq!(
        refusal(Version::V1, &[0x0a, 0x80]),
        "the body is not a remote-write message: a number is cut short"
    );
}

#[test]
fn too_much_is_413_and_says_of_what() {
    let empties = [0x1a, 0].repeat(SERIES_MAX + 1);
    let error = series(Version::V1, &empties).unwrap_err();
    assert_eq!(
        (error.status(), error.to_string()),
        (413, format!("the body has more than {SERIES_MAX} series: send it in parts"))
    );
    let many: Vec<String> = (0..LABELS_MAX).map(|n| format!("l{n}")).collect();
    let mut pairs: Vec<(&str, &str)> = many.iter().map(|n| (n.as_str(), "v")).collect();
    pairs.push(("__name__", "m"));
    let one = TimeSeries { labels: labels(&pairs), ..TimeSeries::default() };
    assert_eq!(series(Version::V1, &request(vec![one])).unwrap_err().status(), 413);
}

#[test]
fn content_types_tell_the_version() {
    let check = |text: &str, want: Option<Version>| assert_eq!(version(text).ok(), want, "{text}");
    check("application/x-protobuf", Some(Version::V1));
    check("application/x-protobuf;proto=prometheus.WriteRequest", Some(Version::V1));
    check("Application/X-Protobuf; proto=\"io.prometheus.write.v2.Request\"", Some(Version::V2));
    check("application/x-protobuf;proto=other", None);
    check("application/json", None);
    check("", None);
    assert_eq!(version("text/html").unwrap_err().status(), 415);
}

#[test]
fn an_outcome_is_told_in_headers_status_and_words() {
    let mut outcome =
        Outcome { written: Written { samples: 3, histograms: 0, exemplars: 1 }, ..Outcome::default() };
    assert_eq!((outcome.status(), outcome.message()), (204, String::new()));
    outcome.refuse("native_histogram", 2, || "a_seconds".into());
    outcome.refuse("native_histogram", 1, || "b_seconds".into());
    assert_eq!(outcome.status(), 400);
    assert_eq!(outcome.message(), "3 refused (native_histogram): a_seconds");
    assert_eq!(outcome.written.headers()[0], ("x-prometheus-remote-write-samples-written", 3));
}
