//! What the server states of its site: prices, peaks, objectives and factors of power, so that rules can reckon
//! with them.
//!
//! A card is stated under every name that somebody here has for it, so that rules join by `gpu_model` alone: as
//! drivers write it in `tg_gpu_info`, as runs do in `tg_run_gpus`, and as the settings name it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use model::{Labels, NANOS_PER_MILLI, NANOS_PER_SECOND, stale_marker};
use semconv::canonical::{
    ENGINE_GPUS, GPU_INFO, PEAK_DRAM_BYTES_PER_SECOND, PEAK_FLOPS, PRICE_USD_PER_GPU_HOUR, RUN_GPUS,
    SERVER_OVERHEAD_FACTOR, SITE_PUE, SITE_SCRAPE_INTERVAL_SECONDS, SLO_GOODPUT_RATIO, SLO_SECONDS,
};
use semconv::peaks::{self, Dtype, Gpu};
use store::Matcher;

use super::runs::Stated;
use crate::app::Shared;
use crate::config::SiteConfig;

/// Everything that is stated here.
const NAMES: [&str; 9] = [
    PRICE_USD_PER_GPU_HOUR.name,
    PEAK_FLOPS.name,
    PEAK_DRAM_BYTES_PER_SECOND.name,
    SITE_PUE.name,
    SERVER_OVERHEAD_FACTOR.name,
    SITE_SCRAPE_INTERVAL_SECONDS.name,
    SLO_SECONDS.name,
    SLO_GOODPUT_RATIO.name,
    ENGINE_GPUS.name,
];

/// The facts in force; a reload puts others in their place.
#[derive(Debug)]
pub(crate) struct Facts(Mutex<Arc<SiteConfig>>);

impl Facts {
    pub(crate) fn new(config: &SiteConfig) -> Self {
        Self(Mutex::new(Arc::new(config.clone())))
    }

    /// Those in force.
    pub(crate) fn now(&self) -> Arc<SiteConfig> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts others in force.
    pub(crate) fn put(&self, config: &SiteConfig) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config.clone());
    }
}

/// What was stated last; none before the first round.
#[derive(Default)]
pub(super) struct Known(Option<BTreeSet<Labels>>);

impl Known {
    /// What is to be stated at `time_ms`, beside what is stated of `runs`: facts, and markers for those that hold
    /// no longer.
    pub(super) fn round(&mut self, shared: &Shared, time_ms: i64, runs: &[Stated]) -> Vec<Stated> {
        let site = shared.site.now();
        let mut names = names(shared, time_ms);
        let of_runs = runs.iter().filter(|(labels, _)| labels.metric() == RUN_GPUS.name);
        names.extend(of_runs.filter_map(|(labels, _)| labels.get("gpu_model").map(str::to_owned)));
        let mut stated = of_cards(&site, &names);
        stated.extend(of_site(&site, shared.config.scrape_interval.as_secs_f64()));
        stated.extend(site.objectives.iter().flat_map(of_model));
        let now: BTreeSet<Labels> = stated.iter().map(|(labels, _)| labels.clone()).collect();
        let before = self.0.take().unwrap_or_else(|| before(shared, time_ms));
        stated.extend(before.difference(&now).map(|labels| (labels.clone(), stale_marker())));
        self.0 = Some(now);
        stated
    }
}

/// What drivers call the cards that were seen in the last ten minutes.
fn names(shared: &Shared, time_ms: i64) -> BTreeSet<String> {
    let to_ns = time_ms.saturating_mul(NANOS_PER_MILLI);
    let from_ns = to_ns.saturating_sub(600 * NANOS_PER_SECOND);
    let info = [Matcher::equal("__name__", GPU_INFO.name)];
    shared.store.label_values("gpu_model", &info, from_ns, to_ns).into_iter().collect()
}

/// What a server before this one stated and rules would still see: an old price beside the new one is two prices.
fn before(shared: &Shared, time_ms: i64) -> BTreeSet<Labels> {
    let to_ns = time_ms.saturating_mul(NANOS_PER_MILLI);
    let from_ns = to_ns.saturating_sub(600 * NANOS_PER_SECOND);
    let of_name = |name| shared.store.select(&[Matcher::equal("__name__", name)], from_ns, to_ns);
    // Those with a target's labels are somebody else's.
    let is_own = |labels: &Labels| labels.get("instance").is_none() && labels.get("engine").is_none();
    let found = NAMES.into_iter().flat_map(of_name).map(|found| (*found.labels).clone());
    found.filter(is_own).collect()
}

