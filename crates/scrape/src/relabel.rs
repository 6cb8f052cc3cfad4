//! Relabelling: rules that keep, drop and rewrite sets of labels, as in Prometheus.

use md5::{Digest, Md5};
use regex::Regex;

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Sets the target label to the expanded replacement where the regex matches.
    Replace,
    /// Drops the set unless the regex matches.
    Keep,
    /// Drops the set where the regex matches.
    Drop,
    /// Drops the set unless source and target are equal.
    KeepEqual,
    /// Drops the set where source and target are equal.
    DropEqual,
    /// Sets the target label to a hash of the source, modulo.
    HashMod,
    /// Copies labels whose names match to the expanded name.
    LabelMap,
    /// Removes labels whose names match.
    LabelDrop,
    /// Removes labels whose names don't match.
    LabelKeep,
    /// Sets the target label to the source in lower case.
    Lowercase,
    /// Sets the target label to the source in upper case.
    Uppercase,
}

impl Action {
    /// Every action and its name.
    pub const ALL: [(&'static str, Self); 11] = [
        ("replace", Self::Replace),
        ("keep", Self::Keep),
        ("drop", Self::Drop),
        ("keepequal", Self::KeepEqual),
        ("dropequal", Self::DropEqual),
        ("hashmod", Self::HashMod),
        ("labelmap", Self::LabelMap),
        ("labeldrop", Self::LabelDrop),
        ("labelkeep", Self::LabelKeep),
        ("lowercase", Self::Lowercase),
        ("uppercase", Self::Uppercase),
    ];

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, action)| *action == self).map_or("", |(name, _)| name)
    }
}

/// The regex of a rule that sets none.
pub const REGEX_DEFAULT: &str = "(.*)";
/// The replacement of a rule that sets none.
pub const REPLACEMENT_DEFAULT: &str = "$1";
/// The separator of a rule that sets none.
pub const SEPARATOR_DEFAULT: &str = ";";

/// A rule as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleText {
    /// Labels whose values are joined.
    pub source_labels: Vec<String>,
    /// What joins them.
    pub separator: String,
    /// What the joined value must be as a whole.
    pub regex: String,
    /// Modulus of [`Action::HashMod`].
    pub modulus: u64,
    /// The label to set.
    pub target_label: String,
    /// What it is set to.
    pub replacement: String,
    /// What the rule does.
    pub action: Action,
}

impl Default for RuleText {
    fn default() -> Self {
        Self {
            source_labels: Vec::new(),
            separator: SEPARATOR_DEFAULT.into(),
            regex: REGEX_DEFAULT.into(),
            modulus: 0,
            target_label: String::new(),
            replacement: REPLACEMENT_DEFAULT.into(),
            action: Action::Replace,
        }
    }
}

/// Why a rule can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The regex does not compile.
    #[error("the regex `{regex}` is not usable: {why}")]
    Regex {
        /// As written.
        regex: String,
        /// What is wrong with it, in one line.
        why: String,
    },
    /// A setting that the action needs.
    #[error("the action `{action}` needs `{setting}`")]
    Needs {
        /// The action.
        action: &'static str,
        /// What is missing.
        setting: &'static str,
    },
    /// A setting that the action has no use for.
    #[error("the action `{action}` has no use for `{setting}`")]
    Surplus {
        /// The action.
        action: &'static str,
        /// What is too much.
        setting: &'static str,
    },
}

/// A rule, checked and compiled.
#[derive(Debug, Clone)]
pub struct Rule {
    text: RuleText,
    regex: Regex,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A set of labels that rules work on. Unordered; an empty value is no label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSet(Vec<(String, String)>);

impl LabelSet {
    /// The value of `name`, empty when the set has it not.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Sets `name`; an empty value removes it.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        if value.is_empty() {
            self.remove(&name);
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// Sets `name` where the set has it not.
    pub fn set_if_absent(&mut self, name: &str, value: &str) {
        if self.get(name).is_empty() {
            self.set(name, value);
        }
    }

