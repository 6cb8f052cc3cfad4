//! What tokens cost, in joules and in money.
//!
//! A price is of an hour in which a GPU is allocated, whether it works or not. So it matters what a rate of
//! tokens is the mean over: over all allocated time, idle hours are in it already; over busy time alone, it is
//! multiplied by the share that is busy first. [`Rate`] carries which, so that no share is applied twice.

/// Joules of a kilowatt-hour.
pub const JOULES_PER_KWH: f64 = 3.6e6;
const SECONDS_PER_HOUR: f64 = 3_600.0;
/// Prices are told for so many tokens.
const MILLION: f64 = 1e6;

/// Tokens per second, and what they are the mean over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// Over the time in which at least one request ran.
    Busy(f64),
    /// Over all the time that is paid for.
    Allocated(f64),
}

impl Rate {
    /// Tokens per second of busy time, where `occupancy` is the busy share of allocated time.
    pub fn busy(self, occupancy: f64) -> f64 {
        match self {
            Self::Busy(rate) => rate,
            Self::Allocated(rate) => rate / occupancy,
        }
    }

    /// Tokens per second of allocated time.
    pub fn allocated(self, occupancy: f64) -> f64 {
        match self {
            Self::Busy(rate) => rate * occupancy,
            Self::Allocated(rate) => rate,
        }
    }
}

/// US dollars for a million tokens, at a price of all GPUs together for an hour and tokens per second. None
/// where there are no tokens.
pub fn usd_per_mtok(usd_per_hour: f64, tokens_per_second: f64) -> Option<f64> {
    (tokens_per_second > 0.0).then(|| usd_per_hour / (tokens_per_second * SECONDS_PER_HOUR) * MILLION)
}

/// Tokens for a dollar.
pub fn tokens_per_usd(usd_per_hour: f64, tokens_per_second: f64) -> Option<f64> {
    (usd_per_hour > 0.0).then(|| tokens_per_second * SECONDS_PER_HOUR / usd_per_hour)
}

/// Tokens for a joule. None where no energy was measured, which is another thing than no tokens.
pub fn tokens_per_joule(tokens_per_second: f64, watts: f64) -> Option<f64> {
    (watts > 0.0).then(|| tokens_per_second / watts)
}

/// Joules for a token.
pub fn joules_per_token(tokens_per_second: f64, watts: f64) -> Option<f64> {
    (tokens_per_second > 0.0).then(|| watts / tokens_per_second)
}

/// Kilowatt-hours for a million tokens.
pub fn kwh_per_mtok(joules_per_token: f64) -> f64 {
    joules_per_token * MILLION / JOULES_PER_KWH
}

/// What stands between a GPU's board and the meter of the building.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facility {
    /// A server's power over that of its GPUs' boards: processors, fans, what power supplies lose.
    pub server_overhead_factor: f64,
    /// Power usage effectiveness: the facility's power over that of its servers.
    pub pue: f64,
}

impl Facility {
    /// The building's power over that of the boards.
    pub fn factor(self) -> f64 {
        self.server_overhead_factor * self.pue
    }

    /// Tokens for a joule that the building takes.
    pub fn tokens_per_joule(self, board_tokens_per_joule: f64) -> f64 {
        board_tokens_per_joule / self.factor()
    }

    /// US dollars of energy for a million tokens.
    pub fn energy_usd_per_mtok(self, joules_per_token: f64, usd_per_kwh: f64) -> f64 {
        kwh_per_mtok(joules_per_token) * self.factor() * usd_per_kwh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: f64 = 2_426.100_571_009_45;
    const WATTS: f64 = 597.282_048_199_869_8;

    fn is(found: Option<f64>, want: f64) {
        let found = found.unwrap();
        assert!((found - want).abs() <= want.abs() * 1e-9, "{found} is not {want}");
    }

    #[test]
    fn one_gpu_at_a_price_costs_what_it_costs_by_how_much_of_it_is_used() {
        for (occupancy, want) in
            [(1.0, 0.286_238_935_328_019_25), (0.6, 0.477_064_892_213_365_45), (0.3, 0.954_129_784_426_730_9)]
        {
            is(usd_per_mtok(2.5, Rate::Busy(TOKENS).allocated(occupancy)), want);
        }
        is(tokens_per_joule(TOKENS, WATTS), 4.061_901_037_075_199);
        is(tokens_per_usd(2.5, TOKENS), 1e6 / 0.286_238_935_328_019_25);
    }

    #[test]
    fn a_share_is_applied_once_whatever_the_rate_is_the_mean_over() {
        let busy = Rate::Busy(TOKENS);
        let whole = Rate::Allocated(TOKENS * 0.6);
        for rate in [busy, whole] {
            is(usd_per_mtok(2.5, rate.allocated(0.6)), 0.477_064_892_213_365_45);
            is(usd_per_mtok(2.5, rate.busy(0.6)), 0.286_238_935_328_019_25);
        }
    }

    #[test]
    fn a_facility_takes_more_than_its_boards() {
        let joules = joules_per_token(TOKENS, WATTS).unwrap();
        assert!((joules - 0.246_19).abs() < 5e-6, "{joules}");
        assert!((kwh_per_mtok(joules) - 0.068_386).abs() < 5e-7);
        let facility = Facility { server_overhead_factor: 1.4, pue: 1.3 };
        let per_joule = facility.tokens_per_joule(4.061_901_037_075_199);
        assert!((per_joule - 2.2318).abs() < 5e-5, "{per_joule}");
        let board_only = Facility { server_overhead_factor: 1.0, pue: 1.3 };
        let usd = board_only.energy_usd_per_mtok(joules, 0.12);
        assert!((usd - 0.010_67).abs() < 5e-6, "{usd}");
    }

    #[test]
    fn nothing_over_nothing_is_not_zero() {
        assert_eq!(usd_per_mtok(2.5, 0.0), None);
        assert_eq!(tokens_per_joule(10.0, 0.0), None);
        assert_eq!(joules_per_token(0.0, 10.0), None);
        assert_eq!(tokens_per_usd(0.0, 10.0), None, "a price of nothing");
        assert_eq!(tokens_per_joule(0.0, 10.0), Some(0.0), "no tokens is a fact");
    }
}
