//! Notes the commit the program is built from, where there is one to ask for.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A missing path counts as changed each time, so only one that is there is watched.
    let log = Path::new("../../.git/logs/HEAD");
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = commit.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let commit = commit.and_then(|text| String::from_utf8(text).ok()).unwrap_or_default();
    println!("cargo:rustc-env=TRUEGAUGE_COMMIT={}", commit.trim());
}
