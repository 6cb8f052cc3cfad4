//! Files of rules that people save in the server: rows of the store, so that they are durable, and in
//! backups. None stands in for a rule of another file unless it says so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use promql::rules::{Bounds, ReadFiles, RuleKind, RuleText, Verdict, parse};
use serde::{Deserialize, Serialize};
use store::{Batch, Store};
use utoipa::ToSchema;

use super::Tested;
use super::files::Groups;
use crate::app::App;
use crate::clock::now_ms;
use crate::starters;

/// What the names of these files begin with.
pub(crate) const FOLDER: &str = "saved/";
const ROWS: &[u8] = b"rules/";
const NAME_BYTES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 256 << 10;
const FILES_MAX: usize = 200;
const RULES_MAX: usize = 1_000;
/// A million values are ten weeks of ten series each minute. While tests run nobody else saves, but settings
/// are read anew.
const BOUNDS: Bounds = Bounds { values: 1_000_000, time: Duration::from_secs(10) };

/// A saved file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SavedFile {
    /// Its name, without `.yml`.
    pub(crate) name: String,
    /// Rules, in Prometheus' YAML.
    pub(crate) text: String,
    /// Their tests, in promtool's YAML; null where it has none.
    pub(crate) tests: Option<String>,
    /// Names of rules of other files that are out of force because of this one.
    pub(crate) replaces: Vec<String>,
    /// When it was saved, milliseconds since the epoch.
    pub(crate) saved_at: i64,
    /// By whom.
    pub(crate) saved_by: String,
}

impl SavedFile {
    /// As the list of rules calls it.
    pub(crate) fn file(&self) -> String {
        format!("{FOLDER}{}.yml", self.name)
    }

    /// Its rules; none where it can't be read any more.
    pub(crate) fn rules(&self) -> Vec<RuleText> {
        let groups = parse(&self.text).map(|file| file.groups).unwrap_or_default();
        groups.into_iter().flat_map(|group| group.rules).collect()
    }

    /// How its tests fare; an error says why there are none.
    pub(crate) fn verdicts(&self, tested: &Tested) -> Result<Arc<Vec<Verdict>>, String> {
        let tests = self.tests.as_deref().ok_or("it was saved without tests")?;
        let own = format!("{}.yml", self.name);
        let read = |pattern: &str| {
            let name = pattern.rsplit('/').next().unwrap_or(pattern);
            if name == own {
                return Ok(vec![(own.clone(), self.text.clone())]);
            }
            let starter = starters::rules().into_iter().find(|(starter, _)| starter == name);
            let known = format!("`{own}`, or a file that comes with the program");
            starter.map(|file| vec![file]).ok_or_else(|| format!("`{pattern}` is not here: name {known}"))
        };
        let run = |read: &ReadFiles<'_>| promql::rules::test_within(tests, read, BOUNDS);
        tested.of(&self.file(), tests, &read, run).map_err(|findings| in_words(&findings))
    }
}

/// What somebody wants to save.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFile {
    /// Rules, in Prometheus' YAML.
    text: String,
    /// Their tests, in promtool's YAML; an empty text takes them away, without one those that it has stay.
    #[serde(default)]
    tests: Option<String>,
    /// Names of rules of other files that this one stands in for; without a list those that it has stay.
    #[serde(default)]
    replaces: Option<Vec<String>>,
}

impl NewFile {
    /// The expressions of its rules.
    pub(crate) fn expressions(&self) -> Vec<String> {
        let groups = parse(&self.text).map(|file| file.groups).unwrap_or_default();
        groups.into_iter().flat_map(|group| group.rules).map(|rule| rule.expr).collect()
    }
}

/// Why a file is not saved, or not removed.
#[derive(Debug)]
pub(crate) enum SaveError {
    /// It makes no sense.
    Wrong(String),
    /// Rules of other files stand in its way.
    Taken(String),
    /// It can't be kept, or not be put in force.
    Unkept(String),
}

