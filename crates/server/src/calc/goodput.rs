//! Requests that met their objectives, and time of a training in which its model learnt.

use insight::objectives::{
    Bucket, Interval, NoShare, Objectives, Request, Share, interval, share, share_of_gaps,
};

use super::answer::{Answer, AnswerColumn, Formula, percent, row};
use super::input::{
    BUCKETS, Given, Input, Kind, NOT_NEGATIVE, POSITIVE, RATIO, Table, file, input, missing, number, optional,
};
use super::{CalcError, Column, Tool};

const COLUMNS: &[Column] =
    &[optional("ttft"), optional("tpot"), optional("itl_max"), optional("start"), optional("end")];

/// An objective with the histogram and the share that can stand for it.
struct Objective {
    name: &'static str,
    histogram: &'static str,
    ratio: &'static str,
}

const OBJECTIVES: [Objective; 3] = [
    Objective { name: "ttft", histogram: "ttft_histogram", ratio: "ttft_ratio" },
    Objective { name: "tpot", histogram: "tpot_histogram", ratio: "tpot_ratio" },
    Objective { name: "itl", histogram: "itl_histogram", ratio: "itl_ratio" },
];

const INPUTS: &[Input] = &[
    file(
        "requests",
        COLUMNS,
        "Requests one by one: CSV with the columns ttft, tpot, itl_max in seconds, and perhaps start, end; or JSON; `-` is stdin",
    ),
    number("ttft", POSITIVE, "SECONDS", "Objective for the time to the first token"),
    number("tpot", POSITIVE, "SECONDS", "Objective for the mean time of each token after it"),
    number("itl", POSITIVE, "SECONDS", "Objective for the longest gap between two tokens"),
    input(
        "ttft_histogram",
        Kind::Table(BUCKETS),
        "FILE",
        "Buckets of TTFT: CSV with the columns le, count (of a window, not since start-up)",
    ),
    input("tpot_histogram", Kind::Table(BUCKETS), "FILE", "Buckets of TPOT"),
    input(
        "itl_histogram",
        Kind::Table(BUCKETS),
        "FILE",
        "Buckets of the gaps between tokens, with --request-count",
    ),
    number(
        "ttft_ratio",
        RATIO,
        "RATIO",
        "Share of requests that meet the objective for TTFT, instead of a histogram",
    ),
    number("tpot_ratio", RATIO, "RATIO", "The same for TPOT"),
    number("itl_ratio", RATIO, "RATIO", "The same for the longest gap"),
    number("request_count", POSITIVE, "N", "Requests that the gaps are of"),
    number("productive_seconds", NOT_NEGATIVE, "SECONDS", "Of a training: time in which its model learnt"),
    number("wall_seconds", POSITIVE, "SECONDS", "Of a training: time from its first span to its last"),
];

pub(super) const TOOL: Tool = Tool {
    name: "goodput",
    about: "Reckon goodput: of requests exactly, or within bounds from histograms; of a training from its time",
    inputs: INPUTS,
    needs: &[&[
        &["requests"],
        &["ttft_histogram", "ttft"],
        &["tpot_histogram", "tpot"],
        &["itl_histogram", "itl", "request_count"],
        &["ttft_ratio"],
        &["tpot_ratio"],
        &["itl_ratio"],
        &["productive_seconds", "wall_seconds"],
    ]],
    main: &["goodput_ratio"],
    examples: &[
        "truegauge calc goodput requests.csv --ttft 2 --tpot 0.06",
        "truegauge calc goodput --ttft-histogram ttft.csv --ttft 2 --tpot-histogram tpot.csv --tpot 0.06 --json",
        "truegauge calc goodput --ttft-ratio 0.95 --tpot-ratio 0.90",
    ],
    reckon,
};

fn reckon(given: &Given, answer: &mut Answer) -> Result<(), CalcError> {
    explain(answer);
    if let Some(wall) = given.number("wall_seconds") {
        return training(given, wall, answer);
    }
    match given.table("requests") {
        Some(requests) => exact(given, requests, answer),
        None => bounds(given, answer),
    }
}

fn explain(answer: &mut Answer) {
    answer.formula = vec![
        Formula {
            name: "goodput_ratio",
            text: "requests that meet every objective / requests; of a training productive / wall time",
        },
        Formula {
            name: "goodput_ratio_lower",
            text: "the sum of the shares that meet each objective, less one for each but the first; at least 0",
        },
        Formula { name: "goodput_ratio_upper", text: "the least of those shares" },
    ];
    answer.assume_by(
        "a request is good when it meets every objective",
        "Zhong et al. 2024 (DistServe)",
        "https://arxiv.org/abs/2401.09670",
    );
}

