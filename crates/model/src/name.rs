//! Names: what may be logged, and what PromQL calls it.

use crate::limits::{LOGGED_LABEL_BYTES_MAX, NAME_BYTES_MAX, REFUSED_LABELS, RESERVED_LABELS};

/// Why a name or label can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing is not a name.
    #[error("a metric name is empty")]
    Empty,
    /// Longer than [`NAME_BYTES_MAX`].
    #[error(
        "a metric name has {found} bytes, at most {NAME_BYTES_MAX} are kept: shorten it or move the varying part into a label"
    )]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// A control character.
    #[error("metric name {name:?} holds the control character {character:?}: names are printable text")]
    Control {
        /// The name.
        name: String,
        /// The first control character in it.
        character: char,
    },
    /// A label's key is not usable.
    #[error(
        "label key {key:?} is not usable: keys start with a letter or `_` and hold letters, digits and `_`"
    )]
    LabelKey {
        /// The key.
        key: String,
    },
    /// A label's value holds a control character.
    #[error(
        "label {key:?} has the value {value:?}, which holds a control character: values are printable text"
    )]
    LabelValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// A label's key or value is too long.
    #[error("label {key:?} has {found} bytes, at most {LOGGED_LABEL_BYTES_MAX} are kept in a key or value")]
    LabelTooLong {
        /// The key, cut to the bound.
        key: String,
        /// Bytes found.
        found: usize,
    },
    /// A label that the run sets itself.
    #[error("label {key:?} is set by the run itself: choose another key")]
    LabelReserved {
        /// The key.
        key: String,
    },
    /// A label whose every value would be a series of its own.
    #[error("label {key:?} is refused: each of its values would be a series of its own")]
    LabelRefused {
        /// The key.
        key: String,
    },
}

impl NameError {
    /// The bounded reason under which a refusal is counted.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Empty | Self::TooLong { .. } | Self::Control { .. } => "metric_name",
            Self::LabelKey { .. } | Self::LabelReserved { .. } | Self::LabelValue { .. } => "label_key",
            Self::LabelTooLong { .. } => "label_too_long",
            Self::LabelRefused { .. } => "label_refused",
        }
    }
}

/// Says whether `name` may be a metric's display name.
pub fn check_display_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { found: name.len() });
    }
    match name.chars().find(|c| c.is_control()) {
        Some(character) => Err(NameError::Control { name: name.to_owned(), character }),
        None => Ok(()),
    }
}

/// Says whether a logged point may carry the label `key` = `value`.
pub fn check_logged_label(key: &str, value: &str) -> Result<(), NameError> {
    let found = key.len().max(value.len());
    if found > LOGGED_LABEL_BYTES_MAX {
        let cut = (0..=LOGGED_LABEL_BYTES_MAX.min(key.len()))
            .rev()
            .find(|at| key.is_char_boundary(*at))
            .unwrap_or(0);
        return Err(NameError::LabelTooLong { key: key[..cut].to_owned(), found });
    }
    if RESERVED_LABELS.contains(&key) || key == "display" || key.starts_with("__") {
        return Err(NameError::LabelReserved { key: key.to_owned() });
    }
    if REFUSED_LABELS.contains(&key) {
        return Err(NameError::LabelRefused { key: key.to_owned() });
    }
    let bytes = key.as_bytes();
    let usable = bytes.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if !usable {
        return Err(NameError::LabelKey { key: key.to_owned() });
    }
    if value.chars().any(char::is_control) {
        return Err(NameError::LabelValue { key: key.to_owned(), value: value.to_owned() });
    }
    Ok(())
}

/// What PromQL calls a display name: every character outside `[a-zA-Z0-9_:]` becomes `_`, and a
/// leading digit gets one in front.
pub fn prometheus_name(display: &str) -> String {
    let mut name = String::with_capacity(display.len() + 1);
    if display.starts_with(|c: char| c.is_ascii_digit()) {
        name.push('_');
    }
    name.extend(
        display.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == ':' { c } else { '_' }),
    );
    name
}

/// Whether a display name has characters that its PromQL name can't bring back, so that the series
/// needs the label `display`.
pub fn needs_display(display: &str) -> bool {
    !display.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_become_prometheus_names() {
        let check = |display: &str, want: &str| assert_eq!(prometheus_name(display), want, "{display}");
        check("loss", "loss");
        check("system/gpu/utilization", "system_gpu_utilization");
        check("2x loss", "_2x_loss");
        check("θ", "_");
        check("a:b.c-d", "a:b_c_d");
    }

    #[test]
    fn only_lossy_names_need_a_display_label() {
        assert!(!needs_display("system/gpu/utilization"));
        assert!(needs_display("loss (val)"));
    }

    #[test]
    fn refusals_name_their_reason() {
        let check = |key: &str, value: &str, want: &str| {
            let got = check_logged_label(key, value).err().map(|e| e.reason());
            assert_eq!(got, Some(want), "{key}={value}");
        };
        check("run_id", "x", "label_key");
        check("__name__", "x", "label_key");
        check("a b", "x", "label_key");
        check("", "x", "label_key");
        check("user_id", "x", "label_refused");
        check("split", &"v".repeat(65), "label_too_long");
        check(&"é".repeat(40), "v", "label_too_long");
        check("split", "a\u{1b}[2J", "label_key");
        let told = check_logged_label("split", "a\u{1b}[2J").map_err(|error| error.to_string());
        let words = "label \"split\" has the value \"a\\u{1b}[2J\", which holds a control character: values are printable text";
        assert_eq!(told, Err(words.to_owned()), "the key is not to blame");
        assert_eq!(check_logged_label("split", "train"), Ok(()));
        assert_eq!(check_display_name("a\u{7}b").map_err(|e| e.reason()), Err("metric_name"));
        assert_eq!(check_display_name(&"n".repeat(257)).map_err(|e| e.reason()), Err("metric_name"));
        assert_eq!(check_display_name("<img src=x onerror=alert(1)>"), Ok(()));
    }
}
