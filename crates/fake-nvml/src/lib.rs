//! A driver library for tests: NVML's C interface, answered from a scenario file.
//!
//! It is loaded the way the real library is, by `dlopen`, so a test goes through the same loader, the
//! same structures and the same threads. The scenario lies beside the library as `scenario.toml` and
//! is looked at again before every call, so a test changes the machine by writing it anew. What it may
//! say: see [`Scenario`]. It proves our side of the interface, never the real driver's.

mod abi;
mod scenario;
mod stage;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

pub use scenario::{Answer, Event, Gpu, Instance, Process, Scenario};

/// The file beside the library that says what it answers.
pub const SCENARIO: &str = "scenario.toml";
/// The file beside the library that gets a line for every call: its name and the device's index.
pub const CALLS: &str = "calls.log";

/// Puts a library of its own into `folder`, named as the driver's, with this scenario; gives its path.
///
/// A copy is a library with a state of its own, so tests in one process do not meet. Works in a test or an
/// example of a crate that has this one among its dev-dependencies: cargo then builds both beside each
/// other. Other programs take the file that `cargo build -p fake-nvml` leaves in `target/debug`.
pub fn install(folder: &Path, scenario: &str) -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let name = format!("{}fake_nvml{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let beside = program.with_file_name(&name);
    // An example lies in a folder of its own.
    let above = program.parent().and_then(Path::parent).map(|above| above.join("deps").join(&name));
    let built = above.filter(|above| !beside.exists() && above.exists()).unwrap_or(beside);
    let library = folder.join("libnvidia-ml.so.1");
    std::fs::copy(&built, &library).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot copy `{}`: {error}", built.display()))
    })?;
    play(folder, scenario)?;
    Ok(library)
}

/// As [`install`], with a library that lacks these functions, as an older or a foreign one does.
pub fn install_without(folder: &Path, scenario: &str, functions: &[&str]) -> io::Result<PathBuf> {
    let library = install(folder, scenario)?;
    let mut bytes = std::fs::read(&library)?;
    for function in functions {
        // The name of a function stands between two NULs in the table of names. With another first letter
        // the loader does not find it.
        let name = [b"\0", function.as_bytes(), b"\0"].concat();
        let places: Vec<usize> =
            bytes.windows(name.len()).enumerate().filter(|(_, w)| *w == name).map(|(at, _)| at).collect();
        if places.is_empty() {
            let missing = format!("cannot take `{function}` out of `{}`: it has none", library.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, missing));
        }
        for at in places {
            bytes[at + 1] = b'x';
        }
    }
    std::fs::write(&library, bytes)?;
    Ok(library)
}

/// Puts another scenario in the place of the one in `folder`, at once and whole.
pub fn play(folder: &Path, scenario: &str) -> io::Result<()> {
    let mut name = OsString::from(SCENARIO);
    name.push(".new");
    std::fs::write(folder.join(&name), scenario)?;
    std::fs::rename(folder.join(&name), folder.join(SCENARIO))
}

/// How often `function` was called for the device `gpu` by the library in `folder`.
pub fn calls(folder: &Path, function: &str, gpu: u32) -> usize {
    lines(folder, &format!("{function} {gpu}"))
}

/// How often `function`, which concerns no device, was called by the library in `folder`.
pub fn system_calls(folder: &Path, function: &str) -> usize {
    lines(folder, function)
}

fn lines(folder: &Path, wanted: &str) -> usize {
    let log = std::fs::read_to_string(folder.join(CALLS)).unwrap_or_default();
    log.lines().filter(|line| *line == wanted).count()
}
