//! Notices a newly built UI. The folder is made if it is missing: Cargo takes a missing path for a
//! changed one, and would build the crate again each time.

fn main() {
    let dist = std::path::Path::new("../../web/dist");
    // A source tree that can't be written to is fine: the crate is then only built more often.
    let _ = std::fs::create_dir_all(dist);
    println!("cargo:rerun-if-changed=../../web/dist");
    println!("cargo:rerun-if-changed=build.rs");
}
