//! How the tests of files of rules fared, known until something that they are made of changes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use promql::rules::{Finding, ReadFiles, Verdict};

/// Most files of which it is known; beyond that all is found anew.
const FILES_MAX: usize = 1_000;

/// How a file's tests fared.
struct Known {
    tests: u64,
    /// The patterns that they name, and what was read there.
    reads: Vec<(String, u64)>,
    verdicts: Arc<Vec<Verdict>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Tested {
    known: Mutex<HashMap<String, Arc<Known>>>,
    hasher: RandomState,
}

impl std::fmt::Debug for Tested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tested").finish_non_exhaustive()
    }
}

impl Tested {
    /// How `tests` of a file fare: `run` is called with what reads files where that is not known. What can't be run
    /// is not kept, since it may have been for want of time.
    pub(crate) fn of(
        &self,
        file: &str,
        tests: &str,
        read: &ReadFiles<'_>,
        run: impl FnOnce(&ReadFiles<'_>) -> Result<Vec<Verdict>, Vec<Finding>>,
    ) -> Result<Arc<Vec<Verdict>>, Vec<Finding>> {
        let tests = self.hasher.hash_one(tests);
        if let Some(verdicts) = self.still(file, tests, read) {
            return Ok(verdicts);
        }
        let reads = RefCell::new(Vec::new());
        let noting = |pattern: &str| {
            let found = read(pattern);
            reads.borrow_mut().push((pattern.to_owned(), self.hasher.hash_one(&found)));
            found
        };
        let verdicts = Arc::new(run(&noting)?);
        let known = Known { tests, reads: reads.take(), verdicts: Arc::clone(&verdicts) };
        let mut all = self.known();
        if all.len() >= FILES_MAX {
            all.clear();
        }
        all.insert(file.to_owned(), Arc::new(known));
        Ok(verdicts)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a file, unless something has changed.
    fn still(&self, file: &str, tests: u64, read: &ReadFiles<'_>) -> Option<Arc<Vec<Verdict>>> {
        let known = self.known().get(file).filter(|known| known.tests == tests).cloned()?;
        let is_same = |(pattern, hash): &(String, u64)| self.hasher.hash_one(read(pattern)) == *hash;
        known.reads.iter().all(is_same).then(|| Arc::clone(&known.verdicts))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const RULES: &str = "groups: [{name: g, rules: [{record: a, expr: vector(1)}]}]";
    const TESTS: &str = "rule_files: [a.yml]\ntests: [{name: one, promql_expr_test: [{expr: a, eval_time: 1m, exp_samples: [{labels: a, value: 1}]}]}]";

    #[test]
    fn tests_run_again_only_when_they_or_their_rules_change() {
        let (tested, ran) = (Tested::default(), Cell::new(0));
        let ask = |rules: &str, tests: &str| {
            let read = |pattern: &str| Ok(vec![(pattern.to_owned(), rules.to_owned())]);
            let found = tested.of("a.yml", tests, &read, |read| {
                ran.set(ran.get() + 1);
                promql::rules::test(tests, read)
            });
            let failures = found.map(|all| all.iter().map(|one| one.failures.len()).sum::<usize>());
            (failures.ok(), ran.get())
        };
        assert_eq!(ask(RULES, TESTS), (Some(0), 1));
        assert_eq!(ask(RULES, TESTS), (Some(0), 1));
        let other = RULES.replace("vector(1)", "vector(2)");
        assert_eq!(ask(&other, TESTS), (Some(1), 2));
        assert_eq!(ask(&other, TESTS), (Some(1), 2));
        assert_eq!(ask(&other, &TESTS.replace("value: 1", "value: 2")), (Some(0), 3));
        assert_eq!(ask(RULES, "no: tests"), (None, 4));
        assert_eq!(ask(RULES, "no: tests"), (None, 5));
    }
}
