//! Reads variables, and keeps what was odd about them.

use semconv::export::{PREFIX, PREFIX_FALLBACK, SWITCHES};

use super::settings::SettingsError;
use crate::launch::Lookup;
use crate::warning::Warning;

/// The environment, seen once.
pub(crate) struct Reader<'a> {
    pub(crate) lookup: Lookup<'a>,
    is_strict: bool,
    pub(crate) warnings: Vec<Warning>,
}

/// A value and the variable it is from.
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(lookup: Lookup<'a>, is_strict: bool) -> Self {
        Self { lookup, is_strict, warnings: Vec::new() }
    }

    /// A variable's text, trimmed; a blank is as good as unset.
    pub(crate) fn variable(&self, name: &str) -> Option<Found> {
        let text = (self.lookup)(name)?.trim().to_owned();
        (!text.is_empty()).then(|| Found { name: name.to_owned(), text })
    }

    /// The same, as its text only.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.variable(name).map(|found| found.text)
    }

    /// A switch's text under the first prefix and name that has one. `key` is any of its names.
    pub(crate) fn switch(&self, key: &str) -> Option<Found> {
        let switch = SWITCHES.iter().find(|switch| switch.keys.contains(&key))?;
        [PREFIX, PREFIX_FALLBACK]
            .iter()
            .flat_map(|prefix| switch.keys.iter().map(move |key| format!("{prefix}{key}")))
            .find_map(|name| self.variable(&name))
    }

    /// Something that can't be used: an error where bad values are errors.
    pub(crate) fn fault(&mut self, message: String) -> Result<(), SettingsError> {
        if self.is_strict {
            return Err(SettingsError { cause: CAUSE, message });
        }
        self.warn(message);
        Ok(())
    }

    /// Something that can be used and is odd.
    pub(crate) fn warn(&mut self, message: String) {
        self.warnings.push(Warning { cause: CAUSE, message });
    }

    /// What a found text means, else the default, with a fault where it means nothing.
    pub(crate) fn read<T>(
        &mut self,
        found: Option<Found>,
        default: T,
        read: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Result<T, SettingsError> {
        let Some(found) = found else { return Ok(default) };
        match read(&found.text) {
            Ok(value) => Ok(value),
            Err(wanted) => {
                let shown: String = found.text.chars().take(80).collect();
                self.fault(format!(
                    "{} is {shown:?}, which is not {wanted}: the default is used",
                    found.name
                ))?;
                Ok(default)
            }
        }
    }
}

/// The cause of every warning of settings.
const CAUSE: &str = "training_settings";

/// True or false, in the words of the switches.
pub(crate) fn boolean(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("1, true, yes, on, 0, false, no or off"),
    }
}

/// `key=value,key=value`, with escapes in percent; the parts that have no `=` or no key.
pub(crate) fn pairs(text: &str) -> (Vec<(String, String)>, usize) {
    let (mut pairs, mut odd) = (Vec::new(), 0);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                pairs.push((unescaped(key.trim()), unescaped(value.trim())));
            }
            _ => odd += 1,
        }
    }
    (pairs, odd)
}

/// Text without its escapes in percent; one that is none stays.
pub(crate) fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escape = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escape = escape.filter(|_| bytes[at] == b'%');
        let byte = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_unescaped_and_odd_parts_counted() {
        let (found, odd) = pairs("a=1, b = x%2Cy%3d ,c,=d,,e=f=g,h=%zz%4");
        let want = [("a", "1"), ("b", "x,y="), ("e", "f=g"), ("h", "%zz%4")];
        assert_eq!(found, want.map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert_eq!(odd, 2);
    }

    #[test]
    fn primary_prefix_goes_first_and_blanks_fall_through() {
        let check = |variables: &[(&str, &str)], want: Option<&str>| {
            let lookup =
                |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            let found = Reader::new(&lookup, false).switch("EXPORT_STRATEGY").map(|found| found.text);
            assert_eq!(found.as_deref(), want, "{variables:?}");
        };
        check(&[], None);
        check(&[("MEGATRON_OTEL_EXPORT_STRATEGY", "a"), ("NEMO_LENS_RANK_STRATEGY", "b")], Some("a"));
        check(&[("MEGATRON_OTEL_EXPORT_STRATEGY", "a"), ("MEGATRON_OTEL_RANK_STRATEGY", "b")], Some("b"));
        check(&[("MEGATRON_OTEL_RANK_STRATEGY", "  "), ("NEMO_LENS_EXPORT_STRATEGY", " b ")], Some("b"));
    }
}
