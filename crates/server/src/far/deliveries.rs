//! Which deliveries were queued since the start, so that one sent twice is not queued twice.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use model::WriterId;

/// Writers remembered; beyond it the memory is emptied. A delivery that is forgotten is queued again
/// when it comes again, with the same samples.
const WRITERS_MAX: usize = 100_000;

#[derive(Debug, Default)]
struct Held {
    /// First and last number of each run of deliveries.
    queued: HashMap<WriterId, BTreeMap<u64, u64>>,
    under_way: HashSet<(WriterId, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    held: Mutex<Held>,
    done: Condvar,
}

/// The right to queue a delivery; others wait until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'d> {
    of: &'d Deliveries,
    delivery: (WriterId, u64),
    /// It was queued before.
    pub(crate) is_queued: bool,
}

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn claim(&self, delivery: (WriterId, u64)) -> Claim<'_> {
        let mut held = self
            .done
            .wait_while(self.lock(), |held| held.under_way.contains(&delivery))
            .unwrap_or_else(PoisonError::into_inner);
        held.under_way.insert(delivery);
        let (writer, number) = delivery;
        let before = held.queued.get(&writer).and_then(|runs| runs.range(..=number).next_back());
        let is_queued = before.is_some_and(|(_, last)| *last >= number);
        Claim { of: self, delivery, is_queued }
    }
}

impl Claim<'_> {
    /// Notes that the delivery is queued.
    pub(crate) fn done(self) {
        let (writer, number) = self.delivery;
        let mut held = self.of.lock();
        if held.queued.len() >= WRITERS_MAX && !held.queued.contains_key(&writer) {
            held.queued.clear();
        }
        let runs = held.queued.entry(writer).or_default();
        let (mut first, mut last) = (number, number);
        if let Some((before, end)) = runs.range(..=number).next_back() {
            if *end >= number {
                return;
            }
            if *end + 1 == number {
                first = *before;
            }
        }
        if let Some(end) = number.checked_add(1).and_then(|next| runs.remove(&next)) {
            last = end;
        }
        runs.insert(first, last);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.of.lock().under_way.remove(&self.delivery);
        self.of.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_queued_once_in_whatever_order_they_come() {
        let deliveries = Deliveries::default();
        for number in [1, 2, 5, 3, 4, 0] {
            let claim = deliveries.claim(([1; 16], number));
            assert!(!claim.is_queued);
            claim.done();
        }
        assert!((0..=5).all(|number| deliveries.claim(([1; 16], number)).is_queued));
        assert!(!deliveries.claim(([1; 16], 6)).is_queued);
        assert!(!deliveries.claim(([2; 16], 1)).is_queued);
        assert_eq!(deliveries.lock().queued[&[1; 16]].len(), 1);
    }
}
