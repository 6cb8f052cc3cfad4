//! Says whether the build captures: `tg_linux` is set on Linux, and not when the build is asked to
//! pretend otherwise, so that the other half compiles and is tested here too.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(tg_linux)");
    println!("cargo::rerun-if-env-changed=TG_PRETEND_OFF_LINUX");
    println!("cargo::rerun-if-changed=build.rs");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let pretends =
        std::env::var_os("TG_PRETEND_OFF_LINUX").is_some_and(|value| !value.is_empty() && value != "0");
    if is_linux && !pretends {
        println!("cargo::rustc-cfg=tg_linux");
    }
}
