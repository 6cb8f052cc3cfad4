//! Changes to label sets that the evaluator makes, and the hash by which `limit_ratio` samples.

use model::Labels;

/// The label that holds a metric's name.
pub(crate) const METRIC_NAME: &str = "__name__";
/// Labels that describe the metric and go away with its name.
const DESCRIBING: [&str; 3] = [METRIC_NAME, "__type__", "__unit__"];

/// `labels` with `name` set to `value`; an empty value removes it.
pub(crate) fn with(labels: &Labels, name: &str, value: &str) -> Labels {
    let mut pairs: Vec<(&str, &str)> = labels.iter().filter(|(known, _)| *known != name).collect();
    if !value.is_empty() {
        let at = pairs.partition_point(|(known, _)| *known < name);
        pairs.insert(at, (name, value));
    }
    Labels::from_pairs(pairs)
}

/// `labels` without those in `names`.
pub(crate) fn without(labels: &Labels, names: &[&str]) -> Labels {
    Labels::from_pairs(labels.iter().filter(|(known, _)| !names.contains(known)))
}

/// The labels that are in `names`.
pub(crate) fn only(labels: &Labels, names: &[String]) -> Labels {
    Labels::from_pairs(labels.iter().filter(|(known, _)| names.iter().any(|name| name == known)))
}

/// Whether a label goes away with the metric's name.
pub(crate) fn describes(name: &str) -> bool {
    DESCRIBING.contains(&name)
}

/// `labels` without the metric's name and what describes it.
pub(crate) fn without_name(labels: &Labels) -> Labels {
    without(labels, &DESCRIBING)
}

/// Writes what [`only`] would keep, so that equal texts mean equal labels; nothing is allocated for it.
pub(crate) fn write_only(labels: &Labels, names: &[String], into: &mut String) {
    into.clear();
    let kept = labels.iter().filter(|(known, _)| names.iter().any(|name| name == known));
    write_all(kept, into);
}

/// Writes what [`without`] would keep, as [`write_only`] does.
pub(crate) fn write_without(labels: &Labels, names: &[&str], into: &mut String) {
    into.clear();
    write_all(labels.iter().filter(|(known, _)| !names.contains(known)), into);
}

/// Each text with its length before it, since any character may be in it.
fn write_all<'l>(pairs: impl Iterator<Item = (&'l str, &'l str)>, into: &mut String) {
    for text in pairs.flat_map(|(name, value)| [name, value]) {
        let mut rest = text.len();
        // Digits to the base of 64, all of them ASCII, the last one marked.
        while rest >= 64 {
            into.push((rest % 64) as u8 as char);
            rest /= 64;
        }
        into.push((rest as u8 + 64) as char);
        into.push_str(text);
    }
}

/// Numbers for different texts, from 0 on.
#[derive(Debug, Default)]
pub(crate) struct Numbers(std::collections::HashMap<Box<str>, usize>);

impl Numbers {
    /// The number of a text; new ones get the next.
    pub(crate) fn of(&mut self, text: &str) -> usize {
        if let Some(number) = self.0.get(text) {
            return *number;
        }
        let next = self.0.len();
        self.0.insert(text.into(), next);
        next
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

/// The hash of a label set that Prometheus samples by: xxHash64 over length-prefixed texts.
pub(crate) fn hash(labels: &Labels) -> u64 {
    let mut bytes = Vec::new();
    for (name, value) in labels.iter() {
        for text in [name, value] {
            if text.len() < 255 {
                bytes.push(text.len() as u8);
            } else {
                bytes.push(255);
                bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    xxhash64(&bytes)
}

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

fn mix(lane: u64, input: u64) -> u64 {
    lane.wrapping_add(input.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn xxhash64(bytes: &[u8]) -> u64 {
    let mut rest = bytes;
    let mut hash = if bytes.len() >= 32 {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, 0_u64.wrapping_sub(P1)];
        while let Some((block, after)) = rest.split_at_checked(32) {
            for (lane, input) in lanes.iter_mut().zip(block.chunks_exact(8)) {
                *lane = mix(*lane, word(input));
            }
            rest = after;
        }
        let mut hash = lanes
            .iter()
            .zip([1, 7, 12, 18])
            .fold(0_u64, |hash, (lane, turn)| hash.wrapping_add(lane.rotate_left(turn)));
        for lane in lanes {
            hash = (hash ^ mix(0, lane)).wrapping_mul(P1).wrapping_add(P4);
        }
        hash
    } else {
        P5
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    while let Some((input, after)) = rest.split_at_checked(8) {
        hash = (hash ^ mix(0, word(input))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
        rest = after;
    }
    if let Some((input, after)) = rest.split_at_checked(4) {
        hash = (hash ^ word(input).wrapping_mul(P1)).rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
        rest = after;
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(P2);
    hash = (hash ^ hash >> 29).wrapping_mul(P3);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_labels_are_equal_only_where_the_labels_are() {
        let long = "x".repeat(200);
        let sets = [
            Labels::default(),
            Labels::from_pairs([("a", "b"), ("c", "d")]),
            Labels::from_pairs([("a", "bc"), ("c", "d")]),
            Labels::from_pairs([("ab", "c"), ("c", "d")]),
            Labels::from_pairs([("a", "bAc"), ("z", "d")]),
            Labels::from_pairs([("a", long.as_str())]),
            Labels::from_pairs([("a", &long[1..])]),
            Labels::from_pairs([("a", "b")]),
        ];
        let names = ["a", "ab", "c"].map(str::to_owned);
        let (mut one, mut other) = (String::new(), String::new());
        for a in &sets {
            for b in &sets {
                write_only(a, &names, &mut one);
                write_only(b, &names, &mut other);
                assert_eq!(one == other, only(a, &names) == only(b, &names), "{a} {b}");
                write_without(a, &["c"], &mut one);
                write_without(b, &["c"], &mut other);
                assert_eq!(one == other, without(a, &["c"]) == without(b, &["c"]), "{a} {b}");
            }
        }
    }

    #[test]
    fn xxhash_gives_the_published_values() {
        assert_eq!(xxhash64(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxhash64(b"a"), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxhash64(b"abc"), 0x44BC_2CF5_AD77_0999);
        assert_eq!(xxhash64(b"Nobody inspects the spammish repetition"), 0xFBCE_A83C_8A37_8BF1);
    }
}
