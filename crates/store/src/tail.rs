//! The latest points of a series, packed as they come: most of the memory that many series take.
//!
//! A point is a byte that says how its time and its value follow, then what it says is there. Times are
//! told by how much their distance differs from the one before, in milliseconds where that is exact, and
//! values by the bytes that differ from those of the value before. So a point of a scrape takes 2 to 9
//! bytes instead of 16, and adding one needs none of the others. Nothing of this is ever on a disk.

use model::{NANOS_PER_MILLI, Sample};

use crate::codec::{Reader, zigzag};

/// The time comes at the same distance as the one before.
const TIME_SAME: u8 = 0;
/// Milliseconds follow, by which the distance differs.
const TIME_MILLIS: u8 = 1;
/// Nanoseconds follow.
const TIME_NANOS: u8 = 2;
/// Bits of the first byte that tell of the time; the others tell of the value.
const TIME_BITS: u8 = 2;

/// Most bytes of a point: what tells, the time, the value, the step.
const POINT_BYTES_MAX: usize = 1 + 10 + 8 + 11;
/// Bytes that are made room for at least.
const GROWTH_BYTES_MIN: usize = 16;

const STEP_NONE: u8 = 0;
/// The step is one more than the last.
const STEP_NEXT: u8 = 1;
/// How much more it is follows.
const STEP_OTHER: u8 = 2;

/// Points in order of time, each at a time of its own.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    count: u32,
    /// Whether a byte for the step is behind every value.
    has_steps: bool,
    first_ns: i64,
    last: Point,
}

/// What the next point is told by.
#[derive(Debug, Clone, Copy)]
struct Point {
    time_ns: i64,
    /// How long after the one before.
    delta_ns: i64,
    bits: u64,
    step: i64,
}

impl Point {
    fn before(first_ns: i64) -> Self {
        Self { time_ns: first_ns, delta_ns: 0, bits: 0, step: 0 }
    }
}

impl Tail {
    /// Of points in order of time; nothing when there are none.
    pub(crate) fn of(samples: &[Sample]) -> Option<Self> {
        let first_ns = samples.first()?.time_ns;
        let has_steps = samples.iter().any(|s| s.step.is_some());
        let mut tail =
            Self { bytes: Vec::new(), count: 0, has_steps, first_ns, last: Point::before(first_ns) };
        tail.extend(samples);
        Some(tail)
    }

    /// Adds points that come after all others, in order of time.
    pub(crate) fn extend(&mut self, samples: &[Sample]) {
        if !self.has_steps && samples.iter().any(|s| s.step.is_some()) {
            let all = self.samples();
            (self.bytes, self.count, self.has_steps) = (Vec::new(), 0, true);
            self.last = Point::before(self.first_ns);
            for sample in &all {
                self.push(sample);
            }
        }
        for sample in samples {
            self.push(sample);
        }
    }

    fn push(&mut self, sample: &Sample) {
        let delta_ns = sample.time_ns.wrapping_sub(self.last.time_ns);
        let bits = sample.value.to_bits();
        let mut packed = Packed { bytes: [0; POINT_BYTES_MAX], len: 1 };
        let time = packed.put_time(delta_ns.wrapping_sub(self.last.delta_ns));
        let value = packed.put_value(bits ^ self.last.bits);
        packed.bytes[0] = time | value << TIME_BITS;
        if self.has_steps {
            packed.put_step(self.last.step, sample.step);
        }
        let step = sample.step.unwrap_or(self.last.step);
        self.last = Point { time_ns: sample.time_ns, delta_ns, bits, step };
        self.count += 1;
        let packed = &packed.bytes[..packed.len];
        if self.bytes.capacity() - self.bytes.len() < packed.len() {
            // Doubling would leave half of it unused. Allocators hand out 16 bytes at a time, and take 8.
            let more = packed.len().max(self.bytes.len() / 4).max(GROWTH_BYTES_MIN);
            let all = (self.bytes.len() + more + 8).next_multiple_of(16) - 8;
            self.bytes.reserve_exact(all - self.bytes.len());
        }
        self.bytes.extend_from_slice(packed);
    }

    /// The points, in order of time.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::with_capacity(self.len());
        samples.extend(self.iter());
        samples
    }

    fn iter(&self) -> Points<'_> {
        Points {
            rest: Reader::new(&self.bytes),
            has_steps: self.has_steps,
            last: Point::before(self.first_ns),
        }
    }

    /// How many points there are: one at least.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// First and last time.
    pub(crate) fn time_ns(&self) -> (i64, i64) {
        (self.first_ns, self.last.time_ns)
    }
}

/// A point on its way into a tail.
struct Packed {
    bytes: [u8; POINT_BYTES_MAX],
    len: usize,
}

impl Packed {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn put_i64(&mut self, value: i64) {
        let mut rest = zigzag(value);
        while rest >= 0x80 {
            self.put(&[rest as u8 | 0x80]);
            rest >>= 7;
        }
        self.put(&[rest as u8]);
    }

    /// By how much the distance in time changed; returns how that is told.
    fn put_time(&mut self, change_ns: i64) -> u8 {
        if change_ns == 0 {
            return TIME_SAME;
        }
        let is_exact = change_ns % NANOS_PER_MILLI == 0;
        self.put_i64(if is_exact { change_ns / NANOS_PER_MILLI } else { change_ns });
        if is_exact { TIME_MILLIS } else { TIME_NANOS }
    }

