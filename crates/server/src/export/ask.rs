//! What an export is asked for, in words, and what they select.

use promql::{MatchOp, Matcher};

use super::Selection;
use crate::api::prometheus::parse_time;
use crate::query::parse_selector;

/// What is asked for, as it was typed.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// PromQL selectors; series that fit one of them.
    pub selectors: Vec<String>,
    /// Ids of runs; series of these, within the selectors where there are any.
    pub run_ids: Vec<String>,
    /// First time: seconds since the epoch or RFC 3339.
    pub start: Option<String>,
    /// Last time, itself included.
    pub end: Option<String>,
}

/// Why what is asked for can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unusable {
    /// What was found.
    pub message: String,
    /// The next step.
    pub hint: String,
}

impl Unusable {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl Ask {
    /// Reads the words.
    pub(crate) fn selection(&self) -> Result<Selection, Unusable> {
        let mut selectors = Vec::new();
        for text in &self.selectors {
            let found = parse_selector(text).map_err(|error| {
                Unusable::new(
                    format!("the selector is not usable: {error}"),
                    "a selector is written as `loss{run=\"pretrain-7b\"}`",
                )
            })?;
            selectors.extend(found);
        }
        if !self.run_ids.is_empty() {
            let of_runs = of_runs(&self.run_ids)?;
            if selectors.is_empty() {
                selectors.push(Vec::new());
            }
            for matchers in &mut selectors {
                matchers.push(of_runs.clone());
            }
        }
        if selectors.is_empty() {
            return Err(Unusable::new(
                "it is not said what to export",
                "name a selector such as `{__name__=~\".+\"}`, or a run",
            ));
        }
        let nanos = |ms: i64| ms.saturating_mul(model::NANOS_PER_MILLI);
        let from_ns = time("start", self.start.as_deref())?.map_or(i64::MIN, nanos);
        // The last millisecond counts whole: points of one time lie a nanosecond apart.
        let to_ns = time("end", self.end.as_deref())?
            .map_or(i64::MAX, |ms| nanos(ms).saturating_add(model::NANOS_PER_MILLI - 1));
        if to_ns < from_ns {
            return Err(Unusable::new("`end` is before `start`", "swap them"));
        }
        Ok(Selection { selectors, span_ns: (from_ns, to_ns), statements: !self.selectors.is_empty() })
    }
}

/// The condition that a series belongs to one of these runs.
fn of_runs(ids: &[String]) -> Result<Matcher, Unusable> {
    let not_an_id = |id: &String| model::RunId::parse(id).is_none();
    if let Some(id) = ids.iter().find(|id| not_an_id(id)) {
        let message = format!("`{}` is not a run's id", crate::api::shown(id));
        return Err(Unusable::new(message, "an id has 16 hex digits; `truegauge runs ls` lists them"));
    }
    let ids: Vec<String> = ids.iter().map(|id| id.to_ascii_lowercase()).collect();
    Matcher::new("run_id", MatchOp::Matches, &ids.join("|"))
        .map_err(|error| Unusable::new(error.to_string(), "name fewer runs at once"))
}

fn time(name: &str, text: Option<&str>) -> Result<Option<i64>, Unusable> {
    let Some(text) = text else { return Ok(None) };
    parse_time(text).map(Some).ok_or_else(|| {
        let message = format!("`{name}` is `{}`, which is no time", crate::api::shown(text));
        Unusable::new(message, "write seconds since the epoch, or RFC 3339 as `2026-11-30T12:00:00Z`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(selectors: &[&str], run_ids: &[&str]) -> Ask {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Ask { selectors: owned(selectors), run_ids: owned(run_ids), ..Ask::default() }
    }

    #[test]
    fn runs_narrow_every_selector_or_stand_alone() {
        let id = "79d229c9380dbce7";
        let selectors = |ask: Ask| ask.selection().unwrap().selectors;
        assert_eq!(selectors(ask(&["a", "b{c=\"d\"}"], &[])).len(), 2);
        let narrowed = selectors(ask(&["a", "b{c=\"d\"}"], &[id]));
        assert!(narrowed.iter().all(|one| one.iter().any(|m| &*m.name == "run_id" && m.fits(id))));
        assert_eq!(selectors(ask(&[], &[id])).len(), 1);
    }

    #[test]
    fn what_can_not_be_used_says_why_and_what_to_do() {
        let check = |ask: Ask, want: &str| {
            let error = ask.selection().unwrap_err();
            assert!(error.message.contains(want) && !error.hint.is_empty(), "{error:?}");
        };
        check(ask(&[], &[]), "not said");
        check(ask(&["rate(x[1m])"], &[]), "selector");
        check(ask(&[], &["79d229c9380dbce7|.*"]), "not a run's id");
        check(Ask { start: Some("noon".into()), ..ask(&["a"], &[]) }, "`start` is `noon`");
        let reversed = Ask { start: Some("2".into()), end: Some("1".into()), ..ask(&["a"], &[]) };
        check(reversed, "before `start`");
    }

    #[test]
    fn the_last_millisecond_counts_whole() {
        let asked = Ask { start: Some("1".into()), end: Some("1".into()), ..ask(&["a"], &[]) };
        assert_eq!(asked.selection().unwrap().span_ns, (1_000_000_000, 1_000_999_999));
    }
}
