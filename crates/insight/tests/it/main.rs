//! What the crate answers, asked through its public face.

mod hostile;
mod missing;
mod scene;
mod steps;
