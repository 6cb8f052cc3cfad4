//! How much of its GPUs' peak a model makes use of.

use insight::mfu::{Attention, FlopsModel, Model, Recompute, utilization};

use super::answer::{Answer, AnswerColumn, Formula, grouped, percent, row};
use super::input::{Given, Input, Kind, NOT_NEGATIVE, POSITIVE, SHARE, input, missing, number};
use super::peak::{self, DTYPE, GPU, PEAK, Peak};
use super::ranks::{self, COLLECTIVE, RANKS, SLOW_RANK, SLOW_SPEED};
use super::{CalcError, Tool};

const INPUTS: &[Input] = &[
    RANKS,
    number("params", POSITIVE, "N", "Parameters; of a mixture of experts all of them, with --active-params"),
    number("active_params", POSITIVE, "N", "Parameters that a token passes, of a mixture of experts"),
    input(
        "moe",
        Kind::Switch,
        "",
        "The model is a mixture of experts, so that its active parameters are needed",
    ),
    number("tokens_per_second", NOT_NEGATIVE, "N", "Tokens of all GPUs together"),
    number(
        "tokens_per_step",
        POSITIVE,
        "N",
        "Tokens of a step, with --step-seconds instead of tokens per second",
    ),
    input(
        "step_seconds",
        Kind::Numbers(POSITIVE),
        "SECONDS",
        "Seconds of a step; several for a comparison with the first",
    ),
    COLLECTIVE,
    SLOW_RANK,
    SLOW_SPEED,
    number("gpus", POSITIVE, "N", "How many GPUs"),
    PEAK,
    GPU,
    DTYPE,
    number(
        "achievable",
        POSITIVE,
        "FLOPS",
        "What large matrix products reach on one GPU, for a second figure",
    ),
    number(
        "clock_ratio",
        SHARE,
        "RATIO",
        "The highest clock that boards are allowed, over the data sheet's, for a second figure by the capped peak",
    ),
    number("layers", POSITIVE, "N", "Layers; with width and sequence length, attention is counted too"),
    number("hidden_size", POSITIVE, "N", "Width of the model: heads times the width of a head"),
    number("heads", POSITIVE, "N", "Attention heads, with --head-dim instead of the width of the model"),
    number("head_dim", POSITIVE, "N", "Width of a head"),
    number("seq_len", POSITIVE, "N", "Tokens of a sequence"),
    input(
        "flops_model",
        Kind::Word(&["6N", "6N+attn", "6N+attn_causal", "2N", "2N+attn"]),
        "MODEL",
        "How operations are counted: 6N, 6N+attn, 6N+attn_causal, or 2N and 2N+attn of inference [default: 6N, 6N+attn where attention is known]",
    ),
    input(
        "recompute",
        Kind::Word(&["none", "selective", "full"]),
        "WHAT",
        "What is computed again on the way back, for HFU: none, selective or full",
    ),
];

pub(super) const TOOL: Tool = Tool {
    name: "mfu",
    about: "Reckon model FLOPs utilization: what a model needs, over what its GPUs could do at most",
    inputs: INPUTS,
    needs: &[
        &[&["params"], &["active_params"]],
        &[&["tokens_per_second"], &["tokens_per_step", "step_seconds"], &["tokens_per_step", "ranks"]],
        &[&["gpus"]],
    ],
    main: &["mfu_ratio"],
    examples: &[
        "truegauge calc mfu --params 70e9 --tokens-per-second 782446 --gpus 1024 --peak 989e12",
        "truegauge calc mfu --params 70e9 --tokens-per-step 4194304 --step-seconds 5.36,6.34 --gpus 1024 --gpu h100-sxm --explain",
        "truegauge calc mfu --params 671e9 --active-params 37e9 --tokens-per-second 2e6 --gpus 2048 --gpu h100-sxm --json",
    ],
    reckon,
};

