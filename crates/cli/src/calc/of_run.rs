//! Inputs that a run on a server says of itself.

use clap::{Arg, ArgMatches};
use serde_json::{Value, json};
use server::calc::Tool;

use super::Body;
use super::asked::{self, ask, number, series, with_a_rate};
use crate::http::{Server, escape};
use crate::output::{Failure, note};

const MILLIS: f64 = 1e3;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// Attributes of a run, and the inputs of `mfu` that they are.
const MODEL: [(&str, &str); 7] = [
    ("model/parameters", "params"),
    ("model/active_parameters", "active_params"),
    ("model/layers", "layers"),
    ("model/heads", "heads"),
    ("model/head_dim", "head_dim"),
    ("model/seq_len", "seq_len"),
    ("model/dtype", "dtype"),
];

/// `--run`, of the calculators that know something to ask a run for.
pub(super) fn flag(tool: &str) -> Option<Arg> {
    let what = match tool {
        "mfu" => "Take model, GPUs and tokens per second from this run, by its run_id or name",
        "economics" => "Take tokens per second and watts from this run, by its run_id or name",
        "goodput" => "Take the time that its model learnt in from this run, by its run_id or name",
        "ettr" => "Take interruptions and their time from this run's attempts, by its run_id or name",
        _ => return None,
    };
    Some(Arg::new("run").long("run").value_name("RUN_ID").help(what))
}

/// What the run says.
pub(super) fn fields(tool: &'static Tool, matches: &ArgMatches) -> Result<Body, Failure> {
    let Some(id) = matches.try_get_one::<String>("run").ok().flatten() else { return Ok(Body::new()) };
    let server = Server::of(matches);
    let id = &crate::runs::resolve(&server, id)?;
    let run = server.get(&format!("/api/tg/v1/runs/{}", escape(id)))?;
    let asked =
        Run { server: &server, id, window: asked::window(matches)?, time: end(&server, &run, matches)? };
    match tool.name {
        "mfu" => mfu(&asked, &run),
        "economics" => economics(&asked, &run, matches),
        "goodput" => goodput(&server, id),
        _ => Ok(ettr(&run, &asked.time)),
    }
}

/// A run on a server, and when it is asked for.
struct Run<'a> {
    server: &'a Server,
    id: &'a str,
    window: &'a str,
    time: String,
}

/// The time that is asked for, else when the run was heard last, as the server reads times.
fn end(server: &Server, run: &Value, matches: &ArgMatches) -> Result<String, Failure> {
    if matches.get_one::<String>("time").is_some() {
        return asked::time(server, matches);
    }
    let sessions = run["sessions"].as_array().into_iter().flatten();
    let heard =
        sessions.filter_map(|session| session["ended_ms"].as_f64().or(session["heartbeat_ms"].as_f64()));
    let latest = heard.fold(f64::NEG_INFINITY, f64::max);
    let seconds = if latest.is_finite() { latest / MILLIS } else { crate::query::now_seconds() };
    Ok(format!("{seconds:.3}"))
}

/// Tokens of all ranks per second of the window: of the trainer's own figure, else of steps.
fn tokens(run: &Run<'_>) -> Result<Option<Value>, Failure> {
    let range = format!("{{run_id=\"{}\"}}[{}]", run.id, run.window);
    let promql = format!(
        "max(avg_over_time(megatron_training_tokens_per_sec{range})) or sum(sum_over_time(train_step_tokens{range}) / sum_over_time(train_step_seconds{range}))"
    );
    Ok(number(&ask(run.server, &promql, &run.time)?).ok())
}

fn mfu(asked: &Run<'_>, run: &Value) -> Result<Body, Failure> {
    let mut body = Body::new();
    for (attribute, input) in MODEL {
        let value = &run["attributes"][attribute];
        if !value.is_null() {
            body.insert(input.to_owned(), value.clone());
        }
    }
    // Attention counts where all of it is known.
    let sizes = ["layers", "heads", "head_dim", "seq_len"];
    if sizes.iter().any(|name| !body.contains_key(*name)) {
        body.retain(|name, _| !sizes.contains(&name.as_str()));
    }
    body.extend(tokens(asked)?.map(|tokens| ("tokens_per_second".to_owned(), tokens)));
    let gpus = format!("last_over_time(tg_run_gpus{{run_id=\"{}\"}}[1h])", asked.id);
    let gpus = ask(asked.server, &gpus, &asked.time)?;
    let gpus = gpus["result"].as_array().filter(|series| series.len() == 1).map(|series| series[0].clone());
    if let Some(gpus) = gpus {
        let labels = &gpus["metric"];
        for (input, value) in
            [("gpu", &labels["gpu_model"]), ("dtype", &labels["dtype"]), ("gpus", &gpus["value"][1])]
        {
            if value.as_str().is_some_and(|text| !text.is_empty()) {
                body.insert(input.to_owned(), value.clone());
            }
        }
    }
    body.entry("gpus").or_insert_with(|| Value::from(ranks(run).unwrap_or(1)));
    Ok(body)
}