fn training(given: &Given, wall: f64, answer: &mut Answer) -> Result<(), CalcError> {
    let productive = given.needed("productive_seconds")?;
    let ratio = productive / wall;
    if ratio > 1.0 {
        let text =
            format!("{productive} s are productive of {wall} s: one of the numbers is of something else");
        return Err(CalcError::new(text).of("productive_seconds").impossible());
    }
    answer.put("goodput_ratio", ratio);
    answer.put("wall_seconds", wall);
    answer.assume("work that was rolled back later counts as productive; `calc ettr` takes it away");
    answer.line(format!("  goodput {} of {wall:.0} s", percent(ratio, 1)));
    Ok(())
}

fn asked(given: &Given) -> Objectives {
    Objectives {
        ttft_seconds: given.number("ttft"),
        tpot_seconds: given.number("tpot"),
        itl_seconds: given.number("itl"),
    }
}

fn exact(given: &Given, table: &Table, answer: &mut Answer) -> Result<(), CalcError> {
    let ask = asked(given);
    if ask.is_empty() {
        return Err(missing("ttft").hint("give one objective or more: `--ttft`, `--tpot`, `--itl`"));
    }
    for (objective, column) in [("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl_max")] {
        if given.has(objective) && table.column(column).is_none() {
            let text =
                format!("there is an objective for `{objective}`, and the requests have no `{column}`");
            return Err(CalcError::new(text)
                .of("requests")
                .hint("what is not known of a request can't be good"));
        }
    }
    let cell = |name: &str, at: usize| table.column(name).and_then(|cells| cells[at]);
    for at in 0..table.rows() {
        check_request(at, &|name| cell(name, at))?;
    }
    let requests: Vec<Request> = (0..table.rows())
        .map(|at| Request {
            ttft_seconds: cell("ttft", at),
            tpot_seconds: cell("tpot", at),
            itl_max_seconds: cell("itl_max", at),
        })
        .collect();
    let (good, all) = (ask.met(&requests), requests.len());
    let ratio = good as f64 / all as f64;
    answer.put("requests", all);
    answer.put("good_requests", good);
    answer.put("goodput_ratio", ratio);
    answer.put("goodput_ratio_lower", ratio);
    answer.put("goodput_ratio_upper", ratio);
    let column = |name: &str| table.column(name).into_iter().flatten().filter_map(|cell| *cell);
    let from = column("start").fold(f64::INFINITY, f64::min);
    let seconds = column("end").fold(f64::NEG_INFINITY, f64::max) - from;
    let known = seconds.is_finite() && seconds > 0.0;
    let why = "the requests have no `start` and `end`";
    answer.put_or("goodput_requests_per_second", known.then(|| good as f64 / seconds), why);
    answer.assume(
        "a request without a first token is not good; one of a single token has no gap that is too long",
    );
    each(answer, &ask, &requests);
    answer.line(format!("  goodput {}: {good} of {all} requests meet every objective", percent(ratio, 1)));
    if known {
        answer.line(format!("  {:.2} good requests per second", good as f64 / seconds));
    }
    Ok(())
}

/// That a request can have taken place.
fn check_request(at: usize, cell: &dyn Fn(&str) -> Option<f64>) -> Result<(), CalcError> {
    let wrong = |what: String| {
        let text = format!("request {} {what}", at + 1);
        Err(CalcError::new(text).of("requests").hint("times are seconds, by one clock"))
    };
    for name in ["ttft", "tpot", "itl_max"] {
        if let Some(seconds) = cell(name).filter(|seconds| *seconds < 0.0) {
            return wrong(format!("has {seconds} s as its `{name}`, which is less than none"));
        }
    }
    match (cell("start"), cell("end")) {
        (Some(start), Some(end)) if end < start => {
            wrong(format!("ends at {end} s, before it starts at {start} s"))
        }
        _ => Ok(()),
    }
}

fn columns(answer: &mut Answer) {
    let column = |key, title, unit| AnswerColumn { key, title, unit };
    answer.columns = vec![
        column("objective", "objective", ""),
        column("seconds", "at most", "s"),
        column("ratio", "meets it", "ratio"),
        column("lower_ratio", "at least", "ratio"),
        column("upper_ratio", "at most", "ratio"),
    ];
}

fn tell_share(answer: &mut Answer, name: &'static str, seconds: Option<f64>, share: &Share) {
    answer.rows.push(row([
        ("objective", name.into()),
        ("seconds", seconds.into()),
        ("ratio", share.interpolated.into()),
        ("lower_ratio", share.lower.into()),
        ("upper_ratio", share.upper.into()),
    ]));
}

