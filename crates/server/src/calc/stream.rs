//! One streamed answer.

use std::fmt::Write as _;

use insight::objectives::{Objectives, Request};
use insight::stream::{NoStream, Stream};

use super::answer::{Answer, AnswerColumn, Formula, row};
use super::input::{Given, Input, POSITIVE, file, missing, needed, number};
use super::{CalcError, Column, Tool};

/// A gap that is a stall where nobody says otherwise, seconds.
const STALL_SECONDS: f64 = 1.0;
/// A gap that no engine has between most of its tokens, seconds.
const GAP_SECONDS_ODD: f64 = 5.0;
/// Most stalls that are listed.
const STALLS_MAX: usize = 100;

const COLUMNS: &[Column] = &[needed("t")];

const INPUTS: &[Input] = &[
    file(
        "times",
        COLUMNS,
        "Time of each token, one a line, seconds since the request; CSV with a column t, or JSON; `-` is stdin",
    ),
    number("stall_seconds", POSITIVE, "SECONDS", "A longer gap is a stall [default: 1]"),
    number("ttft", POSITIVE, "SECONDS", "Objective for the time to the first token"),
    number("tpot", POSITIVE, "SECONDS", "Objective for the mean time of each token after it"),
    number("itl", POSITIVE, "SECONDS", "Objective for the longest gap"),
];

pub(super) const TOOL: Tool = Tool {
    name: "stream",
    about: "Reckon TTFT, TPOT and the gaps between tokens of one streamed answer",
    inputs: INPUTS,
    needs: &[&[&["times"]]],
    main: &[],
    examples: &[
        "truegauge calc stream times.txt",
        "truegauge calc stream times.txt --stall-seconds 0.5 --ttft 2 --itl 0.2 --json",
    ],
    reckon,
};

fn reckon(given: &Given, answer: &mut Answer) -> Result<(), CalcError> {
    let times = given.table("times").ok_or_else(|| missing("times").hint("name a file, or `-` for stdin"))?;
    let stream = Stream::of(times.all("t")).map_err(|why| {
        let text = match why {
            NoStream::Empty => "there are no times".to_owned(),
            NoStream::Unsorted(at) => {
                format!("the time of token {} is before that of the one before", at + 1)
            }
            NoStream::Unusable(at) => format!("the time of token {} is before the request", at + 1),
        };
        CalcError::new(text).of("times").hint("times are seconds since the request, in their order")
    })?;
    let threshold = given.number("stall_seconds").unwrap_or(STALL_SECONDS);
    answer.stand_in("stall_seconds", threshold);
    explain(answer);
    figures(&stream, threshold, answer);
    objectives(given, &stream, answer);
    if let Some(gap) = stream.itl_seconds(0.5).filter(|gap| *gap >= GAP_SECONDS_ODD) {
        answer.warnings.push(format!(
            "half of the gaps are {gap} s or longer: times are seconds, and milliseconds are to be divided by 1,000"
        ));
    }
    words(&stream, answer);
    Ok(())
}

fn explain(answer: &mut Answer) {
    answer.formula = vec![
        Formula { name: "ttft_seconds", text: "time of the first token" },
        Formula { name: "tpot_seconds", text: "(time of the last token - time of the first) / (tokens - 1)" },
        Formula {
            name: "itl_seconds",
            text: "each gap between two tokens; a quantile lies between the two closest gaps, in proportion",
        },
        Formula { name: "e2e_seconds", text: "time of the last token" },
        Formula { name: "stalls", text: "gaps longer than stall_seconds" },
    ];
    answer.assume("times are those at which the client had the tokens, since it sent the request");
    answer.assume("tokens that came in one piece have gaps of 0");
}

fn figures(stream: &Stream, threshold: f64, answer: &mut Answer) {
    let one = "one token has no gaps";
    answer.put("tokens", stream.tokens());
    answer.put("gaps", stream.gaps());
    answer.put("ttft_seconds", stream.ttft_seconds());
    answer.put("e2e_seconds", stream.e2e_seconds());
    answer.put_or("tpot_seconds", stream.tpot_seconds(), one);
    for (name, quantile) in [("itl_seconds_p50", 0.5), ("itl_seconds_p95", 0.95), ("itl_seconds_p99", 0.99)] {
        answer.put_or(name, stream.itl_seconds(quantile), one);
    }
    answer.put_or("itl_seconds_max", stream.itl_max_seconds(), one);
    let (mut stalls, mut seconds) = (0_usize, 0.0);
    for (token, gap) in stream.stalls(threshold) {
        stalls += 1;
        seconds += gap;
        if stalls <= STALLS_MAX {
            answer.rows.push(row([("token", token.into()), ("gap_seconds", gap.into())]));
        }
    }
    answer.columns = vec![
        AnswerColumn { key: "token", title: "before token", unit: "" },
        AnswerColumn { key: "gap_seconds", title: "gap", unit: "s" },
    ];
    answer.put("stalls", stalls);
    answer.put("stalled_seconds", seconds);
}

fn objectives(given: &Given, stream: &Stream, answer: &mut Answer) {
    let ask = Objectives {
        ttft_seconds: given.number("ttft"),
        tpot_seconds: given.number("tpot"),
        itl_seconds: given.number("itl"),
    };
    if !ask.is_empty() {
        let request = Request {
            ttft_seconds: Some(stream.ttft_seconds()),
            tpot_seconds: stream.tpot_seconds(),
            itl_max_seconds: stream.itl_max_seconds(),
        };
        answer.put("is_good", ask.met_by(&request));
    }
}

fn words(stream: &Stream, answer: &mut Answer) {
    let ms = |seconds: f64, digits: usize| format!("{:.digits$} ms", seconds * 1e3);
    let mut line = format!("  TTFT {}", ms(stream.ttft_seconds(), 0));
    if let (Some(tpot), Some(median), Some(max)) =
        (stream.tpot_seconds(), stream.itl_seconds(0.5), stream.itl_max_seconds())
    {
        let _infallible =
            write!(line, "   TPOT {}   ITL p50 {}   ITL max {}", ms(tpot, 1), ms(median, 0), ms(max, 0));
    }
    answer.line(line);
    let quantile = |at: f64| stream.itl_seconds(at).map_or_else(|| "-".to_owned(), |gap| ms(gap, 0));
    answer.line(format!(
        "  {} tokens in {:.3} s   ITL p95 {}   p99 {}   stalls {}",
        stream.tokens(),
        stream.e2e_seconds(),
        quantile(0.95),
        quantile(0.99),
        answer.figure("stalls").unwrap_or_default()
    ));
    if let Some(good) = answer.result.get("is_good").and_then(serde_json::Value::as_bool) {
        answer.line(if good { "  meets its objectives" } else { "  misses its objectives" });
    }
}
