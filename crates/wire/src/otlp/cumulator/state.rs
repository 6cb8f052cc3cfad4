//! The state of a series as bytes.
//!
//! Version, temporality, times, recent intervals, shape, then numbers; all little-endian. The
//! bytes are a cache of ours: what can't be read is as good as absent.

use super::{RECENT_MAX, State};
use crate::otlp::buckets::{BOUNDS_MAX, Histogram};
use crate::otlp::metrics::{PointValue, Temporality};

const VERSION: u8 = 1;

impl State {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.temporality == Temporality::Delta)];
        let mut int = |number: u64| out.extend(number.to_le_bytes());
        for time in [self.start_ns, self.zero_ns, self.told_ns, self.last_ns] {
            int(time.cast_unsigned());
        }
        int(self.recent.len() as u64);
        for (start, time) in &self.recent {
            int(start.cast_unsigned());
            int(time.cast_unsigned());
        }
        match &self.total {
            PointValue::Number(number) => [0, number.to_bits()].into_iter().for_each(&mut int),
            PointValue::Histogram(histogram) => {
                int(1);
                int(u64::from(histogram.ladder));
                int(histogram.count);
                for optional in [histogram.sum, histogram.min, histogram.max] {
                    int(u64::from(optional.is_some()));
                    int(optional.unwrap_or_default().to_bits());
                }
                int(histogram.buckets.len() as u64);
                for (bound, count) in &histogram.buckets {
                    int(bound.to_bits());
                    int(*count);
                }
            }
            PointValue::Summary { count, sum, quantiles } => {
                [2, *count, sum.to_bits(), quantiles.len() as u64].into_iter().for_each(&mut int);
                for (quantile, value) in quantiles {
                    int(quantile.to_bits());
                    int(value.to_bits());
                }
            }
            PointValue::Ended => int(3),
        }
        out
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [VERSION, delta @ (0 | 1), rest @ ..] = bytes else { return None };
        let (words, []) = rest.as_chunks::<8>() else { return None };
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut int = || words.next();
        let mut time = || int().map(u64::cast_signed);
        let (start_ns, zero_ns, told_ns, last_ns) = (time()?, time()?, time()?, time()?);
        let length = int()?;
        let recent = (0..length.min(RECENT_MAX as u64 + 1))
            .map(|_| Some((int()?.cast_signed(), int()?.cast_signed())))
            .collect::<Option<Vec<_>>>()?;
        let total = match int()? {
            0 => PointValue::Number(f64::from_bits(int()?)),
            1 => histogram(&mut int)?,
            2 => {
                let (count, sum) = (int()?, f64::from_bits(int()?));
                PointValue::Summary { count, sum, quantiles: pairs(&mut int, f64::from_bits)? }
            }
            _ => return None,
        };
        let complete = words.next().is_none() && recent.len() <= RECENT_MAX;
        let temporality = if *delta == 1 { Temporality::Delta } else { Temporality::Cumulative };
        complete.then_some(Self { temporality, start_ns, zero_ns, told_ns, last_ns, total, recent })
    }
}

fn histogram(int: &mut impl FnMut() -> Option<u64>) -> Option<PointValue> {
    let (ladder, count) = (int()? != 0, int()?);
    let mut optional = || {
        let (is_set, bits) = (int()?, int()?);
        Some((is_set != 0).then(|| f64::from_bits(bits)))
    };
    let (sum, min, max) = (optional()?, optional()?, optional()?);
    let buckets = pairs(int, |count| count)?;
    Some(PointValue::Histogram(Histogram { count, sum, min, max, buckets, ladder }))
}

fn pairs<T>(int: &mut impl FnMut() -> Option<u64>, second: impl Fn(u64) -> T) -> Option<Vec<(f64, T)>> {
    let length = int().filter(|length| *length <= BOUNDS_MAX as u64)?;
    (0..length).map(|_| Some((f64::from_bits(int()?), second(int()?)))).collect()
}