    /// Removes `name`.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Keeps the labels whose names satisfy `keep`.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    /// Names and values in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// As the model has it.
    pub fn to_labels(&self) -> model::Labels {
        model::Labels::from_pairs(self.iter())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for LabelSet {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut set = Self::default();
        for (name, value) in pairs {
            set.set(name, value);
        }
        set
    }
}

impl Rule {
    /// Checks a rule and compiles its regex, which must match as a whole.
    pub fn new(text: RuleText) -> Result<Self, RuleError> {
        let action = text.action.name();
        let target_label_needed = !matches!(
            text.action,
            Action::Keep | Action::Drop | Action::LabelMap | Action::LabelDrop | Action::LabelKeep
        );
        if target_label_needed && text.target_label.is_empty() {
            return Err(RuleError::Needs { action, setting: "target_label" });
        }
        if text.action == Action::HashMod && text.modulus == 0 {
            return Err(RuleError::Needs { action, setting: "modulus" });
        }
        let surplus = match text.action {
            Action::Lowercase | Action::Uppercase => {
                [(text.replacement != REPLACEMENT_DEFAULT, "replacement"), (false, "")]
            }
            Action::KeepEqual | Action::DropEqual => [
                (text.replacement != REPLACEMENT_DEFAULT, "replacement"),
                (text.regex != REGEX_DEFAULT, "regex"),
            ],
            Action::LabelDrop | Action::LabelKeep => [
                (!text.source_labels.is_empty(), "source_labels"),
                (!text.target_label.is_empty(), "target_label"),
            ],
            _ => [(false, ""), (false, "")],
        };
        if let Some((_, setting)) = surplus.into_iter().find(|(is_there, _)| *is_there) {
            return Err(RuleError::Surplus { action, setting });
        }
        let regex = Regex::new(&format!("^(?s:{})$", text.regex)).map_err(|error| {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            RuleError::Regex { regex: text.regex.clone(), why }
        })?;
        Ok(Self { text, regex })
    }

    /// The rule as written.
    pub fn text(&self) -> &RuleText {
        &self.text
    }

    /// Applies the rule; false drops the set.
    pub fn apply(&self, labels: &mut LabelSet) -> bool {
        let text = &self.text;
        let joined = || {
            let values: Vec<&str> = text.source_labels.iter().map(|name| labels.get(name)).collect();
            values.join(&text.separator)
        };
        let is_name_match = |name: &str| self.regex.is_match(name);
        match text.action {
            Action::Keep => return self.regex.is_match(&joined()),
            Action::Drop => return !self.regex.is_match(&joined()),
            Action::KeepEqual => return labels.get(&text.target_label) == joined(),
            Action::DropEqual => return labels.get(&text.target_label) != joined(),
            Action::Replace => self.replace(&joined(), labels),
            Action::Lowercase => labels.set(&text.target_label, joined().to_lowercase()),
            Action::Uppercase => labels.set(&text.target_label, joined().to_uppercase()),
            Action::HashMod => labels.set(&text.target_label, hash_mod(&joined(), text.modulus)),
            Action::LabelMap => self.map_names(labels),
            Action::LabelDrop => labels.retain(|name| !is_name_match(name)),
            Action::LabelKeep => labels.retain(is_name_match),
        }
        true
    }

    fn replace(&self, joined: &str, labels: &mut LabelSet) {
        let Some(found) = self.regex.captures(joined) else { return };
        let (mut target, mut value) = (String::new(), String::new());
        found.expand(&self.text.target_label, &mut target);
        found.expand(&self.text.replacement, &mut value);
        if !target.is_empty() {
            labels.set(target, value);
        }
    }

    /// In order of name, so that of two labels mapped to one the later name wins.
    fn map_names(&self, labels: &mut LabelSet) {
        let mut matching: Vec<(String, String)> = labels
            .iter()
            .filter(|(name, _)| self.regex.is_match(name))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        matching.sort_unstable();
        for (name, value) in matching {
            let mapped = self.regex.replace(&name, self.text.replacement.as_str()).into_owned();
            if !mapped.is_empty() {
                labels.set(mapped, value);
            }
        }
    }
}

/// The last eight bytes of MD5, big end first, modulo: Prometheus' sharding.
fn hash_mod(text: &str, modulus: u64) -> String {
    let digest = Md5::digest(text.as_bytes());
    let last = digest.iter().skip(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    last.checked_rem(modulus).unwrap_or_default().to_string()
}

/// Applies `rules` in order; false drops the set.
pub fn apply(rules: &[Rule], labels: &mut LabelSet) -> bool {
    rules.iter().all(|rule| rule.apply(labels))
}