    /// The bytes of a value that differ; returns which those are, 0 for none.
    fn put_value(&mut self, differing: u64) -> u8 {
        if differing == 0 {
            return 0;
        }
        let below = differing.trailing_zeros() / 8;
        let count = 8 - below - differing.leading_zeros() / 8;
        self.put(&(differing >> (8 * below)).to_le_bytes()[..count as usize]);
        (1 + below * 8 + count - 1) as u8
    }

    fn put_step(&mut self, last: i64, step: Option<i64>) {
        match step.map(|step| step.wrapping_sub(last)) {
            None => self.put(&[STEP_NONE]),
            Some(1) => self.put(&[STEP_NEXT]),
            Some(more) => {
                self.put(&[STEP_OTHER]);
                self.put_i64(more);
            }
        }
    }
}

/// The points of a tail, one after the other.
struct Points<'t> {
    rest: Reader<'t>,
    has_steps: bool,
    last: Point,
}

impl Points<'_> {
    fn value(&mut self, told: u8) -> Option<u64> {
        let Some(told) = told.checked_sub(1) else { return Some(0) };
        let (below, count) = (u32::from(told / 8), usize::from(told % 8 + 1));
        let mut bytes = [0; 8];
        bytes[..count].copy_from_slice(self.rest.take(count)?);
        Some(u64::from_le_bytes(bytes) << (8 * below))
    }

    #[expect(clippy::option_option, reason = "the outer one says whether it could be read")]
    fn step(&mut self) -> Option<Option<i64>> {
        let step = match self.rest.byte()? {
            STEP_NONE => return Some(None),
            STEP_NEXT => self.last.step.wrapping_add(1),
            _ => self.last.step.wrapping_add(self.rest.i64()?),
        };
        self.last.step = step;
        Some(Some(step))
    }
}

impl Iterator for Points<'_> {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        let told = self.rest.byte()?;
        let change_ns = match told & ((1 << TIME_BITS) - 1) {
            TIME_SAME => 0,
            TIME_MILLIS => self.rest.i64()?.wrapping_mul(NANOS_PER_MILLI),
            _ => self.rest.i64()?,
        };
        let last = &mut self.last;
        last.delta_ns = last.delta_ns.wrapping_add(change_ns);
        last.time_ns = last.time_ns.wrapping_add(last.delta_ns);
        self.last.bits ^= self.value(told >> TIME_BITS)?;
        let step = if self.has_steps { self.step()? } else { None };
        Some(Sample { time_ns: self.last.time_ns, value: f64::from_bits(self.last.bits), step })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_sample() -> impl Strategy<Value = Sample> {
        let time =
            prop_oneof![0..5_000_i64, (0..50_i64).prop_map(|s| s * 10_000 * NANOS_PER_MILLI), any::<i64>()];
        let value = prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            (0..1_000_000_u32).prop_map(f64::from),
            (0..3_u32).prop_map(|tenths| f64::from(tenths) / 10.0),
        ];
        let step = prop_oneof![Just(None), (0..9_i64).prop_map(Some), any::<i64>().prop_map(Some)];
        (time, value, step).prop_map(|(time_ns, value, step)| Sample { time_ns, value, step })
    }

    /// With the bits of the values, so that one NaN is told from another.
    fn bits(samples: &[Sample]) -> Vec<(i64, u64, Option<i64>)> {
        samples.iter().map(|s| (s.time_ns, s.value.to_bits(), s.step)).collect()
    }

    proptest! {
        #[test]
        fn what_was_added_comes_back(
            parts in prop::collection::vec(prop::collection::vec(any_sample(), 0..40), 1..6),
            with_steps in prop::collection::vec(any::<bool>(), 6),
        ) {
            let mut samples: Vec<Vec<Sample>> = parts;
            for (part, has_steps) in samples.iter_mut().zip(with_steps) {
                for sample in part.iter_mut() {
                    sample.step = sample.step.filter(|_| has_steps);
                }
            }
            let mut tail: Option<Tail> = None;
            for part in &samples {
                match &mut tail {
                    Some(tail) => tail.extend(part),
                    None => tail = Tail::of(part),
                }
            }
            let all = samples.concat();
            prop_assert_eq!(tail.as_ref().map_or(0, Tail::len), all.len());
            let held = tail.as_ref().map(Tail::samples).unwrap_or_default();
            prop_assert_eq!(bits(&held), bits(&all));
            let times = all.first().zip(all.last()).map(|(first, last)| (first.time_ns, last.time_ns));
            prop_assert_eq!(tail.map(|tail| tail.time_ns()), times);
        }
    }

    #[test]
    fn a_scrape_takes_few_bytes() {
        let at = |n: i64| (n * 10_000 + n % 3) * NANOS_PER_MILLI;
        let bytes = |value: &dyn Fn(i64) -> f64| {
            let samples = (0..128).map(|n| Sample { time_ns: at(n), value: value(n), step: None });
            Tail::of(&samples.collect::<Vec<_>>()).map_or(0, |tail| tail.bytes.capacity())
        };
        let unchanged = bytes(&|_| 1_410.0);
        assert!(unchanged <= 128 * 3, "{unchanged} bytes of 128 points that stay");
        let counter = bytes(&|n| (1_000_000 + n * 37) as f64);
        assert!(counter <= 128 * 6, "{counter} bytes of 128 points that count");
    }
}
