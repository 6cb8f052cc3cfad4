//! Decoding on ideal hardware.

use insight::roofline::{Decoder, Hardware, Step};
use serde_json::Value;

use super::answer::{Answer, AnswerColumn, Formula, grouped, laid_out, percent, row};
use super::input::{FROM_ONE, Given, Input, Kind, NOT_NEGATIVE, POSITIVE, SHARE, input, missing, number};
use super::peak::{self, DTYPE, GPU, PEAK};
use super::{CalcError, Tool};

/// Batches where none are given.
const BATCHES: [f64; 5] = [1.0, 8.0, 32.0, 64.0, 128.0];
const GB: f64 = 1e9;

const INPUTS: &[Input] = &[
    number("params", POSITIVE, "N", "All parameters"),
    number(
        "active_params",
        POSITIVE,
        "N",
        "Parameters that a token passes, of a mixture of experts [default: all]",
    ),
    number("bytes_per_param", POSITIVE, "BYTES", "Bytes of a parameter [default: 2]"),
    number("layers", POSITIVE, "N", "Layers"),
    number("kv_heads", POSITIVE, "N", "Heads that keys and values are kept for"),
    number("head_dim", POSITIVE, "N", "Width of a head"),
    number("bytes_per_kv", POSITIVE, "BYTES", "Bytes of a number that is kept [default: 2]"),
    number("context", NOT_NEGATIVE, "TOKENS", "Tokens of each sequence"),
    input(
        "batch",
        Kind::Numbers(FROM_ONE),
        "N",
        "Sequences, several for a comparison [default: 1,8,32,64,128]",
    ),
    GPU,
    DTYPE,
    PEAK,
    number("bandwidth", POSITIVE, "BYTES/S", "Memory traffic of one GPU, such as 3.35e12; goes before --gpu"),
    number("memory_bytes", POSITIVE, "BYTES", "Memory of one GPU; goes before --gpu"),
    number("memory_share", SHARE, "RATIO", "Share of it that may be used [default: 1]"),
    number("gpus", POSITIVE, "N", "GPUs that share the model [default: 1]"),
    number(
        "step_seconds",
        POSITIVE,
        "SECONDS",
        "A step of the first batch as it was measured, for its share of the bandwidth",
    ),
];

pub(super) const TOOL: Tool = Tool {
    name: "roofline",
    about: "Reckon what a decoding step can't be faster than, and which batch still fits",
    inputs: INPUTS,
    needs: &[
        &[&["params"]],
        &[&["layers"]],
        &[&["kv_heads"]],
        &[&["head_dim"]],
        &[&["context"]],
        &[&["gpu"], &["peak", "bandwidth"]],
    ],
    main: &["batch_max"],
    examples: &[
        "truegauge calc roofline --params 8.03e9 --layers 32 --kv-heads 8 --head-dim 128 --context 2048 --gpu h100-sxm",
        "truegauge calc roofline --params 8.03e9 --layers 32 --kv-heads 8 --head-dim 128 --context 8192 --gpu h100-sxm --memory-share 0.9 --batch 32,52 --json",
    ],
    reckon,
};

