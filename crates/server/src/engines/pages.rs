//! The pages of targets, compared with the vocabulary.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Labels, NANOS_PER_MILLI};
use promql::{MatchOp, Matcher, QueryError, Select, Source};
use semconv::vocabulary::{self, Drift, Vocabulary};

use super::Window;

/// Most targets that are compared in one answer.
const TARGETS_MAX: usize = 200;

/// A target's page and what of it is known.
#[derive(Debug)]
pub(crate) struct Compared<'v> {
    pub(crate) job: Arc<str>,
    pub(crate) instance: Arc<str>,
    /// The engine or exporter.
    pub(crate) source: &'v vocabulary::Source,
    pub(crate) drift: Drift<'v>,
}

/// Compares the pages of all targets that are of a known source, or of one `instance`; says too whether there
/// are more.
pub(crate) fn compare<'v>(
    source: &dyn Source,
    vocabulary: &'v Vocabulary,
    window: Window,
    instance: Option<&str>,
) -> Result<(Vec<Compared<'v>>, bool), QueryError> {
    let mut compared = Vec::new();
    for (job, instance) in targets(source, window, instance)? {
        let of_target = [equal("job", &job)?, equal("instance", &instance)?];
        let names: BTreeSet<String> = series(source, window, &of_target)?
            .iter()
            .map(|labels| labels.metric().to_owned())
            .filter(|name| !name.starts_with("tg_"))
            .collect();
        for source in vocabulary.detect(names.iter().map(String::as_str)) {
            if compared.len() == TARGETS_MAX {
                return Ok((compared, true));
            }
            let drift = vocabulary::drift(source, names.iter().map(String::as_str));
            compared.push(Compared { job: job.clone(), instance: instance.clone(), source, drift });
        }
    }
    Ok((compared, false))
}

/// Job and instance.
type Target = (Arc<str>, Arc<str>);

/// The targets: every one has `up`, whoever scrapes it.
fn targets(
    source: &dyn Source,
    window: Window,
    wanted: Option<&str>,
) -> Result<BTreeSet<Target>, QueryError> {
    let mut matchers = vec![equal("__name__", "up")?];
    matchers.extend(wanted.map(|instance| equal("instance", instance)).transpose()?);
    let text = |labels: &Labels, name| Arc::from(labels.get(name).unwrap_or_default());
    let found = series(source, window, &matchers)?;
    Ok(found.iter().map(|labels| (text(labels, "job"), text(labels, "instance"))).collect())
}

fn series(source: &dyn Source, window: Window, matchers: &[Matcher]) -> Result<Vec<Arc<Labels>>, QueryError> {
    let select = Select {
        matchers,
        from_ns: window.from_ms.saturating_mul(NANOS_PER_MILLI),
        to_ns: window.to_ms.saturating_mul(NANOS_PER_MILLI),
    };
    let found = source.select(&select).map_err(|error| QueryError::Execution(error.reason))?;
    Ok(found.iter().map(|series| series.labels()).collect())
}

fn equal(name: &str, value: &str) -> Result<Matcher, QueryError> {
    Matcher::new(name, MatchOp::Equal, value).map_err(|error| QueryError::Execution(error.to_string()))
}
