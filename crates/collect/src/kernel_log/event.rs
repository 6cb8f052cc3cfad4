//! What records say about cards and switches.

use super::{AmdLine, Bdf, Origin, Record, SxidDetail, SxidLine, XidLine, amd, nvswitch};

/// Lines between the parts of a message that the driver writes in several.
const PARTS_APART_MAX: u32 = 4;

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// NVIDIA's driver reports an Xid.
    Xid(XidLine),
    /// It says that a card is gone, without a number: an Xid 79 may stand beside.
    OffTheBus {
        /// Where the card was, where the lines tell.
        gpu: Option<Bdf>,
    },
    /// It says which card is where.
    Card {
        /// Where.
        gpu: Bdf,
        /// Its unique id.
        uuid: String,
    },
    /// An `NVSwitch` reports an SXid.
    Sxid(SxidLine),
    /// It says more about the SXid before.
    SxidDetail(SxidDetail),
    /// AMD's driver reports something.
    Amd(AmdLine),
}

/// Tells events from records. It remembers what a message of several lines has said so far.
#[derive(Debug, Default)]
pub struct Interpreter {
    /// A card that is named without what happened to it, by the kernel and by others.
    named: [Option<(Bdf, u32)>; 2],
}

impl Interpreter {
    /// Gives the events of a record; most have none.
    pub fn take(&mut self, record: &Record, sink: &mut dyn FnMut(Event)) {
        for line in record.text.split('\n') {
            if let Some(event) = self.line(line.trim(), record.origin) {
                sink(event);
            }
        }
    }

    fn line(&mut self, line: &str, origin: Origin) -> Option<Event> {
        if let Some(rest) = line.strip_prefix("NVRM: ") {
            return self.nvidia(rest.trim_start(), origin);
        }
        if let Some(rest) = line.strip_prefix("nvidia-nvswitch") {
            return Some(match nvswitch::read(rest)? {
                Ok(line) => Event::Sxid(line),
                Err(detail) => Event::SxidDetail(detail),
            });
        }
        if let Some(rest) = line.strip_prefix("amdgpu ") {
            return Some(Event::Amd(amd::read(rest)?));
        }
        // A file may have a prefix that nobody knows; what a process writes has to begin like the kernel's.
        let (_, rest) = line.split_once("NVRM: Xid (").filter(|_| origin == Origin::Unknown)?;
        Some(Event::Xid(XidLine::read(rest)?))
    }

    fn nvidia(&mut self, text: &str, origin: Origin) -> Option<Event> {
        let named = &mut self.named[usize::from(origin == Origin::Userspace)];
        if let Some(rest) = text.strip_prefix("Xid (") {
            return Some(Event::Xid(XidLine::read(rest)?));
        }
        if let Some((place, uuid)) = text.strip_prefix("GPU at ").and_then(|rest| rest.split_once(": ")) {
            let is_uuid = uuid.starts_with("GPU-") && !uuid.contains(char::is_whitespace);
            return is_uuid.then(|| Some(Event::Card { gpu: Bdf::read(place)?, uuid: uuid.to_owned() }))?;
        }
        if let Some((place, rest)) = text.strip_prefix("GPU ").and_then(|rest| rest.split_once(": ")) {
            let gpu = Bdf::read(place)?;
            return rest.contains("fallen off the bus").then_some(Event::OffTheBus { gpu: Some(gpu) });
        }
        if let Some(rest) = text.strip_prefix("The NVIDIA GPU ") {
            *named = Bdf::read(rest.split(' ').next()?).map(|gpu| (gpu, PARTS_APART_MAX));
            return None;
        }
        let before = named.take();
        if text.contains("fallen off the bus") {
            return Some(Event::OffTheBus { gpu: before.map(|(gpu, _)| gpu) });
        }
        *named = before.and_then(|(gpu, left)| Some((gpu, left.checked_sub(1)?)));
        None
    }
}
