//! truegauge.
fn main() {}
