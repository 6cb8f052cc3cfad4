//! NVLinks: which are up, what they carried, and their errors.

use std::sync::LazyLock;

use super::{
    code::Code,
    descs::{GPU_NVLINK_ACTIVE, GPU_NVLINK_BYTES, GPU_NVLINK_ERRORS},
    ffi::FieldValue,
    reading::{Device, Trouble, sensible_wide},
    throttle::Labels,
};

/// The most links that any header knows.
const LINKS_MAX: usize = 36;
/// How many links are visited in a tick: each costs a call to the driver for its state and for each kind
/// of error.
const VISITS: usize = 3;
/// The first compute capability whose links count by fields (NVLink 5).
const FIELDS_SINCE: u32 = 10;

/// Kinds of errors up to Hopper; the place is NVML's number of the counter.
const COUNTERS: [&str; 5] = ["replay", "recovery", "crc_flit", "crc_data", "ecc_data"];
/// Kinds of errors of NVLink 5 and the fields that count them.
const FIELDS: [(u32, &str); 7] = [
    (206, "malformed_packet"),
    (207, "buffer_overrun"),
    (208, "receive"),
    (211, "link_integrity"),
    (212, "transmit_discard"),
    (213, "recovery"),
    (214, "recovery_failed"),
];
const KINDS_MAX: usize = 7;

/// Bytes over all links in KiB, sent and received; the scope that means all of them.
const SUMS: [(u32, Labels); 2] = [(138, &[("direction", "transmit")]), (139, &[("direction", "receive")])];
const ALL_LINKS: u32 = u32::MAX;
/// Bytes of one link of NVLink 5.
const BYTES: [u32; 2] = [202, 204];

static NUMBERS: LazyLock<[String; LINKS_MAX]> = LazyLock::new(|| std::array::from_fn(|n| n.to_string()));
static COUNTER_LABELS: LazyLock<Vec<[(&str, &str); 2]>> = LazyLock::new(|| labels(COUNTERS));
static FIELD_LABELS: LazyLock<Vec<[(&str, &str); 2]>> = LazyLock::new(|| labels(FIELDS.map(|f| f.1)));

