//! Joules and money of tokens.

use insight::counter::{Increase, NoIncrease, Policy, Reading, Window, increase};
use insight::economics::{
    Facility, Rate, joules_per_token, kwh_per_mtok, tokens_per_joule, tokens_per_usd, usd_per_mtok,
};

use super::answer::{Answer, AnswerColumn, Formula, grouped, percent, row};
use super::input::{
    Counted, FROM_ONE, Given, Input, Kind, NOT_NEGATIVE, POSITIVE, SHARE, Table, file, input, needed, number,
    optional,
};
use super::{CalcError, Column, Tool};

/// The last answer's shares where none was given: as if the GPU worked all, six tenths and three tenths of its hours.
const SHARES: [f64; 3] = [1.0, 0.6, 0.3];

const COLUMNS: &[Column] = &[
    needed("t"),
    optional("energy_mj"),
    optional("tokens"),
    optional("energy_joules"),
    optional("running"),
    optional("power_limit_watts"),
    optional("tokens_created"),
];

const INPUTS: &[Input] = &[
    file(
        "samples",
        COLUMNS,
        "Samples: CSV with the columns t (seconds), energy_mj or energy_joules, tokens, and perhaps running, power_limit_watts, tokens_created; or JSON; `-` is stdin",
    ),
    input(
        "energy",
        Kind::Series,
        "SAMPLES",
        "Raw samples of energy counters in joules, such as those of `tg_gpu_energy_joules_total[601s]`; of several, the sum counts",
    ),
    input(
        "energy_mj",
        Kind::Series,
        "SAMPLES",
        "The same in millijoules, as `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION` has them",
    ),
    input(
        "tokens",
        Kind::Series,
        "SAMPLES",
        "Raw samples of token counters, such as those of `tg_engine_output_tokens_total[601s]`; of several, the sum counts",
    ),
    number("tokens_per_second", NOT_NEGATIVE, "N", "Tokens per second, where there are no samples"),
    number("watts", NOT_NEGATIVE, "W", "Power of the GPUs' boards, where there are no samples"),
    number("price", NOT_NEGATIVE, "USD", "US dollars for one GPU for an hour"),
    number(
        "gpus",
        POSITIVE,
        "N",
        "GPUs that the tokens are of [default: as many as there are energy counters, else 1]",
    ),
    input(
        "occupancy",
        Kind::Numbers(SHARE),
        "RATIO",
        "Share of the paid hours in which requests ran; several for a comparison",
    ),
    input(
        "rate_over",
        Kind::Word(&["busy", "allocated"]),
        "WHAT",
        "What the tokens per second are the mean over: `busy` hours, or all that are `allocated`, with idle ones in it [default: busy, allocated where `running` is there]",
    ),
    number(
        "peak_to_average",
        FROM_ONE,
        "RATIO",
        "Peak over average load, for what a fleet sized for its peak leaves idle",
    ),
    number("pue", FROM_ONE, "RATIO", "The facility's power over that of its servers"),
    number("server_overhead", FROM_ONE, "RATIO", "A server's power over that of its GPUs' boards"),
    number("energy_price", NOT_NEGATIVE, "USD", "US dollars for a kilowatt-hour"),
    number(
        "power_limit",
        POSITIVE,
        "W",
        "Power limit of a board, by which an energy counter's oddities are judged [default: 1,333, for a bound of 2 kW]",
    ),
];

pub(super) const TOOL: Tool = Tool {
    name: "economics",
    about: "Reckon watts, tokens per joule and dollars per million tokens, from counters or from rates",
    inputs: INPUTS,
    needs: &[&[
        &["samples"],
        &["tokens"],
        &["energy"],
        &["energy_mj"],
        &["tokens_per_second"],
        &["watts"],
        &["peak_to_average"],
    ]],
    main: &["tokens_per_second", "watts", "usd_per_mtok"],
    examples: &[
        "truegauge calc economics samples.csv --price 2.50 --occupancy 0.6",
        "truegauge calc economics --tokens-per-second 2426 --watts 597 --price 2.50 --peak-to-average 3 --json",
        "truegauge calc economics --query 'energy=tg_gpu_energy_joules_total[601s]' --query 'tokens=tg_engine_output_tokens_total[601s]' --price 2.50",
    ],
    reckon,
};

