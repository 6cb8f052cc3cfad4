//! Our own cases in Prometheus' test notation, and the foreign ones where they are at hand.

use std::path::{Path, PathBuf};

use crate::runner::{Tally, run_file};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "test"))
        .collect();
    files.sort();
    files
}

fn failures(tallies: &[Tally]) -> Vec<String> {
    let lines = |tally: &Tally| {
        let file = tally.file.clone();
        tally
            .failed
            .iter()
            .map(|(line, query, reason)| format!("{file}:{line}: {query}\n    {reason}"))
            .collect::<Vec<_>>()
    };
    tallies.iter().flat_map(lines).collect()
}

#[test]
fn own_cases_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let tallies: Vec<Tally> = files(&folder).iter().map(|path| run_file(path)).collect();
    let cases: usize = tallies.iter().map(|tally| tally.cases).sum();
    assert!(cases > 100, "only {cases} cases were found");
    let failed = failures(&tallies);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let left_out: usize = tallies.iter().map(|tally| tally.unsupported.len()).sum();
    assert_eq!(left_out, 0, "own cases are all supported");
}

#[test]
fn foreign_cases_hold_where_they_are_at_hand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/promqltest");
    let tallies: Vec<Tally> = files(&folder).iter().map(|path| run_file(path)).collect();
    let failed = failures(&tallies);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_wrong_expectation_would_be_found() {
    let tally = crate::runner::run_text("load 1m\n  x 1 2 3\n\neval instant at 2m x\n  x 4\n");
    assert_eq!((tally.cases, tally.passed, tally.failed.len()), (1, 0, 1));
}
