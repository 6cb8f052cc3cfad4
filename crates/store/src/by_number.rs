//! Maps by a series' number. Numbers are ours and rise, so series that came together lie together, and
//! going through them in order costs no jump in memory.
//!
//! They lie in pages: there is no room left over for twice as many, and nothing is moved when there are more.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::SeriesId;

/// Series of a page. A page whose series are all gone goes.
const PAGE_SERIES: usize = 32;

/// A map by a series' number.
#[derive(Debug)]
pub(crate) struct ByNumber<V> {
    pages: HashMap<u64, Page<V>, BuildHasherDefault<NumberHasher>>,
    len: usize,
}

#[derive(Debug)]
struct Page<V> {
    held: usize,
    values: Box<[Option<V>; PAGE_SERIES]>,
}

/// The page of a series, and its place there.
fn place(id: SeriesId) -> (u64, usize) {
    (id / PAGE_SERIES as u64, id as usize % PAGE_SERIES)
}

impl<V> ByNumber<V> {
    pub(crate) fn get(&self, id: SeriesId) -> Option<&V> {
        let (page, at) = place(id);
        self.pages.get(&page)?.values[at].as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: SeriesId) -> Option<&mut V> {
        let (page, at) = place(id);
        self.pages.get_mut(&page)?.values[at].as_mut()
    }

    pub(crate) fn contains_key(&self, id: SeriesId) -> bool {
        self.get(id).is_some()
    }

    /// Puts a value; one that was there goes.
    pub(crate) fn insert(&mut self, id: SeriesId, value: V) {
        let (page, at) = place(id);
        let empty = || Page { held: 0, values: Box::new([const { None }; PAGE_SERIES]) };
        let page = self.pages.entry(page).or_insert_with(empty);
        if page.values[at].replace(value).is_none() {
            page.held += 1;
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, id: SeriesId) -> Option<V> {
        let (number, at) = place(id);
        let page = self.pages.get_mut(&number)?;
        let value = page.values[at].take()?;
        page.held -= 1;
        self.len -= 1;
        if page.held == 0 {
            self.pages.remove(&number);
        }
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.pages.values().flat_map(|page| page.values.iter().flatten())
    }

    /// All of them, not in order of number.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (SeriesId, &mut V)> {
        self.pages.iter_mut().flat_map(|(number, page)| {
            let ids = number * PAGE_SERIES as u64..;
            ids.zip(page.values.iter_mut()).filter_map(|(id, value)| Some((id, value.as_mut()?)))
        })
    }
}

impl<V> Default for ByNumber<V> {
    fn default() -> Self {
        Self { pages: HashMap::default(), len: 0 }
    }
}

/// Leaves a number in place; its low bits are also the top ones, by which a table tells neighbours apart.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number ^ number << 57;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(changes in prop::collection::vec((0..200_u64, any::<Option<u8>>()), 0..300)) {
            let (mut held, mut want) = (ByNumber::<u8>::default(), BTreeMap::new());
            for (id, value) in changes {
                let id = if id > 150 { id << 40 } else { id };
                if let Some(value) = value {
                    held.insert(id, value);
                    want.insert(id, value);
                } else {
                    prop_assert_eq!(held.remove(id), want.remove(&id));
                }
                prop_assert_eq!(held.get(id), want.get(&id));
            }
            prop_assert_eq!(held.len(), want.len());
            prop_assert_eq!(held.values().count(), want.len());
            for (_, value) in held.iter_mut() {
                *value ^= 1;
            }
            let all: BTreeMap<u64, u8> = held.iter_mut().map(|(id, value)| (id, *value ^ 1)).collect();
            prop_assert_eq!(&all, &want);
            for id in want.keys() {
                held.remove(*id);
            }
            prop_assert_eq!((held.len(), held.pages.len()), (0, 0));
        }
    }
}