/// How many ranks the run has: as it says, or one where it has one process.
fn ranks(run: &Value) -> Option<u64> {
    let sessions = run["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    let said = sessions.iter().filter_map(|session| session["world_size"].as_u64()).max();
    said.filter(|size| *size > 0).or((sessions.len() == 1).then_some(1))
}

/// How many GPUs the run's tokens are of, as far as it says.
fn gpus(asked: &Run<'_>, run: &Value) -> Result<Option<f64>, Failure> {
    let stated = format!("sum(last_over_time(tg_run_gpus{{run_id=\"{}\"}}[1h]))", asked.id);
    let stated = number(&ask(asked.server, &stated, &asked.time)?).ok().and_then(|gpus| gpus.as_f64());
    Ok(stated.or_else(|| ranks(run).map(|ranks| ranks as f64)))
}

/// Tokens of all GPUs, and energy of all of them or of none: a part of them would be a wrong number.
fn economics(run: &Run<'_>, record: &Value, matches: &ArgMatches) -> Result<Body, Failure> {
    let mut body = Body::new();
    body.extend(tokens(run)?.map(|tokens| ("tokens_per_second".to_owned(), tokens)));
    let typed = matches.get_one::<String>("gpus").and_then(|text| text.parse::<f64>().ok());
    let gpus = match typed {
        Some(gpus) => Some(gpus),
        None => gpus(run, record)?,
    };
    // Raw samples, from the first to the last: a run may be shorter than any window of a rate.
    let energy = format!("system_gpu_energy_joules_total{{run_id=\"{}\"}}[{}]", run.id, run.window);
    let mut energy = ask(run.server, &energy, &run.time)?;
    with_a_rate(&mut energy);
    let counters = energy["result"].as_array().map_or(0, Vec::len);
    let known = gpus.unwrap_or(0.0).max(counters as f64);
    if known == 0.0 {
        let text = format!("run {} doesn't say how many GPUs its tokens are of", run.id);
        return Err(Failure::new(text).hint("`--gpus` says it"));
    }
    body.insert("gpus".to_owned(), Value::from(known));
    if counters > 0 && (counters as f64) < known {
        note(format_args!(
            "of {known} GPUs of the run {counters} have an energy counter with samples in the window, so its power is not known"
        ));
        return Ok(body);
    }
    body.extend(series(&energy, None).ok().map(|energy| ("energy".to_owned(), energy)));
    Ok(body)
}

fn goodput(server: &Server, id: &str) -> Result<Body, Failure> {
    let answer = server.get(&format!("/api/tg/v1/runs/{}/timeline?part=breakdown", escape(id)))?;
    let goodput = &answer["goodput"];
    if goodput.is_null() {
        let why = answer["text"].as_str().unwrap_or("no span tells of its time");
        return Err(Failure::new(format!("run {id} has no goodput: {why}"))
            .hint("docs/concepts/goodput.md says which spans it is told from"));
    }
    let mut body = Body::new();
    for name in ["productive_seconds", "wall_seconds"] {
        body.insert(name.to_owned(), goodput[name].clone());
    }
    Ok(body)
}

/// Each attempt but the first followed an interruption.
fn ettr(run: &Value, time: &str) -> Body {
    let attempts = run["attempts_list"].as_array().map_or(&[][..], Vec::as_slice);
    let first = attempts.first().and_then(|attempt| attempt["started_ms"].as_f64());
    let last = time.parse::<f64>().ok().map(|seconds| seconds * MILLIS);
    let mut body = Body::new();
    if let Some((first, last)) = first.zip(last).filter(|(first, last)| last > first) {
        body.insert("interruptions".to_owned(), json!(attempts.len().saturating_sub(1)));
        body.insert("days".to_owned(), json!((last - first) / MILLIS / SECONDS_PER_DAY));
    }
    body
}