/// The sum of some counters over one window.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    rate: f64,
    naive_rate: f64,
    window_seconds: f64,
    observed_seconds: f64,
    corrected_rate: f64,
    coverage: f64,
    resets: u32,
    backward: u32,
    implausible: u32,
}

impl Counters {
    /// Over the window that was asked for; where none was, from the first reading of all to the last.
    fn of(rises: &[Increase], asked: Option<Window>) -> Self {
        let from_seconds = rises.iter().map(|rise| rise.from_seconds).fold(f64::INFINITY, f64::min);
        let to_seconds = rises.iter().map(|rise| rise.to_seconds).fold(f64::NEG_INFINITY, f64::max);
        let window = asked.unwrap_or(Window { from_seconds, to_seconds });
        let mut sum = Self { window_seconds: window.seconds(), ..Self::default() };
        // Counters may follow one another, as those of replicas do that are exchanged one by one.
        let told = told_seconds(rises, window);
        for rise in rises {
            let rate = rise.rate_in(window);
            sum.rate += rate;
            sum.naive_rate += rise.naive_rate();
            sum.observed_seconds += rise.observed_seconds;
            // One of which nothing was observed counts as it is.
            let coverage = Some(rise.coverage()).filter(|share| *share > 0.0).unwrap_or(1.0);
            sum.corrected_rate += rate / coverage * (sum.window_seconds / told);
            sum.resets += rise.resets;
            sum.backward += rise.backward;
            sum.implausible += rise.implausible;
        }
        sum.coverage = (sum.observed_seconds / (sum.window_seconds * rises.len() as f64)).min(1.0);
        sum
    }

    fn corrected(&self) -> Option<f64> {
        (self.observed_seconds > 0.0).then_some(self.corrected_rate)
    }
}

/// How much of a window at least one counter tells of, seconds.
fn told_seconds(rises: &[Increase], window: Window) -> f64 {
    let mut told: Vec<Window> = rises.iter().map(|rise| rise.told_in(window)).collect();
    told.sort_by(|a, b| a.from_seconds.total_cmp(&b.from_seconds));
    let (mut seconds, mut until) = (0.0, f64::NEG_INFINITY);
    for one in told {
        seconds += (one.to_seconds - one.from_seconds.max(until)).max(0.0);
        until = until.max(one.to_seconds);
    }
    seconds
}

/// Counters of one kind, with the window that all of them were asked for.
#[derive(Debug, Default)]
struct Kept {
    counters: Vec<Vec<Reading>>,
    window: Option<Window>,
}

impl Kept {
    fn of_series(series: &[Counted], unit: f64) -> Self {
        let window = |(from_seconds, to_seconds)| Window { from_seconds, to_seconds };
        let windows: Vec<Option<Window>> = series.iter().map(|one| one.window.map(window)).collect();
        let same = windows.iter().all(|one| *one == windows[0]);
        Self {
            counters: series.iter().map(|one| of_series_readings(one, unit)).collect(),
            window: windows.first().copied().flatten().filter(|_| same),
        }
    }
}

/// What was measured, or given in its stead.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    tokens_per_second: Option<f64>,
    tokens_corrected: Option<f64>,
    watts: Option<f64>,
    watts_corrected: Option<f64>,
    /// Energy counters were read, and no board can burn what they say.
    is_implausible: bool,
    naive_tokens: Option<f64>,
    running_ratio: Option<f64>,
    /// How many energy counters there were.
    gpus: Option<f64>,
}

fn reckon(given: &Given, answer: &mut Answer) -> Result<(), CalcError> {
    explain(answer);
    let measured = measure(given, answer)?;
    let gpus = given.number("gpus").or(measured.gpus).unwrap_or(1.0);
    answer.stand_in("gpus", gpus);
    energy(&measured, answer);
    let occupancy = occupancy(given, &measured, answer)?;
    let price = given.number("price").map(|price| price * gpus);
    money(&measured, &occupancy, price, answer);
    facility(given, answer);
    peak(given, &measured, &occupancy, price, answer);
    words(given, &measured, answer);
    Ok(())
}

