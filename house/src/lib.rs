//! The house rules that a test can hold: who may use whom, and under which licence.
//!
//! Not shipped. `house/tests/rules.rs` asks these functions of this checkout.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Every crate of ours and its layer: a crate may use lower layers only, never a sibling.
/// The same table is the picture in `ARCHITECTURE.md`.
pub const LAYERS: [(&str, u8); 16] = [
    ("model", 0),
    ("fake-nvml", 0),
    ("wire", 1),
    ("collect", 1),
    ("scrape", 1),
    ("semconv", 1),
    ("spool", 1),
    ("store", 1),
    ("promql", 1),
    ("insight", 1),
    ("simulate", 1),
    ("agent", 2),
    ("client", 2),
    ("server", 2),
    ("cli", 3),
    ("py", 3),
];

/// What a crate must not reach, however many steps away, and why.
pub const ABSENCES: [(&str, &str, &str); 16] = [
    ("model", "serde", "core types are not tied to a format"),
    ("wire", "tokio", "bytes in, model out: no sockets"),
    ("collect", "ureq", "reading a machine needs no network"),
    ("collect", "tokio", "the sampler is a plain thread"),
    ("collect", "fake-nvml", "the fake driver is for tests; the wheel carries none of it"),
    ("cli", "fake-nvml", "the fake driver is for tests; the program carries none of it"),
    ("wire", "opentelemetry-proto", "derived messages are for tests: decision 0011"),
    ("scrape", "tokio", "a few named threads fetch pages"),
    ("scrape", "prost", "the page parser comes in as an argument"),
    ("scrape", "redb", "what was scraped goes out through a sink"),
    ("spool", "prost", "a spool does not know what it carries"),
    ("store", "tokio", "the store is plain threads; the server wraps it"),
    ("insight", "serde_json", "pure functions: formats belong to those who ask, decision 0019"),
    ("client", "hyper", "one gRPC connection at a time needs no pool and no service layer: decision 0014"),
    ("client", "redb", "a training process carries no database"),
    ("py", "axum", "a training process never maps the server"),
];

/// Crates that must not be in the tree at all, and why.
pub const BANNED: [(&str, &str); 3] = [
    ("aws-lc-sys", "a large C build; rustls runs on ring"),
    ("openssl-sys", "a system library; rustls does it"),
    ("protobuf-src", "a C++ build; messages are derived"),
];

/// Licences that fit Apache-2.0.
pub const LICENCES: [&str; 12] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "BSL-1.0",
    "Unicode-3.0",
    "CDLA-Permissive-2.0",
];

/// One package of the dependency graph.
#[derive(Debug, Clone)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SPDX expression it declares, if any.
    pub licence: Option<String>,
    /// Whether it is ours.
    pub ours: bool,
    /// Names of what it uses outside tests and build scripts.
    pub uses: BTreeSet<String>,
    /// Names of what its manifest asks for, tests included.
    pub asks: BTreeSet<String>,
}

/// The checkout's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Reads the graph of this platform from `cargo metadata`, offline.
pub fn packages() -> Result<Vec<Package>> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let printed = cargo(&["metadata", "--format-version", "1", "--filter-platform", &platform])?;
    let mut packages = parse(&serde_json::from_slice(&printed).context("`cargo metadata` printed no JSON")?)?;
    // `metadata` turns on features that other platforms ask for; what is built is in the tree.
    let tree = cargo(&["tree", "--workspace", "--edges", "all", "--prefix", "none", "--target", &platform])?;
    let tree = String::from_utf8(tree).context("`cargo tree` printed no text")?;
    let built: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    packages.retain(|package| package.ours || built.contains(&(&*package.name, &*package.version)));
    Ok(packages)
}

/// What a subcommand of cargo prints, asked offline.
fn cargo(args: &[&str]) -> Result<Vec<u8>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(args)
        .args(["--offline", "--locked"])
        .current_dir(root())
        .output()
        .with_context(|| format!("cannot run `cargo {}`", args[0]))?;
    if !output.status.success() {
        bail!("`cargo {}` failed: {}", args[0], String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

fn parse(metadata: &Value) -> Result<Vec<Package>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let names: BTreeMap<String, String> =
        packages.iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let normal = list(&node["deps"])
            .into_iter()
            .filter(|dep| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()));
        let of = uses.entry(text(&node["id"])).or_default();
        of.extend(normal.filter_map(|dep| names.get(&text(&dep["pkg"])).cloned()));
    }
    if packages.is_empty() || uses.is_empty() {
        bail!("`cargo metadata` names no packages");
    }
    Ok(packages
        .iter()
        .map(|p| Package {
            name: text(&p["name"]),
            version: text(&p["version"]),
            licence: p["license"].as_str().map(str::to_owned),
            ours: p["source"].is_null(),
            uses: uses.get(&text(&p["id"])).cloned().unwrap_or_default(),
            asks: list(&p["dependencies"]).iter().map(|d| text(&d["name"])).collect(),
        })
        .collect())
}

/// Edges between our crates that go up or sideways, in words.
pub fn forbidden_edges(packages: &[Package]) -> Vec<String> {
    let layer = |name: &str| LAYERS.iter().find(|(n, _)| *n == name).map(|(_, layer)| *layer);
    let mut found = Vec::new();
    for package in packages.iter().filter(|p| p.ours && p.name != "house") {
        let Some(own) = layer(&package.name) else {
            found.push(format!(
                "crate `{}` is in no layer: give it one in house/src/lib.rs and ARCHITECTURE.md",
                package.name
            ));
            continue;
        };
        for used in package.uses.union(&package.asks) {
            if layer(used).is_some_and(|of| of >= own) {
                found.push(format!("`{}` (layer {own}) uses `{used}`, which is not below it", package.name));
            }
        }
    }
    found
}

/// Crates of ours that reach what they must not know, in words.
pub fn broken_absences(packages: &[Package]) -> Vec<String> {
    let mut by_name: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        by_name.entry(&package.name).or_default().extend(package.uses.iter().map(String::as_str));
    }
    let reach = |from: &'static str| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
        let mut names: BTreeSet<String> = BTreeSet::new();
        while let Some(name) = todo.pop() {
            if seen.insert(name.to_owned()) {
                todo.extend(by_name.get(name).into_iter().flatten().copied());
                names.insert(name.to_owned());
            }
        }
        names
    };
    ABSENCES
        .iter()
        .filter(|(ours, theirs, _)| reach(ours).contains(*theirs))
        .map(|(ours, theirs, why)| format!("`{ours}` reaches `{theirs}`: {why}"))
        .collect()
}

/// Packages whose licence does not fit, in words.
pub fn unfit_licences(packages: &[Package]) -> Vec<String> {
    let fits = |expression: &str| {
        spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX).is_ok_and(|parsed| {
            parsed.evaluate(|wanted| wanted.license.id().is_some_and(|id| LICENCES.contains(&id.name)))
        })
    };
    packages
        .iter()
        .filter(|p| !p.licence.as_deref().is_some_and(fits))
        .map(|p| format!("{} {} declares {:?}", p.name, p.version, p.licence))
        .collect()
}
