//! The peaks that a calculator divides by: given as figures, or by the name of a GPU.

use semconv::peaks::{self, AS_OF, Dtype, Gpu, NoPeak};

use super::CalcError;
use super::answer::Answer;
use super::input::{Given, Input, Kind, POSITIVE, input, number};

/// The GPU by name.
pub(crate) const GPU: Input = input(
    "gpu",
    Kind::Text,
    "NAME",
    "GPU whose peaks are known, such as `h100-sxm` or its driver's name for it",
);
/// The format of the computation.
pub(crate) const DTYPE: Input = input(
    "dtype",
    Kind::Text,
    "FORMAT",
    "Number format of the computation: bf16, fp16, fp8, fp4, tf32 or fp32 [default: bf16]",
);
/// The peak as a figure.
pub(crate) const PEAK: Input =
    number("peak", POSITIVE, "FLOPS", "Dense peak of one GPU, FLOP/s, such as 989e12; goes before --gpu");

/// Peaks nearer than this to each other, as a ratio, are printed from one figure.
const NEAR: f64 = 0.02;

/// A peak of arithmetic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peak {
    pub(crate) flops: f64,
    /// What large matrix products were seen to reach, FLOP/s.
    pub(crate) achievable: Option<f64>,
}

/// The row of the catalogue, or in words why there is none; none of both where no GPU was named.
pub(crate) fn device(given: &Given) -> Option<Result<&'static Gpu, String>> {
    let name = given.text("gpu")?;
    Some(peaks::find(name).map_err(|why| match why {
        NoPeak::UnknownDevice => {
            format!("the peaks of the GPU `{name}` are not known: give them as figures; known are {}", ids())
        }
        NoPeak::Slice => format!("`{name}` is a part of a GPU, and the peaks are the whole one's"),
    }))
}

fn ids() -> String {
    peaks::GPUS.map(|gpu| gpu.id).join(", ")
}

/// The format of the computation.
pub(crate) fn dtype(given: &Given) -> Result<Dtype, CalcError> {
    let name = given.text("dtype").unwrap_or("bf16");
    Dtype::named(name).ok_or_else(|| {
        CalcError::new(format!("`{name}` is no number format"))
            .of("dtype")
            .hint(format!("use one of {}", Dtype::ALL.map(Dtype::name).join(", ")))
    })
}

/// What is to be said of a peak that was given and is more than the GPU does, or that of a GPU with half of all factors
/// zero, as data sheets print it.
fn sparse(given: &Given, flops: f64, dtype: Dtype) -> Option<String> {
    let is_near = |peak: f64| (flops / peak - 1.0).abs() < NEAR;
    let (gpu, dense) = match device(given) {
        Some(Ok(gpu)) => (gpu, gpu.flops(dtype)?),
        Some(Err(_)) => return None,
        None => {
            let is_known = peaks::GPUS.iter().any(|gpu| gpu.flops(dtype).is_some_and(is_near));
            let twice = |gpu: &&Gpu| gpu.flops(dtype).is_some_and(|dense| is_near(2.0 * dense));
            let gpu = peaks::GPUS.iter().find(twice).filter(|_| !is_known)?;
            (gpu, gpu.flops(dtype)?)
        }
    };
    (flops > dense * (1.0 + NEAR)).then(|| {
        let sparse = if is_near(2.0 * dense) { ", the one of sparse matrices" } else { "" };
        format!(
            "the peak that was given, {} TFLOP/s, is {:.2} times the dense one of {} in {}{sparse}: data sheets print both, and utilization is of the dense one, {} TFLOP/s",
            flops / 1e12,
            flops / dense,
            gpu.id,
            dtype.name(),
            dense / 1e12
        )
    })
}

/// The peak of one GPU, or why it is not known.
pub(crate) fn flops(given: &Given, answer: &mut Answer) -> Result<Result<Peak, String>, CalcError> {
    let dtype = dtype(given)?;
    answer.stand_in("dtype", dtype.name());
    if let Some(flops) = given.number("peak") {
        answer.assume(format!("the peak is the one that was given, {} TFLOP/s", flops / 1e12));
        if let Some(warning) = sparse(given, flops, dtype) {
            answer.warnings.push(warning);
        }
        return Ok(Ok(Peak { flops, achievable: None }));
    }
    let gpu = match device(given) {
        None => return Ok(Err("no peak was given: `--peak`, or `--gpu` by name".to_owned())),
        Some(Err(why)) => return Ok(Err(why)),
        Some(Ok(gpu)) => gpu,
    };
    let Some(flops) = gpu.flops(dtype) else {
        let text = format!("no peak of `{}` is known for {}: give it with `--peak`", gpu.id, dtype.name());
        return Ok(Err(text));
    };
    let note = if gpu.note.is_empty() { String::new() } else { format!("; {}", gpu.note) };
    answer.assume_by(
        format!(
            "the peak of {} is dense, {} TFLOP/s in {}, at boost clock, read {AS_OF}{note}",
            gpu.id,
            flops / 1e12,
            dtype.name()
        ),
        gpu.source.title,
        gpu.source.url,
    );
    // It was measured in one format only.
    let achievable = gpu.achievable.filter(|_| dtype == Dtype::Bf16);
    Ok(Ok(Peak { flops, achievable: achievable.map(|share| share * flops) }))
}
