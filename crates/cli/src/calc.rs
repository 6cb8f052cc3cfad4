//! `truegauge calc`: figures reckoned from figures, by the same functions as the server's.

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use insight::mfu::{Attention, Model, utilization};
use semconv::peaks::{self, Dtype, NoPeak};
use serde_json::{Value, json};

use crate::args::{Done, json_flag};
use crate::output::{Failure, print_json, print_line};

fn number(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).value_parser(clap::value_parser!(f64)).help(help)
}

pub(crate) fn command() -> Command {
    let mfu = Command::new("mfu")
        .about("Reckon model FLOPs utilization: what a model needs, over what its GPUs could do at most")
        .arg(number("params", "N", "Parameters that a token passes; of a mixture of experts the active ones").required(true))
        .arg(number("tokens-per-second", "N", "Tokens of all GPUs together").required(true))
        .arg(number("gpus", "N", "How many GPUs").required(true))
        .arg(number("peak", "FLOPS", "Dense peak of one GPU, FLOP/s, such as 989e12").conflicts_with("gpu").required_unless_present("gpu"))
        .arg(Arg::new("gpu").long("gpu").value_name("NAME").help("GPU whose peak is known, such as `h100-sxm` or its driver's name for it"))
        .arg(Arg::new("dtype").long("dtype").value_name("FORMAT").default_value("bf16").help("Number format of the computation: bf16, fp16, fp8, fp4, tf32 or fp32"))
        .arg(number("layers", "N", "Layers; with width and sequence length, attention is counted too").requires_all(["hidden-size", "seq-len"]))
        .arg(number("hidden-size", "N", "Width of the model: heads times the width of a head").requires_all(["layers", "seq-len"]))
        .arg(number("seq-len", "N", "Tokens of a sequence").requires_all(["layers", "hidden-size"]))
        .arg(json_flag())
        .after_help("Examples:\n  truegauge calc mfu --params 70e9 --tokens-per-second 782446 --gpus 1024 --peak 989e12\n  truegauge calc mfu --params 8e9 --tokens-per-second 90000 --gpus 8 --gpu h100-sxm --dtype fp8 --json");
    Command::new("calc")
        .about("Reckon figures from figures that you have")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Examples:\n  truegauge calc mfu --params 70e9 --tokens-per-second 782446 --gpus 1024 --peak 989e12\n  truegauge calc mfu --help")
        .subcommand(mfu)
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    match matches.subcommand() {
        Some(("mfu", matches)) => mfu(matches),
        _ => Err(Failure::new("no figure was asked for").hint("`truegauge calc --help` lists them")),
    }
}

fn mfu(matches: &ArgMatches) -> Done {
    let given = |name: &str| matches.get_one::<f64>(name).copied();
    let needed = |name: &str| given(name).unwrap_or(f64::NAN);
    let attention = match (given("layers"), given("hidden-size"), given("seq-len")) {
        (Some(layers), Some(hidden_size), Some(sequence_length)) => {
            Some(Attention { layers, hidden_size, sequence_length })
        }
        _ => None,
    };
    let (peak, source) = match matches.get_one::<String>("gpu") {
        Some(gpu) => peak_of(gpu, matches.get_one::<String>("dtype").map_or("bf16", String::as_str))?,
        None => (needed("peak"), Value::Null),
    };
    let model = Model { parameters: needed("params"), attention };
    let (tokens, gpus) = (needed("tokens-per-second"), needed("gpus"));
    let flops = model.flops_per_token() * tokens;
    let unusable = |_why| {
        Failure::new("the numbers give no utilization")
            .hint("all of them are above 0; tokens per second may be 0")
    };
    let ratio = utilization(flops, gpus, peak).map_err(unusable)?;
    if matches.get_flag("json") {
        print_json(&json!({
            "mfu_ratio": ratio,
            "hfu_full_recompute_ratio": ratio * 4.0 / 3.0,
            "flops_per_token": model.flops_per_token(),
            "flops_per_second_per_gpu": flops / gpus,
            "peak_flops": peak,
            "peak": source,
        }))?;
    } else {
        print_line(&format!("MFU        {:.1} %", ratio * 100.0))?;
        print_line(&format!("per GPU    {:.1} of {:.1} TFLOP/s", flops / gpus / 1e12, peak / 1e12))?;
        print_line(&format!("per token  {:.1} GFLOP", model.flops_per_token() / 1e9))?;
        if let Some(title) = source["source"].as_str() {
            print_line(&format!("peak       {title}, {}", peaks::AS_OF))?;
        }
    }
    if ratio > 1.0 {
        return Err(Failure::new("more than the peak: one of the numbers is of something else")
            .hint("check the format (FP8 has twice the peak of BF16), the number of GPUs, and that tokens are per second")
            .code(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// The peak of a known GPU in a format, and where it is from.
fn peak_of(gpu: &str, dtype: &str) -> Result<(f64, Value), Failure> {
    let known = peaks::find(gpu).map_err(|why| match why {
        NoPeak::UnknownDevice => Failure::new(format!("the peak of the GPU `{gpu}` is not known"))
            .hint(format!("give it with `--peak`; known are {}", peaks::GPUS.map(|gpu| gpu.id).join(", "))),
        NoPeak::Slice => Failure::new(format!("`{gpu}` is a part of a GPU, and the peak is the whole one's"))
            .hint("give the part's own with `--peak`"),
    })?;
    let format = Dtype::named(dtype).ok_or_else(|| {
        Failure::new(format!("`{dtype}` is no number format"))
            .hint(format!("use one of {}", Dtype::ALL.map(Dtype::name).join(", ")))
    })?;
    let flops = known.flops(format).ok_or_else(|| {
        Failure::new(format!("no peak of `{}` is known for {}", known.id, format.name()))
            .hint("give it with `--peak`")
    })?;
    let source = json!({
        "gpu": known.id, "dtype": format.name(), "dense": true,
        "source": known.source.title, "url": known.source.url, "as_of": peaks::AS_OF,
    });
    Ok((flops, source))
}
