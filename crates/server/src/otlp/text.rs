//! Texts of prompts and completions: dropped as they come in, unless a project asks for them; then
//! redacted, and shown to admins only.

use std::borrow::Cow;
use std::sync::LazyLock;

use model::{AttributeValue, RunPath, Span};
use regex::Regex;
use wire::otlp::{Attributes, VALUE_BYTES_MAX, cut, is_kept_text, is_secret_key, is_text};

use crate::app::Shared;

/// Whether texts of prompts and completions of a run's project are kept.
pub(crate) fn keeps(shared: &Shared, path: &RunPath) -> bool {
    shared.config.otlp.keep_text.iter().any(|(organization, workspace, project)| {
        *organization == path.organization && *workspace == path.workspace && *project == path.project
    })
}

/// Whether any project keeps them.
pub(crate) fn any_keeps(shared: &Shared) -> bool {
    !shared.config.otlp.keep_text.is_empty()
}

/// Attributes as they are kept: without texts, or with redacted ones. Secrets are never kept.
pub(crate) fn attributes(sent: &Attributes<'_>, keeps_text: bool) -> Vec<(String, AttributeValue)> {
    let mut out = Vec::with_capacity(sent.list.len());
    for (key, value) in &sent.list {
        let is_text = is_text(key, value);
        if is_text && (!keeps_text || is_secret_key(key)) {
            continue;
        }
        let Ok(mut value) = value.attribute() else { continue };
        if let AttributeValue::Text(text) = &mut value {
            if is_text {
                *text = redacted(text).into_owned();
            }
            if text.len() > VALUE_BYTES_MAX {
                *text = cut(text, VALUE_BYTES_MAX).to_owned();
            }
        }
        out.push(((*key).to_owned(), value));
    }
    out
}

/// Takes texts out of a span, for those who may not read them; says whether there were any.
pub(crate) fn hide_texts(span: &mut Span) -> bool {
    let events = span.events.iter_mut().map(|event| &mut event.attributes);
    let links = span.links.iter_mut().map(|link| &mut link.attributes);
    events.chain(links).chain([&mut span.attributes]).fold(false, |any, attributes| hide(attributes) | any)
}

/// Takes texts out of what was kept, for those who may not read them; says whether there were any.
pub(crate) fn hide(attributes: &mut Vec<(String, AttributeValue)>) -> bool {
    let before = attributes.len();
    attributes.retain(|(key, value)| match value {
        AttributeValue::Text(text) => !is_kept_text(key, text),
        _ => true,
    });
    attributes.len() < before
}

/// E-mail addresses.
static ADDRESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+").ok());
/// Keys and tokens of known forms, and what follows a word for one.
static SECRET: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"\b(sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bxox[a-z]-[A-Za-z0-9-]{10,}",
        r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}|\btg_[A-Za-z0-9_]{20,}",
        r"|(?i:bearer|password|passwd|api[_-]?key|secret|token)[\x22']?\s*[:= ]\s*[\x22']?[^\s\x22',;]{6,}"
    ))
    .ok()
});
/// What looks like the number of a card: 13 to 19 digits, maybe in groups.
static CARD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\b\d(?:[ -]?\d){12,18}\b").ok());

/// A text without e-mail addresses, keys and tokens of known forms, and numbers of cards.
pub(crate) fn redacted(text: &str) -> Cow<'_, str> {
    // Without its patterns nothing would be known to be harmless; a test holds that all compile.
    let (Some(address), Some(secret), Some(card)) = (&*ADDRESS, &*SECRET, &*CARD) else {
        return Cow::Borrowed("[text]");
    };
    let text = address.replace_all(text, "[address]");
    let text = match secret.replace_all(&text, "[secret]") {
        Cow::Borrowed(_) => text,
        Cow::Owned(text) => Cow::Owned(text),
    };
    let number = |found: &regex::Captures<'_>| {
        let digits = found[0].bytes().filter(u8::is_ascii_digit);
        if is_card(digits) { "[number]".to_owned() } else { found[0].to_owned() }
    };
    match card.replace_all(&text, number) {
        Cow::Borrowed(_) => text,
        Cow::Owned(text) => Cow::Owned(text),
    }
}

/// Whether the last digit checks the others, as it does on cards.
fn is_card(digits: impl DoubleEndedIterator<Item = u8>) -> bool {
    let sum: u32 = digits
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let digit = u32::from(digit - b'0') * if at % 2 == 1 { 2 } else { 1 };
            if digit > 9 { digit - 9 } else { digit }
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wrote_and_by_what_they_pay_is_not_kept() {
        let check = |text: &str, want: &str| assert_eq!(redacted(text), want);
        check("write to ann.o'neil@mail.example.org now", "write to ann.o'[address] now");
        check("my key is sk-proj-abcdefghij0123456789, ok", "my key is [secret], ok");
        check("Authorization: Bearer abc.def.ghi", "Authorization: [secret]");
        check(r#"{"password": "hunter22"}"#, r#"{"[secret]"}"#);
        check("AKIAIOSFODNN7EXAMPLE", "[secret]");
        check("card 4111 1111 1111 1111.", "card [number].");
        check("step 1234567890123 of 5", "step 1234567890123 of 5");
        check("what is 2 + 2?", "what is 2 + 2?");
    }

    #[test]
    fn texts_are_hidden_and_counts_are_not() {
        let text = |text: &str| AttributeValue::Text(text.into());
        let mut attributes = vec![
            ("gen_ai.prompt".to_owned(), text("hello")),
            ("gen_ai.usage.input_tokens".to_owned(), AttributeValue::Int(3)),
            ("messages".to_owned(), text("[1]")),
            ("list".to_owned(), text(r#"[{"content":"hello"}]"#)),
            ("megatron.iteration".to_owned(), AttributeValue::Int(7)),
        ];
        assert!(hide(&mut attributes));
        let left: Vec<&str> = attributes.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(left, ["gen_ai.usage.input_tokens", "megatron.iteration"]);
        assert!(!hide(&mut attributes));
    }
}