fn reckon(given: &Given, answer: &mut Answer) -> Result<(), CalcError> {
    let parameters = given.needed("params")?;
    let active_parameters = given.number("active_params").unwrap_or(parameters);
    if active_parameters > parameters {
        let text = format!("`active_params` is {active_parameters}, more than the {parameters} of `params`");
        return Err(CalcError::new(text).of("active_params"));
    }
    let model = Decoder {
        parameters,
        active_parameters,
        bytes_per_parameter: given.number("bytes_per_param").unwrap_or(2.0),
        layers: given.needed("layers")?,
        kv_heads: given.needed("kv_heads")?,
        head_dim: given.needed("head_dim")?,
        bytes_per_kv: given.number("bytes_per_kv").unwrap_or(2.0),
    };
    let context = given.needed("context")?;
    answer.stand_in("bytes_per_param", model.bytes_per_parameter);
    answer.stand_in("bytes_per_kv", model.bytes_per_kv);
    explain(answer, &model);
    let gpus = given.number("gpus").unwrap_or(1.0);
    answer.stand_in("gpus", gpus);
    let hardware = hardware(given, answer, gpus)?;
    answer.put("peak_flops", hardware.flops);
    answer.put("peak_bytes_per_second", hardware.bytes_per_second);
    answer.put("ridge_flops_per_byte", hardware.ridge());
    answer.put("floor_seconds", model.floor_seconds(hardware));
    answer.put("weight_bytes", model.weight_bytes());
    answer.put("kv_bytes_per_token", model.kv_bytes_per_token());
    let fits = memory(given, answer, gpus).and_then(|bytes| {
        answer.put("memory_bytes", bytes);
        model.batch_max(bytes, context)
    });
    answer.put_or("batch_max", fits, "how much memory there is is not known, or a sequence of no context takes none: `--memory-bytes`, or `--gpu`");
    let batches = given.numbers("batch").unwrap_or(&BATCHES);
    answer.stand_in("batch", batches.to_vec());
    let steps: Vec<Step> = batches.iter().map(|batch| model.step(hardware, *batch, context)).collect();
    if let Some((measured, step)) = given.number("step_seconds").zip(steps.first()) {
        utilization(answer, step, measured, hardware)?;
    }
    rows(answer, &steps, fits);
    words(answer, &model, &steps, fits, context);
    Ok(())
}

fn explain(answer: &mut Answer, model: &Decoder) {
    answer.formula = vec![
        Formula { name: "weight_bytes", text: "parameters × bytes of a parameter" },
        Formula {
            name: "kv_bytes_per_token",
            text: "layers × KV heads × head width × 2 × bytes of a number",
        },
        Formula {
            name: "memory_seconds",
            text: "(weights + batch × context × KV bytes of a token) / bandwidth",
        },
        Formula { name: "compute_seconds", text: "batch × 2 × active parameters / peak" },
        Formula { name: "step_seconds", text: "the longer of memory_seconds and compute_seconds" },
        Formula {
            name: "batch_max",
            text: "(memory - weights) / (context × KV bytes of a token), rounded down",
        },
        Formula { name: "ridge_flops_per_byte", text: "peak / bandwidth" },
        Formula { name: "mbu_ratio", text: "bytes that a step reads / (measured seconds × bandwidth)" },
    ];
    answer.assume("bandwidth is ideal and kernels start at no cost: real kernels reach a part of it, and real steps are longer");
    answer.assume("the operations of attention are left out");
    answer.assume("every step reads all weights once, and the keys and values of every sequence");
    if model.active_parameters < model.parameters {
        answer.assume("of a mixture of experts, a step reads what its tokens pass as if no two chose the same expert, and at most all");
    }
}

fn hardware(given: &Given, answer: &mut Answer, gpus: f64) -> Result<Hardware, CalcError> {
    let wrong = |field: &'static str, why: String| {
        CalcError::new(why).of(field).hint("`--peak` and `--bandwidth` take figures")
    };
    let flops = match peak::flops(given, answer)? {
        Ok(peak) => peak.flops,
        Err(why) => return Err(wrong(if given.has("gpu") { "gpu" } else { "peak" }, why)),
    };
    let bandwidth = match (given.number("bandwidth"), peak::device(given)) {
        (Some(bandwidth), _) => bandwidth,
        (None, Some(Ok(gpu))) => {
            let text = format!(
                "memory moves {} TB/s at most, as the data sheet of {} says",
                gpu.memory_tb_per_second, gpu.id
            );
            answer.assume_by(text, gpu.source.title, gpu.source.url);
            gpu.memory_bytes_per_second()
        }
        (None, Some(Err(why))) => return Err(wrong("gpu", why)),
        (None, None) => {
            return Err(missing("bandwidth").hint("give it in bytes per second, or `--gpu` by name"));
        }
    };
    if gpus > 1.0 {
        answer.assume(format!("{gpus} GPUs share the work evenly, and talking to each other costs nothing"));
    }
    Ok(Hardware { flops: flops * gpus, bytes_per_second: bandwidth * gpus })
}