fn reckon(given: &Given, answer: &mut Answer) -> Result<(), CalcError> {
    let gpus = given.needed("gpus")?;
    let rates = rates(given, answer)?;
    let attention = attention(given)?;
    let flops_model = flops_model(given, attention, answer)?;
    explain(answer, flops_model);
    let peak = peak::flops(given, answer)?;
    let (tokens, _) = rates[0];
    let tokens_max = rates.iter().map(|(tokens, _)| *tokens).fold(0.0, f64::max);
    answer.put("tokens_per_second", tokens);
    answer.put("flops_model", flops_model.name());
    let Some(parameters) = parameters(given, answer)? else {
        words(answer, &rates, gpus);
        return Ok(());
    };
    let model = Model { parameters, attention };
    let no_attention =
        || CalcError::new("attention is counted, and its sizes are not given").of("flops_model");
    let per_token = model.flops(flops_model).ok_or_else(no_attention)?;
    answer.put("flops_per_token", per_token);
    answer.put("flops_per_second_per_gpu", per_token * tokens / gpus);
    match peak {
        Ok(peak) => ratios(given, answer, Job { model, flops_model, tokens, tokens_max, gpus }, peak)?,
        Err(why) => {
            answer.lacks("mfu_ratio", why.clone());
            answer.lacks("peak_flops", why);
        }
    }
    rows(answer, &rates, per_token / gpus);
    words(answer, &rates, gpus);
    Ok(())
}

/// Tokens per second, and seconds of the step that they are from.
fn rates(given: &Given, answer: &mut Answer) -> Result<Vec<(f64, Option<f64>)>, CalcError> {
    let of_ranks = ranks::step_seconds(given, answer)?;
    let typed = given.numbers("step_seconds");
    if of_ranks.is_some() && typed.is_some() {
        return Err(CalcError::new("`step_seconds` and a file of `ranks` were both given")
            .of("step_seconds")
            .hint("leave one of the two away"));
    }
    let steps = of_ranks.as_deref().or(typed);
    match (given.number("tokens_per_second"), given.number("tokens_per_step"), steps) {
        (Some(tokens), None, None) => Ok(vec![(tokens, None)]),
        (None, Some(tokens), Some(steps)) => {
            Ok(steps.iter().map(|seconds| (tokens / seconds, Some(*seconds))).collect())
        }
        (None, Some(_), None) => Err(missing("step_seconds")),
        (None, None, Some(_)) => Err(missing("tokens_per_step")),
        (None, None, None) => {
            Err(missing("tokens_per_second").hint("or `--tokens-per-step` and `--step-seconds`"))
        }
        (Some(_), _, _) => Err(CalcError::new("`tokens_per_second` and tokens of steps were both given")
            .of("tokens_per_second")
            .hint("leave one of the two away")),
    }
}

fn attention(given: &Given) -> Result<Option<Attention>, CalcError> {
    let heads = given.number("heads").zip(given.number("head_dim")).map(|(heads, width)| heads * width);
    let hidden_size = given.number("hidden_size").or(heads);
    match (given.number("layers"), hidden_size, given.number("seq_len")) {
        (Some(layers), Some(hidden_size), Some(sequence_length)) => {
            Ok(Some(Attention { layers, hidden_size, sequence_length }))
        }
        (None, None, None) => Ok(None),
        (layers, hidden_size, _) => {
            let name = match (layers, hidden_size) {
                (None, _) => "layers",
                (_, None) => "hidden_size",
                _ => "seq_len",
            };
            Err(missing(name).hint("attention needs layers, width and sequence length together"))
        }
    }
}

fn flops_model(
    given: &Given,
    attention: Option<Attention>,
    answer: &mut Answer,
) -> Result<FlopsModel, CalcError> {
    let said = given.text("flops_model").and_then(FlopsModel::named);
    let model =
        said.unwrap_or(if attention.is_some() { FlopsModel::SixNAttention } else { FlopsModel::SixN });
    if model.needs_attention() && attention.is_none() {
        let text = format!("`{}` counts attention, and its sizes are not given", model.name());
        let hint = "give `--layers`, `--hidden-size` and `--seq-len`";
        return Err(CalcError::new(text).of("flops_model").hint(hint));
    }
    if !model.needs_attention() {
        answer.assume("the operations of attention are left out, a few per cent at short sequences");
    }
    answer.stand_in("flops_model", model.name());
    Ok(model)
}