fn in_words(findings: &[promql::rules::Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A file's name, which is a word: no path, no dots.
fn checked_name(name: &str) -> Result<&str, SaveError> {
    let word = name.strip_suffix(".yml").unwrap_or(name);
    let is_word = word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_word && word.len() <= NAME_BYTES_MAX {
        return Ok(word);
    }
    let rule = format!("1 to {NAME_BYTES_MAX} letters, digits, `_` and `-`, a letter or digit first");
    Err(SaveError::Wrong(format!("`{}` is no name of a file of rules: {rule}", crate::api::shown(name))))
}

/// All saved files, by name. One that can't be read is left out.
pub(crate) fn all(store: &Store) -> Vec<SavedFile> {
    let rows = store.state(ROWS).unwrap_or_else(|error| {
        tracing::error!(%error, "saved rules can't be read: none is in force");
        Vec::new()
    });
    let read = |(key, bytes): (Vec<u8>, Vec<u8>)| {
        let file = serde_json::from_slice::<SavedFile>(&bytes);
        let key = String::from_utf8_lossy(&key).into_owned();
        file.inspect_err(|error| tracing::error!(%error, key, "a saved file of rules can't be read")).ok()
    };
    let mut all: Vec<SavedFile> = rows.into_iter().filter_map(read).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// One saved file.
pub(crate) fn one(store: &Store, name: &str) -> Option<SavedFile> {
    let name = checked_name(name).ok()?.to_owned();
    all(store).into_iter().find(|file| file.name == name)
}

/// Checks a file, keeps it, and puts it in force.
pub(crate) fn save(app: &App, name: &str, new: NewFile, by: &str) -> Result<SavedFile, SaveError> {
    let name = checked_name(name)?.to_owned();
    let _one_at_a_time = app.reloads.saving();
    let mut files = all(&app.store);
    let before = files.iter().position(|file| file.name == name).map(|at| files.remove(at));
    if files.len() >= FILES_MAX {
        return Err(SaveError::Wrong(format!("{FILES_MAX} files are saved already: remove some")));
    }
    let (tests, replaces) = before.clone().map(|file| (file.tests, file.replaces)).unwrap_or_default();
    let file = SavedFile {
        name,
        text: new.text,
        tests: new.tests.or(tests).filter(|tests| !tests.trim().is_empty()),
        replaces: new.replaces.unwrap_or(replaces),
        saved_at: now_ms(),
        saved_by: by.to_owned(),
    };
    check(&file, &app.reloads.tested)?;
    let _no_reload = app.reloads.turn();
    app.reloads.rulebook.look(|others| check_beside(&file, others, &files))?;
    keep(&app.store, &file.name, Some(&file))?;
    let new = files.iter().cloned().chain([file.clone()]).collect();
    if let Err(error) = put(app, new) {
        files.extend(before.clone());
        return Err(put_back(app, &file.name, before.as_ref(), files, error));
    }
    let (name, rules, replaces) = (file.file(), file.rules().len(), file.replaces.join(" "));
    tracing::info!(file = name, rules, replaces, by, "rules are saved and in force");
    Ok(file)
}

/// Removes a file; false when there is none of this name.
pub(crate) fn remove(app: &App, name: &str, by: &str) -> Result<bool, SaveError> {
    let name = checked_name(name)?;
    let _one_at_a_time = app.reloads.saving();
    let _no_reload = app.reloads.turn();
    let mut files = all(&app.store);
    let Some(at) = files.iter().position(|file| file.name == name) else { return Ok(false) };
    let file = files.remove(at);
    keep(&app.store, &file.name, None)?;
    if let Err(error) = put(app, files.clone()) {
        files.push(file.clone());
        return Err(put_back(app, &file.name, Some(&file), files, error));
    }
    let (name, replaces) = (file.file(), file.replaces.join(" "));
    tracing::info!(file = name, replaces, by, "saved rules are removed, and what they replaced is in force");
    Ok(true)
}

fn put(app: &App, mut files: Vec<SavedFile>) -> Result<(), SaveError> {
    files.sort_by(|a, b| a.name.cmp(&b.name));
    super::again(app, &files).map_err(|error| SaveError::Unkept(error.to_string()))
}

/// Keeps and puts in force what was before, so that the next start has nothing that is not in force now.
fn put_back(
    app: &App,
    name: &str,
    before: Option<&SavedFile>,
    files: Vec<SavedFile>,
    why: SaveError,
) -> SaveError {
    let back = keep(&app.store, name, before).and_then(|()| put(app, files));
    if let Err(SaveError::Unkept(error)) = back {
        tracing::error!(error, file = name, "what was before a change of saved rules is not in force again");
    }
    why
}

fn keep(store: &Store, name: &str, file: Option<&SavedFile>) -> Result<(), SaveError> {
    let unkept = |error: &dyn std::fmt::Display| SaveError::Unkept(error.to_string());
    let bytes = file.map(serde_json::to_vec).transpose().map_err(|error| unkept(&error))?;
    let state = vec![([ROWS, name.as_bytes()].concat(), bytes)];
    store.append(Batch { state, ..Batch::default() }).map_err(|error| unkept(&error))?;
    Ok(())
}

/// That a file is one, and passes its tests.
fn check(file: &SavedFile, tested: &Tested) -> Result<(), SaveError> {
    let texts = [Some(&file.text), file.tests.as_ref()];
    if texts.into_iter().flatten().any(|text| text.len() > TEXT_BYTES_MAX) {
        let reason = format!("rules and tests have at most {TEXT_BYTES_MAX} bytes each: use several files");
        return Err(SaveError::Wrong(reason));
    }
    let parsed = parse(&file.text).map_err(|findings| SaveError::Wrong(in_words(&findings)))?;
    let rules: usize = parsed.groups.iter().map(|group| group.rules.len()).sum();
    if rules == 0 || rules > RULES_MAX {
        return Err(SaveError::Wrong(format!("a file has 1 to {RULES_MAX} rules, this one has {rules}")));
    }
    // As it is put in force: what fails here would only be told in the log there.
    Groups::default().usable(file).map_err(|error| SaveError::Wrong(error.to_string()))?;
    let Some(_) = &file.tests else { return Ok(()) };
    let verdicts =
        file.verdicts(tested).map_err(|why| SaveError::Wrong(format!("the tests can't be run: {why}")))?;
    let failed = verdicts.iter().filter(|verdict| !verdict.failures.is_empty());
    let failed: Vec<String> =
        failed.map(|verdict| format!("{}: {}", verdict.name, verdict.failures.join("; "))).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let count = failed.len();
    Err(SaveError::Wrong(format!("{count} of {} tests fail: {}", verdicts.len(), failed.join("; "))))
}

/// What two rules may not have in common: the name of an alert, the series of a recording rule.
fn claim(rule: &RuleText) -> String {
    match rule.kind {
        RuleKind::Alerting { .. } => format!("alert {}", rule.name),
        RuleKind::Recording => format!("record {} {:?}", rule.name, rule.labels),
    }
}

/// That a file takes nothing that others have without saying so.
fn check_beside(file: &SavedFile, others: &Groups, saved: &[SavedFile]) -> Result<(), SaveError> {
    let written = others.rules();
    let replaces = |name: &str| file.replaces.iter().any(|replaced| replaced == name);
    if let Some(unknown) =
        file.replaces.iter().find(|name| written.iter().all(|(_, rule)| rule.name != **name))
    {
        let reason = format!("no other file has a rule `{}` to replace", crate::api::shown(unknown));
        return Err(SaveError::Wrong(reason));
    }
    let of_saved = saved.iter().flat_map(|file| file.rules().into_iter().map(|rule| (file.file(), rule)));
    let in_force = written.into_iter().filter(|(_, rule)| !replaces(&rule.name));
    let taken: Vec<(String, RuleText)> = in_force.chain(of_saved).collect();
    let own: BTreeSet<String> = file.rules().iter().map(claim).collect();
    match taken.iter().find(|(_, rule)| own.contains(&claim(rule))) {
        Some((by, rule)) => Err(SaveError::Taken(format!("`{}` is a rule of `{by}` already", rule.name))),
        None => Ok(()),
    }
}
