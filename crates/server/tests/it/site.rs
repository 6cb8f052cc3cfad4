//! The facts of a site as series: there from the first round, ended when they change, a card under all its names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use server::Config;

use crate::pages::{INTERVAL, Pages, Scraping};

/// Settings as a file has them, over others.
pub(crate) fn settings(text: &str, mut config: Config) -> Config {
    let file = config.data_dir.parent().unwrap().join("settings.toml");
    std::fs::write(&file, text).unwrap();
    config.own_metrics = true;
    config.own_metrics_interval = Duration::from_millis(50);
    Config::resolve(config, &BTreeMap::new(), &|_| None, Some(&file)).unwrap()
}

/// A server whose settings are this text, and are read anew from it.
fn with_settings(text: &Arc<Mutex<String>>, scrape: Vec<String>) -> Scraping {
    let text = Arc::clone(text);
    Scraping::with_config(move |config| {
        config.scrape.clone_from(&scrape);
        let (base, text) = (config.clone(), Arc::clone(&text));
        let read = move || settings(&text.lock().unwrap(), base.clone());
        *config = read();
        config.reread = server::Reread::new(move || Ok(read()));
    })
}

#[test]
fn a_price_of_another_list_takes_the_place_of_the_one_before() {
    let text = Arc::new(Mutex::new(
        "[site]\nprices = ['h100-sxm=2.50']\nprice_revision = 'r1'\npue = 1.3".to_owned(),
    ));
    let mut server = with_settings(&text, Vec::new());
    let price = "tg_price_usd_per_gpu_hour";
    server.becomes(&format!("{price}{{gpu_model=\"h100-sxm\",revision=\"r1\"}}"), 2.5);
    server.becomes("tg_site_pue", 1.3);
    server.becomes("tg_site_scrape_interval_seconds", INTERVAL.as_secs_f64());
    *text.lock().unwrap() = "[site]\nprices = ['h100-sxm=3']\nprice_revision = 'r2'".to_owned();
    ureq::post(&format!("{}/-/reload", server.url())).send_empty().unwrap();
    server.becomes(price, 3.0);
    server.vanishes("tg_site_pue");
    // What the server before said is ended by the next one, which never said it.
    *text.lock().unwrap() = "[site]\nprices = ['h100-sxm=4']\nprice_revision = 'r3'".to_owned();
    server.restart();
    server.vanishes(&format!("{price}{{revision=\"r2\"}}"));
    server.becomes(price, 4.0);
}

#[test]
fn a_card_that_is_seen_is_priced_under_its_drivers_name() {
    let pages = Pages::start();
    pages.set(
        "d",
        "tg_gpu_info{host=\"n1\",gpu=\"0\",uuid=\"GPU-0\",gpu_model=\"NVIDIA H100 80GB HBM3\"} 1\n",
    );
    let text = Arc::new(Mutex::new("[site]\nprices = ['h100-sxm=2.50']".to_owned()));
    let server = with_settings(&text, vec![pages.url("d")]);
    server.becomes("tg_gpu_info * on (gpu_model) group_left () tg_price_usd_per_gpu_hour", 2.5);
    server.becomes(
        "tg_gpu_info * on (gpu_model) group_left () tg_peak_flops{dtype=\"bf16\",kind=\"achievable\"}",
        794.5e12,
    );
    server.becomes("tg_gpu_info * on (gpu_model) group_left () tg_peak_dram_bytes_per_second", 3.35e12);
}

#[test]
fn settings_that_cannot_be_used_name_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("settings.toml");
    let check = |text: &str, want: &str| {
        std::fs::write(&file, text).unwrap();
        let error = Config::resolve(Config::default(), &BTreeMap::new(), &|_| None, Some(&file)).unwrap_err();
        assert!(error.to_string().contains(want), "{text}: {error}");
    };
    check("site_prices = ['h100-sxm=-2']", "the price of `h100-sxm` is `-2`");
    check("site_prices = ['x900=2']", "the card `x900` is not known");
    check("site_objectives = ['chat e2e=2']", "known are `ttft`, `tpot`, `itl` and `goodput`");
    check("site_pue = 0.5", "wanted a factor of at least 1");
}
