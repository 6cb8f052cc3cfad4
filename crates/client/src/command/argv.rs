//! A command line as a run may keep it: quoted as a shell would want it, secrets left out.

use std::ffi::OsString;

/// What stands where a secret stood.
const HIDDEN: &str = "***";
/// Longest text kept, bytes.
const BYTES_MAX: usize = 8 << 10;

/// Words of a name whose value is a secret.
const SECRETS: &[&str] = &[
    "apikey",
    "authorization",
    "bearer",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "pwd",
    "secret",
    "token",
];
/// In front of `key` these make a secret.
const KEYS: &[&str] = &["access", "api", "private", "secret", "signing"];
/// In front of `token` these make a tokenizer's symbol, which is none.
const SYMBOLS: &[&str] = &["bos", "cls", "eos", "mask", "pad", "sep", "unk"];
/// What may stand between `Authorization:` and the secret.
const SCHEMES: &[&str] = &["basic", "bearer", "token"];
/// How well-known kinds of tokens begin.
const PREFIXES: &[&str] = &["hf_", "sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "AKIA"];
/// Shortest text that counts as one of those.
const TOKEN_BYTES_MIN: usize = 16;

/// The command line for people: what is named like a secret, looks like one of the well-known tokens
/// or stands in a URL in front of the host is `***`. What hides better than that is kept.
pub fn shown(argv: &[OsString]) -> String {
    let mut text = String::new();
    let mut is_awaited = false;
    for argument in argv {
        let argument = argument.to_string_lossy();
        let kept = if std::mem::take(&mut is_awaited) && !argument.starts_with('-') {
            HIDDEN.to_owned()
        } else {
            without_secrets(&argument, &mut is_awaited)
        };
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&quoted(&kept));
    }
    cut(text)
}

/// One argument; `is_awaited` is set when the next one is the secret.
fn without_secrets(argument: &str, is_awaited: &mut bool) -> String {
    if !argument.contains(char::is_whitespace)
        && let Some((name, _)) = argument.split_once('=').filter(|(name, _)| is_secret(name))
    {
        return format!("{name}={HIDDEN}");
    }
    let is_end = |c: char| c.is_whitespace() || matches!(c, ',' | '&' | ';' | '?' | '{' | '}');
    let mut kept = String::with_capacity(argument.len());
    for piece in argument.split_inclusive(is_end) {
        let word = piece.strip_suffix(is_end).unwrap_or(piece);
        let end = &piece[word.len()..];
        let is_scheme = SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
        if *is_awaited && !word.is_empty() && !word.starts_with('-') {
            *is_awaited = is_scheme;
            kept.push_str(if is_scheme { word } else { HIDDEN });
        } else {
            kept.push_str(&word_without_secrets(word, is_awaited));
        }
        kept.push_str(end);
    }
    kept
}

/// One word of an argument.
fn word_without_secrets(word: &str, is_awaited: &mut bool) -> String {
    if let Some(at) = word.find(['=', ':']).filter(|at| is_secret(&word[..*at])) {
        let (name, value) = word.split_at(at + 1);
        *is_awaited = value.trim_matches(['"', '\'']).is_empty();
        return if *is_awaited { word.to_owned() } else { format!("{name}{HIDDEN}") };
    }
    if (word.starts_with('-') || word.eq_ignore_ascii_case("bearer")) && is_secret(word) {
        *is_awaited = true;
        return word.to_owned();
    }
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.split_once('@').filter(|(user, _)| !user.contains('/'))
    {
        return format!("{scheme}://{HIDDEN}@{host}");
    }
    let value = word.rsplit(['=', ':', '"', '\'']).find(|part| !part.is_empty()).unwrap_or(word);
    let is_token = value.len() >= TOKEN_BYTES_MIN && PREFIXES.iter().any(|start| value.starts_with(start));
    if is_token { word.replace(value, HIDDEN) } else { word.to_owned() }
}

/// Whether a name, such as `--hub-token` or `WANDB_API_KEY`, is that of a secret.
fn is_secret(name: &str) -> bool {
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .flat_map(camel_words)
        .collect();
    let is_one = |at: usize| {
        let before = at.checked_sub(1).map_or("", |before| words[before].as_str());
        match words[at].as_str() {
            "key" => KEYS.contains(&before),
            "token" => !SYMBOLS.contains(&before),
            word => SECRETS.contains(&word),
        }
    };
    (0..words.len()).any(is_one)
}

/// `hubToken` as `hub` and `token`; `HUB` stays one.
fn camel_words(word: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in word.chars() {
        if c.is_ascii_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_ascii_lowercase();
        if let Some(last) = words.last_mut() {
            last.push(c.to_ascii_lowercase());
        }
    }
    words
}

/// As a shell reads it back.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=,+@%^*".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

fn cut(mut text: String) -> String {
    if text.len() > BYTES_MAX {
        let mut end = BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(argv: &[&str], want: &str) {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        assert_eq!(shown(&argv), want);
    }

    #[test]
    fn a_plain_command_can_be_pasted_into_a_shell() {
        check(
            &["python", "train.py", "--lr=1e-4", "a b", "it's", ""],
            r"python train.py --lr=1e-4 'a b' 'it'\''s' ''",
        );
        check(
            &["torchrun", "--max-tokens", "512", "--tokenizer=gpt2", "--eos-token", "</s>"],
            "torchrun --max-tokens 512 --tokenizer=gpt2 --eos-token '</s>'",
        );
    }

    #[test]
    fn what_is_named_like_a_secret_is_left_out() {
        check(&["x", "--password=a,b", "--hub-token", "abc", "-v"], "x --password=*** --hub-token *** -v");
        check(&["x", "--token", "--verbose"], "x --token --verbose");
        check(
            &["env", "WANDB_API_KEY=abc", "AWS_SECRET_ACCESS_KEY=x", "A=1"],
            "env WANDB_API_KEY=*** AWS_SECRET_ACCESS_KEY=*** A=1",
        );
        check(
            &["bash", "-c", "export HF_TOKEN=abc; python t.py --password x y"],
            "bash -c 'export HF_TOKEN=***; python t.py --password *** y'",
        );
        check(&["curl", "-H", "Authorization: Bearer abc"], "curl -H 'Authorization: Bearer ***'");
        check(&["x", r#"{"lr":1,"apiKey":"abc"}"#], r#"x '{"lr":1,"apiKey":***}'"#);
    }

    #[test]
    fn urls_and_well_known_tokens_are_recognised() {
        check(&["git", "clone", "https://me:pw@host/x"], "git clone https://***@host/x");
        check(&["curl", "https://host/a@b"], "curl https://host/a@b");
        check(&["x", "--key=hf_abcdefghijklmnop", "hf_short"], "x --key=*** hf_short");
    }

    #[test]
    fn a_long_line_is_cut() {
        let text = shown(&[OsString::from("ä".repeat(BYTES_MAX))]);
        assert!(text.len() <= BYTES_MAX + 3 && text.ends_with('…'));
    }
}
