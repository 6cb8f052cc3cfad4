//! Adapters of models (LoRA) in labels: the busiest of a job keep their names, the others are one.
//!
//! vLLM lists the adapters that run and wait in two labels of one series, whose value is a time: each combination
//! would be a series. It is taken as one series an adapter instead.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

/// The series that lists adapters.
pub(crate) const LISTING: &str = "vllm:lora_requests_info";
/// Its labels that do, with what an adapter of theirs does.
const LISTS: [(&str, &str); 2] = [("running_lora_adapters", "running"), ("waiting_lora_adapters", "waiting")];
/// Adapters of a job that keep their names.
const NAMED_MAX: usize = 50;
/// Name of all the others.
const OTHERS: &str = "__other__";
/// Adapters of a job that are counted, and jobs.
const COUNTED_MAX: usize = 1_000;
const JOBS_MAX: usize = 1_000;
/// How much busier than the least busy one that has a name another must be to take its place.
const BUSIER: u64 = 2;

/// Labels of a series, the adapter that it is of, and what that one does.
type Unlisted<'l> = (Vec<(&'l str, &'l str)>, String, &'static str);

/// The adapters of every job.
#[derive(Debug, Default)]
pub(crate) struct Adapters(Mutex<HashMap<String, Busiest>>);

#[derive(Debug, Default)]
struct Busiest {
    counts: HashMap<String, u64>,
    named: BTreeSet<String>,
}

impl Adapters {
    /// Labels of the series that a listing is taken as, each with what is added to it: adapter and state.
    pub(crate) fn unlisted<'l>(&self, labels: &[(&'l str, &'l str)]) -> Vec<Unlisted<'l>> {
        let value =
            |name: &str| labels.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| value);
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.len() >= JOBS_MAX && !jobs.contains_key(value("job")) {
            jobs.clear();
        }
        let of_job = jobs.entry(value("job").to_owned()).or_default();
        let rest: Vec<(&str, &str)> =
            labels.iter().filter(|(label, _)| LISTS.iter().all(|(list, _)| list != label)).copied().collect();
        let mut found = Vec::new();
        for (list, state) in LISTS {
            let names = value(list).split(',').map(str::trim).filter(|name| !name.is_empty());
            let names: BTreeSet<String> = names.map(|name| of_job.name(name)).collect();
            found.extend(names.into_iter().map(|name| (rest.clone(), name, state)));
        }
        found
    }
}

impl Busiest {
    /// An adapter's own name, or that of all the others.
    fn name(&mut self, adapter: &str) -> String {
        if self.counts.len() >= COUNTED_MAX && !self.counts.contains_key(adapter) {
            // Those that are seldom seen go, and what was long ago counts less.
            self.counts.values_mut().for_each(|count| *count /= 2);
            self.counts.retain(|_, count| *count > 0);
        }
        let count = self.counts.entry(adapter.to_owned()).or_default();
        *count += 1;
        let count = *count;
        if self.named.contains(adapter) {
            return adapter.to_owned();
        }
        if self.named.len() >= NAMED_MAX {
            let of = |name: &String| self.counts.get(name).copied().unwrap_or_default();
            let Some(least) = self.named.iter().min_by_key(|name| of(name)).cloned() else {
                return OTHERS.to_owned();
            };
            if count < of(&least).saturating_mul(BUSIER).max(BUSIER) {
                return OTHERS.to_owned();
            }
            self.named.remove(&least);
        }
        self.named.insert(adapter.to_owned());
        adapter.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(adapters: &Adapters, running: &str) -> Vec<String> {
        let labels = [("__name__", LISTING), ("job", "j"), ("running_lora_adapters", running)];
        adapters.unlisted(&labels).into_iter().map(|(_, name, _)| name).collect()
    }

    #[test]
    fn the_busiest_have_names_of_their_own() {
        let adapters = Adapters::default();
        for n in 0..2_000 {
            names(&adapters, &format!("a{n}"));
        }
        assert_eq!(names(&adapters, "a0, a1999,a1998"), [OTHERS, "a0"]);
        for _ in 0..40 {
            names(&adapters, "late");
        }
        assert_eq!(names(&adapters, "late"), ["late"]);
        let kept = adapters.0.lock().unwrap();
        assert!(kept["j"].named.len() == NAMED_MAX && kept["j"].counts.len() <= COUNTED_MAX);
    }

    #[test]
    fn a_list_becomes_one_series_an_adapter_and_state() {
        let labels = [
            ("__name__", LISTING),
            ("max_lora", "4"),
            ("running_lora_adapters", "x,y"),
            ("waiting_lora_adapters", "y"),
        ];
        let found = Adapters::default().unlisted(&labels);
        let told: Vec<(&str, &str)> = found.iter().map(|(_, name, state)| (name.as_str(), *state)).collect();
        assert_eq!(told, [("x", "running"), ("y", "running"), ("y", "waiting")]);
        assert_eq!(found[0].0, [("__name__", LISTING), ("max_lora", "4")]);
    }
}
