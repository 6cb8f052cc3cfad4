//! Makes the energy counter of a device one that never falls.
//!
//! Such counters begin anew when the driver is loaded, and some step back a little now and then. Taking each
//! fall for a new beginning would add the whole count once more. What a device can burn tells the two apart:
//! after a new beginning the count can't be more than that.

/// The greatest power that is believed, as a multiple of the limit that the device keeps to.
const LIMIT_FACTOR: f64 = 1.5;
/// The same where the limit is not known, watts.
const POWER_MAX_WATTS: f64 = 2_000.0;
/// How long a count may stay below where it has been before it is taken as it is.
const BEHIND_SECONDS_MAX: f64 = 600.0;

/// What was odd about a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oddity {
    /// The device counts from zero again.
    Reset,
    /// It stepped back. Nothing is added until it has passed where it has been.
    Backward,
    /// It rose by more than the device can have burnt: what was burnt meanwhile is not known, nothing is
    /// added.
    Implausible,
}

impl Oddity {
    /// Every oddity.
    pub const ALL: [Self; 3] = [Self::Reset, Self::Backward, Self::Implausible];

    /// As labels write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Backward => "backward",
            Self::Implausible => "implausible",
        }
    }
}

/// The energy of one device, added up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Meter {
    /// When it was read last, nanoseconds.
    time_ns: i64,
    /// What was read then, joules.
    raw_joules: f64,
    /// What the next reading is measured from, joules: the same, or where it has been before it stepped
    /// back.
    base_joules: f64,
    /// When it was there, nanoseconds.
    base_time_ns: i64,
    /// The sum.
    joules: f64,
}

/// What a reading comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The sum, joules.
    pub joules: f64,
    /// What was odd.
    pub oddity: Option<Oddity>,
}

/// Bytes of a meter that is kept.
pub const METER_BYTES: usize = 40;

impl Meter {
    /// Begins with a first reading, which counts as it is; none of what is no energy.
    pub fn begin(time_ns: i64, raw_joules: f64) -> Option<Self> {
        is_energy(raw_joules).then_some(Self {
            time_ns,
            raw_joules,
            base_joules: raw_joules,
            base_time_ns: time_ns,
            joules: raw_joules,
        })
    }

    /// What the last reading came to.
    pub fn now(&self) -> Reading {
        Reading { joules: self.joules, oddity: None }
    }

    /// Whether it reads less than it has been: what it burns is not counted until it is there again.
    pub fn is_behind(&self) -> bool {
        self.base_time_ns != self.time_ns
    }

    /// Takes a reading. None for one that is older than the last, or is no energy: it changes nothing. The
    /// last once more gives the same again.
    pub fn read(&mut self, time_ns: i64, raw_joules: f64, limit_watts: Option<f64>) -> Option<Reading> {
        if !is_energy(raw_joules) || time_ns < self.time_ns {
            return None;
        }
        if time_ns == self.time_ns {
            return (raw_joules == self.raw_joules).then_some(self.now());
        }
        let limit = limit_watts.filter(|limit| limit.is_finite() && *limit > 0.0);
        let bound_watts = limit.map_or(POWER_MAX_WATTS, |limit| limit * LIMIT_FACTOR);
        let bound_joules = bound_watts * seconds(self.time_ns, time_ns);
        let is_back = raw_joules < self.raw_joules;
        let (added, oddity) = self.judge(time_ns, raw_joules, bound_joules);
        (self.time_ns, self.raw_joules) = (time_ns, raw_joules);
        if added.is_some() {
            (self.base_time_ns, self.base_joules) = (time_ns, raw_joules);
        }
        self.joules += added.unwrap_or(0.0);
        // A step back is told once, not until it is made up for.
        let oddity = oddity.filter(|oddity| *oddity != Oddity::Backward || is_back);
        Some(Reading { joules: self.joules, oddity })
    }

    /// What a reading adds, none as long as it is measured from where the count has been before.
    fn judge(&self, time_ns: i64, raw_joules: f64, bound_joules: f64) -> (Option<f64>, Option<Oddity>) {
        let more = raw_joules - self.base_joules;
        if more > bound_joules {
            return (Some(0.0), Some(Oddity::Implausible));
        }
        if more >= 0.0 {
            return (Some(more), None);
        }
        if raw_joules < self.raw_joules && raw_joules <= bound_joules {
            return (Some(raw_joules), Some(Oddity::Reset));
        }
        let is_lasting = seconds(self.base_time_ns, time_ns) > BEHIND_SECONDS_MAX;
        (is_lasting.then_some(0.0), Some(Oddity::Backward))
    }

    /// The meter as bytes, to be kept.
    pub fn to_bytes(&self) -> [u8; METER_BYTES] {
        let mut bytes = [0; METER_BYTES];
        let words = [
            self.time_ns.cast_unsigned(),
            self.raw_joules.to_bits(),
            self.base_joules.to_bits(),
            self.base_time_ns.cast_unsigned(),
            self.joules.to_bits(),
        ];
        for (at, word) in bytes.chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The meter that was kept; none of bytes that are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; METER_BYTES] = bytes.try_into().ok()?;
        let mut words = [0; METER_BYTES / 8];
        for (word, at) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(at.try_into().ok()?);
        }
        let [time, raw, base, base_time, sum] = words;
        let meter = Self {
            time_ns: time.cast_signed(),
            raw_joules: f64::from_bits(raw),
            base_joules: f64::from_bits(base),
            base_time_ns: base_time.cast_signed(),
            joules: f64::from_bits(sum),
        };
        let is_sound = [meter.raw_joules, meter.base_joules, meter.joules].into_iter().all(is_energy);
        is_sound.then_some(meter)
    }
}

fn is_energy(joules: f64) -> bool {
    joules.is_finite() && joules >= 0.0
}

fn seconds(from_ns: i64, to_ns: i64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / model::NANOS_PER_SECOND as f64
}
