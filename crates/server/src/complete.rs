//! What a query that is being typed may become: names that are stored, and words of PromQL.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use model::MetricKind;
use promql::{FunctionHelp, Matcher, Place, ValueForm, Wants};
use store::{LabelCount, Store};

use crate::about::{Catalog, only_grows};
use crate::otlp::Streams;
use crate::source::{conditions, spelled_out};

/// Names that are looked at more closely, for one place.
const CANDIDATES_MAX: usize = 2_000;
/// Shortest text that is also found when its letters only come in this order.
const SCATTERED_CHARS_MIN: usize = 3;

/// What an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Metric,
    Label,
    Value,
    Function,
    Aggregation,
    Keyword,
    Duration,
}

/// One thing that may stand at the place.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) text: String,
    /// What replaces the typed text.
    pub(crate) insert: String,
    pub(crate) sort: Sort,
    /// Series that have it.
    pub(crate) series: Option<u64>,
    /// Different values of a label.
    pub(crate) values: Option<u64>,
    pub(crate) kind: MetricKind,
    pub(crate) unit: String,
    /// Of a function: its arguments.
    pub(crate) arguments: &'static str,
    pub(crate) help: String,
    pub(crate) caveat: &'static str,
}

impl Choice {
    fn new(sort: Sort, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            insert: text.clone(),
            text,
            sort,
            series: None,
            values: None,
            kind: MetricKind::Unknown,
            unit: String::new(),
            arguments: "",
            help: String::new(),
            caveat: "",
        }
    }

    fn word(sort: Sort, about: &FunctionHelp, insert: String) -> Self {
        Self {
            insert,
            arguments: about.arguments,
            help: about.help.to_owned(),
            ..Self::new(sort, about.name)
        }
    }
}

/// Where names are looked up, and of whose.
pub(crate) struct Names<'s> {
    pub(crate) store: &'s Store,
    pub(crate) streams: &'s Streams,
    pub(crate) catalog: &'s Catalog<'s>,
    /// Conditions that series must meet beside those of the query.
    pub(crate) within: &'s [Matcher],
}