fn explain(answer: &mut Answer) {
    answer.formula = vec![
        Formula {
            name: "watts",
            text: "rise of the energy counter, up to the edges of the window that it was asked for / seconds of the window",
        },
        Formula {
            name: "tokens_per_second",
            text: "rise of the token counter, each fall a new beginning from zero / seconds of the window",
        },
        Formula { name: "coverage_ratio", text: "seconds whose rise is known / seconds of the window" },
        Formula { name: "..._corrected", text: "the same rise / the seconds whose rise is known" },
        Formula { name: "tokens_per_joule", text: "tokens per second / watts" },
        Formula {
            name: "usd_per_mtok",
            text: "price of the GPUs for an hour / (tokens per second of allocated time × 3,600) × 10^6",
        },
        Formula { name: "facility_tokens_per_joule", text: "tokens per joule / (server overhead × PUE)" },
        Formula { name: "average_over_peak_ratio", text: "1 / peak to average" },
    ];
}

fn measure(given: &Given, answer: &mut Answer) -> Result<Measured, CalcError> {
    let limit_watts = given.number("power_limit");
    let mut measured = Measured::default();
    let table = given.table("samples");
    if table
        .is_some_and(|table| ["energy_mj", "energy_joules"].iter().all(|name| table.column(name).is_some()))
    {
        let text = "`samples` has `energy_mj` and `energy_joules`, and only one of them can be meant";
        return Err(CalcError::new(text).of("samples").hint("leave one of the columns out"));
    }
    let counted = |names: &[(&str, f64)], columns: [(&str, f64); 2]| {
        let of_series = names.iter().find_map(|(name, unit)| Some((given.series(name)?, *unit)));
        let of_rows = || table.map(|table| readings(table, columns)).filter(|rows| !rows.is_empty());
        match of_series {
            Some((series, unit)) => Some(Kept::of_series(series, unit)),
            None => of_rows().map(|rows| Kept { counters: vec![rows], window: None }),
        }
    };
    let joules =
        counted(&[("energy", 1.0), ("energy_mj", 1e-3)], [("energy_joules", 1.0), ("energy_mj", 1e-3)]);
    let tokens = counted(&[("tokens", 1.0)], [("tokens", 1.0), ("", 1.0)]);
    let limit_watts = limit_watts.or_else(|| table.and_then(limit_of));
    if let Some(counted) = joules {
        let sum = sum(&counted, Policy::Energy { limit_watts }, "energy")?;
        measured.is_implausible = sum.observed_seconds == 0.0 && sum.implausible > 0;
        measured.watts = Some(sum.rate).filter(|_| !measured.is_implausible);
        measured.watts_corrected = sum.corrected();
        measured.gpus =
            Some(counted.counters.len() as f64).filter(|_| given.has("energy") || given.has("energy_mj"));
        tell_counters(answer, "energy", &sum);
    }
    if let Some(counted) = tokens {
        let sum = sum(&counted, Policy::Software, "tokens")?;
        (measured.tokens_per_second, measured.tokens_corrected) = (Some(sum.rate), sum.corrected());
        measured.naive_tokens = Some(sum.naive_rate);
        tell_counters(answer, "tokens", &sum);
    }
    measured.tokens_per_second = measured.tokens_per_second.or(given.number("tokens_per_second"));
    measured.watts = measured.watts.or(given.number("watts"));
    measured.running_ratio = table.and_then(running);
    if let Some(table) = table
        && measured.watts.is_none()
        && measured.tokens_per_second.is_none()
    {
        let text = format!("`samples` has {} rows, and neither energy nor tokens in them", table.rows());
        return Err(CalcError::new(text).of("samples").hint("its columns are t, energy_mj, tokens"));
    }
    Ok(measured)
}

