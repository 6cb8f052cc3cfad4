//! What the crate answers, asked through its public face.

mod change;
mod cluster;
mod energy;
mod hang;
mod hostile;
mod incidents;
mod missing;
mod remediation;
mod scene;
mod serving;
mod steps;
mod straggler;
mod straggler_hostile;
mod straggler_lates;
