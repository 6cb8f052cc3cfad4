//! Rows of the write-ahead log: the points of one commit, placed and in their final order.
//!
//! The bytes are described in `docs/format/log.md`.

use model::Sample;

use crate::SeriesId;
use crate::codec::{Reader, put_f64, put_i64, put_u64};

/// Most bytes of a row. The catalogue's database rounds a value up to a power of two, so a row
/// stays just below one.
const ROW_BYTES_MAX: usize = (128 << 10) - 512;
/// Most points of a record; keeps a record well below a row.
const RECORD_POINTS_MAX: usize = 1_024;
const VERSION: u8 = 2;
/// Wrote series and times whole, and count and unit apart.
const VERSION_WHOLE: u8 = 1;
const HEADER_BYTES: usize = 5;

/// Cuts points into rows.
pub(crate) fn encode_rows<'a>(points: impl Iterator<Item = (SeriesId, &'a [Sample])>) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut row = header();
    let mut record = Vec::new();
    let mut before = Before::default();
    for (series, samples) in points {
        for samples in samples.chunks(RECORD_POINTS_MAX) {
            record.clear();
            put_record(&mut record, before, series, samples);
            if row.len() + record.len() > ROW_BYTES_MAX && row.len() > HEADER_BYTES {
                rows.push(sealed(std::mem::replace(&mut row, header())));
                record.clear();
                put_record(&mut record, Before::default(), series, samples);
            }
            row.extend_from_slice(&record);
            before = Before { series, time_ns: samples.first().map_or(0, |s| s.time_ns) };
        }
    }
    if row.len() > HEADER_BYTES {
        rows.push(sealed(row));
    }
    rows
}

/// What a record is written against: series and first time of the one before in its row.
#[derive(Clone, Copy, Default)]
struct Before {
    series: SeriesId,
    time_ns: i64,
}

fn header() -> Vec<u8> {
    vec![0, 0, 0, 0, VERSION]
}

fn sealed(mut row: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&row[4..]);
    row[..4].copy_from_slice(&crc.to_le_bytes());
    row
}

fn put_record(out: &mut Vec<u8>, before: Before, series: SeriesId, samples: &[Sample]) {
    let millis = samples.iter().all(|s| s.time_ns % model::NANOS_PER_MILLI == 0);
    let unit = if millis { model::NANOS_PER_MILLI } else { 1 };
    put_i64(out, series.wrapping_sub(before.series) as i64);
    put_u64(out, (samples.len() as u64) << 1 | u64::from(millis));
    let (mut time, mut step) = (before.time_ns / unit, 0_i64);
    for sample in samples {
        let units = sample.time_ns / unit;
        put_i64(out, units.wrapping_sub(time));
        time = units;
        put_f64(out, sample.value);
        // 0 says that there is no step; a difference is moved up by one.
        match sample.step {
            None => out.push(0),
            Some(next) => {
                let delta = next.wrapping_sub(step);
                let zigzag = ((delta << 1) ^ (delta >> 63)) as u64;
                match zigzag.checked_add(1) {
                    Some(word) => put_u64(out, word),
                    None => out.extend(ZIGZAG_OVERFLOW),
                }
                step = next;
            }
        }
    }
}

/// Stands for the one difference whose successor is no `u64`: a varint of ten bytes that is never
/// written otherwise.
const ZIGZAG_OVERFLOW: [u8; 10] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];

/// Hands the records of a row to `each`; an error says in words what is wrong with the row. Records
/// before the wrong one have been handed out by then, unless the checksum already failed.
pub(crate) fn decode_row(row: &[u8], each: &mut dyn FnMut(SeriesId, Vec<Sample>)) -> Result<(), String> {
    let Some((crc, body)) = row.split_first_chunk::<4>() else {
        return Err(format!("{} bytes are no row", row.len()));
    };
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err("the checksum does not match".to_owned());
    }
    let mut reader = Reader::new(body);
    let whole = match reader.byte() {
        Some(VERSION) => false,
        Some(VERSION_WHOLE) => true,
        other => return Err(format!("row version {other:?} is not known")),
    };
    let mut before = Before::default();
    while !reader.is_empty() {
        let left = reader.rest().len();
        let record = if whole { take_whole_record(&mut reader) } else { take_record(&mut reader, before) };
        let (series, samples) =
            record.ok_or_else(|| format!("no record {left} bytes before the row's end"))?;
        before = Before { series, time_ns: samples.first().map_or(0, |s| s.time_ns) };
        each(series, samples);
    }
    Ok(())
}

fn take_record(reader: &mut Reader<'_>, before: Before) -> Option<(SeriesId, Vec<Sample>)> {
    let series = before.series.wrapping_add(reader.i64()? as u64);
    let count_and_unit = reader.u64()?;
    let unit = if count_and_unit & 1 == 1 { model::NANOS_PER_MILLI } else { 1 };
    let count = usize::try_from(count_and_unit >> 1).ok()?;
    Some((series, take_points(reader, count, unit, before.time_ns / unit)?))
}

/// See [`VERSION_WHOLE`].
fn take_whole_record(reader: &mut Reader<'_>) -> Option<(SeriesId, Vec<Sample>)> {
    let series = reader.u64()?;
    let count = reader.count(10)?;
    let unit = match reader.byte()? {
        0 => 1,
        1 => model::NANOS_PER_MILLI,
        _ => return None,
    };
    Some((series, take_points(reader, count, unit, 0)?))
}

