//! Arguments of `init()` laid over the environment.

use std::time::Duration;

use client::{Config, ResumeStrategy, Variable, Warning};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::attribute::Flat;

/// Rows of a table of settings: name, the variable read where it is unset, default, meaning, and
/// whether it has an effect here.
type Rows = Vec<(&'static str, Option<&'static str>, &'static str, &'static str, bool)>;

/// Every environment variable a run reads.
#[pyfunction]
pub(crate) fn settings() -> Rows {
    let row = |v: &Variable| (v.name, v.fallback, v.default, v.meaning, v.has_effect());
    client::VARIABLES.iter().map(row).collect()
}

/// The names of the run that `settings` mean: organization, workspace, project and run. The last is
/// empty when it will be made of the time.
#[pyfunction]
pub(crate) fn path_of(settings: &Bound<'_, PyDict>) -> PyResult<(String, String, String, String)> {
    let mut config = Config::from_env();
    let given = Given(settings);
    names(&mut config, &given)?;
    given.set("job_token", |token| config.launch.run_name = token)?;
    let path = config.path;
    let project = if path.project.is_empty() { "default".to_owned() } else { path.project };
    let run = if path.run.is_empty() { config.launch.run_name } else { path.run };
    Ok((path.organization, path.workspace, project, run))
}

/// Reads the environment, then `settings`; an argument that is `None` or absent leaves what the
/// environment says.
pub(crate) fn read(settings: &Bound<'_, PyDict>) -> PyResult<Config> {
    let mut config = Config::from_env();
    let given = Given(settings);
    names(&mut config, &given)?;
    given.set("url", |url| config.url = Some(url))?;
    given.set("token", |token| config.token = Some(token))?;
    given.set("spool_dir", |dir| config.spool_dir = Some(dir))?;
    given.set("description", |text| config.description = Some(text))?;
    given.set("experiment", |name| config.experiment = Some(name))?;
    given.set("job_token", |token| config.job_token = Some(token))?;
    given.set("disabled", |flag| config.disabled = flag)?;
    given.set("offline", |flag| config.offline = flag)?;
    given.set("strict", |flag| config.strict = flag)?;
    given.set("capture_system_metrics", |flag| config.capture_system_metrics = flag)?;
    given.set("queue_capacity", |points: usize| config.queue_capacity = points.clamp(1, 1 << 24))?;
    given.set("spool_bytes_max", |bytes| config.spool_bytes_max = bytes)?;
    given.set("resume_never", |never| {
        config.resume = if never { ResumeStrategy::Never } else { ResumeStrategy::Allow };
    })?;
    given.set("tags", |tags| config.tags = tags)?;
    durations(&mut config, &given)?;
    if let Some(value) = given.get("config")? {
        let mut flat = Flat::default();
        flat.add("", &value)?;
        config.config = flat.pairs;
    }
    Ok(config)
}

fn names(config: &mut Config, given: &Given<'_, '_>) -> PyResult<()> {
    given.set("organization", |name| config.path.organization = name)?;
    given.set("workspace", |name| config.path.workspace = name)?;
    given.set("project", |name| config.path.project = name)?;
    given.set("run", |name| config.path.run = name)
}

fn durations(config: &mut Config, given: &Given<'_, '_>) -> PyResult<()> {
    let mut odd = Vec::new();
    let mut bounded = |name: &'static str, target: &mut Duration| -> PyResult<()> {
        let Some(value) = given.get(name)? else { return Ok(()) };
        let read = value.extract::<f64>().map_err(|_other| "a number of seconds").and_then(|seconds| {
            if name == "system_metrics_interval_secs" {
                return client::sampling_interval(seconds);
            }
            Duration::try_from_secs_f64(seconds.max(0.0)).map_err(|_out| "a finite number of seconds")
        });
        match read {
            Ok(duration) => *target = duration,
            Err(wanted) => odd.push(Warning {
                cause: "argument",
                message: format!(
                    "`{name}` is {}, {wanted} is wanted: {} s is used",
                    crate::number::short(&value.repr().map_or_else(|_| String::new(), |r| r.to_string())),
                    target.as_secs_f64()
                ),
            }),
        }
        Ok(())
    };
    bounded("system_metrics_interval_secs", &mut config.system_metrics_interval)?;
    bounded("close_timeout_secs", &mut config.close_timeout)?;
    bounded("init_timeout_secs", &mut config.init_timeout)?;
    config.warnings.extend(odd);
    Ok(())
}

/// Arguments by name.
struct Given<'a, 'py>(&'a Bound<'py, PyDict>);

impl<'py> Given<'_, 'py> {
    fn get(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.0.get_item(name)?.filter(|value| !value.is_none()))
    }

    fn set<T>(&self, name: &str, mut with: impl FnMut(T)) -> PyResult<()>
    where
        T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        if let Some(value) = self.get(name)? {
            with(value.extract().map_err(Into::into)?);
        }
        Ok(())
    }
}