/// The rows of a table that have the first of these columns that is there, each column with its unit.
fn readings(table: &Table, columns: [(&str, f64); 2]) -> Vec<Reading> {
    let times = table.all("t");
    let found = columns.iter().find_map(|(name, unit)| Some((*name, *unit, table.column(name)?)));
    let Some((name, unit, cells)) = found else { return Vec::new() };
    let created = table.column("tokens_created").filter(|_| name == "tokens");
    let rows = times.iter().zip(cells).enumerate();
    let reading = |(at, (time, cell)): (usize, (&f64, &Option<f64>))| {
        cell.map(|value| Reading {
            time_seconds: *time,
            value: value * unit,
            created_seconds: created.and_then(|cells| cells[at]),
        })
    };
    rows.filter_map(reading).collect()
}

fn of_series_readings(series: &Counted, unit: f64) -> Vec<Reading> {
    let points = series.times.iter().zip(&series.values);
    let reading = |(time, value): (&f64, &f64)| Reading {
        time_seconds: *time,
        value: value * unit,
        created_seconds: None,
    };
    points.map(reading).collect()
}

/// The least limit that the board had.
fn limit_of(table: &Table) -> Option<f64> {
    let cells = table.column("power_limit_watts")?;
    cells.iter().filter_map(|cell| *cell).filter(|watts| *watts > 0.0).min_by(f64::total_cmp)
}

/// The share of time in which requests ran; a sample holds until the next.
fn running(table: &Table) -> Option<f64> {
    let cells = table.column("running")?;
    let times = table.all("t");
    let (mut busy, mut known) = (0.0, 0.0);
    for (at, pair) in times.windows(2).enumerate() {
        let Some(running) = cells[at] else { continue };
        known += pair[1] - pair[0];
        busy += if running > 0.0 { pair[1] - pair[0] } else { 0.0 };
    }
    (known > 0.0).then(|| busy / known)
}

fn sum(counted: &Kept, policy: Policy, what: &str) -> Result<Counters, CalcError> {
    let mut rises = Vec::with_capacity(counted.counters.len());
    for readings in &counted.counters {
        rises.push(increase(readings, policy).map_err(|why| {
            let (text, hint) = match why {
                NoIncrease::TooFew => (
                    format!("{what}: a rate takes two samples, and there are {}", readings.len()),
                    "a longer file, or a wider range",
                ),
                NoIncrease::Unsorted(at) => (
                    format!(
                        "{what}: sample {} is at {} s, not after the one before at {} s",
                        at + 1,
                        readings[at].time_seconds,
                        readings[at - 1].time_seconds
                    ),
                    "sort the samples by their times, one counter in a file",
                ),
                NoIncrease::Unusable(at) => (
                    format!(
                        "{what}: sample {} is {}, and counters are 0 or more",
                        at + 1,
                        readings[at].value
                    ),
                    "leave a cell empty where nothing was read; a gauge is no counter",
                ),
            };
            CalcError::new(text).of("samples").hint(hint)
        })?);
    }
    Ok(Counters::of(&rises, counted.window))
}

fn tell_counters(answer: &mut Answer, what: &'static str, sum: &Counters) {
    if what == "tokens" {
        answer.put("coverage_ratio", sum.coverage);
        answer.put("resets", sum.resets);
        answer.put("naive_tokens_per_second", sum.naive_rate);
    } else {
        answer.put("energy_coverage_ratio", sum.coverage);
        answer.put("energy_resets", sum.resets);
        answer.put("energy_backward", sum.backward);
        answer.put("energy_implausible", sum.implausible);
        if sum.backward + sum.implausible > 0 {
            let text = format!(
                "the energy counter stepped back {} times and leapt {} times: it is counted as one device's, which burns no more than one and a half times `--power-limit`",
                sum.backward, sum.implausible
            );
            answer.warnings.push(text);
        }
    }
    answer.put("window_seconds", sum.window_seconds);
}

