//! What the crate answers, asked through its public face.

mod missing;
mod scene;
