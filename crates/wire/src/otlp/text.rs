//! Texts that people or models wrote, which spans and logs may carry and which nobody asked to keep.

use super::value::{Attribute, Value};

/// Longest text of a value, bytes; longer ones are cut where they are kept.
pub const VALUE_BYTES_MAX: usize = 4_096;

/// Last parts of keys under which clients put prompts, completions and secrets.
const TEXT_KEYS: [&str; 18] = [
    "prompt",
    "prompts",
    "completion",
    "completions",
    "input_text",
    "output_text",
    "text",
    "content",
    "contents",
    "messages",
    "system_instructions",
    "password",
    "token",
    "secret",
    "key",
    "api_key",
    "authorization",
    "arguments",
];

/// Those of [`TEXT_KEYS`] that stand over secrets, which nobody keeps.
const SECRET_KEYS: [&str; 6] = ["password", "token", "secret", "key", "api_key", "authorization"];

/// Keys that stand over texts, whatever follows them: `gen_ai.prompt.0.content`. The later ones are those of
/// `OpenInference`, `OpenLLMetry`, `MLflow`, Langfuse and Vercel's AI SDK, in lower case.
const TEXT_PREFIXES: [&str; 21] = [
    "gen_ai.prompt.",
    "gen_ai.completion.",
    "gen_ai.input.",
    "gen_ai.output.",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "llm.prompts.",
    "llm.completions.",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompt_template",
    "input.value",
    "output.value",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "mlflow.spaninputs",
    "mlflow.spanoutputs",
    "langfuse.observation.input",
    "langfuse.observation.output",
    "ai.toolcall.args",
    "ai.toolcall.result",
];

/// Keys under a prefix of texts that say how much, not what.
const COUNTS: [&str; 3] = ["gen_ai.output.type", "gen_ai.input.tokens", "gen_ai.output.tokens"];

/// Whether a key holds the text of a prompt or completion, or a secret.
pub fn is_text_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let last = key.rsplit('.').next().unwrap_or(&key);
    if COUNTS.contains(&key.as_str()) {
        return false;
    }
    TEXT_KEYS.contains(&last) || TEXT_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Whether a key stands over a secret.
pub fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_KEYS.contains(&key.rsplit('.').next().unwrap_or(&key))
}

/// Whether an attribute holds the text of a prompt or completion, or a secret, itself or within.
/// Numbers and truth values tell no text.
pub fn is_text(key: &str, value: &Value<'_>) -> bool {
    !matches!(value, Value::Int(_) | Value::Double(_) | Value::Bool(_) | Value::Empty)
        && holds_text(key, value)
}

/// Whether an attribute that was kept holds a text; lists and maps are kept as the text of their JSON.
pub fn is_kept_text(key: &str, text: &str) -> bool {
    is_text_key(key) || (text.starts_with(['[', '{']) && quotes_text(text))
}

/// Takes texts out of `attributes` and says how many.
pub(super) fn drop_texts(attributes: &mut Vec<Attribute<'_>>) -> u64 {
    let before = attributes.len();
    attributes.retain(|(key, value)| !is_text(key, value));
    (before - attributes.len()) as u64
}

/// Whether a key or, within a map or list, any key below it is one of text.
fn holds_text(key: &str, value: &Value<'_>) -> bool {
    if is_text_key(key) {
        return true;
    }
    match value {
        // Maps and lists of messages come under any key. Whether a word between quotes is a key or a
        // value is not asked: quotes within values would have to be told from those around them.
        Value::Map(_) | Value::List(_) => value.text().map_or(true, |text| quotes_text(&text)),
        _ => false,
    }
}

fn quotes_text(json: &str) -> bool {
    json.contains("...") || json.split('"').any(is_text_key)
}

/// The text up to a bound, at a character.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_texts_and_secrets_are_known() {
        for key in [
            "prompt",
            "Prompt",
            "input_text",
            "token",
            "gen_ai.prompt",
            "gen_ai.prompt.0.content",
            "gen_ai.completion.0.role",
            "gen_ai.input.messages",
            "gen_ai.system_instructions",
            "llm.prompts.0.user",
            "llm.output_messages.0.message.role",
            "input.value",
            "output.value",
            "traceloop.entity.input",
            "mlflow.spanInputs",
            "http.request.header.authorization",
        ] {
            assert!(is_text_key(key), "{key}");
        }
        for key in [
            "megatron.iteration",
            "gen_ai.usage.prompt_tokens",
            "gen_ai.token.type",
            "gen_ai.output.type",
            "gen_ai.request.model",
            "input.mime_type",
            "dl.rank",
        ] {
            assert!(!is_text_key(key), "{key}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("", 0), "");
    }
}
