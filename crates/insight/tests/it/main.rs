//! What the crate answers, asked through its public face.

mod energy;
mod hostile;
mod incidents;
mod missing;
mod scene;
mod serving;
mod steps;
