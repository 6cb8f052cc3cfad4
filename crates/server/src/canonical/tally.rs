//! What was made and what was left out, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::{Family, head};

use super::Left;

/// Counters of canonical series.
#[derive(Debug)]
pub(super) struct Tally {
    made: AtomicU64,
    left: Family,
    energy: Family,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            made: AtomicU64::new(0),
            left: Family::new(
                "truegauge_canonical_dropped_total",
                &["reason"],
                "Samples that are not in their canonical series: another source gives it, or they are no value.",
            ),
            energy: Family::new(
                "truegauge_canonical_energy_odd_total",
                &["uuid", "kind"],
                "Readings of energy counters that began anew, stepped back or rose by more than a card can burn.",
            ),
        }
    }
}

impl Tally {
    pub(super) fn add(&self, made: u64, left: &Left, odd: &[(String, &'static str, u64)]) {
        self.made.fetch_add(made, Ordering::Relaxed);
        let counts = [
            ("duplicate", left.duplicate),
            ("agent", left.agent),
            ("unsupported", left.unsupported),
            ("nan", left.nan),
            ("late", left.late),
            ("ahead", left.ahead),
        ];
        for (reason, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.left.add(&[reason], count);
        }
        for (uuid, kind, count) in odd {
            self.energy.add(&[uuid, kind], *count);
        }
    }

    pub(super) fn page(&self, page: &mut String) {
        use std::fmt::Write as _;
        let name = "truegauge_canonical_samples_total";
        head(page, name, "counter", "Samples made under canonical names, beside the originals.");
        let _ = writeln!(page, "{name} {}", self.made.load(Ordering::Relaxed));
        self.left.write(page);
        self.energy.write(page);
    }
}
