//! Which of several names for one fact counts on a page.
//!
//! Releases rename metrics, and some have the old name beside the new one. Of rows that are alternatives the one of
//! the lowest rank counts that the page has.

use std::collections::HashMap;

use super::cards::SILENCE_NS;

/// Place of a topic in the list.
pub(super) type TopicAt = u32;

/// What rows of one page are alternatives of.
#[derive(Debug, Clone, Copy)]
struct Topic {
    best: u16,
    seen_ns: i64,
    /// Whether several ranks were met.
    has_choice: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Topics {
    list: Vec<Topic>,
    /// By a hash of page and group.
    places: HashMap<u64, TopicAt, foldhash::fast::RandomState>,
    /// Whether a page lost a name that counted, so that the ranks are to be looked at before its next samples.
    pub(super) is_open: bool,
}

impl Topics {
    /// The place of what has this hash.
    pub(super) fn place(&mut self, hash: u64) -> TopicAt {
        *self.places.entry(hash).or_insert_with(|| {
            self.list.push(Topic { best: u16::MAX, seen_ns: i64::MIN, has_choice: false });
            TopicAt::try_from(self.list.len() - 1).unwrap_or(TopicAt::MAX)
        })
    }

    /// Notes that a page has a row of this rank at a time.
    pub(super) fn note(&mut self, at: TopicAt, rank: u16, time_ns: i64) {
        let topic = &mut self.list[at as usize];
        topic.has_choice |= topic.best != u16::MAX && topic.best != rank;
        if rank <= topic.best || topic.seen_ns.saturating_add(SILENCE_NS) < time_ns {
            topic.best = rank;
            topic.seen_ns = topic.seen_ns.max(time_ns);
        }
    }

    /// Whether a row of this rank counts.
    pub(super) fn counts(&mut self, at: TopicAt, rank: u16, time_ns: i64) -> bool {
        self.note(at, rank, time_ns);
        self.list[at as usize].best == rank
    }

    /// Notes that a series of this rank has ended.
    pub(super) fn ended(&mut self, at: TopicAt, rank: u16) {
        let topic = &mut self.list[at as usize];
        if topic.has_choice && topic.best == rank {
            topic.best = u16::MAX;
            self.is_open = true;
        }
    }
}
