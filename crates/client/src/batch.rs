//! From what was logged to requests of bounded size.

use std::sync::Arc;

use model::{RunPath, Sample, WriterId};
use wire::push::{Attribute, Count, Event, PushError, PushRequest, Run, Series, Session, Tag, encode};

use crate::log::{Pending, Point};
use crate::series::Catalog;

/// About how large a request grows before compression; it bounds points (some 40,000) and messages.
const PLAIN_BYTES_MAX: usize = 1 << 20;
/// A point in a request: time, value, step.
const POINT_BYTES: usize = 24;

/// A request as it travels.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub(crate) sequence: u64,
    pub(crate) points: u64,
    pub(crate) bytes: Arc<[u8]>,
}

/// Who writes to which run, and with which number next.
#[derive(Debug)]
pub(crate) struct Author {
    pub(crate) writer: WriterId,
    pub(crate) path: RunPath,
    pub(crate) next_sequence: u64,
}

impl Author {
    /// Packs a request; one that can't be packed gives its number of points back.
    pub(crate) fn seal(&mut self, mut request: PushRequest) -> Result<Sealed, (u64, PushError)> {
        request.client_id = self.writer.to_vec();
        request.sequence = self.next_sequence;
        request.run = Some(Run::from(&self.path));
        self.next_sequence += 1;
        let points = request.series.iter().map(|s| s.values.len() as u64).sum();
        let bytes = encode(&request).map_err(|e| (points, e))?;
        Ok(Sealed { sequence: request.sequence, points, bytes: bytes.into() })
    }
}

/// Groups points by series and cuts everything into requests. `points` is left empty.
///
/// What is said of the run travels apart from points, so that it is never lost with them.
pub(crate) fn requests(points: &mut Vec<Point>, pending: Pending, catalog: &Catalog) -> Vec<PushRequest> {
    let mut cutter = Cutter::default();
    cutter.add_pending(pending);
    if cutter.bytes > 0 {
        cutter.next();
    }
    // Stable, so that points of a series stay in their order.
    points.sort_by_key(|point| point.series);
    let mut samples = Vec::new();
    for group in points.chunk_by(|a, b| a.series == b.series) {
        let Some(meta) = group.first().and_then(|point| catalog.meta(point.series)) else { continue };
        let mut rest = group;
        while !rest.is_empty() {
            let room = cutter.room(meta.plain_bytes() + POINT_BYTES);
            let fitting = (room.saturating_sub(meta.plain_bytes()) / POINT_BYTES).clamp(1, rest.len());
            let (now, later) = rest.split_at(fitting);
            samples.clear();
            samples.extend(now.iter().map(|p| Sample {
                time_ns: p.time_ns,
                value: p.value,
                step: Some(p.step),
            }));
            cutter.bytes += meta.plain_bytes() + fitting * POINT_BYTES;
            cutter.current.series.push(Series::new(&meta.name, &meta.labels, &meta.scale, &samples));
            rest = later;
        }
    }
    points.clear();
    cutter.finish()
}

/// Fills requests one after another.
#[derive(Default)]
struct Cutter {
    done: Vec<PushRequest>,
    current: PushRequest,
    bytes: usize,
}

impl Cutter {
    /// Room left for something of at least `wanted` bytes, in a new request when there was not enough.
    fn room(&mut self, wanted: usize) -> usize {
        if self.bytes > 0 && self.bytes + wanted > PLAIN_BYTES_MAX {
            self.next();
        }
        PLAIN_BYTES_MAX.saturating_sub(self.bytes)
    }

    fn next(&mut self) {
        self.done.push(std::mem::take(&mut self.current));
        self.bytes = 0;
    }

    fn add_pending(&mut self, pending: Pending) {
        for event in &pending.sessions {
            // A request carries one sign of life.
            if self.current.session.is_some() {
                self.next();
            }
            self.current.session = Some(Session::from(event));
            self.bytes += 200;
        }
        for (key, value, if_absent) in &pending.attributes {
            let text = if let model::AttributeValue::Text(text) = value { text.len() } else { 8 };
            self.room(16 + key.len() + text);
            self.current.attributes.push(Attribute::new(key, value, *if_absent));
            self.bytes += 16 + key.len() + text;
        }
        for change in &pending.tags {
            let tag = Tag::from(change);
            self.room(8 + tag.tag.len());
            self.bytes += 8 + tag.tag.len();
            self.current.tags.push(tag);
        }
        if let Some(description) = pending.description {
            self.room(description.len());
            self.bytes += description.len();
            self.current.description = Some(description);
        }
        for event in &pending.events {
            self.room(200 + event.text.len() + event.body.len());
            self.bytes += 200 + event.text.len() + event.body.len();
            self.current.events.push(Event::from(event));
        }
        for (reason, (count, example)) in pending.dropped {
            self.bytes += 16 + reason.len() + example.len();
            self.current.dropped.push(Count { reason, count, example });
        }
    }

    fn finish(mut self) -> Vec<PushRequest> {
        if self.bytes > 0 {
            self.next();
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Meta;

    fn catalog(count: u32) -> Catalog {
        let mut catalog = Catalog::default();
        for n in 0..count {
            catalog.intern(Meta::new(&format!("m{n}"), &[("a", "b")], ""));
        }
        catalog
    }

    fn point(series: u32, step: i64) -> Point {
        Point { series, time_ns: step, step, value: step as f64 }
    }

    #[test]
    fn points_are_grouped_in_order() {
        let mut points: Vec<Point> = (0..6).map(|n| point(n as u32 % 2, n)).collect();
        let made = requests(&mut points, Pending::default(), &catalog(2));
        let steps: Vec<Vec<i64>> = made[0]
            .series
            .iter()
            .map(|s| s.samples().unwrap().iter().filter_map(|p| p.step).collect())
            .collect();
        assert_eq!((made.len(), steps), (1, vec![vec![0, 2, 4], vec![1, 3, 5]]));
        assert!(points.is_empty());
    }

    #[test]
    fn requests_are_bounded_and_lose_nothing() {
        let mut points: Vec<Point> = (0..200_000).map(|n| point(n as u32 % 3, n)).collect();
        let made = requests(&mut points, Pending::default(), &catalog(3));
        let counts: Vec<usize> = made.iter().map(|r| r.series.iter().map(|s| s.values.len()).sum()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 200_000);
        assert!(counts.iter().all(|n| *n > 0 && n * POINT_BYTES <= PLAIN_BYTES_MAX), "{counts:?}");
    }

    #[test]
    fn every_sign_of_life_gets_its_request() {
        let event = model::SessionEvent {
            time_ns: 0,
            opens: true,
            end: None,
            reason: String::new(),
            facts: model::SessionFacts::default(),
        };
        let pending = Pending { sessions: vec![event.clone(), event], ..Pending::default() };
        assert_eq!(requests(&mut Vec::new(), pending, &catalog(0)).len(), 2);
        assert!(requests(&mut Vec::new(), Pending::default(), &catalog(0)).is_empty());
    }
}
