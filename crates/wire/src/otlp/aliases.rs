//! Which series answer to a name that is none's canonical one.

use std::collections::{BTreeSet, HashMap};

use super::names::{self, Instrument};

/// Most families that are known; further ones answer to their canonical name only.
pub const FAMILIES_MAX: usize = 50_000;

/// Every spelling of the metrics that came in, for equality matchers. Regexes, listings and counts
/// know canonical names only, so that nothing appears twice.
#[derive(Debug, Clone, Default)]
pub struct Aliases {
    /// By spelling, the metrics that have it.
    spellings: HashMap<String, BTreeSet<Meant>>,
    families: BTreeSet<(String, String, String)>,
}

/// A series name that a spelling means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Meant {
    /// The metric as sent.
    pub sent: String,
    /// The canonical name of the series.
    pub canonical: String,
}

impl Aliases {
    /// Adds a metric; says whether it was new.
    pub fn insert(&mut self, name: &str, unit: &str, instrument: Instrument) -> bool {
        let Some(family) = names::canonical(name, unit, instrument) else { return false };
        let key = (name.to_owned(), unit.to_owned(), family);
        if self.families.len() >= FAMILIES_MAX || self.families.contains(&key) {
            return false;
        }
        let suffixes: &[&str] = match instrument {
            Instrument::Histogram => &["_bucket", "_sum", "_count"],
            Instrument::Summary => &["", "_sum", "_count"],
            _ => &[""],
        };
        for suffix in suffixes {
            let canonical = format!("{}{suffix}", key.2);
            for spelling in names::aliases(name, unit, instrument, suffix) {
                let meant = Meant { sent: name.to_owned(), canonical: canonical.clone() };
                self.spellings.entry(spelling).or_default().insert(meant);
            }
        }
        self.families.insert(key)
    }

    /// The canonical names that an equality on `name` means, in order; none when no metric has it.
    ///
    /// One metric under two units is one thing under two canonical names, and both answer. Where
    /// metrics of different names share the spelling, only those stay whose canonical name it is.
    pub fn canonical_names(&self, name: &str) -> Vec<&str> {
        settled(name, self.meant(name))
    }

    /// Everything that an equality on `name` could mean.
    pub fn meant(&self, name: &str) -> impl Iterator<Item = &Meant> + Clone {
        self.spellings.get(name).into_iter().flatten()
    }

    /// Whether a metric was added.
    pub fn contains(&self, name: &str, unit: &str, instrument: Instrument) -> bool {
        let Some(family) = names::canonical(name, unit, instrument) else { return false };
        self.families.contains(&(name.to_owned(), unit.to_owned(), family))
    }

    /// The canonical names of a metric under its other units, in order.
    pub fn other_units(&self, name: &str, unit: &str) -> Vec<&str> {
        let from = (name.to_owned(), String::new(), String::new());
        let of_name = self.families.range(from..).take_while(|(known, ..)| known == name);
        of_name.filter(|(_, known, _)| known != unit).map(|(.., family)| family.as_str()).collect()
    }
}

/// Of what a spelling could mean, the canonical names that it does mean; see
/// [`Aliases::canonical_names`].
pub fn settled<'m>(name: &str, meant: impl Iterator<Item = &'m Meant> + Clone) -> Vec<&'m str> {
    let first = meant.clone().next();
    let is_one = meant.clone().all(|m| first.is_some_and(|first| first.sent == m.sent));
    let stays = meant.filter(|m| is_one || m.canonical == name).map(|m| m.canonical.as_str());
    stays.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::Instrument::{Counter, Gauge, Histogram};
    use super::*;

    fn known(metrics: &[(&str, &str, Instrument)]) -> Aliases {
        let mut aliases = Aliases::default();
        for (name, unit, instrument) in metrics {
            assert!(aliases.insert(name, unit, *instrument));
        }
        aliases
    }

    #[test]
    fn every_spelling_leads_to_the_canonical_name() {
        let aliases = known(&[
            ("megatron.training.skipped_iters", "", Counter),
            ("megatron.training.step_duration_ms", "ms", Histogram),
        ]);
        let check = |name: &str, want: &[&str]| assert_eq!(aliases.canonical_names(name), want, "{name}");
        let skipped = ["megatron_training_skipped_iters_total"];
        check("megatron_training_skipped_iters_total", &skipped);
        check("megatron_training_skipped_iters", &skipped);
        check("megatron.training.skipped_iters", &skipped);
        let count = ["megatron_training_step_duration_ms_milliseconds_count"];
        check("megatron_training_step_duration_ms_count", &count);
        check("megatron.training.step_duration_ms_count", &count);
        check("megatron_training_step_duration_ms", &[]);
        check("loss", &[]);
    }

    #[test]
    fn one_metric_under_two_units_is_found_together() {
        let aliases = known(&[
            ("megatron.training.throughput_tflops", "", Gauge),
            ("megatron.training.throughput_tflops", "TFLOP/s", Gauge),
        ]);
        let both =
            ["megatron_training_throughput_tflops", "megatron_training_throughput_tflops_TFLOP_per_second"];
        assert_eq!(aliases.canonical_names("megatron_training_throughput_tflops"), both);
        assert_eq!(aliases.canonical_names("megatron.training.throughput_tflops"), both);
        assert_eq!(aliases.canonical_names(both[1]), [both[1]], "its own name means it alone");
    }

    #[test]
    fn a_spelling_of_two_metrics_means_the_one_that_is_called_so() {
        let aliases = known(&[("disk.io", "By", Counter), ("disk_io", "", Gauge)]);
        assert_eq!(aliases.canonical_names("disk_io"), ["disk_io"]);
        assert_eq!(aliases.canonical_names("disk.io"), ["disk_io_bytes_total"]);
        let neither = known(&[("disk.io", "By", Counter), ("disk_io", "s", Counter)]);
        assert_eq!(neither.canonical_names("disk_io"), ["disk_io_seconds_total"; 0]);
    }

    #[test]
    fn other_units_of_a_metric_are_told() {
        let aliases = known(&[("a.b", "s", Gauge), ("a.b", "", Gauge), ("a.c", "ms", Gauge)]);
        assert_eq!(aliases.other_units("a.b", ""), ["a_b_seconds"]);
        assert_eq!(aliases.other_units("a.b", "ms"), ["a_b", "a_b_seconds"]);
        assert_eq!(aliases.other_units("a", ""), [""; 0]);
        assert!(aliases.contains("a.c", "ms", Gauge) && !aliases.contains("a.c", "s", Gauge));
    }

    #[test]
    fn a_metric_is_added_once() {
        let mut aliases = known(&[("a", "", Gauge)]);
        assert!(!aliases.insert("a", "", Gauge));
        assert!(!aliases.insert("...", "", Gauge), "it has no name");
    }
}
