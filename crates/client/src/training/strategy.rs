//! Which ranks export.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use md5::{Digest, Md5};
use semconv::export::RANK_STRATEGIES;

use crate::shared::lock;

/// A process's place, and what the switches say of the choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rank {
    /// Rank in the world.
    pub rank: u32,
    /// Ranks in the world.
    pub world_size: u32,
    /// Rank on the node, where the launcher gave one.
    pub local_rank: Option<u32>,
    /// The rank that `single_rank` means; below 0 the last.
    pub export_rank: i64,
    /// The share that `sampled` means.
    pub sample_rate: f64,
}

/// Says whether a rank exports; the error is why it couldn't say.
pub type Strategy = Arc<dyn Fn(&Rank) -> Result<bool, String> + Send + Sync>;

/// Why a strategy can't be registered, taken out or asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// There is one of that name.
    #[error("the strategy {0:?} is there already: choose another name, or allow overriding")]
    Exists(String),
    /// One that everybody knows.
    #[error("the strategy {0:?} is built in and can't be taken out")]
    BuiltIn(String),
    /// Not a name.
    #[error("a strategy needs a name")]
    Name,
    /// There is none of that name.
    #[error("there is no strategy {name:?}: known are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// It failed.
    #[error("the strategy {name:?} could not say whether this rank exports: {reason}")]
    Failed {
        /// Its name.
        name: String,
        /// What it said.
        reason: String,
    },
}

/// Strategies of the program's own.
fn own() -> &'static Mutex<BTreeMap<String, Strategy>> {
    static OWN: OnceLock<Mutex<BTreeMap<String, Strategy>>> = OnceLock::new();
    OWN.get_or_init(Mutex::default)
}

fn is_built_in(name: &str) -> bool {
    RANK_STRATEGIES.iter().any(|strategy| strategy.name == name)
}

/// Adds a strategy; with `allow_override` it may take the place of another one, built in or not.
pub fn register_strategy(name: &str, strategy: Strategy, allow_override: bool) -> Result<(), StrategyError> {
    let name = name.trim();
    if name.is_empty() {
        return Err(StrategyError::Name);
    }
    let mut own = lock(own());
    if !allow_override && (is_built_in(name) || own.contains_key(name)) {
        return Err(StrategyError::Exists(name.to_owned()));
    }
    own.insert(name.to_owned(), strategy);
    Ok(())
}

/// Takes a strategy of the program's own out again; whether it was there.
pub fn unregister_strategy(name: &str) -> Result<bool, StrategyError> {
    let removed = lock(own()).remove(name).is_some();
    if !removed && is_built_in(name) {
        return Err(StrategyError::BuiltIn(name.to_owned()));
    }
    Ok(removed)
}

/// The names of all strategies, sorted.
pub fn known_strategies() -> Vec<String> {
    let mut names: Vec<String> = RANK_STRATEGIES.iter().map(|strategy| strategy.name.to_owned()).collect();
    names.extend(lock(own()).keys().filter(|name| !is_built_in(name)).cloned());
    names.sort_unstable();
    names
}

/// Whether a strategy of that name is there.
pub(crate) fn is_known(name: &str) -> bool {
    is_built_in(name) || lock(own()).contains_key(name)
}

/// Asks a strategy for a rank. No lock is held while it thinks.
pub(crate) fn decide(name: &str, rank: &Rank) -> Result<bool, StrategyError> {
    let custom = lock(own()).get(name).cloned();
    if let Some(custom) = custom {
        return custom(rank).map_err(|reason| StrategyError::Failed { name: name.to_owned(), reason });
    }
    match name {
        "single_rank" => Ok(if rank.export_rank < 0 {
            rank.rank + 1 == rank.world_size
        } else {
            i64::from(rank.rank) == rank.export_rank
        }),
        "all_ranks" => Ok(true),
        "first_rank_per_node" => Ok(rank.local_rank.unwrap_or(0) == 0),
        "sampled" => Ok(is_sampled(rank.rank, rank.sample_rate)),
        _ => Err(StrategyError::Unknown { name: name.to_owned(), known: known_strategies().join(", ") }),
    }
}

