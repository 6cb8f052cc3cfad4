//! Emits `cfg(tg_linux)`: the one gate between the half that reads a Linux machine and the half that
//! reads nothing.
//!
//! `TG_PRETEND_OFF_LINUX` in the environment turns it off on Linux, so that the other half can be
//! compiled and tested there. It does not prove that the crate builds for another target.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(tg_linux)");
    println!("cargo::rerun-if-env-changed=TG_PRETEND_OFF_LINUX");
    println!("cargo::rerun-if-changed=build.rs");
    let linux = std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux");
    let pretend =
        std::env::var_os("TG_PRETEND_OFF_LINUX").is_some_and(|value| !value.is_empty() && value != "0");
    if linux && !pretend {
        println!("cargo::rustc-cfg=tg_linux");
    }
}