fn take_points(reader: &mut Reader<'_>, count: usize, unit: i64, mut time: i64) -> Option<Vec<Sample>> {
    let mut step = 0_i64;
    // A point takes at least ten bytes.
    if count > reader.rest().len() / 10 {
        return None;
    }
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        time = time.wrapping_add(reader.i64()?);
        let value = reader.f64()?;
        let overflow = reader.rest().starts_with(&ZIGZAG_OVERFLOW);
        let word = reader.u64()?;
        let zigzag = if overflow { u64::MAX } else { word.wrapping_sub(1) };
        let present = overflow || word != 0;
        if present {
            step = step.wrapping_add((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
        }
        samples.push(Sample { time_ns: time.wrapping_mul(unit), value, step: present.then_some(step) });
    }
    Some(samples)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T0: i64 = 1_800_000_000 * model::NANOS_PER_SECOND;

    fn any_sample() -> impl Strategy<Value = Sample> {
        let time = prop_oneof![any::<i64>(), (0..5_000_i64).prop_map(|ms| ms * 1_000_000)];
        let step = prop_oneof![any::<Option<i64>>(), (0..9_i64).prop_map(Some)];
        (time, any::<u64>(), step).prop_map(|(time_ns, bits, step)| Sample {
            time_ns,
            value: f64::from_bits(bits),
            step,
        })
    }

    fn bits(samples: &[Sample]) -> Vec<(i64, u64, Option<i64>)> {
        samples.iter().map(|s| (s.time_ns, s.value.to_bits(), s.step)).collect()
    }

    proptest! {
        #[test]
        fn rows_come_back(series in prop::collection::vec((any::<u64>(), prop::collection::vec(any_sample(), 1..20)), 0..6)) {
            let rows = encode_rows(series.iter().map(|(id, samples)| (*id, &samples[..])));
            let mut back = Vec::new();
            for row in &rows {
                decode_row(row, &mut |id, samples| back.push((id, bits(&samples)))).unwrap();
            }
            prop_assert_eq!(back, series.iter().map(|(id, s)| (*id, bits(s))).collect::<Vec<_>>());
        }

        #[test]
        fn damaged_rows_are_refused(at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<prop::sample::Index>()) {
            let samples: Vec<Sample> =
                (0..40).map(|n| Sample { time_ns: n * 7, value: n as f64, step: Some(n) }).collect();
            let row = encode_rows([(5, &samples[..])].into_iter()).remove(0);
            let mut wrong = row.clone();
            wrong[at.index(row.len())] ^= flip;
            prop_assert!(decode_row(&wrong, &mut |_, _| panic!("handed out")).is_err());
            prop_assert!(decode_row(&row[..cut.index(row.len())], &mut |_, _| panic!("handed out")).is_err());
        }
    }

    #[test]
    fn the_widest_step_difference_comes_back() {
        let samples = [Some(i64::MAX), Some(-1), None, Some(i64::MIN), Some(0), Some(i64::MIN)]
            .map(|step| Sample { time_ns: 0, value: 0.0, step });
        let rows = encode_rows([(1, &samples[..])].into_iter());
        decode_row(&rows[0], &mut |_, back| assert_eq!(back, samples)).unwrap();
    }

    #[test]
    fn rows_of_version_1_are_read() {
        // Series 300, two points, milliseconds: 1.8e12 with step 7, and 5 ms later without one.
        let mut row = vec![0, 0, 0, 0, VERSION_WHOLE];
        put_u64(&mut row, 300);
        put_u64(&mut row, 2);
        row.push(1);
        put_i64(&mut row, 1_800_000_000_000);
        put_f64(&mut row, 0.5);
        put_u64(&mut row, 15);
        put_i64(&mut row, 5);
        put_f64(&mut row, -1.0);
        row.push(0);
        let first_ns = T0;
        let want = [
            Sample { time_ns: first_ns, value: 0.5, step: Some(7) },
            Sample { time_ns: first_ns + 5 * model::NANOS_PER_MILLI, value: -1.0, step: None },
        ];
        decode_row(&sealed(row), &mut |series, samples| assert_eq!((series, &samples[..]), (300, &want[..])))
            .unwrap();
    }

    #[test]
    fn a_scraped_point_takes_little() {
        let point =
            |n: i64| [Sample { time_ns: T0 + n % 5 * model::NANOS_PER_MILLI, value: 0.1, step: None }];
        let points: Vec<_> = (0..1_000).map(|n| (n as u64 * 3 + 100_000, point(n))).collect();
        let rows = encode_rows(points.iter().map(|(id, samples)| (*id, &samples[..])));
        assert_eq!(rows.len(), 1);
        assert!(rows[0].len() < 12_100, "{} bytes", rows[0].len());
    }

    #[test]
    fn rows_stay_below_the_power_of_two() {
        let samples: Vec<Sample> =
            (0..50_000).map(|n| Sample { time_ns: n * 1_234_567, value: 0.1, step: Some(n * 3) }).collect();
        let rows = encode_rows([(1, &samples[..])].into_iter());
        assert!(rows.len() > 4);
        assert!(rows.iter().all(|row| row.len() <= ROW_BYTES_MAX));
    }
}
