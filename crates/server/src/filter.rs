//! The filter of the runs list: `state:running -tag:debug loss:<0.5 "night run"`.
//!
//! Tokens are joined by space and all must hold: `key:value` (commas: one of them), `key:>n` and the
//! like, `key:*` has one, `key:-` has none, `-` in front turns a token round; a bare word is in the
//! run's name. A key that nothing has is reported and left out, the rest still applies.

use model::nearest;
use serde::Serialize;
use utoipa::ToSchema;

/// Longest filter, bytes.
pub(crate) const FILTER_BYTES_MAX: usize = 4 << 10;
/// Most tokens.
const TOKENS_MAX: usize = 64;

/// A key that every run can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Key {
    /// What is written before the colon.
    pub(crate) name: &'static str,
    /// What may be written instead.
    pub(crate) alias: &'static str,
    /// `text`, `number`, `seconds` or `time`.
    pub(crate) kind: &'static str,
    /// What it means.
    pub(crate) help: &'static str,
}

const fn key(name: &'static str, alias: &'static str, kind: &'static str, help: &'static str) -> Key {
    Key { name, alias, kind, help }
}

/// Every key beside the metrics (their last value) and the attributes (`config/lr`).
pub(crate) const KEYS: [Key; 18] = [
    key("state", "", "text", "running, stale, failed, finished or paused"),
    key("run", "name", "text", "the run's name"),
    key("run_id", "id", "text", "the run's id"),
    key("organization", "org", "text", "the organization"),
    key("workspace", "ws", "text", "the workspace"),
    key("project", "", "text", "the project"),
    key("tag", "tags", "text", "a tag"),
    key("host", "hosts", "text", "a host that a session ran on"),
    key("rank", "", "number", "a rank that a session had"),
    key("started", "", "time", "start: `>2026-01-31` after that day (UTC), `<2h` less than two hours ago"),
    key("elapsed", "", "seconds", "time it ran: seconds, or `90s`, `10m`, `2h`, `1d`"),
    key("step", "", "number", "the last step"),
    key("points", "", "number", "how many points it has"),
    key("attempts", "attempt", "number", "how many attempts it took"),
    key("description", "", "text", "the description"),
    key("gpu", "gpus", "number", "a GPU it ran on; nothing sends it yet"),
    key("severity", "", "text", "the worst of its incidents; nothing sends it yet"),
    key("xid", "", "number", "an Xid seen while it ran; nothing sends it yet"),
];

/// Something a run has under a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Text.
    Text(String),
    /// A number; times are milliseconds since the epoch, durations seconds.
    Number(f64),
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Contains(String),
    Any(Vec<String>),
    Compare(Order, f64),
    Has,
    Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Debug, Clone, PartialEq)]
struct Token {
    turned: bool,
    /// Empty for a bare word.
    key: String,
    test: Test,
}

/// Every word that `state:` may be followed by.
const STATES: [&str; 5] = ["running", "stale", "failed", "finished", "paused"];

/// What to say of states that no run can be in.
fn unknown_states(token: &Token) -> Vec<String> {
    let (true, Test::Any(words)) = (token.key == "state", &token.test) else { return Vec::new() };
    let unknown = words.iter().filter(|word| !STATES.iter().any(|state| word.eq_ignore_ascii_case(state)));
    unknown
        .map(|word| match nearest(word, STATES) {
            Some(near) => format!("no run is ever `{word}`, nearest state `{near}`"),
            None => format!("no run is ever `{word}`: a state is one of {}", STATES.join(", ")),
        })
        .collect()
}

/// A filter, read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Filter(Vec<Token>);

impl Filter {
    /// Reads a filter; tokens that can't be read are left out, and a warning says so.
    pub(crate) fn parse(text: &str, now_ms: i64) -> (Self, Vec<String>) {
        let (mut tokens, mut warnings) = (Vec::new(), Vec::new());
        for word in words(text) {
            if tokens.len() >= TOKENS_MAX {
                warnings.push(format!("only the first {TOKENS_MAX} tokens of the filter apply"));
                break;
            }
            match token(&word, now_ms) {
                Ok(token) => {
                    warnings.extend(unknown_states(&token));
                    tokens.push(token);
                }
                Err(warning) => warnings.push(warning),
            }
        }
        (Self(tokens), warnings)
    }

    /// The keys that are not in [`KEYS`]: metrics or attributes, if anything.
    pub(crate) fn foreign_keys(&self) -> Vec<&str> {
        let foreign = |token: &&Token| !token.key.is_empty() && find(&token.key).is_none();
        self.0.iter().filter(foreign).map(|token| token.key.as_str()).collect()
    }