impl Names<'_> {
    /// At most `limit` choices, the best first, and whether there are more.
    pub(crate) fn choices(&self, text: &str, place: &Place, limit: usize) -> (Vec<Choice>, bool) {
        let mut ranked: Vec<(Rank, Choice)> = match &place.wants {
            Wants::Nothing => Vec::new(),
            Wants::Expression { function, words } => {
                let mut all = self.metrics(&place.typed, function.as_deref(), limit);
                let bracket = if text[place.replaces.end..].starts_with('(') { "" } else { "(" };
                let functions = promql::function_help()
                    .map(|help| Choice::word(Sort::Function, &help, format!("{}{bracket}", help.name)));
                let aggregations = promql::aggregation_help()
                    .map(|help| Choice::word(Sort::Aggregation, &help, help.name.to_owned()));
                all.extend(ranked_words(functions.chain(aggregations), &place.typed));
                all.extend(ranked_words(words.iter().flat_map(|words| keywords(*words)), &place.typed));
                all
            }
            Wants::Words(words) => {
                ranked_words(words.iter().flat_map(|words| keywords(*words)), &place.typed).collect()
            }
            Wants::Label { of, taken } => self.labels(&place.typed, of, taken),
            Wants::Comparison => {
                let signs = ["=", "!=", "=~", "!~"].into_iter().zip([
                    "The value is this.",
                    "The value is another, or there is none.",
                    "The whole value fits the pattern.",
                    "The value does not fit the pattern.",
                ]);
                let choice = |(sign, help): (&str, &str)| Choice {
                    help: help.to_owned(),
                    ..Choice::new(Sort::Keyword, sign)
                };
                ranked_words(signs.map(choice), "").collect()
            }
            Wants::Value { label, of, form } => self.values(&place.typed, label, of, *form),
            Wants::Duration => durations(&place.typed),
        };
        ranked.retain(|(_, choice)| choice.text != place.typed || choice.insert != choice.text);
        ranked.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.text.cmp(&other.text)));
        let more = ranked.len() > limit;
        (ranked.into_iter().take(limit).map(|(_, choice)| choice).collect(), more)
    }

    fn metrics(&self, typed: &str, function: Option<&str>, limit: usize) -> Vec<(Rank, Choice)> {
        let within = conditions(self.within);
        let mut found: Vec<(u8, String, u64)> = Vec::new();
        let mut gather = |prefix: &str| {
            self.store.each_value("__name__", &within, prefix, &mut |name, series| {
                if let Some(rank) = rank(name, typed) {
                    found.push((rank, name.to_owned(), series));
                }
                if found.len() < CANDIDATES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        };
        // The index is sorted: names that begin with what is typed need no search, and often do.
        gather(typed);
        if found.len() <= limit && !typed.is_empty() {
            found.clear();
            let mut gather_all = |name: &str, series: u64| {
                if let Some(rank) = rank(name, typed) {
                    found.push((rank, name.to_owned(), series));
                }
                if found.len() < 10 * CANDIDATES_MAX {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            };
            self.store.each_value("__name__", &within, "", &mut gather_all);
        }
        found.sort_unstable();
        found.truncate(CANDIDATES_MAX);
        let counters_first = function.is_some_and(promql::takes_counters);
        let choice = |(rank, name, series): (u8, String, u64)| {
            let about = self.catalog.about(self.store, &name);
            let unfit = counters_first && !only_grows(&name, about.kind);
            let choice = Choice {
                insert: selector_of(&name),
                series: Some(series),
                kind: about.kind,
                unit: about.unit,
                help: about.help,
                caveat: about.caveat,
                ..Choice::new(Sort::Metric, name)
            };
            (Rank { fit: rank, unfit, last: 1 }, choice)
        };
        found.into_iter().map(choice).collect()
    }

    fn labels(&self, typed: &str, of: &[Vec<Matcher>], taken: &[String]) -> Vec<(Rank, Choice)> {
        let mut counted: BTreeMap<String, LabelCount> = BTreeMap::new();
        let all = [Vec::new()];
        for matchers in if of.is_empty() { &all[..] } else { of } {
            let all = self.spelled_out(matchers);
            let labels = all.iter().flat_map(|matchers| self.store.label_counts(&conditions(matchers)));
            for label in labels {
                match counted.get_mut(&label.name) {
                    Some(known) => {
                        known.series += label.series;
                        known.values = known.values.max(label.values);
                    }
                    None => _ = counted.insert(label.name.clone(), label),
                }
            }
        }
        let choice = |label: LabelCount| {
            let fit = rank(&label.name, typed).filter(|_| !taken.contains(&label.name))?;
            let choice = Choice {
                insert: label_name(&label.name),
                series: Some(label.series),
                values: Some(label.values),
                ..Choice::new(Sort::Label, label.name)
            };
            Some((Rank { fit, ..Rank::default() }, choice))
        };
        counted.into_values().filter_map(choice).collect()
    }

    fn values(&self, typed: &str, label: &str, of: &[Matcher], form: ValueForm) -> Vec<(Rank, Choice)> {
        let mut counted: BTreeMap<String, (u8, String, u64)> = BTreeMap::new();
        for matchers in self.spelled_out(of) {
            self.store.each_value(label, &conditions(&matchers), "", &mut |value, series| {
                if let Some((fit, insert)) = rank(value, typed).zip(form.write(value)) {
                    counted.entry(value.to_owned()).or_insert((fit, insert, 0)).2 += series;
                }
                if counted.len() < CANDIDATES_MAX {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
        }
        let choice = |(value, (fit, insert, series))| {
            let choice = Choice { insert, series: Some(series), ..Choice::new(Sort::Value, value) };
            (Rank { fit, ..Rank::default() }, choice)
        };
        counted.into_iter().map(choice).collect()
    }

    /// The lists of matchers that a selector stands for, each within bounds.
    fn spelled_out(&self, of: &[Matcher]) -> Vec<Vec<Matcher>> {
        let matchers: Vec<Matcher> = of.iter().chain(self.within).cloned().collect();
        spelled_out(self.store, self.streams, &matchers, (i64::MIN, i64::MAX))
    }
}

/// The order of choices, the least first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// A metric that the function around it is not made for.
    unfit: bool,
    /// See [`rank`].
    fit: u8,
    /// Words come before names.
    last: u8,
}

fn ranked_words<'t>(
    choices: impl Iterator<Item = Choice> + 't,
    typed: &'t str,
) -> impl Iterator<Item = (Rank, Choice)> + 't {
    // Words are few and known: found by their letters in order they would only be in the way.
    choices.filter_map(move |choice| {
        let fit = rank(&choice.text, typed).filter(|fit| *fit < SCATTERED)?;
        Some((Rank { fit, ..Rank::default() }, choice))
    })
}

const SCATTERED: u8 = 3;

/// How well `text` fits what is typed: it begins so, a part of it does, it holds it, it has the letters
/// in that order; `None` when it does not fit.
fn rank(text: &str, typed: &str) -> Option<u8> {
    let same = |a: &u8, b: &u8| a.eq_ignore_ascii_case(b);
    let (text, typed) = (text.as_bytes(), typed.as_bytes());
    let Some(first) = typed.first() else { return Some(0) };
    let starts = |at: usize| {
        let rest = text.get(at..at + typed.len());
        rest.is_some_and(|rest| rest.iter().zip(typed).all(|(a, b)| same(a, b)))
    };
    if starts(0) {
        return Some(0);
    }
    let mut holds = false;
    for at in (1..text.len()).filter(|at| same(&text[*at], first)) {
        if starts(at) {
            holds = true;
            if !text[at - 1].is_ascii_alphanumeric() {
                return Some(1);
            }
        }
    }
    if holds {
        return Some(2);
    }
    let mut rest = text.iter();
    let scattered = typed.len() >= SCATTERED_CHARS_MIN && typed.iter().all(|b| rest.any(|a| same(a, b)));
    scattered.then_some(SCATTERED)
}

fn keywords(place: promql::WordPlace) -> impl Iterator<Item = Choice> {
    promql::keyword_help(place).map(move |help| {
        let insert = match (help.arguments, place) {
            (_, promql::WordPlace::Moment) => format!("{}()", help.name),
            ("label, ...", _) => format!("{} (", help.name),
            _ => format!("{} ", help.name),
        };
        Choice::word(Sort::Keyword, &help, insert)
    })
}

/// Durations that people ask for, or the typed number in each unit.
fn durations(typed: &str) -> Vec<(Rank, Choice)> {
    const UNITS: [(&str, &str); 6] =
        [("s", "second"), ("m", "minute"), ("h", "hour"), ("d", "day"), ("w", "week"), ("ms", "millisecond")];
    const USUAL: [(&str, &str); 8] =
        [("1", "m"), ("5", "m"), ("15", "m"), ("30", "m"), ("1", "h"), ("6", "h"), ("1", "d"), ("7", "d")];
    let digits = typed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let of_number: Vec<(&str, &str)> = UNITS.iter().map(|(unit, _)| (digits, *unit)).collect();
    let wanted: &[(&str, &str)] = if is_number { &of_number } else { &USUAL };
    let choice = |(at, (number, unit)): (usize, &(&str, &str))| {
        let text = format!("{number}{unit}");
        let word = UNITS.iter().find(|(short, _)| short == unit).map_or("", |(_, word)| word);
        let plural = if *number == "1" { "" } else { "s" };
        let help = format!("{number} {word}{plural}");
        let fits = text.starts_with(typed);
        let rank = Rank { last: u8::try_from(at).unwrap_or(u8::MAX), ..Rank::default() };
        fits.then(|| (rank, Choice { help, ..Choice::new(Sort::Duration, text) }))
    };
    wanted.iter().enumerate().filter_map(choice).collect()
}

/// A selector of a metric by its name, whatever is in it.
fn selector_of(name: &str) -> String {
    if is_plain(name, true) { name.to_owned() } else { format!("{{__name__={name:?}}}") }
}

/// A label's name inside braces.
fn label_name(name: &str) -> String {
    if is_plain(name, false) { name.to_owned() } else { format!("{name:?}") }
}

fn is_plain(name: &str, colons: bool) -> bool {
    let starts = |b: u8| b.is_ascii_alphabetic() || b == b'_' || (colons && b == b':');
    name.bytes().next().is_some_and(starts) && name.bytes().all(|b| starts(b) || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_fits_best_then_parts_then_anywhere_then_scattered_letters() {
        assert_eq!(rank("tg_gpu_temperature_celsius", "tg_gpu_te"), Some(0));
        assert_eq!(rank("tg_gpu_temperature_celsius", "temp"), Some(1));
        assert_eq!(rank("tg_gpu_temperature_celsius", "emp"), Some(2));
        assert_eq!(rank("tg_gpu_temperature_celsius", "gputemp"), Some(SCATTERED));
        assert_eq!(rank("tg_gpu_temperature_celsius", "TEMP"), Some(1));
        assert_eq!(rank("tg_gpu_temperature_celsius", "gz"), None);
        assert_eq!(rank("up", ""), Some(0));
        assert_eq!(rank("é", "é"), Some(0));
    }

    #[test]
    fn a_number_is_offered_in_every_unit() {
        let texts = |typed: &str| durations(typed).into_iter().map(|(_, c)| c.text).collect::<Vec<_>>();
        assert_eq!(texts("5"), ["5s", "5m", "5h", "5d", "5w", "5ms"]);
        assert_eq!(texts("5m"), ["5m", "5ms"]);
        assert_eq!(texts("").len(), 8);
        assert_eq!(texts("x"), [""; 0]);
    }
}
