//! Every canonical series: the one name, unit and meaning of a signal, whatever source it is from.
//!
//! A constant is named as its metric is, without `tg_`: [`GPU_POWER_WATTS`] is `tg_gpu_power_watts`. Names
//! are those of PromQL; a histogram's is its family's. Sources and their traps are in `vocabularies/`.

use model::Desc;

mod derived;
mod engine;
mod gpu;
mod node;
mod run;
mod site;
mod verdict;

pub use derived::*;
pub use engine::*;
pub use gpu::*;
pub use node::*;
pub use run::*;
pub use site::*;
pub use verdict::*;

/// Writes a table of metrics: `NAME: kind, "name", Unit, labels, Trust, "help"[, "caveat"];`.
macro_rules! metrics {
    ($(#[$about:meta])* $table:ident;
     $($name:ident: $kind:ident, $metric:literal, $unit:ident, $labels:expr, $trust:ident, $help:literal
        $(, $caveat:literal)?;)*) => {
        $(
            #[doc = concat!("`", $metric, "`: ", $help)]
            pub const $name: model::Desc =
                model::Desc::$kind($metric, model::Unit::$unit, $labels, $help)
                    .trust(model::Trust::$trust)
                    $(.caveat($caveat))?;
        )*
        $(#[$about])*
        pub const $table: &[model::Desc] = &[$($name),*];
    };
}
use metrics;

/// Labels of every series of a GPU.
pub const GPU_LABELS: &[&str] = &["host", "gpu", "uuid"];

/// What the label `reason` of throttling may say, with the bit of NVIDIA's mask of reasons.
///
/// The bits for idle, application clocks and a display are none of these: nothing is held back there.
pub const THROTTLE_BITS: [(u64, &str); 6] = [
    (0x4, "sw_power"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
];

/// Every table.
const TABLES: [&[Desc]; 6] = [RUNS, GPUS, NODES, ENGINES, SITES, VERDICTS];

/// Every canonical metric.
pub fn all() -> impl Iterator<Item = &'static Desc> {
    TABLES.into_iter().flatten()
}

/// The metric of this name, those of recording rules too; that of a histogram is also found by the names of its parts.
pub fn find(name: &str) -> Option<&'static Desc> {
    if !name.starts_with("tg_") {
        return DERIVED.iter().find(|desc| desc.name == name);
    }
    let family = ["_bucket", "_count", "_sum"].iter().find_map(|part| name.strip_suffix(part));
    all().find(|desc| {
        desc.name == name || (desc.kind == model::MetricKind::Histogram && family == Some(desc.name))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{MetricKind, Unit};

    use super::*;

    #[test]
    fn names_are_unique_and_say_kind_and_unit() {
        let mut seen = BTreeSet::new();
        for desc in all() {
            assert!(seen.insert(desc.name), "{} twice", desc.name);
            assert!(desc.name.starts_with("tg_"), "{}", desc.name);
            let is_counter = desc.kind == MetricKind::Counter;
            assert_eq!(desc.name.ends_with("_total"), is_counter, "{}", desc.name);
            assert!(desc.help.ends_with('.'), "{}: {}", desc.name, desc.help);
            let word = match desc.unit {
                Unit::Bytes => "_bytes",
                Unit::Seconds => "_seconds",
                Unit::Ratio => "_ratio",
                Unit::Celsius => "_celsius",
                Unit::Watts => "_watts",
                Unit::Joules => "_joules",
                Unit::Hertz => "_hertz",
                Unit::BytesPerSecond => "_bytes_per_second",
                Unit::Dollars => "_usd_",
                Unit::None | Unit::FlopsPerSecond => "",
                Unit::Percent | Unit::Megahertz => "no base unit",
            };
            assert!(desc.name.contains(word), "{} has the unit {word}", desc.name);
        }
    }

    #[test]
    fn what_misleads_says_how() {
        let silent: Vec<&str> = all()
            .filter(|desc| desc.trust > Some(model::Trust::A) && desc.caveat.is_empty())
            .map(|desc| desc.name)
            .collect();
        assert_eq!(silent, Vec::<&str>::new());
    }

    #[test]
    fn parts_of_a_histogram_are_found_and_lookalikes_are_not() {
        assert_eq!(find("tg_gpu_power_watts"), Some(&GPU_POWER_WATTS));
        assert_eq!(find("tg_engine_ttft_seconds_bucket"), Some(&ENGINE_TTFT_SECONDS));
        assert_eq!(find("tg_gpu_power_watts_sum"), None);
        assert_eq!(find("gpu_power_watts"), None);
    }
}