    /// Leaves out the tokens of a key that nothing has, and says so; `known` are words it could have
    /// meant beside [`KEYS`].
    pub(crate) fn drop_unknown(&mut self, key: &str, known: &[String]) -> String {
        self.0.retain(|token| token.key != key);
        let names = KEYS.iter().map(|k| k.name).chain(known.iter().map(String::as_str));
        match nearest(key, names) {
            Some(near) => format!("unknown key `{key}`, nearest `{near}`"),
            None => format!("unknown key `{key}`: no run has a metric or attribute of that name"),
        }
    }

    /// Whether a run passes; `values` gives what it has under a key, `""` being its name.
    pub(crate) fn matches(&self, values: &dyn Fn(&str) -> Vec<Value>) -> bool {
        self.0.iter().all(|token| {
            let key = find(&token.key).map_or(token.key.as_str(), |key| key.name);
            holds(&token.test, &values(key)) != token.turned
        })
    }
}

fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name || (!key.alias.is_empty() && key.alias == name))
}

fn holds(test: &Test, values: &[Value]) -> bool {
    match test {
        Test::Has => !values.is_empty(),
        Test::Absent => values.is_empty(),
        Test::Contains(part) => values.iter().any(|value| match value {
            Value::Text(text) => text.to_lowercase().contains(part),
            Value::Number(_) => false,
        }),
        Test::Any(wanted) => values.iter().any(|value| wanted.iter().any(|want| equal(value, want))),
        Test::Compare(order, bound) => values.iter().any(|value| {
            let number = match value {
                Value::Number(number) => *number,
                Value::Text(text) => text.parse().unwrap_or(f64::NAN),
            };
            match order {
                Order::Less => number < *bound,
                Order::LessEqual => number <= *bound,
                Order::Greater => number > *bound,
                Order::GreaterEqual => number >= *bound,
            }
        }),
    }
}

fn equal(value: &Value, want: &str) -> bool {
    match value {
        Value::Text(text) => text.eq_ignore_ascii_case(want) || text.to_lowercase() == want.to_lowercase(),
        Value::Number(number) => want.parse::<f64>().is_ok_and(|want| want == *number),
    }
}

/// Splits at spaces outside quotes; quotes are kept.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                words.last_mut().into_iter().for_each(|w| w.push(c));
            }
            c if c.is_whitespace() && !quoted => words.push(String::new()),
            c => words.last_mut().into_iter().for_each(|w| w.push(c)),
        }
    }
    words.retain(|word| !word.is_empty() && word != "-");
    words
}

fn token(word: &str, now_ms: i64) -> Result<Token, String> {
    let (turned, rest) = word.strip_prefix('-').map_or((false, word), |rest| (true, rest));
    let colon = rest.find(':').filter(|at| *at > 0 && !rest[..*at].contains('"'));
    let Some(colon) = colon else {
        let test = Test::Contains(unquote(rest).to_lowercase());
        return Ok(Token { turned, key: String::new(), test });
    };
    let (key, value) = (rest[..colon].to_owned(), &rest[colon + 1..]);
    let orders =
        [(">=", Order::GreaterEqual), ("<=", Order::LessEqual), (">", Order::Greater), ("<", Order::Less)];
    let test = match value {
        "" => return Err(format!("`{key}:` has no value behind it")),
        "*" => Test::Has,
        "-" => Test::Absent,
        _ => match orders.iter().find_map(|(sign, order)| value.strip_prefix(sign).map(|v| (*order, v))) {
            Some((order, bound)) => compare(&key, order, &unquote(bound), now_ms)
                .ok_or_else(|| format!("`{word}` compares with something that is not a number"))?,
            None => Test::Any(split_list(value)),
        },
    };
    Ok(Token { turned, key, test })
}

fn compare(key: &str, order: Order, bound: &str, now_ms: i64) -> Option<Test> {
    let kind = find(key).map_or("number", |key| key.kind);
    if kind == "time" {
        if let Some(seconds) = duration_seconds(bound) {
            // An age: less than two hours ago is later than two hours before now.
            let turned = match order {
                Order::Less => Order::Greater,
                Order::LessEqual => Order::GreaterEqual,
                Order::Greater => Order::Less,
                Order::GreaterEqual => Order::LessEqual,
            };
            return Some(Test::Compare(turned, now_ms as f64 - seconds * 1e3));
        }
        return date_ms(bound).or_else(|| bound.parse().ok()).map(|at| Test::Compare(order, at));
    }
    let number =
        bound.parse().ok().or_else(|| (kind == "seconds").then(|| duration_seconds(bound)).flatten());
    number.filter(|n: &f64| !n.is_nan()).map(|number| Test::Compare(order, number))
}

