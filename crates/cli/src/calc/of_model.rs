//! Inputs that a server knows of a model that is served: the raw samples that its rules read.

use clap::{Arg, ArgMatches};
use promql::notation::pattern_of;
use serde_json::{Value, json};
use server::calc::Tool;

use super::Body;
use super::asked::{self, Asked, ask, buckets, number, series, with_a_rate};
use crate::http::Server;
use crate::output::{Failure, note};

/// Cards that one question asks for.
const CARDS_OF_A_QUESTION: usize = 200;
/// Objectives that requests are counted by, and the histograms of them.
const OBJECTIVES: [&str; 2] = ["ttft", "tpot"];

/// `--model`, of the calculators that know something to ask a server for.
pub(super) fn flag(tool: &str) -> Option<Arg> {
    let what = match tool {
        "economics" => {
            "Take counters, cards, price and busy share of this served model from the server, as its rules of cost do"
        }
        "goodput" => "Take objectives and histograms of this served model from the server, as its rules do",
        _ => return None,
    };
    Some(Arg::new("model").long("model").value_name("NAME").help(what))
}

/// A model on a server, and the window that it is asked for.
struct Served<'a> {
    server: Server,
    /// Its label, as a selector has it.
    label: String,
    window: &'a str,
    time: String,
}

impl Served<'_> {
    fn ask(&self, promql: &str) -> Result<Value, Failure> {
        ask(&self.server, promql, &self.time)
    }

    fn one(&self, promql: &str) -> Result<Option<Value>, Failure> {
        Ok(number(&self.ask(promql)?).ok())
    }

    /// Raw samples of counters that give a rate.
    fn counters(&self, selector: &str) -> Result<(Vec<Value>, Option<Asked>), Failure> {
        let promql = format!("{selector}[{}]", self.window);
        let mut data = self.ask(&promql)?;
        with_a_rate(&mut data);
        let found = data["result"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok((found, Asked::of(&promql, &self.time)))
    }
}

/// What the server says of the model.
pub(super) fn fields(tool: &'static Tool, matches: &ArgMatches) -> Result<Body, Failure> {
    let Some(model) = matches.try_get_one::<String>("model").ok().flatten() else { return Ok(Body::new()) };
    let server = Server::of(matches);
    let served = Served {
        time: asked::time(&server, matches)?,
        server,
        label: format!("model={}", json!(model)),
        window: asked::window(matches)?,
    };
    let mut body = if tool.name == "economics" { economics(&served)? } else { goodput(&served, matches)? };
    if body.is_empty() {
        return Err(unknown(&served, model)?);
    }
    if tool.name == "economics" {
        let typed = matches.try_get_one::<String>("rate_over").ok().flatten();
        if typed.is_some_and(|over| over == "busy") {
            let text = format!("counters of model `{model}` are those of all its hours, idle ones too");
            return Err(Failure::new(text).hint("leave `--rate-over` away with `--model`"));
        }
        body.insert("rate_over".to_owned(), Value::from("allocated"));
    }
    Ok(body)
}

fn unknown(served: &Served<'_>, model: &str) -> Result<Failure, Failure> {
    let known = served.ask("group by (model) (tg_engine_output_tokens_total)")?;
    let names = known["result"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|one| one["metric"]["model"].as_str()).take(20).collect();
    let hint = if names.is_empty() {
        "no engine is heard there: `truegauge up --scrape http://ENGINE:8000/metrics`".to_owned()
    } else {
        format!("models are {}; `--window` and `--time` say when", names.join(", "))
    };
    let text = format!("{} knows nothing of a model `{model}` at that time", served.server.shown());
    Ok(Failure::new(text).hint(hint))
}

fn economics(served: &Served<'_>) -> Result<Body, Failure> {
    let mut body = Body::new();
    let label = &served.label;
    let selector = format!("tg_engine_output_tokens_total{{{label}}}");
    let (mut found, asked) = served.counters(&selector)?;
    // Replicas that are not heard any more don't count.
    let live = served.ask(&selector)?;
    let live = live["result"].as_array().map_or(&[][..], Vec::as_slice);
    found.retain(|one| live.iter().any(|other| other["metric"] == one["metric"]));
    let Some(tokens) = raw(found, asked) else { return Ok(body) };
    body.insert("tokens".to_owned(), tokens);
    body.extend(energy(served)?.map(|energy| ("energy".to_owned(), energy)));
    if let Some(gpus) = served.one(&format!("sum(model:gpus{{{label}}})"))? {
        let usd = served.one(&format!("sum(model:usd_per_hour{{{label}}}) / sum(model:gpus{{{label}}})"))?;
        body.extend(usd.map(|usd| ("price".to_owned(), usd)));
        body.insert("gpus".to_owned(), gpus);
    }
    let running = format!("tg_engine_requests_running{{{label}}}");
    let window = served.window;
    let busy =
        served.one(&format!("avg(avg_over_time(({running} > bool 0)[{window}:15s]) and {running})"))?;
    let busy = busy.filter(|share| share.as_f64().is_some_and(|share| share > 0.0));
    body.extend(busy.map(|share| ("occupancy".to_owned(), share)));
    Ok(body)
}

/// As an input of a calculator; none where nothing was found.
fn raw(found: Vec<Value>, asked: Option<Asked>) -> Option<Value> {
    series(&json!({"resultType": "matrix", "result": found}), asked).ok()
}

/// Energy counters of all its cards, or of none: a part of them would be a wrong number.
fn energy(served: &Served<'_>) -> Result<Option<Value>, Failure> {
    let cards = served.ask(&format!("gpu:model_info{{{}}}", served.label))?;
    let cards = cards["result"].as_array().map_or(&[][..], Vec::as_slice);
    let cards: Vec<String> =
        cards.iter().filter_map(|card| card["metric"]["uuid"].as_str().map(pattern_of)).collect();
    let (mut found, mut window) = (Vec::new(), None);
    for some in cards.chunks(CARDS_OF_A_QUESTION) {
        let pattern = json!(some.join("|"));
        let (more, asked) = served.counters(&format!("tg_gpu_energy_joules_total{{uuid=~{pattern}}}"))?;
        found.extend(more);
        window = asked;
    }
    if cards.is_empty() {
        note(
            "which cards serve the model is not known, so its power is not: docs/guides/cost.md says how they are found",
        );
        return Ok(None);
    }
    if found.len() != cards.len() {
        note(format_args!(
            "of {} cards that serve the model {} have an energy counter with samples in the window, so its power is not known",
            cards.len(),
            found.len()
        ));
        return Ok(None);
    }
    Ok(raw(found, window))
}

fn goodput(served: &Served<'_>, matches: &ArgMatches) -> Result<Body, Failure> {
    let mut body = Body::new();
    let (label, window) = (&served.label, served.window);
    for kind in OBJECTIVES {
        let slo = served.one(&format!("max(tg_slo_seconds{{{label}, kind=\"{kind}\"}})"))?;
        if slo.is_none() && matches.get_one::<String>(kind).is_none() {
            continue;
        }
        body.extend(slo.map(|seconds| (kind.to_owned(), seconds)));
        let promql = format!("sum by (le) (rate(tg_engine_{kind}_seconds_bucket{{{label}}}[{window}]))");
        if let Ok(found) = buckets(&served.ask(&promql)?) {
            body.insert(format!("{kind}_histogram"), found);
        }
    }
    Ok(body)
}
