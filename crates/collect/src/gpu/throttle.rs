//! Why clocks are held back.

/// Label names and values beside `host` and `gpu`.
pub(crate) type Labels = &'static [(&'static str, &'static str)];

/// A field with time held back, in nanoseconds, and our word for the reason.
pub(crate) type Time = (u32, Labels);

/// The fields that every driver numbers alike.
const TIMES: [Time; 6] = [
    (74, &[("reason", "sw_power")]),
    (75, &[("reason", "thermal")]),
    (76, &[("reason", "sync_boost")]),
    (77, &[("reason", "board_limit")]),
    (78, &[("reason", "low_utilization")]),
    (79, &[("reason", "reliability")]),
];

const SW_THERMAL: Labels = &[("reason", "sw_thermal")];
const HW_THERMAL: Labels = &[("reason", "hw_thermal")];
const HW_POWER_BRAKE: Labels = &[("reason", "hw_power_brake")];

/// The reasons that drivers tell since 575, as 575.51 to 580.65 number them.
const FIRST: [Time; 3] = [(251, SW_THERMAL), (252, HW_THERMAL), (253, HW_POWER_BRAKE)];
/// The same as 580.82 and newer drivers number them, which gave the old numbers back to other fields.
const SECOND: [Time; 3] = [(269, SW_THERMAL), (270, HW_THERMAL), (271, HW_POWER_BRAKE)];

/// The fields with time held back that a driver of this version has.
///
/// Asked by the wrong number a driver answers with something else, so a version whose numbers nobody has
/// seen (before 575, between 580.65 and 580.82, none told) has the first six only.
pub(crate) fn times(driver: Option<(u32, u32)>) -> impl Iterator<Item = Time> {
    let later: &[Time] = match driver {
        Some(version) if version >= (580, 82) => &SECOND,
        Some(version) if ((575, 51)..=(580, 65)).contains(&version) => &FIRST,
        _ => &[],
    };
    TIMES.iter().chain(later).copied()
}

/// Major and minor number of a driver's version, such as `580.82.07`.
pub(crate) fn version(driver: &str) -> Option<(u32, u32)> {
    let mut numbers = driver.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}

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
