//! The identity of a series.

use std::cmp::Ordering;
use std::fmt;

/// A sorted set of label names and values, the metric's name under `__name__` among them.
///
/// Names are unique; an empty value is the same as no label, as in Prometheus.
///
/// One piece of text, since a server holds millions of them: how many labels there are, then of each the
/// lengths of its name and its value and both. Equal sets are equal texts.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Box<str>);

/// The label that holds a metric's name.
const METRIC_NAME: &str = "__name__";
/// Bits of a number that one character holds.
const DIGIT_BITS: u32 = 6;
/// Of a character behind which the number goes on. It and all numbers are ASCII.
const MORE: u8 = 1 << DIGIT_BITS;

impl Labels {
    /// Starts an empty set.
    pub fn builder() -> LabelsBuilder {
        LabelsBuilder(Vec::new())
    }

    /// Sorts `pairs` into a set; of two equal names the later one wins.
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut pairs: Vec<(K, V)> = pairs.into_iter().collect();
        // Most come from another set, where there is nothing left to do.
        if !pairs.is_sorted_by(|a, b| a.0.as_ref() < b.0.as_ref()) {
            pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
            pairs.dedup_by(|later, kept| {
                let same = later.0.as_ref() == kept.0.as_ref();
                if same {
                    std::mem::swap(later, kept);
                }
                same
            });
        }
        pairs.retain(|(_, value)| !value.as_ref().is_empty());
        Self::of_sorted(pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref())))
    }

    /// Of unique names in order, with values that are not empty.
    fn of_sorted<'p>(pairs: impl ExactSizeIterator<Item = (&'p str, &'p str)> + Clone) -> Self {
        let length = |text: &str| digits(text.len()) + text.len();
        let all = pairs.clone().map(|(name, value)| length(name) + length(value)).sum::<usize>();
        let mut text = String::with_capacity(digits(pairs.len()) + all);
        put_number(&mut text, pairs.len());
        for (name, value) in pairs {
            put_number(&mut text, name.len());
            put_number(&mut text, value.len());
            text.push_str(name);
            text.push_str(value);
        }
        Self(text.into_boxed_str())
    }

    /// The value of `name`, if the set has it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The metric's name, empty when there is none.
    pub fn metric(&self) -> &str {
        self.get(METRIC_NAME).unwrap_or_default()
    }

    /// Names and values in order of name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
        let mut rest = &*self.0;
        let left = take_number(&mut rest);
        Iter { rest, left }
    }

    /// How many labels, the metric's name included.
    pub fn len(&self) -> usize {
        take_number(&mut &*self.0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How many characters a number takes.
fn digits(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()).div_ceil(DIGIT_BITS).max(1) as usize
}

fn put_number(text: &mut String, mut number: usize) {
    while number >= usize::from(MORE) {
        text.push(char::from(number as u8 & (MORE - 1) | MORE));
        number >>= DIGIT_BITS;
    }
    text.push(char::from(number as u8));
}

/// Takes a number off the front; 0 of an empty text.
fn take_number(text: &mut &str) -> usize {
    let (mut number, mut shift) = (0, 0);
    for (at, byte) in text.bytes().enumerate() {
        number |= usize::from(byte & (MORE - 1)) << shift;
        shift += DIGIT_BITS;
        if byte & MORE == 0 {
            *text = &text[at + 1..];
            break;
        }
    }
    number
}

/// The labels of a set.
#[derive(Clone)]
struct Iter<'l> {
    rest: &'l str,
    left: usize,
}

impl<'l> Iterator for Iter<'l> {
    type Item = (&'l str, &'l str);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (name, value) = (take_number(&mut self.rest), take_number(&mut self.rest));
        let (name, rest) = self.rest.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.rest = rest;
        Some((name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl Default for Labels {
    fn default() -> Self {
        Self::of_sorted(std::iter::empty())
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    /// By the first label that differs, its name first.
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Display for Labels {
    /// As PromQL writes a selector: `loss{project="llm",rank="3"}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric())?;
        let mut separator = "{";
        for (name, value) in self.iter().filter(|(name, _)| *name != METRIC_NAME) {
            write!(f, "{separator}{name}={value:?}")?;
            separator = ",";
        }
        if separator == "," { f.write_str("}") } else { Ok(()) }
    }
}

/// Collects labels in any order.
#[derive(Debug, Clone, Default)]
pub struct LabelsBuilder(Vec<(Box<str>, Box<str>)>);

impl LabelsBuilder {
    /// Sets `name`; an earlier value of the same name is replaced, an empty one removes it.
    pub fn set(&mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> &mut Self {
        let (name, value) = (name.into(), value.into());
        self.0.retain(|(n, _)| *n != name);
        if !value.is_empty() {
            self.0.push((name, value));
        }
        self
    }

    /// Sets the metric's name.
    pub fn metric(&mut self, name: impl Into<Box<str>>) -> &mut Self {
        self.set(METRIC_NAME, name)
    }

    /// The finished set.
    pub fn build(&mut self) -> Labels {
        self.0.sort_unstable();
        let labels = Labels::of_sorted(self.0.iter().map(|(name, value)| (&**name, &**value)));
        self.0.clear();
        labels
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_of_setting_does_not_matter() {
        let a = Labels::from_pairs([("b", "2"), ("__name__", "loss"), ("a", "1")]);
        let b = Labels::from_pairs([("a", "0"), ("a", "1"), ("b", "2"), ("__name__", "loss")]);
        assert_eq!(a, b);
        assert_eq!(a.to_string(), r#"loss{a="1",b="2"}"#);
        assert_eq!(a.get("b"), Some("2"));
        assert_eq!(a.get("c"), None);
    }

    proptest! {
        #[test]
        fn a_set_is_what_a_map_is(
            pairs in prop::collection::vec(("[a-cß]{0,3}", prop_oneof!["[a-cß€]{0,3}", "x{60,70}", "y{4090,4100}"]), 0..80),
            others in prop::collection::vec(("[a-cß]{0,2}", "[a-c]{0,2}"), 0..4),
        ) {
            let map = |pairs: &[(String, String)]| {
                let all: BTreeMap<String, String> = pairs.iter().cloned().collect();
                all.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>()
            };
            let of = |pairs: &[(String, String)]| Labels::from_pairs(pairs.iter().map(|(n, v)| (n, v)));
            let (labels, want) = (of(&pairs), map(&pairs));
            let held: Vec<_> = labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            prop_assert_eq!(&held, &want);
            prop_assert_eq!((labels.len(), labels.iter().len(), labels.is_empty()), (want.len(), want.len(), want.is_empty()));
            for (name, value) in &want {
                prop_assert_eq!(labels.get(name), Some(&**value));
            }
            let mut builder = Labels::builder();
            for (name, value) in &pairs {
                builder.set(&**name, &**value);
            }
            prop_assert_eq!(&builder.build(), &labels);
            prop_assert_eq!(labels.cmp(&of(&others)), want.cmp(&map(&others)));
            prop_assert_eq!(labels == of(&others), want == map(&others));
        }
    }

    #[test]
    fn empty_value_is_no_label() {
        let labels = Labels::from_pairs([("__name__", "loss"), ("split", "")]);
        assert_eq!(labels.len(), 1);
        assert_eq!(labels.to_string(), "loss");
    }
}
