//! What the log says, as events.

use std::collections::BTreeMap;

use collect::kernel_log::{
    AmdFault, AmdLine, Bdf, Burst, Bursts, Clock, Event as Said, Interpreter, Origin, Record, SxidDetail,
    SxidLine, XidLine, plain_boot_id,
};
use model::{Action, Event, Severity};
use semconv::xid::{self, Role};
use serde_json::{Map, Value, json};

use super::place::{Known, KnownCard};

/// Reports of one card and number that go on as they are in each window.
const PASSES: u32 = 5;
/// The window, microseconds.
const WINDOW_US: u64 = 60_000_000;
/// Between two looks at which windows are over, microseconds.
const SWEEP_US: u64 = 1_000_000;
/// Most bytes of a line that an event keeps.
const LINE_BYTES_MAX: usize = 2048;
/// Most cards that are remembered.
const CARDS_MAX: usize = 512;
/// Most numbers of one card that are counted.
const XIDS_MAX: usize = 256;
/// Most sorts of reports of which the last one is kept while they are held back.
const HELD_MAX: usize = 4096;
/// How far a time may be ahead before it is not believed, nanoseconds.
const AHEAD_NS: i64 = 60_000_000_000;
/// How long before this boot a line of an earlier one is dated that has no other time, nanoseconds.
const BEFORE_BOOT_NS: i64 = 1_000_000_000;

/// What is known when a log is read.
pub(super) struct Context<'a> {
    pub(super) host: &'a str,
    pub(super) boot_id: &'a str,
    pub(super) clock: Clock,
    pub(super) driver: Option<&'a str>,
}

/// Reports that are counted together.
type Sort = (Option<Bdf>, Option<u32>, String);

/// Makes events of records.
#[derive(Debug)]
pub(super) struct Teller {
    interpreter: Interpreter,
    /// Of the kernel, and of processes: these cannot use up what the kernel may say.
    bursts: [Bursts<Sort>; 2],
    held: [BTreeMap<Sort, Draft>; 2],
    /// How many were held back in windows that have ended in this look; `None` for sorts beyond the bound.
    over: [BTreeMap<Option<Sort>, u64>; 2],
    latest_us: u64,
    /// When windows that are over were ended last.
    swept_us: u64,
    /// The last SXid, as long as lines behind it may belong to it.
    switch: Option<(SxidLine, usize)>,
    pub(super) drafts: Vec<Draft>,
    /// Xids that the kernel told in this look.
    pub(super) xids: Vec<(Bdf, u32, i64)>,
}

impl Default for Teller {
    fn default() -> Self {
        let bursts = || Bursts::new(PASSES, WINDOW_US);
        Self {
            interpreter: Interpreter::default(),
            bursts: [bursts(), bursts()],
            held: Default::default(),
            over: Default::default(),
            latest_us: 0,
            swept_us: 0,
            switch: None,
            drafts: Vec::new(),
            xids: Vec::new(),
        }
    }
}

/// An event that is not written out yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    event: Event,
    body: Map<String, Value>,
}

impl Draft {
    /// The event, with its body as a text.
    pub(super) fn finish(mut self) -> Event {
        self.event.body = Value::Object(self.body).to_string();
        self.event
    }

    fn put(&mut self, field: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.body.insert(field.to_owned(), value.into());
        }
    }
}

impl Teller {
    /// Makes events of what a record says. `key` is what it is known by where it does not say so itself;
    /// `since_ns` is a time before which it was not written, where that is known.
    pub(super) fn take(
        &mut self,
        context: &Context<'_>,
        known: &mut Known,
        record: &Record,
        (key, since_ns): (Option<String>, Option<i64>),
    ) {
        let mut said = Vec::new();
        self.interpreter.take(record, &mut |event| said.push(event));
        if said.is_empty() {
            return;
        }
        let (at_ns, is_dated) = time(record, &context.clock, since_ns, key.is_some());
        let key = record.key(Some(context.boot_id)).or(key).unwrap_or_default();
        for (at, said) in said.into_iter().enumerate() {
            if let Said::SxidDetail(detail) = &said {
                self.add_detail(detail);
                continue;
            }
            let key = if at == 0 { key.clone() } else { format!("{key}:{at}") };
            let mut draft = Draft::of_record(context, record, is_dated);
            draft.event.time_ns = at_ns;
            draft.event.key = key;
            draft.say(&said);
            self.note(known, record.origin, &said, at_ns);
            draft.locate(known, &said);
            if record.origin == Origin::Userspace {
                // Whoever may write to the log could claim anything.
                draft.event.severity = Severity::Info;
            }
            self.file(record.origin, said, draft);
        }
    }

