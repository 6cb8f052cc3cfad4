//! What holds a served model back: its memory bandwidth, its arithmetic, its cache or its queue.
//!
//! "100 % busy" does not tell these apart: a card that reads all weights for one request is as busy as one
//! that computes at its peak. What tells is how much of the time the tensor cores and the memory worked.

/// Share of the time that the memory moved data from which it is what limits; it ends near 0.9 in practice.
const DRAM_MIN: f64 = 0.6;
/// Share of the time that the tensor cores worked from which arithmetic is what limits.
const TENSOR_MIN: f64 = 0.5;
/// How much more the memory worked than the tensor cores where it is what limits.
const DRAM_OVER_TENSOR: f64 = 1.5;
/// Use of the KV cache from which it is full.
const KV_FULL: f64 = 0.95;

/// What is known of a model and of the cards that serve it, in a window. None where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Serving {
    /// Requests that were worked on, the most in the window.
    pub running_max: Option<f64>,
    /// Requests that were worked on, at the end.
    pub running: Option<f64>,
    /// Requests that waited, at the end.
    pub waiting: Option<f64>,
    /// Use of the fullest KV cache, 0 to 1.
    pub kv_usage_max: Option<f64>,
    /// Requests put back a second.
    pub preemptions_per_second: Option<f64>,
    /// Cards, over which the following are means.
    pub cards: Option<u32>,
    /// Share of the time in which a kernel was resident: shown, never judged by.
    pub busy: Option<f64>,
    /// Share of the time in which the tensor cores worked.
    pub tensor: Option<f64>,
    /// Share of the time in which the memory moved data.
    pub dram: Option<f64>,
    /// Power as a share of the limit.
    pub power: Option<f64>,
}

/// What holds a model back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing was asked of it.
    Idle,
    /// The KV cache is full, and requests wait or are put back for it.
    KvFull,
    /// Memory is read most of the time, and the tensor cores wait for it.
    MemoryBound,
    /// The tensor cores work most of the time.
    ComputeBound,
    /// Requests wait though there is room in the cache.
    Queueing,
    /// It can't be told.
    Unknown,
}

impl Kind {
    /// As the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::KvFull => "kv_full",
            Self::MemoryBound => "memory_bound",
            Self::ComputeBound => "compute_bound",
            Self::Queueing => "queueing",
            Self::Unknown => "unknown",
        }
    }
}

/// What holds a model back, and the same in words with the numbers that say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What it is.
    pub kind: Kind,
    /// A sentence or two.
    pub sentence: String,
}

/// Judges; none where nothing at all is known. `unjoined` says why no cards are known, where none are.
pub fn verdict(of: &Serving, unjoined: &str) -> Option<Verdict> {
    let known = [of.running, of.waiting, of.kv_usage_max, of.tensor, of.dram];
    if known.iter().all(Option::is_none) {
        return None;
    }
    let waits = of.waiting.is_some_and(|waiting| waiting > 0.0);
    let evicts = of.preemptions_per_second.is_some_and(|rate| rate > 0.0);
    let is_idle = of.running_max.or(of.running) == Some(0.0) && !waits;
    let kv_full = of.kv_usage_max.filter(|kv| *kv >= KV_FULL && (waits || evicts));
    let (kind, sentence) = if is_idle {
        (Kind::Idle, "Nothing was asked of it: no request ran or waited.".to_owned())
    } else if let Some(kv) = kv_full {
        (Kind::KvFull, kv_sentence(of, kv))
    } else if let Some((kind, sentence)) = by_cards(of) {
        (kind, sentence)
    } else if let Some(waiting) = of.waiting.filter(|waiting| *waiting > 0.0) {
        (Kind::Queueing, queue_sentence(of, waiting))
    } else {
        (Kind::Unknown, unknown_sentence(of, unjoined))
    };
    Some(Verdict { kind, sentence })
}

fn kv_sentence(of: &Serving, kv: f64) -> String {
    let waiting = of.waiting.filter(|waiting| *waiting > 0.0);
    let waiting = waiting.map(|waiting| format!("{} wait for room in it", requests(waiting)));
    let evicted = of.preemptions_per_second.filter(|rate| *rate > 0.0);
    let evicted = evicted.map(|rate| format!("{} a second are put back", commas(rate, 2)));
    let why: Vec<String> = waiting.into_iter().chain(evicted).collect();
    format!(
        "The KV cache is {} full and {}: more memory or shorter contexts would help.",
        percent(kv),
        why.join(", ")
    )
}

fn queue_sentence(of: &Serving, waiting: f64) -> String {
    let room = of.kv_usage_max.map(|kv| format!(" though the KV cache is {} full", percent(kv)));
    format!(
        "{} wait{}: a bound on the batch or the speed of the engine holds them back, not memory.",
        requests(waiting),
        room.unwrap_or_default()
    )
}

/// What the cards say, where they say enough.
fn by_cards(of: &Serving) -> Option<(Kind, String)> {
    let (tensor, dram) = (of.tensor?, of.dram?);
    let busy = of.busy.map(|busy| format!("Busy {} of the time, but ", percent(busy)));
    let power = of.power.map(|power| format!(", power at {} of the limit", percent(power)));
    let numbers = format!(
        "{}tensor cores worked {} and memory {} of it{}",
        busy.as_deref().unwrap_or("Of the time "),
        percent(tensor),
        percent(dram),
        power.unwrap_or_default()
    );
    if dram >= DRAM_MIN && dram >= tensor * DRAM_OVER_TENSOR {
        let meaning = "memory bandwidth limits, a larger batch would cost little";
        return Some((Kind::MemoryBound, format!("{numbers}: {meaning}.")));
    }
    if tensor >= TENSOR_MIN {
        return Some((Kind::ComputeBound, format!("{numbers}: arithmetic limits.")));
    }
    None
}

fn unknown_sentence(of: &Serving, unjoined: &str) -> String {
    match (of.tensor, of.dram) {
        (Some(tensor), Some(dram)) => format!(
            "Neither the tensor cores ({}) nor memory ({}) are near their limit, and no request waits: there is room.",
            percent(tensor),
            percent(dram)
        ),
        _ => format!("No request waits. Whether memory or arithmetic limits can't be told: {unjoined}."),
    }
}

fn requests(count: f64) -> String {
    if count == 1.0 { "1 request".to_owned() } else { format!("{} requests", commas(count, 0)) }
}

/// A number that is not negative, with so many digits behind the point and a comma every three before it.
pub fn commas(number: f64, digits: usize) -> String {
    let plain = format!("{number:.digits$}");
    let (whole, rest) = plain.find('.').map_or((plain.as_str(), ""), |at| plain.split_at(at));
    let mut out = String::with_capacity(plain.len() + whole.len() / 3);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}