/// Prices and peaks, under every name of a card.
fn of_cards(site: &SiteConfig, names: &BTreeSet<String>) -> Vec<Stated> {
    let of_name = |name: &String| peaks::find(name).ok().map(|gpu| (name.clone(), gpu));
    let mut cards: Vec<(String, &Gpu)> = names.iter().filter_map(of_name).collect();
    let named = site.prices.iter().map(|price| price.gpu);
    for gpu in named.chain(site.engine_gpus.iter().map(|of| of.gpu)) {
        if !cards.iter().any(|(name, _)| name == gpu.id) {
            cards.push((gpu.id.to_owned(), gpu));
        }
    }
    let mut stated = Vec::new();
    for (name, gpu) in cards {
        let card = ("gpu_model", &*name);
        if let Some(price) = site.prices.iter().find(|price| price.gpu.id == gpu.id) {
            let labels = fact(PRICE_USD_PER_GPU_HOUR.name, &[card, ("revision", &site.price_revision)]);
            stated.push((labels, price.usd_per_gpu_hour));
        }
        stated.push((fact(PEAK_DRAM_BYTES_PER_SECOND.name, &[card]), gpu.memory_bytes_per_second()));
        for dtype in Dtype::ALL {
            let Some(flops) = gpu.flops(dtype) else { continue };
            let labels = |kind| fact(PEAK_FLOPS.name, &[card, ("dtype", dtype.name()), ("kind", kind)]);
            stated.push((labels("dense"), flops));
            // What was seen to be reached was seen with BF16.
            if let Some(share) = gpu.achievable.filter(|_| dtype == Dtype::Bf16) {
                stated.push((labels("achievable"), flops * share));
            }
        }
    }
    let cards_of_model = site.engine_gpus.iter().map(|of| {
        let labels = fact(ENGINE_GPUS.name, &[("model", &of.model), ("gpu_model", of.gpu.id)]);
        (labels, f64::from(of.count))
    });
    stated.extend(cards_of_model);
    stated
}

fn of_site(site: &SiteConfig, scrape_interval_seconds: f64) -> Vec<Stated> {
    let factors = [
        (SITE_PUE.name, site.pue),
        (SERVER_OVERHEAD_FACTOR.name, site.server_overhead_factor),
        (SITE_SCRAPE_INTERVAL_SECONDS.name, Some(scrape_interval_seconds)),
    ];
    factors.into_iter().filter_map(|(name, value)| Some((fact(name, &[]), value?))).collect()
}

/// The objectives of a model. A bound of a histogram is the label `le`, which some engines write `2` and some
/// `2.0`: both are stated, and an engine has one of them.
fn of_model(of: &crate::config::Objectives) -> Vec<Stated> {
    let mut stated = Vec::new();
    let model = ("model", &*of.model);
    for (kind, seconds) in [("ttft", of.ttft), ("tpot", of.tpot), ("itl", of.itl)] {
        let Some(seconds) = seconds else { continue };
        for bound in BTreeSet::from([format!("{seconds}"), format!("{seconds:?}")]) {
            let labels = fact(SLO_SECONDS.name, &[model, ("kind", kind), ("le", &bound)]);
            stated.push((labels, seconds));
        }
    }
    stated.extend(of.goodput.map(|share| (fact(SLO_GOODPUT_RATIO.name, &[model]), share)));
    stated
}

fn fact(name: &str, labels: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(labels.iter().copied().chain([("__name__", name)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EngineGpus, Objectives, Price};

    fn shown(stated: &[Stated]) -> Vec<String> {
        stated.iter().map(|(labels, value)| format!("{labels} {value}")).collect()
    }

    #[test]
    fn a_card_is_priced_under_each_of_its_names() {
        let gpu = peaks::find("h100-sxm").unwrap();
        let site = SiteConfig {
            prices: vec![Price { gpu, usd_per_gpu_hour: 2.5 }],
            price_revision: "r7".into(),
            engine_gpus: vec![EngineGpus { model: "chat".into(), gpu, count: 8 }],
            ..SiteConfig::default()
        };
        let names = ["NVIDIA H100 80GB HBM3", "NVIDIA X900"].map(str::to_owned).into();
        let stated = shown(&of_cards(&site, &names));
        for want in [
            r#"tg_price_usd_per_gpu_hour{gpu_model="NVIDIA H100 80GB HBM3",revision="r7"} 2.5"#,
            r#"tg_price_usd_per_gpu_hour{gpu_model="h100-sxm",revision="r7"} 2.5"#,
            r#"tg_peak_dram_bytes_per_second{gpu_model="NVIDIA H100 80GB HBM3"} 3350000000000"#,
            r#"tg_peak_flops{dtype="fp8",gpu_model="NVIDIA H100 80GB HBM3",kind="dense"} 1979000000000000"#,
            r#"tg_peak_flops{dtype="bf16",gpu_model="NVIDIA H100 80GB HBM3",kind="achievable"} 794500000000000"#,
            r#"tg_engine_gpus{gpu_model="h100-sxm",model="chat"} 8"#,
        ] {
            assert!(stated.iter().any(|have| have == want), "{want} is not in {stated:#?}");
        }
        assert!(!stated.iter().any(|have| have.contains("X900")), "a card that nobody knows has no figures");
    }

    #[test]
    fn an_objective_is_a_bound_in_both_spellings() {
        let of =
            Objectives { model: "chat".into(), ttft: Some(2.0), itl: Some(0.2), ..Objectives::default() };
        let want = [
            r#"tg_slo_seconds{kind="ttft",le="2",model="chat"} 2"#,
            r#"tg_slo_seconds{kind="ttft",le="2.0",model="chat"} 2"#,
            r#"tg_slo_seconds{kind="itl",le="0.2",model="chat"} 0.2"#,
        ];
        assert_eq!(shown(&of_model(&of)), want);
    }

    #[test]
    fn what_is_not_configured_is_not_stated() {
        let want = ["tg_site_scrape_interval_seconds 15"];
        assert_eq!(shown(&of_site(&SiteConfig::default(), 15.0)), want);
    }
}
