//! Why clocks are held back.

/// The fields with time held back and our word for each reason.
///
/// The reasons that later drivers added have other numbers in NVML 12 than in 13, so they are left out:
/// a number that means something else would pass for time.
pub(crate) const TIMES: [(u32, Labels); 6] = [
    (74, &[("reason", "sw_power")]),
    (75, &[("reason", "thermal")]),
    (76, &[("reason", "sync_boost")]),
    (77, &[("reason", "board_limit")]),
    (78, &[("reason", "low_utilization")]),
    (79, &[("reason", "reliability")]),
];

/// Label names and values beside `host` and `gpu`.
pub(crate) type Labels = &'static [(&'static str, &'static str)];

const BITS: [(u64, &str); 9] = [
    (0x1, "idle"),
    (0x2, "application_clocks"),
    (0x4, "sw_power"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clocks"),
];

/// The reasons in the driver's mask, in words; a bit that we do not know is `unknown`, once.
///
/// For display: the mask is a moment, and `sw_power` alone is normal under full load. How long clocks
/// were held back is `system/gpu/throttled_seconds_total`.
pub fn throttle_reasons(mask: u64) -> impl Iterator<Item = &'static str> {
    let known = BITS.iter().fold(0, |bits, (bit, _)| bits | bit);
    let unknown = (mask & !known != 0).then_some("unknown");
    BITS.iter().filter(move |(bit, _)| mask & bit != 0).map(|(_, word)| *word).chain(unknown)
}
