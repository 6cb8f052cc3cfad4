//! The rules, asked of this checkout.

use std::collections::BTreeSet;
use std::path::Path;

use house::{BANNED, LAYERS, broken_absences, forbidden_edges, packages, root, unfit_licences};

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(!text.is_empty(), "{path} is missing or empty");
    text
}

fn none(found: Vec<String>, what_to_do: &str) {
    assert!(found.is_empty(), "{}\n{what_to_do}", found.join("\n"));
}

#[test]
fn crates_use_lower_layers_only() {
    none(
        forbidden_edges(&packages().unwrap()),
        "move the code to a lower layer, or pass it in as an argument",
    );
}

#[test]
fn a_sideways_edge_would_be_found() {
    let mut packages = packages().unwrap();
    let spool = packages.iter_mut().find(|p| p.name == "spool").unwrap();
    spool.uses.insert("wire".into());
    assert_eq!(forbidden_edges(&packages).len(), 1);
}

#[test]
fn crates_do_not_reach_what_they_must_not_know() {
    none(broken_absences(&packages().unwrap()), "see ARCHITECTURE.md for what each crate knows nothing of");
}

#[test]
fn licences_of_dependencies_fit() {
    none(unfit_licences(&packages().unwrap()), "choose another package");
}

#[test]
fn an_unfit_licence_would_be_found() {
    let mut packages = packages().unwrap();
    packages[0].licence = Some("GPL-3.0-only".into());
    assert_eq!(unfit_licences(&packages).len(), 1);
}

#[test]
fn heavy_builds_stay_out() {
    let names: BTreeSet<String> = packages().unwrap().into_iter().map(|p| p.name).collect();
    let found = BANNED.iter().filter(|(name, _)| names.contains(*name));
    none(
        found.map(|(name, why)| format!("`{name}` is in the tree: {why}")).collect(),
        "`cargo tree -i NAME` says who asks for it",
    );
}

#[test]
fn every_direct_dependency_has_its_line() {
    let page = read("docs/decisions/dependencies.md");
    let ours: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).chain(["house"]).collect();
    let asked: BTreeSet<String> =
        packages().unwrap().into_iter().filter(|p| p.ours).flat_map(|p| p.asks).collect();
    let missing =
        asked.iter().filter(|name| !ours.contains(name.as_str()) && !page.contains(&format!("`{name}`")));
    none(
        missing.map(|name| format!("`{name}` has no line")).collect(),
        "say in docs/decisions/dependencies.md why it is here",
    );
}

#[test]
fn architecture_names_every_crate_and_stays_short() {
    let page = read("ARCHITECTURE.md");
    let missing = LAYERS.iter().filter(|(name, _)| !page.contains(&format!("`{name}`")));
    none(missing.map(|(name, _)| format!("`{name}` is not in ARCHITECTURE.md")).collect(), "add a paragraph");
    assert!(page.lines().count() < 200, "ARCHITECTURE.md has {} lines", page.lines().count());
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut broken = Vec::new();
    let mut folders = vec![root(), root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && path.starts_with(root().join("docs")) {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                    let target = link.split('#').next().unwrap();
                    if !target.is_empty() && !target.contains("://") && !folder.join(target).exists() {
                        broken.push(format!("{}: {link}", path.display()));
                    }
                }
            }
        }
    }
    none(broken, "mend the link or add the page");
}

/// A page that names a test, as a link to its file, says what the test shows: so it has to be there.
#[test]
fn tests_that_documents_name_are_there() {
    let folder = root().join("docs/reference");
    let page = read("docs/reference/capture-cases.md");
    let links =
        page.split("[`").skip(1).filter_map(|rest| rest.split_once("`](")).filter_map(|(name, rest)| {
            let file = rest.split(')').next()?;
            Path::new(file).extension().is_none_or(|end| end != "md").then_some((name, file))
        });
    let links: Vec<(&str, &str)> = links.collect();
    assert!(links.len() > 30, "{} tests are named", links.len());
    let is_there = |(name, file): &(&str, &str)| {
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        [format!("fn {name}("), format!("def {name}(")].iter().any(|head| text.contains(head))
    };
    let missing = links.iter().filter(|link| !is_there(link));
    none(
        missing.map(|(name, file)| format!("`{name}` is not in {file}")).collect(),
        "name the test that shows it, in docs/reference/capture-cases.md",
    );
    let cases = (1..=25).filter(|case| !page.contains(&format!("| W{case} |")));
    none(cases.map(|case| format!("W{case} has no row")).collect(), "each case has one row");
}
