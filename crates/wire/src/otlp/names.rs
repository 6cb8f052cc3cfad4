//! What Prometheus calls an OpenTelemetry metric or attribute.
//!
//! The canonical name has the suffixes of its unit and kind, as Prometheus, the Collector and Mimir
//! make it when suffixes are on. Every other spelling in use is an alias of it, see [`aliases`].

use std::borrow::Cow;

/// What an instrument's data are, as far as names depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Instrument {
    /// The last value.
    Gauge,
    /// A sum that only grows.
    Counter,
    /// A sum that goes up and down: a gauge to Prometheus, without the suffixes of either.
    UpDownCounter,
    /// Buckets with bounds of the sender's, or exponential ones.
    Histogram,
    /// Quantiles made by the sender.
    Summary,
}

impl Instrument {
    /// The kind that metadata tells.
    pub fn kind(self) -> model::MetricKind {
        match self {
            Self::Gauge | Self::UpDownCounter => model::MetricKind::Gauge,
            Self::Counter => model::MetricKind::Counter,
            Self::Histogram => model::MetricKind::Histogram,
            Self::Summary => model::MetricKind::Summary,
        }
    }
}

/// Units of UCUM that have a word.
const UNIT_WORDS: [(&str, &str); 25] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("%", "percent"),
];

/// Words behind `per_`.
const PER_WORDS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// The canonical name, without `_bucket`, `_sum` or `_count`; none when nothing but underscores is left.
pub fn canonical(name: &str, unit: &str, instrument: Instrument) -> Option<String> {
    let (main, per) = unit_words(unit, Table::Prometheus);
    let mut tokens: Vec<&str> = name.split(is_separator).filter(|token| !token.is_empty()).collect();
    if !main.is_empty() && !tokens.contains(&&*main) {
        tokens.push(&main);
    }
    if !per.is_empty() {
        tokens.push(&per);
    }
    if instrument == Instrument::Counter {
        tokens.retain(|token| *token != "total");
        tokens.push("total");
    } else if instrument == Instrument::Gauge && unit == "1" {
        tokens.retain(|token| *token != "ratio");
        tokens.push("ratio");
    }
    usable(guard_digit(tokens.join("_")))
}

/// Every spelling under which a series answers to equality, the canonical one first, each once.
///
/// `suffix` is what the series adds to its family: `_bucket`, `_sum`, `_count` or nothing. Beside the
/// canonical name there are the dotted one, the one without suffixes (Mimir's default), and the one
/// that the specification's text gives, which Python's exporter for Prometheus prints.
pub fn aliases(name: &str, unit: &str, instrument: Instrument, suffix: &str) -> Vec<String> {
    let spellings = [
        canonical(name, unit, instrument),
        (!name.is_empty()).then(|| name.to_owned()),
        usable(without_suffixes(name)),
        usable(by_specification(name, unit, instrument)),
    ];
    let mut all: Vec<String> = Vec::with_capacity(spellings.len());
    for spelling in spellings.into_iter().flatten() {
        let spelling = spelling + suffix;
        if !all.contains(&spelling) {
            all.push(spelling);
        }
    }
    all
}

/// The name as translators without suffixes write it.
fn without_suffixes(name: &str) -> String {
    let tokens = name.split(|c: char| is_separator(c) && c != '_').filter(|token| !token.is_empty());
    guard_digit(tokens.collect::<Vec<_>>().join("_"))
}

/// The name as the specification's text has it: a unit is added unless the name ends with it.
fn by_specification(name: &str, unit: &str, instrument: Instrument) -> String {
    let (main, per) = unit_words(unit, Table::Specification);
    let mut out: String = name.split(is_separator).filter(|t| !t.is_empty()).collect::<Vec<_>>().join("_");
    let counter = instrument == Instrument::Counter;
    if counter && out.ends_with("_total") {
        out.truncate(out.len() - "_total".len());
    }
    let mut suffix =
        [&*main, &*per].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
    if unit == "1" && instrument == Instrument::Gauge {
        "ratio".clone_into(&mut suffix);
    }
    let ends = out.strip_suffix(&*suffix).is_some_and(|rest| rest.ends_with('_'));
    if !suffix.is_empty() && !ends {
        out = out + "_" + &suffix;
    }
    if counter {
        out += "_total";
    }
    guard_digit(out)
}

/// Whose table of units.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Prometheus,
    /// Differs in the kilobyte.
    Specification,
}