/// The share that meets each objective alone.
fn each(answer: &mut Answer, ask: &Objectives, requests: &[Request]) {
    columns(answer);
    let none = Objectives::default();
    for (name, seconds, alone) in [
        ("ttft", ask.ttft_seconds, Objectives { ttft_seconds: ask.ttft_seconds, ..none }),
        ("tpot", ask.tpot_seconds, Objectives { tpot_seconds: ask.tpot_seconds, ..none }),
        ("itl", ask.itl_seconds, Objectives { itl_seconds: ask.itl_seconds, ..none }),
    ] {
        if seconds.is_some() {
            let ratio = alone.met(requests) as f64 / requests.len() as f64;
            tell_share(answer, name, seconds, &Share::exact(ratio));
        }
    }
}

fn bounds(given: &Given, answer: &mut Answer) -> Result<(), CalcError> {
    columns(answer);
    let (mut shares, mut unknown) = (Vec::new(), Vec::new());
    for objective in &OBJECTIVES {
        if let Some(share) = share_of(given, objective, answer)? {
            tell_share(answer, objective.name, given.number(objective.name), &share);
            shares.push(share);
        } else if given.has(objective.name) {
            unknown.push(objective);
        }
    }
    let Some(Interval { lower, upper }) = interval(&shares) else {
        let hint =
            "name a file of requests, or give histograms with objectives, or shares such as `--ttft-ratio`";
        return Err(missing("requests").hint(hint));
    };
    if let Some(objective) = unknown.first() {
        let flag = |input: &str| input.replace('_', "-");
        let reason = format!(
            "how many requests meet `--{}` is not known: `--{}` or `--{}` tells it",
            objective.name,
            flag(objective.histogram),
            flag(objective.ratio)
        );
        for name in ["goodput_ratio", "goodput_ratio_lower", "goodput_ratio_upper"] {
            answer.lacks(name, reason.clone());
        }
        answer.line(format!("  goodput unknown: {reason}"));
        return Ok(());
    }
    answer.put("goodput_ratio_lower", lower);
    answer.put("goodput_ratio_upper", upper);
    if shares.len() == 1 && lower == upper {
        answer.put("goodput_ratio", lower);
    } else {
        let reason =
            "histograms don't say whether their bad requests are the same ones: requests one by one do";
        answer.lacks("goodput_ratio", reason);
    }
    answer.line(format!("  goodput {} to {}", percent(lower, 1), percent(upper, 1)));
    for row in answer.rows.clone() {
        let number = |key: &str| row.get(key).and_then(serde_json::Value::as_f64).unwrap_or_default();
        let name = row.get("objective").and_then(serde_json::Value::as_str).unwrap_or_default();
        let (low, high) = (number("lower_ratio"), number("upper_ratio"));
        let text = if low == high {
            percent(low, 1)
        } else {
            format!("{} to {}", percent(low, 1), percent(high, 1))
        };
        answer.line(format!("    {name:<5} {text}"));
    }
    Ok(())
}

fn share_of(given: &Given, objective: &Objective, answer: &mut Answer) -> Result<Option<Share>, CalcError> {
    if let Some(ratio) = given.number(objective.ratio) {
        return Ok(Some(Share::exact(ratio)));
    }
    let Some(table) = given.table(objective.histogram) else { return Ok(None) };
    let seconds = given.needed(objective.name)?;
    let buckets: Vec<Bucket> =
        table.all("le").into_iter().zip(table.all("count")).map(|(le, count)| Bucket { le, count }).collect();
    let found = share(&buckets, seconds).map_err(|why| {
        let text = match why {
            NoShare::NoTotal => "it has no bucket `+Inf`, so how many there are is not known".to_owned(),
            NoShare::Empty => "it is empty: nothing came in its window".to_owned(),
            NoShare::Unsorted(at) => {
                format!("bucket {} has a lower bound or count than the one before", at + 1)
            }
        };
        CalcError::new(format!("`{}`: {text}", objective.histogram)).of(objective.histogram)
    })?;
    if !found.is_exact() {
        let (low, high) = found.bounds;
        answer.warnings.push(format!(
            "{seconds} s is no bucket bound of {}: it lies between {low} and {high}, so its share is told from both",
            objective.name
        ));
    }
    if objective.name != "itl" {
        return Ok(Some(found));
    }
    let requests = given.needed("request_count")?;
    let total = buckets.last().map_or(0.0, |last| last.count);
    answer.assume(
        "of gaps between tokens, each bad one spoils one request at most, and all could be of one request",
    );
    // The most gaps that can be bad bound it from below, the fewest from above.
    let (most, fewest) = ((1.0 - found.lower) * total, (1.0 - found.upper) * total);
    let bounds = share_of_gaps(most, requests).zip(share_of_gaps(fewest, requests));
    Ok(bounds.map(|(low, high)| Share {
        lower: low.lower,
        upper: high.upper,
        interpolated: low.lower,
        ..low
    }))
}