fn memory(given: &Given, answer: &mut Answer, gpus: f64) -> Option<f64> {
    let share = given.number("memory_share").unwrap_or(1.0);
    answer.stand_in("memory_share", share);
    let bytes = match (given.number("memory_bytes"), peak::device(given)) {
        (Some(bytes), _) => bytes,
        (None, Some(Ok(gpu))) => {
            answer.assume(format!(
                "memory is {} GB, of 10^9 bytes each; `--memory-bytes` takes another figure",
                gpu.memory_gb
            ));
            gpu.memory_gb * GB
        }
        _ => return None,
    };
    answer.assume(format!(
        "{} of memory holds weights, keys and values; nothing else is in it",
        percent(share, 0)
    ));
    Some(bytes * gpus * share)
}

fn utilization(answer: &mut Answer, step: &Step, measured: f64, hardware: Hardware) -> Result<(), CalcError> {
    let ratio = step.bandwidth_utilization(measured, hardware);
    if ratio > 1.0 {
        let text = format!(
            "a step of {measured} s would move {}: more than the bandwidth, so one of the numbers is of something else",
            percent(ratio, 1)
        );
        return Err(CalcError::new(text)
            .of("step_seconds")
            .impossible()
            .hint("check the batch, the context and the GPU"));
    }
    answer.put("mbu_ratio", ratio);
    answer.put("measured_step_seconds", measured);
    Ok(())
}

fn rows(answer: &mut Answer, steps: &[Step], fits: Option<f64>) {
    let column = |key, title, unit| AnswerColumn { key, title, unit };
    answer.columns = vec![
        column("batch", "batch", "sequences"),
        column("step_seconds", "step", "s"),
        column("tokens_per_second", "tokens/s", "tokens/s"),
        column("gpu_busy_ratio", "'GPU util'", "ratio"),
        column("tensor_busy_ratio", "tensor busy", "ratio"),
        column("memory_busy_ratio", "memory busy", "ratio"),
        column("kv_bytes", "KV cache", "bytes"),
        column("fits", "fits", ""),
        column("bound_by", "bound by", ""),
    ];
    for step in steps {
        answer.rows.push(row([
            ("batch", step.batch.into()),
            ("step_seconds", step.seconds.into()),
            ("tokens_per_second", step.tokens_per_second().into()),
            ("gpu_busy_ratio", 1.0.into()),
            ("tensor_busy_ratio", step.tensor_busy().into()),
            ("memory_busy_ratio", step.memory_busy().into()),
            ("kv_bytes", step.kv_bytes.into()),
            ("fits", fits.map_or(Value::Null, |most| (step.batch <= most).into())),
            (
                "bound_by",
                if step.memory_seconds >= step.compute_seconds { "memory" } else { "compute" }.into(),
            ),
        ]));
    }
}

fn words(answer: &mut Answer, model: &Decoder, steps: &[Step], fits: Option<f64>, context: f64) {
    let heads = ["batch", "step ms", "tokens/s", "'GPU util'", "tensor busy", "memory busy"];
    let cells = |step: &Step| {
        let name = if fits.is_some_and(|most| step.batch > most) { "*" } else { "" };
        vec![
            format!("{}{name}", grouped(step.batch, 0)),
            format!("{:.2}", step.seconds * 1e3),
            grouped(step.tokens_per_second(), 0),
            "100 %".to_owned(),
            percent(step.tensor_busy(), 1),
            percent(step.memory_busy(), 1),
        ]
    };
    let rows: Vec<Vec<String>> = steps.iter().map(cells).collect();
    for line in laid_out(&heads, &rows) {
        answer.line(line);
    }
    let weights = model.weight_bytes() / GB;
    let last = steps.last().map_or_else(String::new, |step| {
        format!(
            "; at batch {} the KV reads are {:.0} GB per step vs {weights:.0} GB of weights",
            grouped(step.batch, 0),
            step.kv_bytes / GB
        )
    });
    answer.line(format!(
        "  KV cache per token: {} KiB{last}",
        grouped(model.kv_bytes_per_token() / 1_024.0, 0)
    ));
    if let Some(most) = fits {
        let star = if steps.iter().any(|step| step.batch > most) { "; * does not fit" } else { "" };
        let text = format!(
            "  at {} tokens of context the KV cache fits up to batch {}{star}",
            grouped(context, 0),
            grouped(most, 0)
        );
        answer.line(text);
    }
    if let Some(ratio) = answer.figure("mbu_ratio") {
        answer.line(format!("  the measured step uses {} of the memory bandwidth (MBU)", percent(ratio, 1)));
    }
}
