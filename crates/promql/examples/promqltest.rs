//! Runs every `*.test` file of a folder and prints what passed: `promqltest DIR [FILE...]`.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

#[path = "../tests/runner/mod.rs"]
mod runner;

use std::path::PathBuf;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        println!("usage: promqltest DIR [FILE...]");
        return;
    };
    let only: Vec<String> = arguments.collect();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "test"))
        .filter(|path| only.is_empty() || only.iter().any(|name| path.ends_with(name)))
        .collect();
    files.sort();
    let tallies: Vec<runner::Tally> = files.iter().map(|path| runner::run_file(path)).collect();
    for tally in &tallies {
        for (line, query, reason) in &tally.failed {
            let reason: String = reason.chars().take(600).collect();
            println!("FAILED {}:{line}: {query}\n    {reason}", tally.file);
        }
    }
    println!(
        "{:<28} {:>6} {:>7} {:>7} {:>14} {:>6}",
        "file", "cases", "passed", "failed", "not supported", "loose"
    );
    let mut total = [0; 5];
    for tally in &tallies {
        let row = [tally.cases, tally.passed, tally.failed.len(), tally.unsupported.len(), tally.loose];
        total.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        println!("{:<28} {:>6} {:>7} {:>7} {:>14} {:>6}", tally.file, row[0], row[1], row[2], row[3], row[4]);
    }
    println!(
        "{:<28} {:>6} {:>7} {:>7} {:>14} {:>6}",
        "all", total[0], total[1], total[2], total[3], total[4]
    );
    if std::env::var_os("REASONS").is_some() {
        for tally in &tallies {
            for (line, query, reason) in &tally.unsupported {
                println!("LEFT OUT {}:{line}: {query}: {reason}", tally.file);
            }
        }
    }
}