/// Reads `90s`, `10m`, `2h`, `1d`.
fn duration_seconds(text: &str) -> Option<f64> {
    let unit = match text.chars().last()? {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3_600.0,
        'd' => 86_400.0,
        _ => return None,
    };
    text[..text.len() - 1].parse::<f64>().ok().map(|n| n * unit)
}

/// Reads `2026-01-31`, `2026-01-31T08:30` and `2026-01-31T08:30:15`, UTC, as milliseconds.
fn date_ms(text: &str) -> Option<f64> {
    let (date, time) = text.trim_end_matches('Z').split_once('T').unwrap_or((text, "00:00"));
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute) = (time.next()??, time.next()??);
    let second = time.next().unwrap_or(Some(0))?;
    let in_range = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since the epoch, counting years from March so that the leap day is the last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) as f64 * 1e3)
}

fn split_list(value: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in value.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => parts.push(String::new()),
            c => parts.last_mut().into_iter().for_each(|p| p.push(c)),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn unquote(text: &str) -> String {
    text.replace('"', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_769_904_000_000; // 2026-02-01T00:00Z

    /// A finished run named `night run` with a tag, two ranks, a metric and a fact.
    fn values(key: &str) -> Vec<Value> {
        let text = |t: &str| vec![Value::Text(t.into())];
        match key {
            "" | "run" => text("Night run"),
            "state" => text("finished"),
            "tag" => text("base"),
            "rank" => vec![Value::Number(0.0), Value::Number(1.0)],
            "started" => vec![Value::Number((NOW_MS - 3_600_000) as f64)],
            "elapsed" => vec![Value::Number(90.0)],
            "loss" => vec![Value::Number(0.25)],
            "config/opt" => text("adam"),
            _ => Vec::new(),
        }
    }

    fn check(filter: &str, want: bool) {
        let (parsed, warnings) = Filter::parse(filter, NOW_MS);
        assert!(warnings.is_empty(), "{filter}: {warnings:?}");
        assert_eq!(parsed.matches(&values), want, "{filter}");
    }

    #[test]
    fn every_form_of_the_grammar() {
        check("", true);
        check("night", true);
        check("day", false);
        check("-day", true);
        check("\"night run\"", true);
        check("\"run night\"", false);
        check("state:running,finished", true);
        check("state:running", false);
        check("-state:running", true);
        check("name:\"night run\"", true);
        check("loss:<0.5 loss:>=0.25", true);
        check("loss:<0.25", false);
        check("loss:*", true);
        check("acc:*", false);
        check("acc:-", true);
        check("-acc:-", false);
        check("rank:1", true);
        check("rank:>1", false);
        check("config/opt:Adam", true);
        check("tags:base night state:finished", true);
        check("elapsed:>1m elapsed:<=90s", true);
        check("started:<2h", true);
        check("started:>2h", false);
        check("started:>2026-01-31 started:<2026-02-01T00:00", true);
        check("xid:-", true);
    }

    #[test]
    fn what_cannot_be_read_is_reported_and_the_rest_applies() {
        let (parsed, warnings) = Filter::parse("loss:<abc state: day", NOW_MS);
        assert_eq!(
            warnings,
            ["`loss:<abc` compares with something that is not a number", "`state:` has no value behind it"]
        );
        assert!(!parsed.matches(&values));
    }

    #[test]
    fn states_that_no_run_can_be_in_are_reported() {
        assert_eq!(
            Filter::parse("state:runing", NOW_MS).1,
            ["no run is ever `runing`, nearest state `running`"]
        );
        assert_eq!(Filter::parse("state:running,Failed -state:stale", NOW_MS).1, Vec::<String>::new());
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_and_left_out() {
        let (mut parsed, _) = Filter::parse("stat:x night", NOW_MS);
        assert_eq!(parsed.foreign_keys(), ["stat"]);
        assert_eq!(parsed.drop_unknown("stat", &[]), "unknown key `stat`, nearest `state`");
        assert!(parsed.matches(&values));
    }

    #[test]
    fn dates_are_days_since_the_epoch() {
        assert_eq!(date_ms("1970-01-01"), Some(0.0));
        assert_eq!(date_ms("2000-02-29T12:00"), Some(951_825_600_000.0));
        assert_eq!(date_ms("2026-02-01"), Some(NOW_MS as f64));
        assert_eq!(date_ms("2026-13-01"), None);
        assert_eq!(date_ms("soon"), None);
    }
}