/// Whether a rank is among those that a rate means; the same rank always decides alike.
pub(crate) fn is_sampled(rank: u32, rate: f64) -> bool {
    f64::from(rank_bucket(rank)) / 10_000.0 < rate
}

/// Where a rank stands among 10,000: the MD5 of its decimal digits as one number, modulo that.
pub fn rank_bucket(rank: u32) -> u32 {
    let digest = Md5::digest(rank.to_string().as_bytes());
    digest.iter().fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, world_size: u32) -> Rank {
        Rank { rank, world_size, local_rank: None, export_rank: -1, sample_rate: 1.0 }
    }

    fn says(name: &str, of: Rank) -> bool {
        decide(name, &of).unwrap()
    }

    #[test]
    fn buckets_are_those_of_the_reference() {
        let want =
            [7850, 8411, 9212, 883, 1900, 693, 412, 5555, 3101, 8374, 1824, 2650, 8112, 4873, 6038, 7603];
        assert_eq!((0..16).map(rank_bucket).collect::<Vec<_>>(), want);
    }

    #[test]
    fn sampled_ranks_are_those_of_the_reference() {
        let of = |world: u32, rate: f64| -> Vec<u32> {
            let sampled = |r: &u32| says("sampled", Rank { sample_rate: rate, ..rank(*r, world) });
            (0..world).filter(sampled).collect()
        };
        assert_eq!(of(64, 0.1), [3, 5, 6, 31, 55]);
        assert_eq!(of(64, 0.25), [3, 4, 5, 6, 10, 30, 31, 37, 50, 55, 57, 62]);
        assert_eq!([0.01, 0.1, 0.5].map(|rate| of(1024, rate).len()), [12, 115, 518]);
        assert_eq!((of(64, 0.0).len(), of(64, 1.0).len()), (0, 64));
    }

    #[test]
    fn built_in_strategies_choose_as_their_names_say() {
        let single = |of: u32, export_rank: i64| says("single_rank", Rank { export_rank, ..rank(of, 8) });
        assert!(single(7, -1) && single(7, -2) && !single(0, -1) && single(0, 0) && !single(7, 0));
        assert!(!(0..8).any(|r| single(r, 8)), "a rank that is not there");
        assert!(says("all_ranks", rank(3, 8)));
        let node = |local_rank| says("first_rank_per_node", Rank { local_rank, ..rank(3, 8) });
        assert!(node(None) && node(Some(0)) && !node(Some(3)));
        let unknown = decide("nope", &rank(0, 1)).unwrap_err();
        assert!(unknown.to_string().contains("single_rank"), "{unknown}");
    }

    #[test]
    fn own_strategies_come_and_go_and_built_in_ones_stay() {
        let odd: Strategy = Arc::new(|rank| Ok(rank.rank % 2 == 1));
        register_strategy("strategy_test_odd", Arc::clone(&odd), false).unwrap();
        assert!(says("strategy_test_odd", rank(1, 4)) && !says("strategy_test_odd", rank(2, 4)));
        assert!(known_strategies().contains(&"strategy_test_odd".to_owned()));
        let again = register_strategy("strategy_test_odd", Arc::clone(&odd), false);
        assert!(matches!(again, Err(StrategyError::Exists(_))));
        assert!(matches!(register_strategy("all_ranks", odd, false), Err(StrategyError::Exists(_))));
        assert_eq!(unregister_strategy("strategy_test_odd"), Ok(true));
        assert_eq!(unregister_strategy("strategy_test_odd"), Ok(false));
        assert!(matches!(unregister_strategy("sampled"), Err(StrategyError::BuiltIn(_))));
        let broken: Strategy = Arc::new(|_| Err("no".into()));
        register_strategy("strategy_test_broken", broken, false).unwrap();
        assert!(matches!(decide("strategy_test_broken", &rank(0, 1)), Err(StrategyError::Failed { .. })));
        unregister_strategy("strategy_test_broken").unwrap();
    }
}