/// The two halves of a unit as words: `s` is `seconds`, `m/s` is `meters` and `per_second`.
fn unit_words(unit: &str, table: Table) -> (Cow<'_, str>, Cow<'_, str>) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let braces = |half: &str| half.contains(['{', '}']);
    let main = match main.trim() {
        half if braces(half) || half == "1" => Cow::Borrowed(""),
        "KBy" if table == Table::Specification => Cow::Borrowed("KBy"),
        "kBy" if table == Table::Specification => Cow::Borrowed("kilobytes"),
        half => word(&UNIT_WORDS, half),
    };
    let per = match per.trim() {
        half if half.is_empty() || braces(half) => Cow::Borrowed(""),
        half => {
            let word = word(&PER_WORDS, half);
            let word = word.trim_end_matches('_');
            Cow::Owned(if word.is_empty() { "per".to_owned() } else { format!("per_{word}") })
        }
    };
    (main, per)
}

fn word<'a>(table: &[(&str, &'static str)], half: &'a str) -> Cow<'a, str> {
    match table.iter().find(|(unit, _)| *unit == half) {
        Some((_, word)) => Cow::Borrowed(word),
        None => clean(half),
    }
}

/// Text of a unit that no table knows: other characters become `_`, runs of it one, none in front.
fn clean(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b':') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(collapse(text).trim_start_matches('_').to_owned())
}

fn is_separator(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || c == ':')
}

