//! Training telemetry as Python holds it: what must be fast (a record, a span) and what must not hold
//! the GIL (a flush, the shutdown).

mod attributes;
mod meter;
mod registry;
mod span;
mod state;
mod telemetry;
mod values;

use pyo3::prelude::*;

/// Adds it to the extension.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<telemetry::TelemetryCore>()?;
    module.add_class::<telemetry::ShutdownInfo>()?;
    module.add_class::<meter::Meter>()?;
    module.add_class::<meter::Instrument>()?;
    module.add_class::<span::Span>()?;
    module.add_class::<span::NoSpan>()?;
    module.add_class::<registry::StrategyConfig>()?;
    module.add_function(wrap_pyfunction!(telemetry::set_telemetry, module)?)?;
    module.add_function(wrap_pyfunction!(meter::record_training_metrics, module)?)?;
    module.add_function(wrap_pyfunction!(meter::training_instruments, module)?)?;
    module.add_function(wrap_pyfunction!(span::managed_span, module)?)?;
    module.add_function(wrap_pyfunction!(span::span_cm, module)?)?;
    module.add_function(wrap_pyfunction!(span::is_span_group_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(span::enabled_span_groups, module)?)?;
    module.add_function(wrap_pyfunction!(span::current_traceparent, module)?)?;
    module.add_function(wrap_pyfunction!(span::remote_span, module)?)?;
    module.add_function(wrap_pyfunction!(registry::training_switches, module)?)?;
    module.add_function(wrap_pyfunction!(registry::training_strategies, module)?)?;
    module.add_function(wrap_pyfunction!(registry::training_span_groups, module)?)?;
    module.add_function(wrap_pyfunction!(registry::register_strategy, module)?)?;
    module.add_function(wrap_pyfunction!(registry::unregister_strategy, module)?)?;
    module.add_function(wrap_pyfunction!(registry::known_strategies, module)?)?;
    module.add_function(wrap_pyfunction!(registry::register_span_group, module)?)?;
    module.add_function(wrap_pyfunction!(registry::unregister_span_group, module)?)?;
    module.add_function(wrap_pyfunction!(registry::known_span_groups, module)?)
}
