//! What the GPUs of a run can do at most and what they cost, told from what is known of the run.

use std::collections::BTreeSet;

use insight::mfu::{Attention, Model};
use model::{AttributeValue, DeviceRole, RunRecord};
use semconv::peaks::{self, Dtype, Gpu};

use crate::claims;
use crate::config::SiteConfig;
use crate::otlp::ATTRIBUTE_PREFIX;

/// The peak of one GPU of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Peak {
    /// The row of the catalogue.
    pub(crate) gpu: &'static Gpu,
    /// The device, in its driver's words.
    pub(crate) name: String,
    /// The format of the computation.
    pub(crate) dtype: Dtype,
    /// Dense FLOP/s.
    pub(crate) flops: f64,
}

/// Why a run has no peak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoPeak {
    /// Nobody says what it runs on.
    NoDevice,
    /// The catalogue does not have the device, or not one figure for all of them.
    UnknownDevice(String),
    /// Nobody says the format, or the device has no figure for it.
    NoDtype(String),
}

impl NoPeak {
    /// The bounded word for it.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NoDevice => "no_device",
            Self::UnknownDevice(_) => "unknown_device",
            Self::NoDtype(_) => "no_dtype",
        }
    }

    /// In a sentence, with the next step.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::NoDevice => {
                "No process says which GPU it runs on: newer trainers send `nv.gpu.model`, and \
                               `tg.init` captures it."
                    .to_owned()
            }
            Self::UnknownDevice(text) | Self::NoDtype(text) => text.clone(),
        }
    }
}

/// The peak of one GPU of a run.
pub(crate) fn of_run(run: &RunRecord) -> Result<Peak, NoPeak> {
    let name = device(run).map_err(|several| match several {
        None => NoPeak::NoDevice,
        Some([one, other]) => NoPeak::UnknownDevice(format!(
            "The run has several kinds of GPU, {one} and {other} among them: one peak does not fit all."
        )),
    })?;
    let gpu = peaks::find(&name).map_err(|why| {
        NoPeak::UnknownDevice(match why {
            peaks::NoPeak::UnknownDevice => {
                format!("The peak of {name} is not known, so its utilization is not either.")
            }
            peaks::NoPeak::Slice => format!("{name} is a part of a GPU, and the peak is the whole one's."),
        })
    })?;
    let said = text(run, &[&format!("{ATTRIBUTE_PREFIX}precision"), "model/dtype"]);
    let dtype = said.as_deref().and_then(Dtype::named).ok_or_else(|| {
        NoPeak::NoDtype(match &said {
            Some(said) => {
                format!("The number format {said:?} is not known, so which peak counts is not either.")
            }
            None => "No process says the number format of its computation: the trainer sends \
                     `megatron.precision`, and `tg.set_model` takes `dtype`."
                .to_owned(),
        })
    })?;
    let flops = gpu
        .flops(dtype)
        .ok_or_else(|| NoPeak::NoDtype(format!("No peak of {name} is known for {}.", dtype.name())))?;
    Ok(Peak { gpu, name, dtype, flops })
}

/// What an hour of one GPU of a run costs at the site's prices, US dollars, or why that is not known.
pub(crate) fn usd_per_gpu_hour(run: &RunRecord, site: &SiteConfig) -> Result<f64, String> {
    let name = device(run).map_err(|several| match several {
        None => "no process of the run says that it has a GPU".to_owned(),
        Some([one, other]) => format!("the run has several kinds of GPU, {one} and {other} among them"),
    })?;
    let gpu = peaks::find(&name)
        .map_err(|_why: peaks::NoPeak| format!("the GPU {name} is not in the catalogue"))?;
    let price = site.prices.iter().find(|price| price.gpu.id == gpu.id);
    price
        .map(|price| price.usd_per_gpu_hour)
        .ok_or_else(|| format!("no price is set for {name}: add `{}=...` to `[site] prices`", gpu.id))
}

/// The one kind of device that a run has, else two of several.
fn device(run: &RunRecord) -> Result<String, Option<[String; 2]>> {
    let mut devices = devices(run).into_iter();
    match (devices.next(), devices.next()) {
        (Some(name), None) => Ok(name),
        (Some(one), Some(other)) => Err(Some([one, other])),
        (None, _) => Err(None),
    }
}

/// Kinds of devices that the run's processes see.
pub(crate) fn devices(run: &RunRecord) -> BTreeSet<String> {
    let sent = text(run, &[&format!("{ATTRIBUTE_PREFIX}gpu_model")]);
    let mut devices: BTreeSet<String> = sent.into_iter().collect();
    for report in claims::reports(run) {
        let used = report.devices.into_iter().filter(|device| device.role != DeviceRole::NotVisible);
        devices.extend(used.map(|device| device.model).filter(|model| !model.is_empty()));
    }
    devices
}

/// The first of these attributes that is a text.
fn text(run: &RunRecord, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| match run.attributes.get(*key) {
        Some(AttributeValue::Text(text)) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        _ => None,
    })
}

/// The first of these attributes that is a number above 0.
pub(crate) fn number(run: &RunRecord, keys: &[&str]) -> Option<f64> {
    keys.iter().find_map(|key| {
        match run.attributes.get(*key) {
            Some(AttributeValue::Int(number)) => Some(*number as f64),
            Some(AttributeValue::Float(number)) => Some(*number),
            _ => None,
        }
        .filter(|number| number.is_finite() && *number > 0.0)
    })
}

/// The run's model, as far as `tg.set_model` and the trainer tell it; none without its parameters.
pub(crate) fn model(run: &RunRecord) -> Option<Model> {
    let parameters = number(run, &["model/active_parameters", "model/parameters"])?;
    let otel = |field: &str| format!("{ATTRIBUTE_PREFIX}{field}");
    let hidden_size = number(run, &["model/heads"]).zip(number(run, &["model/head_dim"]));
    let hidden_size =
        hidden_size.map(|(heads, width)| heads * width).or(number(run, &[&otel("hidden_size")]));
    let layers = number(run, &["model/layers", &otel("layers")]);
    let sequence_length = number(run, &["model/seq_len", &otel("sequence_length")]);
    let attention = match (layers, hidden_size, sequence_length) {
        (Some(layers), Some(hidden_size), Some(sequence_length)) => {
            Some(Attention { layers, hidden_size, sequence_length })
        }
        _ => None,
    };
    Some(Model { parameters, attention })
}

/// What recomputed activations add to the operations of a token, as a factor. Where only a part of them is
/// computed again nobody says how much that is, so there is none.
pub(crate) fn recompute_factor(run: &RunRecord) -> Option<f64> {
    let said = text(run, &[&format!("{ATTRIBUTE_PREFIX}recompute"), "model/recompute"])?;
    match &*said.to_ascii_lowercase() {
        "full" => Some(4.0 / 3.0),
        "none" => Some(1.0),
        _ => None,
    }
}

/// How many GPUs the run's latest attempt has: one for each rank.
pub(crate) fn gpus(run: &RunRecord) -> Option<u32> {
    let attempt = run.attempts.last()?.number;
    let sessions = || run.sessions.iter().filter(move |session| session.attempt == attempt);
    let said = sessions().filter_map(|session| session.facts.world_size).max();
    said.filter(|size| *size > 0).or_else(|| (sessions().count() == 1).then_some(1))
}