/// The labels of every kind on every link, link by link.
fn labels<const N: usize>(kinds: [&'static str; N]) -> Vec<[(&'static str, &'static str); 2]> {
    let of_link = |link: &'static String| kinds.map(|kind| [("kind", kind), ("link", link.as_str())]);
    NUMBERS.iter().flat_map(of_link).collect()
}

/// What is known of the links of one device.
#[derive(Default)]
pub(super) struct Links {
    all: Vec<Link>,
    /// The link that is visited next.
    next: usize,
    /// Kinds that this device does not count.
    lacking: [bool; KINDS_MAX],
}

#[derive(Default)]
struct Link {
    is_active: bool,
    errors: [u64; KINDS_MAX],
    /// Sent and received, where the driver tells it for each link only.
    bytes: Option<[u64; 2]>,
}

/// The fields that are asked of every device.
pub(super) fn fields() -> impl Iterator<Item = (u32, u32)> {
    SUMS.iter().map(|(field, _)| (*field, ALL_LINKS))
}

/// Visits some links and emits what is known of all of them.
pub(super) fn links(device: &mut Device<'_>) -> Result<(), Trouble> {
    let mut visits = VISITS;
    if device.links.all.is_empty() {
        find(device)?;
        visits = LINKS_MAX;
    }
    let mut trouble = None;
    for _ in 0..visits.min(device.links.all.len()) {
        trouble = trouble.or(visit(device).err());
    }
    let of_kind = if counts_by_fields(device) { &FIELD_LABELS } else { &COUNTER_LABELS };
    let kinds = if counts_by_fields(device) { FIELDS.len() } else { COUNTERS.len() };
    let Device { links, values, .. } = device;
    values.put(&GPU_NVLINK_ACTIVE, links.all.iter().filter(|link| link.is_active).count() as f64);
    for (link, of_link) in links.all.iter().zip(of_kind.chunks(kinds)) {
        for (errors, labels) in link.errors.iter().zip(of_link).filter(|(errors, _)| **errors > 0) {
            values.put_with(&GPU_NVLINK_ERRORS, labels, *errors as f64);
        }
    }
    trouble.map_or(Ok(()), |code| Err(Trouble::from(code).beside_values()))
}

fn counts_by_fields(device: &Device<'_>) -> bool {
    device.capability.is_some_and(|(major, _)| major >= FIELDS_SINCE)
}

/// Counts the links: the driver refuses the first number that is none.
fn find(device: &mut Device<'_>) -> Result<(), Code> {
    for link in 0..LINKS_MAX {
        match device.library.is_nvlink_active(device.handle, link as u32) {
            Ok(is_active) => device.links.all.push(Link { is_active, ..Link::default() }),
            Err(code) if link == 0 => return Err(code),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Looks at the next link; its last numbers stay where it does not answer.
fn visit(device: &mut Device<'_>) -> Result<(), Code> {
    let number = device.links.next;
    device.links.next = (number + 1) % device.links.all.len();
    let is_active = device.library.is_nvlink_active(device.handle, number as u32)?;
    device.links.all[number].is_active = is_active;
    if !is_active {
        return Ok(());
    }
    if counts_by_fields(device) { visit_fields(device, number) } else { visit_counters(device, number) }
}

fn visit_counters(device: &mut Device<'_>, number: usize) -> Result<(), Code> {
    for kind in 0..COUNTERS.len() {
        if device.links.lacking[kind] {
            continue;
        }
        let answer = device.library.nvlink_errors(device.handle, number as u32, kind as u32);
        device.links.note(number, kind, answer)?;
    }
    Ok(())
}

fn visit_fields(device: &mut Device<'_>, number: usize) -> Result<(), Code> {
    let mut fields = FIELDS.map(|(field, _)| FieldValue::new(field, number as u32));
    device.library.fields(device.handle, &mut fields)?;
    let mut outcome = Ok(());
    for (kind, field) in fields.iter().enumerate() {
        outcome = outcome.and(device.links.note(number, kind, field.count()));
    }
    outcome
}

impl Links {
    fn note(&mut self, link: usize, kind: usize, answer: Result<u64, Code>) -> Result<(), Code> {
        match answer {
            // All ones: the driver does not know.
            Ok(u64::MAX) => {}
            Ok(errors) => self.all[link].errors[kind] = errors,
            Err(code) if code.is_unsupported() => self.lacking[kind] = true,
            Err(code) => return Err(code),
        }
        Ok(())
    }
}

/// Bytes over all links: the driver's own sums, or those of the links where it has none.
pub(super) fn bytes(device: &mut Device<'_>) -> Result<(), Trouble> {
    let mut refused = None;
    for (field, labels) in SUMS {
        match device.field(field, ALL_LINKS) {
            Ok(kib) => device.values.put_with(&GPU_NVLINK_BYTES, labels, sensible_wide(kib)? * 1024.0),
            Err(code) => refused = Some(code),
        }
    }
    match refused {
        None => Ok(()),
        Some(code) if code.is_unsupported() && counts_by_fields(device) => bytes_by_link(device, code),
        Some(code) => Err(code.into()),
    }
}

/// The sum of what every link told last: a link that went down still carried what it had carried, and a
/// sum without it would look like a counter that was reset.
fn bytes_by_link(device: &mut Device<'_>, refused: Code) -> Result<(), Trouble> {
    let Device { library, handle, links, values, .. } = device;
    let mut fields: Vec<FieldValue> = Vec::new();
    for (number, _) in links.all.iter().enumerate().filter(|(_, link)| link.is_active) {
        fields.extend(BYTES.map(|field| FieldValue::new(field, number as u32)));
    }
    if !fields.is_empty() {
        library.fields(*handle, &mut fields)?;
    }
    let active = links.all.iter_mut().filter(|link| link.is_active);
    for (link, told) in active.zip(fields.chunks(BYTES.len())) {
        let [Ok(sent), Ok(received)] = [told[0].count(), told[1].count()] else { continue };
        if sent != u64::MAX && received != u64::MAX {
            link.bytes = Some([sent, received]);
        }
    }
    let mut known = links.all.iter().filter_map(|link| link.bytes).peekable();
    if known.peek().is_none() {
        return Err(refused.into());
    }
    let sums = known.fold([0, 0], |sum: [u64; 2], link| [sum[0] + link[0], sum[1] + link[1]]);
    for ((_, labels), sum) in SUMS.iter().zip(sums) {
        values.put_with(&GPU_NVLINK_BYTES, labels, sum as f64);
    }
    Ok(())
}
