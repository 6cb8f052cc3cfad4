//! What a site says of itself, and what catalogues say.

use super::metrics;

metrics! {
    /// Facts of a site and of catalogues.
    SITES;
    PRICE_USD_PER_GPU_HOUR: gauge, "tg_price_usd_per_gpu_hour", Dollars, &["gpu_model", "revision"], B,
        "What an hour of a card costs.", "As the configuration has it.";
    PEAK_FLOPS: gauge, "tg_peak_flops", FlopsPerSecond, &["gpu_model", "dtype", "kind"], B,
        "Floating-point operations per second that a card can do: by its data sheet (`dense`) or as large \
         matrix products were seen to reach (`achievable`).",
        "Dense figures at boost clock; choose the format that is computed in, not the one that is stored.";
    PEAK_DRAM_BYTES_PER_SECOND: gauge, "tg_peak_dram_bytes_per_second", BytesPerSecond, &["gpu_model"], B,
        "Bytes per second that a card's memory can move.", "By the data sheet.";
    SITE_PUE: gauge, "tg_site_pue", None, &[], B,
        "Power of the whole site over that of its machines.", "As the configuration has it.";
    SERVER_OVERHEAD_FACTOR: gauge, "tg_server_overhead_factor", None, &[], B,
        "Power of a machine over that of its cards.", "As the configuration has it.";
    SITE_SCRAPE_INTERVAL_SECONDS: gauge, "tg_site_scrape_interval_seconds", Seconds, &[], A,
        "Time between two samples of a series of the fleet.";
    SLO_SECONDS: gauge, "tg_slo_seconds", Seconds, &["model", "kind", "le"], A,
        "An objective for a latency of a model, with its bound as a bucket's label.";
    SLO_GOODPUT_RATIO: gauge, "tg_slo_goodput_ratio", Ratio, &["model"], A,
        "Share of requests that is to meet its objectives.";
}
