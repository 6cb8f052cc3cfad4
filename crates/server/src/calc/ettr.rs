//! What interruptions cost a long training, and how often to write checkpoints.

use insight::ettr::{Interruptions, Lost, Plan, SECONDS_PER_DAY, checkpoint_interval_seconds};

use super::answer::{Answer, AnswerColumn, Formula, grouped, laid_out, percent, row};
use super::input::{Given, Input, NOT_NEGATIVE, POSITIVE, number};
use super::{CalcError, Tool};

const SECONDS_PER_HOUR: f64 = 3_600.0;
/// Nodes of eight GPUs are the most common ones.
const GPUS_PER_NODE: f64 = 8.0;
/// A restart that takes so much of today's, for the comparison.
const RESTARTS: [f64; 3] = [1.0, 0.5, 0.2];

const INPUTS: &[Input] = &[
    number("interruptions", NOT_NEGATIVE, "N", "Interruptions in the time that --days says"),
    number("days", POSITIVE, "DAYS", "Days that the interruptions are of [default: 1]"),
    number("mtbi_seconds", POSITIVE, "SECONDS", "Mean time between interruptions, instead of counting them"),
    number("gpus", POSITIVE, "N", "GPUs of the job"),
    number("gpus_per_node", POSITIVE, "N", "GPUs of a node [default: 8]"),
    number(
        "lost_seconds",
        NOT_NEGATIVE,
        "SECONDS",
        "Work since the last checkpoint that an interruption costs",
    ),
    number("detect_seconds", NOT_NEGATIVE, "SECONDS", "Until it is noticed, queued and placed again"),
    number("load_seconds", NOT_NEGATIVE, "SECONDS", "Until the checkpoint is loaded and steps go on"),
    number("checkpoint_seconds", POSITIVE, "SECONDS", "How long training stands still for a checkpoint"),
    number("interval_seconds", POSITIVE, "SECONDS", "From one checkpoint to the next [default: Young's]"),
    number(
        "restart_seconds",
        NOT_NEGATIVE,
        "SECONDS",
        "From an interruption until steps go on [default: detect and load]",
    ),
];

pub(super) const TOOL: Tool = Tool {
    name: "ettr",
    about: "Reckon effective training time, time between interruptions and the best checkpoint interval",
    inputs: INPUTS,
    needs: &[&[&["interruptions"], &["mtbi_seconds"]]],
    main: &["mtbi_seconds", "ettr_ratio", "young_interval_seconds", "ettr_planned_ratio"],
    examples: &[
        "truegauge calc ettr --interruptions 3 --lost-seconds 900 --detect-seconds 420 --load-seconds 180",
        "truegauge calc ettr --interruptions 419 --days 54 --gpus 16384 --checkpoint-seconds 30 --restart-seconds 600 --json",
    ],
    reckon,
};

fn reckon(given: &Given, answer: &mut Answer) -> Result<(), CalcError> {
    explain(answer);
    let days = given.number("days").unwrap_or(1.0);
    let wall_seconds = days * SECONDS_PER_DAY;
    let counted = given.number("interruptions").map(|count| Interruptions { count, wall_seconds });
    if counted.is_some() {
        answer.stand_in("days", days);
    }
    if counted.is_some() && given.has("mtbi_seconds") {
        let text = "`interruptions` and `mtbi_seconds` were both given";
        return Err(CalcError::new(text).of("mtbi_seconds").hint("leave one of the two away"));
    }
    let mtbi = given.number("mtbi_seconds").or_else(|| counted.and_then(Interruptions::mtbi_seconds));
    answer.put_or("mtbi_seconds", mtbi, "there was no interruption");
    fleet(given, counted, mtbi, answer);
    observed(given, counted, answer);
    plan(given, mtbi, answer);
    words(answer);
    Ok(())
}

fn explain(answer: &mut Answer) {
    answer.formula = vec![
        Formula { name: "mtbi_seconds", text: "wall time / interruptions" },
        Formula {
            name: "ettr_ratio", text: "1 - interruptions × (rolled back + detect + load) / wall time"
        },
        Formula { name: "young_interval_seconds", text: "√(2 × checkpoint seconds × MTBI)" },
        Formula {
            name: "ettr_planned_ratio",
            text: "1 - checkpoint / interval - (interval / 2 + restart) / MTBI",
        },
    ];
    answer.assume("work that is rolled back is not productive");
    answer.assume("every interruption costs the same");
}

fn fleet(given: &Given, counted: Option<Interruptions>, mtbi: Option<f64>, answer: &mut Answer) {
    let Some(gpus) = given.number("gpus") else { return };
    let per_node = given.number("gpus_per_node").unwrap_or(GPUS_PER_NODE);
    answer.stand_in("gpus_per_node", per_node);
    let nodes = gpus / per_node;
    let gpu_hours = mtbi.map(|seconds| seconds / SECONDS_PER_HOUR * gpus);
    answer.put_or("gpu_hours_per_interruption", gpu_hours, "there was no interruption");
    let counted = counted.or(mtbi.map(|wall_seconds| Interruptions { count: 1.0, wall_seconds }));
    let rate = counted.and_then(|counted| counted.per_thousand_node_days(nodes));
    answer.put_or("interruptions_per_1000_node_days", rate, "there are no node-days");
}

