//! The kernel's log of a node, followed: from `/dev/kmsg`, a file or the journal to events.

mod file;
mod heard;
mod journal;
mod kmsg;
mod place;
mod told;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use collect::{
    Host,
    kernel_log::{Bdf, Clock, Record, plain_boot_id},
};
use model::{Event, Severity};
use semconv::canonical::GPU_XID_EVENTS_TOTAL;

use crate::{Reading, SharedCards, Snapshot, Source, Tick, kept, own};

pub use heard::SharedHeard;
use place::{Behind, Place};
pub(crate) use told::severity;
use told::{Context, Teller};

/// The kernel's own log.
const KMSG: &str = "/dev/kmsg";
/// Looks between two questions for the local time zone.
const ZONE_LOOKS: u32 = 360;

/// Where records go: with what they are known by where they do not say it themselves, and a time before
/// which they were not written, where that is known.
type Lines<'a> = dyn FnMut(Record, Option<String>, Option<i64>) + 'a;

/// What an input needs to know and keeps.
struct Taking<'a> {
    behind: &'a mut Behind,
    boot_id: &'a str,
    now_ns: i64,
}

/// What is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogInput {
    /// The kernel's log, `/dev/kmsg`.
    #[default]
    Kernel,
    /// A file that lines are written to, or `/dev/kmsg` under another name.
    File(PathBuf),
    /// The journal, through this program: `journalctl`.
    Journal(OsString),
    /// Nothing.
    None,
}

impl LogInput {
    /// Reads a setting: a path, `journald` or `none`.
    pub fn of(setting: &OsStr) -> Self {
        match setting.to_str() {
            Some("journald") => Self::Journal("journalctl".into()),
            Some("none") => Self::None,
            Some("" | KMSG) => Self::Kernel,
            _ => Self::File(setting.into()),
        }
    }
}

/// Which log is followed, and where its place is kept.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// What is read.
    pub input: LogInput,
    /// The folder for the place up to which it was read; without one every start begins anew.
    pub state: Option<PathBuf>,
    /// The machine whose boot id counts.
    pub machine: Host,
}

#[derive(Debug)]
enum Input {
    Kmsg(kmsg::Kmsg),
    File(file::Follower),
    Journal(journal::Journal),
    Nothing,
}

impl Input {
    fn of(wanted: &LogInput) -> Self {
        match wanted {
            LogInput::Kernel => Self::Kmsg(kmsg::Kmsg::new(Path::new(KMSG))),
            LogInput::File(path) if is_device(path) => Self::Kmsg(kmsg::Kmsg::new(path)),
            LogInput::File(path) => Self::File(file::Follower::new(path)),
            LogInput::Journal(program) => Self::Journal(journal::Journal::new(program)),
            LogInput::None => Self::Nothing,
        }
    }
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device())
}

/// Follows the kernel's log of a node.
///
/// What it has read is kept when the look is: [`Source::kept`]. A record that is read twice all the same has
/// the same key.
#[derive(Debug)]
pub struct KernelLog {
    options: LogOptions,
    cards: SharedCards,
    heard: SharedHeard,
    input: Input,
    place: Place,
    /// What the state folder has.
    stored: Place,
    teller: Teller,
    /// Why it could not be read at the last look.
    trouble: Option<String>,
    missed: u64,
    zone: Option<(u32, i32)>,
}

impl KernelLog {
    /// Follows a log; nothing is read before the first look.
    pub fn new(options: LogOptions, cards: SharedCards, heard: SharedHeard) -> Self {
        let place: Place =
            options.state.as_deref().map(|folder| kept::load(folder, place::FILE)).unwrap_or_default();
        Self {
            input: Input::of(&options.input),
            options,
            cards,
            heard,
            stored: place.clone(),
            place,
            teller: Teller::default(),
            trouble: None,
            missed: 0,
            zone: None,
        }
    }

    /// Tells a boot that was not told before. Nothing is known before the first one, which is told too.
    fn boot(&mut self, boot_id: &str, clock: &Clock, host: &str) -> Option<Event> {
        let boot = plain_boot_id(boot_id);
        if boot.is_empty() || boot == self.place.boot_id {
            return None;
        }
        let before = std::mem::replace(&mut self.place.boot_id, boot.clone());
        let before = Some(before).filter(|before| !before.is_empty());
        let text = match &before {
            Some(_) => "the machine was booted",
            None => "the machine was booted before its log was first read",
        };
        let body = serde_json::json!({
            "what": "boot", "boot_id": boot, "previous_boot_id": before, "booted_ns": clock.boot_ns,
        });
        Some(Event {
            time_ns: clock.boot_ns.unwrap_or(clock.now_ns).min(clock.now_ns),
            key: format!("boot:{boot}"),
            text: text.to_owned(),
            body: body.to_string(),
            ..of_node(host, Severity::Info)
        })
    }

    /// Takes up what the driver says of its cards.
    fn learn(&mut self) -> Option<String> {
        let cards = self.cards.lock();
        for card in &cards.all {
            if let Some(at) = Bdf::read(&card.device.pci_bus_id) {
                told::remember(
                    &mut self.place.known,
                    at.to_string(),
                    &card.device.uuid,
                    Some(card.device.index),
                );
            }
        }
        cards.driver.clone()
    }

    fn clock(&mut self, tick: &Tick<'_>) -> Clock {
        let boot_ns = self.options.machine.uptime_ns().and_then(|up| tick.time_ns.checked_sub_unsigned(up));
        // Only lines of files tell a time by the calendar.
        let offset_minutes = match (&self.input, self.zone) {
            (Input::File(_), Some((left @ 1.., offset))) => {
                self.zone = Some((left - 1, offset));
                offset
            }
            (Input::File(_), _) => {
                let offset = local_offset_minutes();
                self.zone = Some((ZONE_LOOKS, offset));
                offset
            }
            _ => 0,
        };
        Clock { now_ns: tick.time_ns, boot_ns, offset_minutes }
    }

