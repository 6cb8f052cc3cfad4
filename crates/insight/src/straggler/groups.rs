//! Who is compared with whom.

use std::collections::BTreeMap;

use super::{RankFacts, Ranks};

/// The groups of a job, by places of ranks.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    /// Peers: ranks of one stage and role.
    pub(super) peers: Vec<Vec<usize>>,
    /// The group of peers of each rank.
    pub(super) peers_of: Vec<usize>,
    /// Ranks of one host; those without a host are in none.
    pub(super) hosts: Vec<Vec<usize>>,
    /// The host of each rank.
    pub(super) host_of: Vec<Option<usize>>,
    /// Ranks that share every layer: they meet many times in a step, so all of them look late when one is.
    pub(super) tensor: Vec<Vec<usize>>,
    /// The tensor group of each rank.
    pub(super) tensor_of: Vec<Option<usize>>,
    /// Ranks of each stage.
    pub(super) stages: Vec<(u32, Vec<usize>)>,
}

impl Groups {
    pub(super) fn of(ranks: &Ranks) -> Self {
        let (peers, peers_of) = grouped(&ranks.0, |rank| Some((rank.stage, rank.role.clone())));
        let (hosts, host_of) = grouped(&ranks.0, |rank| (!rank.host.is_empty()).then(|| rank.host.clone()));
        let (tensor, tensor_of) = grouped(&ranks.0, |rank| {
            rank.tensor?;
            // Without a place among the replicas nothing tells the tensor groups of a stage apart.
            let replica = rank.data?;
            Some((rank.stage, replica, rank.expert, rank.context, rank.role.clone()))
        });
        let mut stages: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, rank) in ranks.0.iter().enumerate() {
            if let Some(stage) = rank.stage {
                stages.entry(stage).or_default().push(place);
            }
        }
        let peers_of = peers_of.into_iter().flatten().collect();
        let stages = stages.into_iter().collect();
        Self { peers, peers_of, hosts, host_of, tensor, tensor_of, stages }
    }

    /// The ranks of a rank's tensor group, itself included; only itself if it is in none.
    pub(super) fn tensor_id(&self, place: usize) -> usize {
        // Ranks without a group are told apart from groups by lying behind them.
        self.tensor_of[place].unwrap_or(self.tensor.len() + place)
    }
}

fn grouped<K: Ord>(
    ranks: &[RankFacts],
    key: impl Fn(&RankFacts) -> Option<K>,
) -> (Vec<Vec<usize>>, Vec<Option<usize>>) {
    let mut numbers: BTreeMap<K, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut of = Vec::with_capacity(ranks.len());
    for (place, rank) in ranks.iter().enumerate() {
        let number = key(rank).map(|key| {
            let next = numbers.len();
            *numbers.entry(key).or_insert(next)
        });
        of.push(number);
        let Some(number) = number else { continue };
        if number == groups.len() {
            groups.push(Vec::new());
        }
        groups[number].push(place);
    }
    (groups, of)
}