fn lost(given: &Given) -> Option<Lost> {
    let part = |name: &str| given.number(name);
    let all = [part("lost_seconds"), part("detect_seconds"), part("load_seconds")];
    all.iter().any(Option::is_some).then(|| Lost {
        rolled_back_seconds: all[0].unwrap_or(0.0),
        detect_seconds: all[1].unwrap_or(0.0),
        load_seconds: all[2].unwrap_or(0.0),
    })
}

fn observed(given: &Given, counted: Option<Interruptions>, answer: &mut Answer) {
    let Some(lost) = lost(given) else {
        let reason =
            "nobody says what an interruption costs: `--lost-seconds`, `--detect-seconds`, `--load-seconds`";
        answer.lacks("ettr_ratio", reason);
        return;
    };
    let mtbi = answer.figure("mtbi_seconds");
    let counted = counted.or(mtbi.map(|wall_seconds| Interruptions { count: 1.0, wall_seconds }));
    let ratio = counted.and_then(|counted| counted.ettr(lost));
    answer.put("lost_seconds_per_interruption", lost.seconds());
    answer.put_or("ettr_ratio", ratio, "interruptions cost more time than there is");
    if let Some((ratio, gpus)) = ratio.zip(given.number("gpus")) {
        answer.put("lost_gpu_hours_per_day", (1.0 - ratio) * 24.0 * gpus);
    }
}

fn plan(given: &Given, mtbi: Option<f64>, answer: &mut Answer) {
    let Some(checkpoint_seconds) = given.number("checkpoint_seconds") else {
        answer.lacks(
            "young_interval_seconds",
            "nobody says how long a checkpoint takes: `--checkpoint-seconds`",
        );
        return;
    };
    let young = mtbi.map(|mtbi| checkpoint_interval_seconds(checkpoint_seconds, mtbi));
    answer.put_or("young_interval_seconds", young, "there was no interruption");
    let Some((interval_seconds, mtbi_seconds)) = given.number("interval_seconds").or(young).zip(mtbi) else {
        return;
    };
    answer.stand_in("interval_seconds", interval_seconds);
    let restart = given
        .number("restart_seconds")
        .or_else(|| lost(given).map(|lost| lost.detect_seconds + lost.load_seconds));
    let Some(restart) = restart else {
        answer.lacks("ettr_planned_ratio", "nobody says how long a restart takes: `--restart-seconds`");
        return;
    };
    answer.stand_in("restart_seconds", restart);
    answer.assume("the planned figure is of the first order: it holds where the interval is short beside the time between interruptions");
    let plan = |restart_seconds| Plan { checkpoint_seconds, interval_seconds, restart_seconds, mtbi_seconds };
    let reason = "the job is interrupted before it gets anywhere: the estimate ends there";
    answer.put_or("ettr_planned_ratio", plan(restart).ettr(), reason);
    answer.columns = vec![
        AnswerColumn { key: "restart_seconds", title: "restart", unit: "s" },
        AnswerColumn { key: "ettr_planned_ratio", title: "ETTR", unit: "ratio" },
    ];
    for part in RESTARTS {
        let seconds = restart * part;
        answer.rows.push(row([
            ("restart_seconds", seconds.into()),
            ("ettr_planned_ratio", plan(seconds).ettr().into()),
        ]));
    }
}

fn words(answer: &mut Answer) {
    let figure = |name: &str| answer.figure(name);
    let mut lines = Vec::new();
    if let Some(seconds) = figure("mtbi_seconds") {
        let fleet = figure("gpu_hours_per_interruption").map(|hours| {
            let rate = figure("interruptions_per_1000_node_days").unwrap_or_default();
            format!("   every {} GPU-hours   {rate:.2} per 1,000 node-days", grouped(hours, 0))
        });
        lines.push(format!(
            "  interrupted every {:.3} h{}",
            seconds / SECONDS_PER_HOUR,
            fleet.unwrap_or_default()
        ));
    }
    if let Some(ratio) = figure("ettr_ratio") {
        lines.push(format!("  ETTR {}", percent(ratio, 2)));
    }
    if let Some(seconds) = figure("young_interval_seconds") {
        lines.push(format!("  best interval between checkpoints {} s", grouped(seconds, 1)));
    }
    let cells: Vec<Vec<String>> = answer
        .rows
        .iter()
        .map(|row| {
            let number = |key: &str| row.get(key).and_then(serde_json::Value::as_f64);
            let ratio =
                number("ettr_planned_ratio").map_or_else(|| "nothing".to_owned(), |ratio| percent(ratio, 2));
            vec![grouped(number("restart_seconds").unwrap_or_default(), 0), ratio]
        })
        .collect();
    if !cells.is_empty() {
        lines.extend(laid_out(&["restart s", "ETTR planned"], &cells));
    }
    for line in lines {
        answer.line(line);
    }
}