fn energy(measured: &Measured, answer: &mut Answer) {
    let no_tokens = "no tokens were given: samples with `tokens`, or `--tokens-per-second`";
    let no_watts = if measured.is_implausible {
        "the energy counter rises faster than a board can burn: give `--power-limit`, one board a counter, and joules or millijoules as the column says"
    } else {
        "no energy was given: samples with `energy_mj`, or `--watts`"
    };
    answer.put_or("tokens_per_second", measured.tokens_per_second, no_tokens);
    answer.put_or("watts", measured.watts, no_watts);
    if let Some(tokens) = measured.tokens_corrected {
        answer.put("tokens_per_second_corrected", tokens);
    }
    if let Some(watts) = measured.watts_corrected {
        answer.put("watts_corrected", watts);
    }
    let both = measured.tokens_per_second.zip(measured.watts);
    let why = match both {
        Some(_) => "no energy was burnt, or no token came",
        None if measured.watts.is_none() => no_watts,
        None => no_tokens,
    };
    answer.put_or("tokens_per_joule", both.and_then(|(tokens, watts)| tokens_per_joule(tokens, watts)), why);
    let joules = both.and_then(|(tokens, watts)| joules_per_token(tokens, watts));
    answer.put_or("joules_per_token", joules, why);
    answer.put_or("kwh_per_mtok", joules.map(kwh_per_mtok), why);
    let corrected = measured.tokens_corrected.zip(measured.watts_corrected.or(measured.watts));
    if let Some(per_joule) = corrected.and_then(|(tokens, watts)| tokens_per_joule(tokens, watts)) {
        answer.put("tokens_per_joule_corrected", per_joule);
    }
    answer.assume("energy is that of the GPUs' boards, not of processors, fans and cooling");
}

/// The busy share of allocated time, and what the rate of tokens is the mean over.
struct Occupancy {
    is_allocated: bool,
    share: Option<f64>,
    shares: Vec<f64>,
}

impl Occupancy {
    fn rate(&self, tokens_per_second: f64) -> Rate {
        if self.is_allocated { Rate::Allocated(tokens_per_second) } else { Rate::Busy(tokens_per_second) }
    }

    /// Tokens per second of allocated time, as far as the share is known.
    fn allocated(&self, tokens_per_second: f64) -> f64 {
        self.rate(tokens_per_second).allocated(self.share.unwrap_or(1.0))
    }
}

fn occupancy(given: &Given, measured: &Measured, answer: &mut Answer) -> Result<Occupancy, CalcError> {
    let said = given.numbers("occupancy").map(<[f64]>::to_vec);
    let over = given.text("rate_over");
    if let (Some(said), Some(measured)) = (&said, measured.running_ratio) {
        let text = format!(
            "`occupancy` is {}, and the samples' `running` says {measured:.3}: a share is applied once",
            said[0]
        );
        return Err(CalcError::new(text).of("occupancy").hint("leave one of the two away"));
    }
    if let (Some("busy"), Some(measured)) = (over, measured.running_ratio) {
        let text = format!(
            "`rate_over` is `busy`, and the tokens were counted over the whole window, of which {measured:.3} was busy by `running`"
        );
        return Err(CalcError::new(text)
            .of("rate_over")
            .hint("leave it away: idle time is in the rate already"));
    }
    let is_allocated = match over {
        Some(over) => over == "allocated",
        None => measured.running_ratio.is_some(),
    };
    answer.stand_in("rate_over", if is_allocated { "allocated" } else { "busy" });
    let share = measured.running_ratio.filter(|share| *share > 0.0).or(said.as_ref().map(|said| said[0]));
    if is_allocated {
        answer.assume(
            "the rate is the mean over all paid hours: idle ones are in it, and it is not multiplied again",
        );
    } else if let Some(share) = share {
        answer.assume(format!(
            "the rate is that of busy hours, and {} of the paid ones are busy",
            percent(share, 0)
        ));
    } else {
        answer.assume("the GPU works in all hours that are paid for; `--occupancy` says how many it does");
    }
    let shares = match said {
        Some(said) if said[0] < 1.0 => std::iter::once(1.0).chain(said).collect(),
        Some(said) => said,
        None if is_allocated => Vec::new(),
        None => SHARES.to_vec(),
    };
    Ok(Occupancy { is_allocated, share, shares })
}

