//! The identity of a series.

use std::fmt;

/// A sorted set of label names and values, the metric's name under `__name__` among them.
///
/// Names are unique; an empty value is the same as no label, as in Prometheus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

/// The label that holds a metric's name.
const METRIC_NAME: &str = "__name__";

impl Labels {
    /// Starts an empty set.
    pub fn builder() -> LabelsBuilder {
        LabelsBuilder(Vec::new())
    }

    /// Sorts `pairs` into a set; of two equal names the later one wins.
    pub fn from_pairs<K: Into<Box<str>>, V: Into<Box<str>>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let pairs: Vec<(Box<str>, Box<str>)> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        // Most come from another set, where there is nothing left to do.
        if pairs.is_sorted_by(|a, b| a.0 < b.0) && pairs.iter().all(|(_, value)| !value.is_empty()) {
            return Self(pairs.into_boxed_slice());
        }
        let mut builder = Self::builder();
        for (name, value) in pairs {
            builder.set(name, value);
        }
        builder.build()
    }

    /// The value of `name`, if the set has it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|at| &*self.0[at].1)
    }

    /// The metric's name, empty when there is none.
    pub fn metric(&self) -> &str {
        self.get(METRIC_NAME).unwrap_or_default()
    }

    /// Names and values in order of name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// How many labels, the metric's name included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        Labels(std::mem::take(&mut self.0).into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn empty_value_is_no_label() {
        let labels = Labels::from_pairs([("__name__", "loss"), ("split", "")]);
        assert_eq!(labels.len(), 1);
        assert_eq!(labels.to_string(), "loss");
    }
}
