//! Strategies and span groups that a program adds.

use std::sync::Arc;

use client::training::{Rank, StrategyError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use semconv::export::{RANK_STRATEGIES, SWITCHES, Switch, VARIABLES};
use semconv::spans::GROUPS;

/// What a strategy of the program's own is asked with.
///
/// Attributes:
///     export_rank: The rank that `single_rank` means; below 0 the last.
///     export_sample_rate: The share that `sampled` means, 0 to 1.
///     local_rank: Rank on the node, where the launcher gave one.
#[pyclass(frozen, get_all, module = "truegauge.training")]
pub(crate) struct StrategyConfig {
    export_rank: i64,
    export_sample_rate: f64,
    local_rank: Option<u32>,
}

fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Rows of [`training_switches`].
type Rows = Vec<(&'static str, &'static [&'static str], &'static str, &'static str)>;

/// The environment variables of set-up, in the order of their tables: which table, names, default and
/// meaning. Those of `switch` stand behind one of two prefixes.
#[pyfunction]
pub(crate) fn training_switches() -> Rows {
    let row =
        |kind: &'static str| move |switch: &'static Switch| (kind, switch.keys, switch.default, switch.help);
    SWITCHES.iter().map(row("switch")).chain(VARIABLES.iter().map(row("variable"))).collect()
}

/// The built-in strategies and which ranks each means.
#[pyfunction]
pub(crate) fn training_strategies() -> Vec<(&'static str, &'static str)> {
    RANK_STRATEGIES.iter().map(|strategy| (strategy.name, strategy.help)).collect()
}

/// The span groups of the trainer: name, whether `default` has it, whether `per_step` does.
#[pyfunction]
pub(crate) fn training_span_groups() -> Vec<(&'static str, bool, bool)> {
    GROUPS.iter().map(|group| (group.name, group.in_default, group.in_per_step)).collect()
}

/// Adds a strategy.
#[pyfunction]
pub(crate) fn register_strategy(name: &str, decide: Py<PyAny>, allow_override: bool) -> PyResult<()> {
    let strategy = move |rank: &Rank| {
        Python::attach(|py| {
            let config = StrategyConfig {
                export_rank: rank.export_rank,
                export_sample_rate: rank.sample_rate,
                local_rank: rank.local_rank,
            };
            let answer = decide.bind(py).call1((config, rank.rank, rank.world_size))?;
            answer.is_truthy()
        })
        .map_err(|error: PyErr| error.to_string())
    };
    client::training::register_strategy(name, Arc::new(strategy), allow_override).map_err(value_error)
}

/// Takes a strategy out; whether it was there.
#[pyfunction]
pub(crate) fn unregister_strategy(name: &str) -> PyResult<bool> {
    client::training::unregister_strategy(name).map_err(|error: StrategyError| value_error(error))
}

/// The names of all strategies.
#[pyfunction]
pub(crate) fn known_strategies() -> Vec<String> {
    client::training::known_strategies()
}

/// Adds a span group.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "a list of Python's becomes one of ours")]
pub(crate) fn register_span_group(name: &str, presets: Vec<String>, allow_override: bool) -> PyResult<()> {
    let presets: Vec<&str> = presets.iter().map(String::as_str).collect();
    client::training::register_group(name, &presets, allow_override).map_err(value_error)
}

/// Takes a span group out; whether it was there.
#[pyfunction]
pub(crate) fn unregister_span_group(name: &str) -> PyResult<bool> {
    client::training::unregister_group(name).map_err(value_error)
}

/// The names of all span groups.
#[pyfunction]
pub(crate) fn known_span_groups() -> Vec<String> {
    client::training::known_groups()
}