/// What a token passes; none, told with its reason, where only the sum of a mixture is known.
fn parameters(given: &Given, answer: &mut Answer) -> Result<Option<f64>, CalcError> {
    match (given.number("params"), given.number("active_params")) {
        (Some(all), Some(active)) if active > all => {
            let text = format!("`active_params` is {active}, more than the {all} of `params`");
            Err(CalcError::new(text).of("active_params"))
        }
        (_, Some(active)) => {
            answer.assume("of a mixture of experts the parameters count that a token passes");
            Ok(Some(active))
        }
        (Some(_), None) if given.is_on("moe") => {
            let reason = "of a mixture of experts a token passes a part, and only the sum of parameters was given: `--active-params`";
            for name in ["mfu_ratio", "flops_per_token", "flops_per_second_per_gpu"] {
                answer.lacks(name, reason);
            }
            Ok(None)
        }
        (Some(all), None) => {
            answer.assume("every token passes all parameters: the model is no mixture of experts");
            Ok(Some(all))
        }
        (None, None) => Err(missing("params")),
    }
}

fn explain(answer: &mut Answer, flops_model: FlopsModel) {
    answer.formula = vec![
        Formula {
            name: "flops_per_token",
            text: match flops_model {
                FlopsModel::SixN => "6 × parameters",
                FlopsModel::SixNAttention => "6 × parameters + 12 × layers × width × sequence length",
                FlopsModel::SixNAttentionCausal => "6 × parameters + 6 × layers × width × sequence length",
                FlopsModel::TwoN => "2 × parameters",
                FlopsModel::TwoNAttention => "2 × parameters + 4 × layers × width × sequence length",
            },
        },
        Formula { name: "mfu_ratio", text: "FLOPs of a token × tokens per second / (GPUs × peak of one)" },
        Formula {
            name: "hfu_ratio",
            text: "the same with what is computed again: a third more where all is",
        },
    ];
    answer.assume_by(
        "a parameter costs two operations on the way forward and four on the way back",
        "Kaplan et al. 2020, Chowdhery et al. 2022 (PaLM), appendix B",
        "https://arxiv.org/abs/2204.02311",
    );
}

#[derive(Debug, Clone, Copy)]
struct Job {
    model: Model,
    flops_model: FlopsModel,
    tokens: f64,
    /// Of the fastest step that was given.
    tokens_max: f64,
    gpus: f64,
}

fn ratios(given: &Given, answer: &mut Answer, job: Job, peak: Peak) -> Result<(), CalcError> {
    let ratio = |per_token: f64, peak: f64| utilization(per_token * job.tokens, job.gpus, peak).ok();
    let per_token = answer.figure("flops_per_token").unwrap_or_default();
    answer.put("peak_flops", peak.flops);
    let mfu = ratio(per_token, peak.flops);
    let most = utilization(per_token * job.tokens_max, job.gpus, peak.flops).ok();
    if let Some(mfu) = most.filter(|mfu| *mfu > 1.0) {
        let text = format!(
            "MFU would be {}: more than the peak, so one of the numbers is of something else",
            percent(mfu, 2)
        );
        let hint = "check the format (FP8 has twice the peak of BF16), the number of GPUs, that parameters are active ones, and that tokens are per second";
        let field = if given.has("peak") { "peak" } else { "gpu" };
        return Err(CalcError::new(text).of(field).hint(hint).impossible());
    }
    answer.put_or("mfu_ratio", mfu, "the numbers give none");
    let hardware = |recompute| job.model.hardware_flops(job.flops_model, recompute);
    let none = "in inference nothing is computed again";
    let full = hardware(Recompute::Full).and_then(|per_token| ratio(per_token, peak.flops));
    answer.put_or(
        "hfu_full_recompute_ratio",
        full.filter(|hfu| *hfu <= 1.0),
        if full.is_some() { "it would be more than the peak: not all is computed again" } else { none },
    );
    let said = given.text("recompute");
    let said = said.and_then(|word| Recompute::ALL.into_iter().find(|recompute| recompute.name() == word));
    if let Some(recompute) = said {
        let per_token = hardware(recompute);
        let why = if job.flops_model.is_training() {
            "what attention costs is not counted: give its sizes"
        } else {
            none
        };
        let hfu = per_token.and_then(|per_token| ratio(per_token, peak.flops));
        if let Some(hfu) = hfu.filter(|hfu| *hfu > 1.0) {
            let text = format!(
                "HFU would be {}: the hardware can't do more than its peak, so one of the numbers is of something else",
                percent(hfu, 2)
            );
            let hint = "check `--recompute`, the number of GPUs, the peak, and that tokens are per second";
            return Err(CalcError::new(text).of("recompute").hint(hint).impossible());
        }
        answer.put_or("hfu_ratio", hfu, why);
    }
    let achievable = given.number("achievable").or(peak.achievable);
    let why = "nobody measured what large matrix products reach on it: `--achievable`";
    answer.put_or("mfu_of_achievable_ratio", achievable.and_then(|peak| ratio(per_token, peak)), why);
    if let Some(flops) = achievable {
        answer.put("achievable_flops", flops);
    }
    if let Some(clock) = given.number("clock_ratio") {
        let capped = ratio(per_token, peak.flops * clock);
        if let Some(mfu) = capped.filter(|mfu| *mfu > 1.0) {
            let text = format!(
                "MFU of the peak at {} of the clock would be {}: the clock was higher than that",
                percent(clock, 1),
                percent(mfu, 2)
            );
            let hint = "`--clock-ratio` is the mean clock of the same time over the boost clock";
            return Err(CalcError::new(text).of("clock_ratio").hint(hint).impossible());
        }
        answer.put("capped_peak_flops", peak.flops * clock);
        answer.put_or("mfu_of_capped_ratio", capped, "the numbers give none");
        answer.assume(format!(
            "the capped peak is the peak times the clock that is allowed, {}",
            percent(clock, 1)
        ));
    }
    Ok(())
}