fn money(measured: &Measured, occupancy: &Occupancy, price: Option<f64>, answer: &mut Answer) {
    match occupancy.share {
        Some(share) => answer.put("occupancy_ratio", share),
        None => answer.lacks(
            "occupancy_ratio",
            "nobody says in which share of the paid hours requests ran: `--occupancy`, or a column `running`",
        ),
    }
    let (Some(tokens), Some(price)) = (measured.tokens_per_second, price) else {
        let reason = if price.is_none() {
            "no price was given: `--price`, US dollars for a GPU for an hour"
        } else {
            "no tokens were given: samples with `tokens`, or `--tokens-per-second`"
        };
        for name in ["usd_per_mtok", "usd_per_mtok_busy", "tokens_per_usd"] {
            answer.lacks(name, reason);
        }
        return;
    };
    answer.assume("the price is for every hour in which a GPU is allocated");
    let none = "no token came";
    let rate = occupancy.rate(tokens);
    answer.put_or("usd_per_mtok", usd_per_mtok(price, occupancy.allocated(tokens)), none);
    let busy = match (occupancy.is_allocated, occupancy.share) {
        (true, None) => None,
        (_, share) => usd_per_mtok(price, rate.busy(share.unwrap_or(1.0))),
    };
    answer.put_or(
        "usd_per_mtok_busy",
        busy,
        "which share of the hours is busy is not known, or no token came",
    );
    let per_usd = tokens_per_usd(price, occupancy.allocated(tokens));
    answer.put_or("tokens_per_usd", per_usd, "the price is nothing");
    let corrected = measured.tokens_corrected.map(|tokens| occupancy.allocated(tokens));
    if let Some(usd) = corrected.and_then(|tokens| usd_per_mtok(price, tokens)) {
        answer.put("usd_per_mtok_corrected", usd);
    }
    rows(tokens, occupancy, price, answer);
}

fn rows(tokens: f64, occupancy: &Occupancy, price: f64, answer: &mut Answer) {
    answer.columns = vec![
        AnswerColumn { key: "occupancy_ratio", title: "busy hours", unit: "ratio" },
        AnswerColumn { key: "tokens_per_second", title: "tokens/s of all hours", unit: "tokens/s" },
        AnswerColumn { key: "usd_per_mtok", title: "$ per million tokens", unit: "USD" },
    ];
    // What it does in busy hours is known, or those hours are all there is to compare by.
    let busy = occupancy.rate(tokens).busy(occupancy.share.unwrap_or(1.0));
    for share in &occupancy.shares {
        let Some(usd) = usd_per_mtok(price, busy * share) else { continue };
        answer.rows.push(row([
            ("occupancy_ratio", (*share).into()),
            ("tokens_per_second", (busy * share).into()),
            ("usd_per_mtok", usd.into()),
        ]));
    }
}

fn facility(given: &Given, answer: &mut Answer) {
    let (pue, overhead) = (given.number("pue"), given.number("server_overhead"));
    let joules = answer.figure("joules_per_token");
    let facility = Facility { server_overhead_factor: overhead.unwrap_or(1.0), pue: pue.unwrap_or(1.0) };
    if pue.is_some() || overhead.is_some() {
        answer.assume(format!("the building takes {:.3} times what the boards take", facility.factor()));
        if let Some(watts) = answer.figure("watts") {
            answer.put("facility_watts", watts * facility.factor());
        }
        if let Some(per_joule) = answer.figure("tokens_per_joule") {
            answer.put("facility_tokens_per_joule", facility.tokens_per_joule(per_joule));
        }
    } else {
        let reason = "neither PUE nor a server's overhead was given: `--pue`, `--server-overhead`";
        answer.lacks("facility_tokens_per_joule", reason);
    }
    if let Some(price) = given.number("energy_price") {
        let usd = joules.map(|joules| facility.energy_usd_per_mtok(joules, price));
        answer.put_or("energy_usd_per_mtok", usd, "joules per token are not known");
    }
}

