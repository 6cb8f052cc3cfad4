//! What is known of series by their numbers: a look-up without hashing.

use std::collections::BTreeMap;

use store::SeriesId;

/// Series of one page.
const PAGE: u64 = 4_096;

/// What a series is, as far as it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nobody has looked at it.
    No,
    /// Nothing is made of it.
    Nothing,
    /// Its place in the list of routes.
    Route(u32),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pages: BTreeMap<u64, Box<[u32]>>,
    /// The page that was asked for last, and its number.
    last: Option<(u64, Box<[u32]>)>,
}

impl Numbers {
    pub(crate) fn get(&mut self, series: SeriesId) -> Known {
        let entry = self.page(series / PAGE, false).map_or(0, |page| page[(series % PAGE) as usize]);
        match entry {
            0 => Known::No,
            1 => Known::Nothing,
            route => Known::Route(route - 2),
        }
    }

    pub(crate) fn set(&mut self, series: SeriesId, known: Known) {
        let entry = match known {
            Known::No => 0,
            Known::Nothing => 1,
            Known::Route(route) => route.saturating_add(2),
        };
        if let Some(page) = self.page(series / PAGE, true) {
            page[(series % PAGE) as usize] = entry;
        }
    }

    fn page(&mut self, number: u64, is_wanted: bool) -> Option<&mut [u32]> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != number) {
            if let Some((last, page)) = self.last.take() {
                self.pages.insert(last, page);
            }
            let page = match self.pages.remove(&number) {
                Some(page) => page,
                None if is_wanted => vec![0; PAGE as usize].into_boxed_slice(),
                None => return None,
            };
            self.last = Some((number, page));
        }
        self.last.as_mut().map(|(_, page)| &mut **page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_keeps_its_own() {
        let mut numbers = Numbers::default();
        let series: Vec<u64> = (0..50).map(|n| n * 3_001).collect();
        for (route, series) in (0..).zip(&series) {
            assert_eq!(numbers.get(*series), Known::No);
            numbers.set(*series, if route % 2 == 0 { Known::Nothing } else { Known::Route(route) });
        }
        for (route, series) in (0..).zip(&series) {
            let expected = if route % 2 == 0 { Known::Nothing } else { Known::Route(route) };
            assert_eq!(numbers.get(*series), expected);
            assert_eq!(numbers.get(*series + 1), Known::No);
        }
    }
}