    /// Gives the events of a look, with those that were held back as one for each sort.
    pub(super) fn finish(&mut self, context: &Context<'_>) -> Vec<Event> {
        self.switch = None;
        let mut events: Vec<Event> = self.drafts.drain(..).map(Draft::finish).collect();
        for side in 0..self.bursts.len() {
            let mut counts = std::mem::take(&mut self.over[side]);
            self.bursts[side].held().into_iter().for_each(|(sort, count)| add(&mut counts, sort, count));
            let mut held = std::mem::take(&mut self.held[side]);
            let mut beyond = 0;
            for (sort, count) in counts {
                match sort.and_then(|sort| held.remove(&sort)) {
                    Some(mut draft) => {
                        draft.event.key.push_str(":burst");
                        draft.put("burst", Some(true));
                        draft.put("count", Some(count));
                        events.push(draft.finish());
                    }
                    None => beyond += count,
                }
            }
            events.extend((beyond > 0).then(|| flood(context, beyond)));
        }
        events
    }

    /// Remembers what a card is called and counts its Xids.
    fn note(&mut self, known: &mut Known, origin: Origin, said: &Said, at_ns: i64) {
        if origin == Origin::Userspace {
            return;
        }
        match said {
            Said::Card { gpu, uuid } => remember(known, gpu.to_string(), uuid, None),
            Said::Xid(XidLine { gpu: Some(gpu), code, .. }) => {
                self.xids.push((*gpu, *code, at_ns));
                count(known, *gpu, *code);
            }
            _ => {}
        }
    }

    /// Lets an event go on, or counts it.
    fn file(&mut self, origin: Origin, said: Said, draft: Draft) {
        let side = usize::from(origin == Origin::Userspace);
        // Lines of one log come in the order of their times, but for clocks that were set.
        self.latest_us = self.latest_us.max(u64::try_from(draft.event.time_ns / 1000).unwrap_or_default());
        if self.latest_us >= self.swept_us + SWEEP_US {
            self.swept_us = self.latest_us;
            for (bursts, over) in self.bursts.iter_mut().zip(&mut self.over) {
                bursts.ended(self.latest_us).into_iter().for_each(|(sort, count)| add(over, sort, count));
            }
        }
        let sort = sort(&said);
        match self.bursts[side].take(sort.clone(), self.latest_us) {
            Burst::Held => {
                let held = &mut self.held[side];
                if held.len() < HELD_MAX || held.contains_key(&sort) {
                    held.insert(sort, draft);
                }
            }
            Burst::Pass => {
                self.switch = match said {
                    Said::Sxid(line) => Some((line, self.drafts.len())),
                    _ => self.switch.take(),
                };
                self.drafts.push(draft);
            }
        }
    }

    /// Adds what a line behind an SXid says to its event; alone it is no event.
    fn add_detail(&mut self, detail: &SxidDetail) {
        let Some((line, at)) = &self.switch else { return };
        if (line.switch, line.code) == (detail.switch, detail.code)
            && !detail.data.is_empty()
            && let Some(draft) = self.drafts.get_mut(*at)
        {
            draft.put("data", Some(detail.data.clone()));
        }
    }
}

impl Draft {
    fn of_record(context: &Context<'_>, record: &Record, is_dated: bool) -> Self {
        let source = match record.origin {
            Origin::Kernel => "kernel",
            Origin::Userspace => "userspace",
            Origin::Unknown => "unknown",
        };
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (line, is_cut) = cut(&record.text);
        let mut draft = Self::default();
        draft.event.labels = vec![label("host", context.host), label("source", source)];
        line.clone_into(&mut draft.event.text);
        draft.put("line", Some(line));
        draft.put("cut", (is_cut || record.is_cut).then_some(true));
        draft.put("count", Some(1));
        draft.put("dated", Some(is_dated));
        draft.put("boot_id", record.boot_id.clone().or_else(|| Some(plain_boot_id(context.boot_id))));
        draft.put("sequence", record.sequence);
        draft.put("monotonic_us", record.monotonic_us);
        draft.put("priority", record.priority);
        draft.put("facility", record.facility);
        draft.put("driver", context.driver);
        draft
    }