fn rows(answer: &mut Answer, rates: &[(f64, Option<f64>)], flops_per_gpu: f64) {
    let column = |key, title, unit| AnswerColumn { key, title, unit };
    answer.columns = vec![
        column("step_seconds", "step", "s"),
        column("tokens_per_second", "tokens/s", "tokens/s"),
        column("mfu_ratio", "MFU", "ratio"),
        column("loss_ratio", "less than the first", "ratio"),
    ];
    let peak = answer.figure("peak_flops");
    for (tokens, seconds) in rates {
        answer.rows.push(row([
            ("step_seconds", (*seconds).into()),
            ("tokens_per_second", (*tokens).into()),
            ("mfu_ratio", peak.map(|peak| tokens * flops_per_gpu / peak).into()),
            ("loss_ratio", (rates[0].0 > 0.0).then(|| 1.0 - tokens / rates[0].0).into()),
        ]));
    }
}

fn words(answer: &mut Answer, rates: &[(f64, Option<f64>)], gpus: f64) {
    let mut lines = Vec::new();
    for (at, (tokens, seconds)) in rates.iter().enumerate() {
        let step = seconds.map(|seconds| format!("step {seconds:5.2} s   ")).unwrap_or_default();
        let mfu = answer.rows.get(at).and_then(|row| row.get("mfu_ratio")?.as_f64());
        let mfu = mfu.map_or_else(|| "unknown".to_owned(), |mfu| percent(mfu, 1));
        lines.push(format!("  {step}{:>9} tokens/s   MFU {mfu}", grouped(*tokens, 0)));
    }
    let figure = |name: &str| answer.figure(name);
    if let Some(flops) = figure("flops_per_second_per_gpu") {
        let of = figure("peak_flops").map(|peak| format!(" of {}", grouped(peak / 1e12, 1)));
        lines.push(format!(
            "  each of {} GPUs {}{} TFLOP/s, {} GFLOP a token",
            grouped(gpus, 0),
            grouped(flops / 1e12, 1),
            of.unwrap_or_default(),
            grouped(figure("flops_per_token").unwrap_or_default() / 1e9, 1)
        ));
    }
    lines.extend(ranks::words(answer));
    for (name, what) in [
        ("hfu_ratio", "HFU, with what is computed again"),
        ("mfu_of_achievable_ratio", "of what large matrix products reach"),
        ("mfu_of_capped_ratio", "of the peak at the clock that is allowed"),
    ] {
        if let Some(ratio) = figure(name) {
            lines.push(format!("  {:>6}  {what}", percent(ratio, 1)));
        }
    }
    for line in lines {
        answer.line(line);
    }
}