/// Other characters as `_`, runs of it as one.
fn collapse(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_separator(c) {
            out.push(c);
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    out
}

fn guard_digit(name: String) -> String {
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

fn usable(name: String) -> Option<String> {
    name.bytes().any(|b| b != b'_').then_some(name)
}

/// The label that an attribute becomes; none for `__name__` and for a key without any letter or digit.
///
/// Other characters become `_`, runs of it one, and a leading digit gets `key_` in front.
pub fn label(key: &str) -> Option<Cow<'_, str>> {
    if key == "__name__" {
        return None;
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let name = if key.bytes().all(plain) && !key.contains("__") {
        Cow::Borrowed(key)
    } else {
        Cow::Owned(collapse(&key.replace(':', "_")))
    };
    if name.bytes().all(|b| b == b'_') {
        return None;
    }
    let digit = name.starts_with(|c: char| c.is_ascii_digit());
    Some(if digit { Cow::Owned(format!("key_{name}")) } else { name })
}

#[cfg(test)]
mod tests {
    use super::Instrument::{Counter, Gauge, Histogram, Summary, UpDownCounter};
    use super::*;

    fn check(name: &str, unit: &str, instrument: Instrument, want: &str) {
        assert_eq!(canonical(name, unit, instrument).as_deref(), Some(want), "{name} in {unit:?}");
    }

    #[test]
    fn the_eight_instruments_of_megatron_keep_their_documented_names() {
        let t = |key: &str| format!("megatron.training.{key}");
        check(&t("step_duration_ms"), "ms", Histogram, "megatron_training_step_duration_ms_milliseconds");
        check(&t("loss"), "", Gauge, "megatron_training_loss");
        check(&t("throughput_tflops"), "", Gauge, "megatron_training_throughput_tflops");
        check(&t("tokens_per_sec"), "", Gauge, "megatron_training_tokens_per_sec");
        check(&t("grad_norm"), "", Gauge, "megatron_training_grad_norm");
        check(&t("skipped_iters"), "", Counter, "megatron_training_skipped_iters_total");
        check(&t("learning_rate"), "", Gauge, "megatron_training_learning_rate");
        check(&t("memory_allocated_gb"), "", Gauge, "megatron_training_memory_allocated_gb");
    }

    #[test]
    fn documented_units_become_suffixes() {
        let t = |key: &str| format!("megatron.training.{key}");
        check(
            &t("throughput_tflops"),
            "TFLOP/s",
            Gauge,
            "megatron_training_throughput_tflops_TFLOP_per_second",
        );
        check(&t("memory_allocated_gb"), "GB", Gauge, "megatron_training_memory_allocated_gb_GB");
        // The name has the token `tokens` already.
        check(&t("tokens_per_sec"), "tokens/s", Gauge, "megatron_training_tokens_per_sec_per_second");
    }

    #[test]
    fn units_become_words() {
        check("gen_ai.server.request.duration", "s", Histogram, "gen_ai_server_request_duration_seconds");
        check("gen_ai.client.token.usage", "{token}", Histogram, "gen_ai_client_token_usage");
        check(
            "gym.server.request_duration_ms",
            "ms",
            Histogram,
            "gym_server_request_duration_ms_milliseconds",
        );
        check("rl.throughput.tokens_per_sec", "{token}/s", Gauge, "rl_throughput_tokens_per_sec_per_second");
        check("disk.io", "By", Counter, "disk_io_bytes_total");
        check("mem.bytes.used", "By", Gauge, "mem_bytes_used");
        check("speed", "m/s", Gauge, "speed_meters_per_second");
        check("power.cap", " W ", Gauge, "power_cap_watts");
        check("fill", "%", Gauge, "fill_percent");
        check("a", "KBy", Gauge, "a_kilobytes");
        check("a", "kBy", Gauge, "a_kBy");
        check("a", "s/{request}", Gauge, "a_seconds");
        check("a", "m^2/mo", Gauge, "a_m_2_per_month");
        check("a", "By/s/x", Gauge, "a_bytes_per_s_x");
    }

    #[test]
    fn total_and_ratio_stand_once_and_last() {
        check("some.total.items", "{item}", Counter, "some_items_total");
        check("hits_total", "", Counter, "hits_total");
        check("hits_total", "", UpDownCounter, "hits_total");
        check("gpu.util", "1", Gauge, "gpu_util_ratio");
        check("ratio.of.hits", "1", Gauge, "of_hits_ratio");
        check("gpu.util", "1", UpDownCounter, "gpu_util");
        check("latency", "1", Summary, "latency");
        check("errors", "1", Counter, "errors_total");
    }

    #[test]
    fn odd_characters_and_digits_leave_a_usable_name() {
        check("a..b__c", "", Gauge, "a_b_c");
        check("7th.thing", "", Gauge, "_7th_thing");
        check("job:rate", "", Gauge, "job:rate");
        check("θ.loss.", "", Gauge, "loss");
        for nothing in ["", "...", "_", "θ"] {
            assert_eq!(canonical(nothing, "", Gauge), None, "{nothing:?}");
        }
    }

    #[test]
    fn aliases_hold_the_other_spellings_once() {
        let names = |name: &str, unit: &str, kind, suffix: &str| aliases(name, unit, kind, suffix).join(" ");
        assert_eq!(
            names("megatron.training.loss", "", Gauge, ""),
            "megatron_training_loss megatron.training.loss"
        );
        assert_eq!(
            names("megatron.training.skipped_iters", "", Counter, ""),
            "megatron_training_skipped_iters_total megatron.training.skipped_iters megatron_training_skipped_iters"
        );
        assert_eq!(
            names("megatron.training.step_duration_ms", "ms", Histogram, "_bucket"),
            "megatron_training_step_duration_ms_milliseconds_bucket megatron.training.step_duration_ms_bucket megatron_training_step_duration_ms_bucket"
        );
        assert_eq!(
            names("megatron.training.tokens_per_sec", "tokens/s", Gauge, ""),
            "megatron_training_tokens_per_sec_per_second megatron.training.tokens_per_sec megatron_training_tokens_per_sec megatron_training_tokens_per_sec_tokens_per_second"
        );
        // The one unit that two tables spell differently.
        assert!(aliases("a", "kBy", Gauge, "").contains(&"a_kilobytes".to_owned()));
    }

    #[test]
    fn attribute_keys_become_labels() {
        let check = |key: &str, want: Option<&str>| assert_eq!(label(key).as_deref(), want, "{key}");
        check("nemo.run.id", Some("nemo_run_id"));
        check("nv.dl.rank", Some("nv_dl_rank"));
        check("split", Some("split"));
        check("a..b--c", Some("a_b_c"));
        check("a:b", Some("a_b"));
        check("7up", Some("key_7up"));
        check("_private", Some("_private"));
        check("__name__", None);
        check("...", None);
        check("", None);
    }

    proptest::proptest! {
        #[test]
        fn names_are_always_spelled_as_prometheus_allows(name in ".{0,40}", unit in ".{0,12}") {
            let good = |text: &str, more: &str| {
                !text.starts_with(|c: char| c.is_ascii_digit())
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
            };
            for kind in [Gauge, Counter, UpDownCounter, Histogram, Summary] {
                if let Some(made) = canonical(&name, &unit, kind) {
                    proptest::prop_assert!(good(&made, "_:"), "{made}");
                    let all = aliases(&name, &unit, kind, "");
                    proptest::prop_assert_eq!(&all[0], &made);
                }
            }
            if let Some(made) = label(&name) {
                proptest::prop_assert!(good(&made, "_"), "{made}");
                proptest::prop_assert!(!made.contains("__"));
            }
        }
    }
}
