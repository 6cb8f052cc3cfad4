//! A fleet sized for its peak.

use insight::capacity::Load;
use insight::economics::usd_per_mtok;

use super::answer::{Answer, AnswerColumn, Formula, grouped, percent, row};
use super::input::{FROM_ONE, Given, Input, NOT_NEGATIVE, PART, POSITIVE, file, missing, needed, number};
use super::{CalcError, Column, Tool};

const HOURS_PER_DAY: f64 = 24.0;

const COLUMNS: &[Column] = &[needed("t"), needed("load")];

const INPUTS: &[Input] = &[
    file("samples", COLUMNS, "Load over time: CSV with the columns t (seconds), load; or JSON; `-` is stdin"),
    number("peak", POSITIVE, "N", "The most that is asked of the fleet, such as tokens per second"),
    number("average", POSITIVE, "N", "What is asked of it on average, in the same unit"),
    number("peak_to_average", FROM_ONE, "RATIO", "Peak over average, where only that is known"),
    number(
        "per_gpu",
        POSITIVE,
        "N",
        "What one GPU serves within its objectives, in the same unit: its goodput, not its throughput",
    ),
    number("headroom", PART, "RATIO", "Share of each GPU that is kept back [default: 0]"),
    number("gpus", POSITIVE, "N", "GPUs that there are [default: those that the peak needs]"),
    number("price", NOT_NEGATIVE, "USD", "US dollars for one GPU for an hour"),
];

pub(super) const TOOL: Tool = Tool {
    name: "capacity",
    about: "Reckon what a fleet sized for its peak leaves idle, and what batch work would win",
    inputs: INPUTS,
    needs: &[&[&["peak", "average"], &["peak_to_average"], &["samples"]]],
    main: &[],
    examples: &[
        "truegauge calc capacity --peak-to-average 3",
        "truegauge calc capacity load.csv --per-gpu 2400 --headroom 0.2 --price 2.50 --json",
    ],
    reckon,
};

fn reckon(given: &Given, answer: &mut Answer) -> Result<(), CalcError> {
    explain(answer);
    let (load, has_unit) = load(given)?;
    if has_unit {
        answer.put("peak", load.peak);
        answer.put("average", load.average);
        answer.put("batch_per_second", load.idle());
    }
    answer.put("peak_to_average_ratio", load.peak / load.average);
    answer.put("average_over_peak_ratio", load.average_over_peak());
    answer.put("batch_saving_ratio", load.saving_ratio());
    let headroom = given.number("headroom").unwrap_or(0.0);
    answer.stand_in("headroom", headroom);
    let needed = given.number("per_gpu").filter(|_| has_unit);
    let needed = needed.and_then(|per_gpu| load.gpus_for_peak(per_gpu, headroom));
    answer.put_or(
        "gpus_for_peak",
        needed,
        "what one GPU serves, or the load in the same unit, is not known: `--per-gpu`, `--peak`",
    );
    if let Some((needed, have)) = needed.zip(given.number("gpus")).filter(|(needed, have)| needed > have) {
        let text =
            format!("the peak needs {needed} GPUs, and there are {have}: objectives are missed at the peak");
        answer.warnings.push(text);
    }
    money(given, answer, load, given.number("gpus").or(needed), has_unit);
    words(answer);
    Ok(())
}

fn explain(answer: &mut Answer) {
    answer.formula = vec![
        Formula { name: "average_over_peak_ratio", text: "average / peak" },
        Formula { name: "gpus_for_peak", text: "peak / (what one GPU serves × (1 - headroom)), rounded up" },
        Formula { name: "batch_per_second", text: "peak - average" },
        Formula { name: "batch_saving_ratio", text: "1 - average / peak" },
    ];
    answer.assume("the fleet does not shrink in its troughs, and batch work would fill all of them");
    answer.assume("batch work costs as much of a GPU as what is served");
}