    fn xids(&self, out: &mut Snapshot) {
        for (at, counts) in &self.place.known.xids {
            let Some(card) = self.place.known.cards.get(at) else { continue };
            let Some(gpu) = card.gpu else { continue };
            out.readings.extend(counts.iter().map(|(xid, count)| Reading {
                desc: &GPU_XID_EVENTS_TOTAL,
                labels: vec![("gpu", gpu.to_string()), ("uuid", card.uuid.clone()), ("xid", xid.to_string())],
                value: *count as f64,
            }));
        }
    }
}

impl Source for KernelLog {
    fn name(&self) -> &'static str {
        "kernel_log"
    }

    fn read(&mut self, tick: &Tick<'_>, out: &mut Snapshot) {
        let boot_id = self.options.machine.boot_id();
        let clock = self.clock(tick);
        out.events.extend(self.boot(&boot_id, &clock, tick.host));
        let driver = self.learn();
        let context = Context { host: tick.host, boot_id: &boot_id, clock, driver: driver.as_deref() };
        let outcome = {
            let Self { input, place: Place { behind, known, .. }, teller, .. } = self;
            let mut lines = |record: Record, key: Option<String>, since_ns: Option<i64>| {
                teller.take(&context, known, &record, (key, since_ns));
            };
            let mut taking = Taking { behind, boot_id: &boot_id, now_ns: tick.time_ns };
            match input {
                Input::Kmsg(kmsg) => kmsg.read(&mut taking, &mut lines).map(Some),
                Input::File(file) => file.read(&mut taking, &mut lines).map(|()| None),
                Input::Journal(journal) => journal.read(&mut taking, &mut lines).map(|()| None),
                Input::Nothing => Ok(None),
            }
        };
        let is_read = outcome.is_ok() && !matches!(self.input, Input::Nothing);
        let mut heard = self.heard.lock();
        heard.is_read = is_read;
        for (gpu, xid) in heard.elsewhere.drain(..) {
            told::count(&mut self.place.known, gpu, xid);
        }
        heard.note(self.teller.xids.drain(..));
        drop(heard);
        out.events.extend(self.teller.finish(&context));
        match outcome {
            Ok(gap) => {
                self.trouble = None;
                self.missed += gap.as_ref().map_or(0, |gap| gap.missed);
                out.events.extend(gap.and_then(|gap| missing(&gap, &context)));
            }
            Err(cause) if self.trouble.as_ref() == Some(&cause) => {}
            Err(cause) => {
                tracing::warn!("the kernel's log is not followed: {cause}");
                out.events.push(unreadable(&cause, &context));
                self.trouble = Some(cause);
            }
        }
        self.xids(out);
        if !matches!(self.input, Input::Nothing) {
            let mut tell = |desc, value| out.readings.push(Reading { desc, labels: Vec::new(), value });
            tell(&own::LOG_READABLE, f64::from(u8::from(is_read)));
            tell(&own::LOG_MISSED, self.missed as f64);
        }
    }

    fn kept(&mut self) {
        let Some(folder) = &self.options.state else { return };
        // What cannot be kept is read again after a restart, and recognised by its keys.
        if self.place != self.stored && kept::store(folder, place::FILE, &self.place).is_ok() {
            self.stored = self.place.clone();
        }
    }
}

fn of_node(host: &str, severity: Severity) -> Event {
    let labels = vec![("host".to_owned(), host.to_owned()), ("source".to_owned(), "kernel".to_owned())];
    Event { kind: "node".to_owned(), severity, labels, ..Event::default() }
}

fn missing(gap: &kmsg::Gap, context: &Context<'_>) -> Option<Event> {
    if *gap == kmsg::Gap::default() {
        return None;
    }
    let how_many = if gap.missed > 0 { gap.missed.to_string() } else { "an unknown number of".to_owned() };
    let mut body =
        BTreeMap::from([("what", serde_json::json!("log_gap")), ("overruns", gap.overruns.into())]);
    if gap.missed > 0 {
        body.insert("missed", gap.missed.into());
    }
    Some(Event {
        time_ns: context.clock.now_ns,
        key: format!("gap:{}:{}:{}", plain_boot_id(context.boot_id), gap.sequence, gap.overruns),
        text: format!("{how_many} records of the kernel's log were overwritten before they were read"),
        body: serde_json::to_string(&body).unwrap_or_default(),
        ..of_node(context.host, Severity::Warning)
    })
}

fn unreadable(cause: &str, context: &Context<'_>) -> Event {
    let boot = plain_boot_id(context.boot_id);
    Event {
        time_ns: context.clock.now_ns,
        key: format!("unreadable:{boot}:{:016x}:{}", digest(cause.as_bytes()), context.clock.now_ns),
        text: format!("{cause}; faults that only the kernel's log tells are not seen"),
        body: serde_json::json!({ "what": "log_unreadable", "cause": cause }).to_string(),
        ..of_node(context.host, Severity::Warning)
    }
}

/// How far local time is ahead of UTC, minutes; 0 where nobody tells.
fn local_offset_minutes() -> i32 {
    let told = Command::new("date").arg("+%z").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned()).unwrap_or_default();
    let (Some(sign), Some(hours), Some(minutes)) = (text.get(..1), text.get(1..3), text.get(3..5)) else {
        return 0;
    };
    let number = |digits: &str| digits.parse::<i32>().unwrap_or(0);
    let ahead = number(hours) * 60 + number(minutes);
    if sign == "-" { -ahead } else { ahead }
}

/// FNV-1a: the same in every build, since keys are kept.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