    fn say(&mut self, said: &Said) {
        match said {
            Said::Xid(line) => self.xid(line),
            Said::OffTheBus { .. } => {
                self.is("gpu_fault", Severity::Critical);
                self.put("fault", Some("off_the_bus"));
                self.put("vendor", Some("nvidia"));
            }
            Said::Card { .. } => {
                self.is("inventory", Severity::Info);
                self.put("what", Some("named"));
            }
            Said::Sxid(line) => self.sxid(line),
            Said::SxidDetail(_) => {}
            Said::Amd(line) => self.amd(line),
        }
    }

    fn is(&mut self, kind: &str, severity: Severity) {
        kind.clone_into(&mut self.event.kind);
        self.event.severity = severity;
    }

    fn xid(&mut self, line: &XidLine) {
        let row = xid::xid(line.code);
        let action = match (row.role, line.recovery) {
            (Role::Symptom, _) => Action::None,
            (Role::Verdict, Some((_, to))) => xid::recovery_action(to),
            _ => row.action,
        };
        let is_fatal = line.nvlink5.as_ref().is_some_and(|told| told.is_fatal);
        self.is("xid", if is_fatal { Severity::Critical } else { severity(action) });
        self.put("xid", Some(line.code));
        self.put("message", Some(cut(&line.message).0));
        self.put("pid", line.pid);
        self.put("name", line.name.as_deref());
        self.put("gi", line.gi);
        self.put("ci", line.ci);
        self.put("channel", line.channel);
        self.put("previous", line.previous);
        self.put("recovery", line.recovery.map(|(from, to)| json!({ "from": from, "to": to })));
        let nvlink4 = line.nvlink4.as_ref();
        self.put("nvlink4", nvlink4.map(|told| json!({ "link": told.link, "registers": told.registers })));
        let nvlink5 = line.nvlink5.as_ref();
        self.put(
            "nvlink5",
            nvlink5.map(|told| {
                json!({
                    "unit": told.unit, "fatal": told.is_fatal, "containment": told.containment,
                    "instance": told.instance, "link": told.link, "words": told.words,
                })
            }),
        );
    }

    fn sxid(&mut self, line: &SxidLine) {
        let row = xid::sxid(line.code);
        let action = line.is_fatal.map_or(row.action, |is_fatal| row.action_when(is_fatal));
        let severity = match line.is_fatal {
            Some(true) => Severity::Critical,
            Some(false) => severity(action).min(Severity::Warning),
            None => severity(action),
        };
        self.is("sxid", severity);
        self.put("sxid", Some(line.code));
        self.put("switch", Some(line.switch));
        self.put("fatal", line.is_fatal);
        self.put("link", line.link);
        self.put("message", Some(cut(&line.message).0));
    }

    fn amd(&mut self, line: &AmdLine) {
        let (fault, severity) = amd_fault(&line.fault);
        self.is("gpu_fault", severity);
        self.put("fault", Some(fault));
        self.put("vendor", Some("amd"));
        self.put("message", Some(cut(&line.message).0));
        match &line.fault {
            AmdFault::RingTimeout { ring } => self.put("ring", Some(ring.as_str())),
            AmdFault::Errors { block, count, is_corrected } => {
                self.put("block", Some(block.as_str()));
                self.put("errors", Some(*count));
                self.put("corrected", Some(*is_corrected));
            }
            _ => {}
        }
    }

    /// Says which card it is about.
    fn locate(&mut self, known: &Known, said: &Said) {
        let Some(at) = place_of(said) else { return };
        let name = at.to_string();
        let card = known.cards.get(&name);
        let mut label = |name: &str, value: String| self.event.labels.push((name.to_owned(), value));
        if let Some(card) = card {
            if let Some(gpu) = card.gpu {
                label("gpu", gpu.to_string());
            }
            label("uuid", card.uuid.clone());
        }
        label("pci_bus_id", name);
        if let Said::Xid(XidLine { gi: Some(gi), .. }) = said {
            label("gi", gi.to_string());
        }
    }
}

fn add(counts: &mut BTreeMap<Option<Sort>, u64>, sort: Option<Sort>, count: u64) {
    *counts.entry(sort).or_default() += count;
}

/// Remembers which card is at a place.
pub(super) fn remember(known: &mut Known, at: String, uuid: &str, gpu: Option<u32>) {
    if known.cards.len() < CARDS_MAX || known.cards.contains_key(&at) {
        let card = known.cards.entry(at).or_default();
        if card.uuid != uuid {
            *card = KnownCard { uuid: uuid.to_owned(), gpu: None };
        }
        card.gpu = gpu.or(card.gpu);
    }
}

