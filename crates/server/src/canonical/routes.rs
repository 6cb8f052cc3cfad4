//! What an original series gives, by the vocabulary.

use model::{Labels, RESERVED_LABELS};
use semconv::canonical::{
    GPU_ENERGY_JOULES_TOTAL, GPU_INFO, GPU_OWNER_INFO, GPU_POWER_LIMIT_WATTS, GPU_UNSUPPORTED_INFO,
};
use semconv::vocabulary::{Hit, Of, Part, Vocabulary};

/// How the names of cards' series begin.
pub(super) const GPU_PREFIX: &str = "tg_gpu_";

/// What a value is used for beside being stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing.
    Plain,
    /// It is made one that never falls.
    Energy,
    /// It bounds what energy may rise by.
    Limit,
}

impl Use {
    /// What values of a metric are used for.
    pub(super) fn of(metric: &str) -> Self {
        match metric {
            name if name == GPU_ENERGY_JOULES_TOTAL.name => Self::Energy,
            name if name == GPU_POWER_LIMIT_WATTS.name => Self::Limit,
            _ => Self::Plain,
        }
    }
}

/// One canonical series that an original gives.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) hit: Hit,
    pub(super) labels: Labels,
    /// What it is an alternative of.
    pub(super) group: (&'static str, Vec<(String, String)>),
    pub(super) rank: u16,
    pub(super) of: Of,
    pub(super) used: Use,
    /// Whether another series says so where there is no value.
    pub(super) is_told_unsupported: bool,
}

/// Whether a series of this name gives anything.
pub(super) fn is_known(vocabulary: &Vocabulary, metric: &str) -> bool {
    !vocabulary.lookup(metric).is_empty()
}

/// What an original gives.
pub(super) fn ways(vocabulary: &Vocabulary, original: &Labels) -> Vec<Way> {
    let hits = vocabulary.lookup(original.metric());
    let mut ways: Vec<Way> = hits.iter().filter_map(|hit| way(vocabulary, *hit, original)).collect();
    let owner = ways.iter().find_map(|way| owner(way, original));
    ways.extend(owner);
    ways
}

fn way(vocabulary: &Vocabulary, hit: Hit, original: &Labels) -> Option<Way> {
    let (source, row) = vocabulary.get(hit)?;
    let metric = row.to?.name;
    // Cards are everybody's: who is confined to a project has no say in them.
    if source.of == Of::Gpu && RESERVED_LABELS.iter().any(|label| original.get(label).is_some()) {
        return None;
    }
    let labels = source.map(row, hit.part, original)?;
    // A card is its uuid: what has none may be told a second time.
    if source.of == Of::Gpu && labels.get("uuid").is_none_or(str::is_empty) {
        return None;
    }
    let is_told_unsupported = source.of == Of::Gpu && hit.part == Part::Whole;
    let group = (metric, row.set.clone());
    Some(Way {
        hit,
        group,
        rank: row.rank,
        of: source.of,
        used: Use::of(metric),
        labels,
        is_told_unsupported,
    })
}

/// Who has a card, by the labels of an exporter that asked the kubelet: told once, with the facts of the card.
fn owner(info: &Way, original: &Labels) -> Option<Way> {
    let metric = GPU_OWNER_INFO.name;
    if info.group.0 != GPU_INFO.name {
        return None;
    }
    let pod = original.get("pod")?;
    let text = |name: &'static str| (name, info.labels.get(name).unwrap_or_default());
    let told = |name: &'static str, from: &str| (name, original.get(from).unwrap_or_default());
    let labels = Labels::from_pairs([
        ("__name__", metric),
        text("host"),
        text("gpu"),
        text("uuid"),
        told("gi", "GPU_I_ID"),
        told("namespace", "namespace"),
        ("pod", pod),
        told("container", "container"),
        ("confidence", "likely"),
    ]);
    Some(Way {
        hit: info.hit,
        labels,
        group: (metric, Vec::new()),
        rank: 0,
        of: Of::Gpu,
        used: Use::Plain,
        is_told_unsupported: false,
    })
}

/// The series that says that a card has no value for a metric.
pub(super) fn unsupported(labels: &Labels) -> Labels {
    let field = labels.metric().trim_start_matches(GPU_PREFIX);
    let of_card = labels.iter().filter(|(name, _)| ["host", "gpu", "uuid", "gi"].contains(name));
    Labels::from_pairs(of_card.chain([("__name__", GPU_UNSUPPORTED_INFO.name), ("field", field)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(labels: &[(&str, &str)]) -> Vec<String> {
        let ways = ways(&Vocabulary::embedded(), &Labels::from_pairs(labels.iter().copied()));
        ways.into_iter().map(|way| way.labels.to_string()).collect()
    }

    #[test]
    fn who_is_confined_to_a_project_tells_of_engines_within_it_and_of_no_card() {
        let engine = [("__name__", "vllm:num_requests_waiting"), ("model_name", "m"), ("project", "p")];
        assert_eq!(names(&engine), ["tg_engine_requests_waiting{engine=\"vllm\",model=\"m\",project=\"p\"}"]);
        let card = [("__name__", "DCGM_FI_DEV_GPU_TEMP"), ("UUID", "u"), ("gpu", "0"), ("hostname", "h")];
        assert_eq!(names(&card), ["tg_gpu_temperature_celsius{gpu=\"0\",host=\"h\",uuid=\"u\"}"]);
        assert_eq!(names(&[&card[..], &[("project", "p")]].concat()), [""; 0]);
    }
}