fn peak(given: &Given, measured: &Measured, occupancy: &Occupancy, price: Option<f64>, answer: &mut Answer) {
    let Some(load) = given.number("peak_to_average").and_then(insight::capacity::Load::of_ratio) else {
        return;
    };
    let average = load.average_over_peak();
    answer.put("average_over_peak_ratio", average);
    answer.put("batch_saving_ratio", load.saving_ratio());
    answer.assume("the fleet is sized for its peak, and batch work would fill all that the average leaves");
    if let Some(share) = occupancy.share.filter(|share| *share > average) {
        answer.warnings.push(format!(
            "{} of the hours busy is more than the {} that such a load can fill without batch work",
            percent(share, 1),
            percent(average, 1)
        ));
    }
    if occupancy.is_allocated && occupancy.share.is_none() {
        return;
    }
    let Some(tokens) = measured.tokens_per_second else { return };
    let busy = occupancy.rate(tokens).busy(occupancy.share.unwrap_or(1.0));
    answer.put("batch_tokens_per_second", busy * (1.0 - average));
    if let Some(usd) = price.and_then(|price| usd_per_mtok(price, busy * average)) {
        answer.put("usd_per_mtok_at_average", usd);
    }
    if let Some(usd) = price.and_then(|price| usd_per_mtok(price, busy)) {
        answer.put("usd_per_mtok_with_batch", usd);
    }
}

fn words(given: &Given, measured: &Measured, answer: &mut Answer) {
    let figure = |name: &str| answer.figure(name);
    let mut lines = Vec::new();
    if let Some(watts) = figure("watts") {
        let counted =
            figure("energy_coverage_ratio").map_or("", |_| "   (rise of the energy counter per second)");
        lines.push(format!("  average power            {watts:8.1} W{counted}"));
    }
    if let Some(tokens) = figure("tokens_per_second") {
        let naive = measured.naive_tokens.filter(|naive| (naive - tokens).abs() > tokens.abs() * 1e-9);
        let naive = naive.map(|naive| format!("     (last minus first would say {})", grouped(naive, 1)));
        lines.push(format!("  output tokens per second {tokens:8.1}{}", naive.unwrap_or_default()));
    }
    if let Some(per_joule) = figure("tokens_per_joule") {
        lines.push(format!(
            "  output tokens per joule  {per_joule:8.2}     (power of the boards, not of the facility)"
        ));
    }
    if let Some(per_joule) = figure("facility_tokens_per_joule") {
        lines.push(format!("    of the facility        {per_joule:8.2}"));
    }
    money_words(given, answer, &mut lines);
    if let Some(usd) = figure("energy_usd_per_mtok") {
        lines.push(format!("  of that, energy: ${usd:.5}"));
    }
    if let Some(share) = figure("coverage_ratio").filter(|share| *share < 1.0) {
        let corrected = |name: &str, digits: usize| {
            figure(name).map_or_else(|| "unknown".to_owned(), |value| grouped(value, digits))
        };
        let why = if figure("resets").is_some_and(|resets| resets > 0.0) {
            "a new beginning hides what came before it"
        } else {
            "the rest of the window lies outside of the readings"
        };
        lines.push(format!(
            "  coverage {}: {why}; over observed time alone {} tokens/s, {} tokens/J",
            percent(share, 1),
            corrected("tokens_per_second_corrected", 1),
            corrected("tokens_per_joule_corrected", 2)
        ));
    }
    if let Some(share) = figure("average_over_peak_ratio") {
        lines.push(format!(
            "  sized for a peak of {} times the average: {share:.3} of it is used on average, batch work could win {}",
            given.number("peak_to_average").unwrap_or_default(),
            percent(1.0 - share, 1)
        ));
    }
    for line in lines {
        answer.line(line);
    }
}

fn money_words(given: &Given, answer: &Answer, lines: &mut Vec<String>) {
    let Some(price) = given.number("price") else { return };
    let price = format!("${price:.2}/GPU-hour");
    if answer.rows.is_empty() {
        if let Some(usd) = answer.figure("usd_per_mtok") {
            lines.push(format!("  cost per million output tokens at {price}, idle hours in it: ${usd:.2}"));
        }
        if let Some(usd) = answer.figure("usd_per_mtok_busy") {
            lines.push(format!("    of busy hours alone: ${usd:.2}"));
        }
        return;
    }
    for row in &answer.rows {
        let number = |key: &str| row.get(key).and_then(serde_json::Value::as_f64).unwrap_or_default();
        let (share, usd) = (number("occupancy_ratio"), number("usd_per_mtok"));
        lines.push(if share == 1.0 {
            format!("  cost per million output tokens at {price}: ${usd:.2}")
        } else {
            format!("    if it only works {:.0} % of the hours it is allocated: ${usd:.2}", share * 100.0)
        });
    }
}