/// Counts an Xid of a card.
pub(super) fn count(known: &mut Known, gpu: Bdf, xid: u32) {
    let place = gpu.to_string();
    if known.xids.len() < CARDS_MAX || known.xids.contains_key(&place) {
        let counts = known.xids.entry(place).or_default();
        if counts.len() < XIDS_MAX || counts.contains_key(&xid) {
            *counts.entry(xid).or_default() += 1;
        }
    }
}

/// An event for what was held back beyond the sorts that are counted apart.
fn flood(context: &Context<'_>, count: u64) -> Event {
    let mut draft = Draft::default();
    draft.is("node", Severity::Warning);
    draft.event.time_ns = context.clock.now_ns;
    draft.event.key = format!("flood:{}:{}", context.boot_id, context.clock.now_ns);
    draft.event.labels = vec![("host".to_owned(), context.host.to_owned())];
    draft.event.text = format!("{count} reports of more sorts than are counted apart were held back");
    draft.put("what", Some("log_flood"));
    draft.put("count", Some(count));
    draft.finish()
}

fn sort(said: &Said) -> Sort {
    let of = |place, gi, what: String| (place, gi, what);
    match said {
        Said::Xid(line) => of(line.gpu, line.gi, format!("xid {}", line.code)),
        Said::OffTheBus { gpu } => of(*gpu, None, "off the bus".to_owned()),
        Said::Card { gpu, uuid } => of(Some(*gpu), None, uuid.clone()),
        Said::Sxid(line) => of(line.place, line.link, format!("sxid {} {}", line.switch, line.code)),
        Said::SxidDetail(line) => of(line.place, None, format!("detail {}", line.code)),
        Said::Amd(line) => of(Some(line.gpu), None, amd_fault(&line.fault).0.to_owned()),
    }
}

fn place_of(said: &Said) -> Option<Bdf> {
    match said {
        Said::Xid(line) => line.gpu,
        Said::OffTheBus { gpu } => *gpu,
        Said::Card { gpu, .. } => Some(*gpu),
        Said::Sxid(line) => line.place,
        Said::SxidDetail(line) => line.place,
        Said::Amd(line) => Some(line.gpu),
    }
}

pub(crate) fn severity(action: Action) -> Severity {
    match action {
        Action::None => Severity::Info,
        Action::RestartApp | Action::Inspect => Severity::Warning,
        _ => Severity::Critical,
    }
}

fn amd_fault(fault: &AmdFault) -> (&'static str, Severity) {
    match fault {
        AmdFault::Uncorrectable => ("uncorrectable", Severity::Critical),
        AmdFault::Detail => ("detail", Severity::Info),
        AmdFault::RingTimeout { .. } => ("ring_timeout", Severity::Warning),
        AmdFault::ResetBegins => ("reset_begins", Severity::Info),
        AmdFault::ResetSucceeded => ("reset_succeeded", Severity::Info),
        AmdFault::ResetFailed => ("reset_failed", Severity::Critical),
        AmdFault::Errors { is_corrected: true, .. } => ("errors", Severity::Info),
        AmdFault::Errors { .. } => ("errors", Severity::Warning),
    }
}

/// When a record was written, and whether it says so itself.
///
/// The kernel's clock and the machine's drift apart over months; what was not there at the look before was
/// written since then. A file may have lines of an earlier boot: where the time since boot lies ahead, the
/// calendar counts, and without one the line is older than this boot.
fn time(record: &Record, clock: &Clock, since_ns: Option<i64>, is_of_file: bool) -> (i64, bool) {
    let is_past = |at: &i64| *at <= clock.now_ns.saturating_add(AHEAD_NS);
    let by_calendar = || record.civil.as_ref()?.unix_ns(clock).filter(is_past);
    let Some(at) = record.at_ns(clock).filter(is_past).or_else(by_calendar) else {
        let is_earlier = is_of_file && record.monotonic_us.is_some();
        let before_boot =
            clock.boot_ns.filter(|_| is_earlier).map(|boot| boot.saturating_sub(BEFORE_BOOT_NS));
        return (before_boot.unwrap_or(clock.now_ns).min(clock.now_ns), false);
    };
    let since = since_ns.unwrap_or(i64::MIN).min(clock.now_ns);
    (at.clamp(since, clock.now_ns), true)
}

/// As much of a line as an event keeps, and whether that is less than all.
fn cut(line: &str) -> (&str, bool) {
    let mut end = line.len().min(LINE_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    (&line[..end], end < line.len())
}