fn load(given: &Given) -> Result<(Load, bool), CalcError> {
    if let Some(table) = given.table("samples") {
        let points: Vec<(f64, f64)> = table.all("t").into_iter().zip(table.all("load")).collect();
        if let Some(at) = points.windows(2).position(|pair| pair[1].0 <= pair[0].0) {
            let text = format!("`samples`: row {} is not after the one before", at + 2);
            return Err(CalcError::new(text).of("samples"));
        }
        if let Some(at) = points.iter().position(|(_, load)| *load < 0.0) {
            return Err(
                CalcError::new(format!("`samples`: the load of row {} is below 0", at + 1)).of("samples")
            );
        }
        let load = Load::of_points(&points).filter(|load| load.average > 0.0);
        let none = || CalcError::new("`samples`: two rows or more, and some load, are needed").of("samples");
        return Ok((load.ok_or_else(none)?, true));
    }
    match (given.number("peak"), given.number("average"), given.number("peak_to_average")) {
        (Some(peak), Some(average), None) if average > peak => {
            let text = format!("`average` is {average}, more than the {peak} of `peak`");
            Err(CalcError::new(text).of("average"))
        }
        (Some(peak), Some(average), None) => Ok((Load { peak, average }, true)),
        (Some(peak), None, Some(ratio)) => Ok((Load { peak, average: peak / ratio }, true)),
        (None, Some(average), Some(ratio)) => Ok((Load { peak: average * ratio, average }, true)),
        (None, None, Some(ratio)) => Ok((Load { peak: ratio, average: 1.0 }, false)),
        (Some(_), Some(_), Some(_)) => {
            Err(CalcError::new("`peak`, `average` and their ratio were all given")
                .of("peak_to_average")
                .hint("leave one of them away"))
        }
        _ => Err(missing("peak").hint("give `--peak` and `--average`, `--peak-to-average`, or a file")),
    }
}

fn money(given: &Given, answer: &mut Answer, load: Load, gpus: Option<f64>, has_unit: bool) {
    let Some(gpus) = gpus else { return };
    let idle = gpus * load.saving_ratio();
    answer.put("idle_gpu_hours_per_day", idle * HOURS_PER_DAY);
    let Some(price) = given.number("price") else {
        answer.lacks("usd_per_day", "no price was given: `--price`, US dollars for a GPU for an hour");
        return;
    };
    answer.put("usd_per_day", gpus * price * HOURS_PER_DAY);
    answer.put("idle_usd_per_day", idle * price * HOURS_PER_DAY);
    if !has_unit {
        return;
    }
    answer.assume("costs for a million are of the load's unit: tokens where it is tokens per second");
    answer.columns = vec![
        AnswerColumn { key: "case", title: "load", unit: "" },
        AnswerColumn { key: "per_second", title: "per second", unit: "1/s" },
        AnswerColumn { key: "usd_per_million", title: "$ per million", unit: "USD" },
    ];
    for (case, per_second) in [("average", load.average), ("with batch work", load.peak)] {
        let usd = usd_per_mtok(gpus * price, per_second);
        answer.rows.push(row([
            ("case", case.into()),
            ("per_second", per_second.into()),
            ("usd_per_million", usd.into()),
        ]));
    }
}

fn words(answer: &mut Answer) {
    let figure = |name: &str| answer.figure(name);
    let mut lines = Vec::new();
    if let Some(share) = figure("average_over_peak_ratio") {
        lines.push(format!("  {share:.3} of what is there for the peak is used on average; batch work would make a token {} cheaper", percent(1.0 - share, 1)));
    }
    if let Some((peak, average)) = figure("peak").zip(figure("average")) {
        lines.push(format!("  peak {} per second, average {}", grouped(peak, 1), grouped(average, 1)));
    }
    if let Some(gpus) = figure("gpus_for_peak") {
        lines.push(format!("  the peak needs {} GPUs", grouped(gpus, 0)));
    }
    if let Some(hours) = figure("idle_gpu_hours_per_day") {
        let usd = figure("idle_usd_per_day").map(|usd| format!(", ${}", grouped(usd, 2)));
        lines.push(format!("  idle {} GPU-hours a day{}", grouped(hours, 1), usd.unwrap_or_default()));
    }
    for row in &answer.rows {
        let number = |key: &str| row.get(key).and_then(serde_json::Value::as_f64).unwrap_or_default();
        let case = row.get("case").and_then(serde_json::Value::as_str).unwrap_or_default();
        lines.push(format!("  $ per million, {case}: ${:.2}", number("usd_per_million")));
    }
    for line in lines {
        answer.line(line);
    }
}
