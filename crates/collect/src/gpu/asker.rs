//! The readings of one device from tick to tick: which are due, which the device does not have.

use model::Desc;

use super::{
    code::Code,
    device::GpuDevice,
    ffi::{Handle, Library},
    reading::{Device, READINGS, Reading, Trouble},
    sampler::GpuFailure,
    worker::Shared,
};
use crate::failure::Health;

/// What is known about one reading of this device.
enum State {
    Asked(Health),
    Unsupported,
}

impl State {
    fn is_due(&mut self) -> bool {
        match self {
            Self::Asked(health) => health.is_due(),
            Self::Unsupported => false,
        }
    }
}

/// Asks one device.
pub(super) struct Asker<'a> {
    device: Device<'a>,
    named: GpuDevice,
    states: Vec<State>,
}

/// How the readings of a tick went.
#[derive(Default)]
struct Tally {
    answered: usize,
    lost: Option<Code>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(
        library: &'a Library,
        handle: Handle,
        named: GpuDevice,
        driver: Option<(u32, u32)>,
    ) -> Self {
        Self {
            device: Device::new(library, handle, &named, driver),
            named,
            states: READINGS.iter().map(|_| State::Asked(Health::default())).collect(),
        }
    }

    pub(super) fn library(&self) -> &'a Library {
        self.device.library
    }

    pub(super) fn handle(&self) -> Handle {
        self.device.handle
    }

    pub(super) fn index(&self) -> u32 {
        self.named.index
    }

    pub(super) fn device(&self) -> &GpuDevice {
        &self.named
    }

    /// Goes through all readings that are due. The cause when every one of them was told that the device,
    /// or its driver, is gone: then the failures are this one, and none is held against a reading.
    pub(super) fn tick(&mut self, shared: &Shared) -> Option<String> {
        let mut tally = Tally::default();
        self.device.begin();
        for (at, reading) in READINGS.iter().enumerate() {
            if !self.states[at].is_due() {
                continue;
            }
            shared.begin(reading.call, reading.metric());
            self.device.is_by_heart = false;
            let before = self.device.values.given.len();
            let outcome = (reading.read)(&mut self.device);
            if matches!(outcome, Err(Trouble::Refused(_) | Trouble::Senseless(_))) {
                self.device.values.given.truncate(before);
            }
            self.file(at, reading, outcome, shared, &mut tally);
        }
        let lost = tally.lost.filter(|_| tally.answered == 0)?;
        Some(format!("every call answered {lost}"))
    }

    /// Passes on what a reading gave, and remembers how it went.
    fn file(
        &mut self,
        at: usize,
        reading: &Reading,
        outcome: Result<(), Trouble>,
        shared: &Shared,
        tally: &mut Tally,
    ) {
        let State::Asked(health) = &mut self.states[at] else { return };
        let mut unsupported: &[&'static Desc] = &[];
        let mut failure = None;
        match outcome {
            Ok(()) => {
                tally.answered += usize::from(!self.device.is_by_heart);
                health.succeeded();
            }
            Err(Trouble::Refused(code)) if code.is_unsupported() => {
                tally.answered += 1;
                self.states[at] = State::Unsupported;
                unsupported = reading.metrics;
            }
            Err(trouble) => {
                match trouble.lost() {
                    None => tally.answered += 1,
                    lost => tally.lost = lost,
                }
                failure = health.failed().map(|dropped| self.failure(reading, trouble, dropped));
            }
        }
        let values = &mut self.device.values;
        shared.tell(|told| {
            told.values.append(&mut values.given);
            told.throttle_mask = values.throttle_mask.take().or(told.throttle_mask);
            told.unsupported.append(&mut values.lacking);
            told.unsupported.extend(unsupported);
            told.failures.extend(failure);
        });
    }

    fn failure(&self, reading: &Reading, trouble: Trouble, dropped: bool) -> GpuFailure {
        let gpu = self.named.index;
        let (reason, found) = trouble.explain();
        GpuFailure {
            gpu,
            metric: reading.metric(),
            reason,
            cause: format!("cannot read `{}` of GPU {gpu}: {found}", reading.call),
            dropped,
        }
    }
}
