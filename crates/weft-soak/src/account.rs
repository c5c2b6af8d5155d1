//! The account of a workload: operations begun, completed and failed. Nothing is lost if they balance at the end, and
//! if a fault explains each failure.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::journal::Journal;

/// The account of a workload, shared by its threads.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// The workload's name, by which faults say what they may cost.
    pub(crate) name: String,
    journal: Arc<Journal>,
    counts: Arc<Mutex<Counts>>,
}

/// The counts of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) begun: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// The time at which the operation in progress began.
    began_at: Duration,
    /// The time at which the last completed operation had begun.
    last_good: Duration,
    /// The duration of the longest operation that completed.
    pub(crate) longest: Duration,
}

impl Counts {
    /// Returns the number of operations that neither completed nor failed.
    pub(crate) const fn open(&self) -> u64 {
        self.begun.saturating_sub(self.completed + self.failed)
    }
}

impl Account {
    pub(crate) fn open(journal: &Arc<Journal>, name: impl Into<String>) -> Self {
        Self { name: name.into(), journal: Arc::clone(journal), counts: Arc::default() }
    }

    /// Carries out an operation and counts it. Its error is a trouble. Returns `true` if it succeeded.
    pub(crate) fn run(&self, operation: impl FnOnce() -> Result<(), String>) -> bool {
        self.begin();
        match operation() {
            Ok(()) => self.complete(),
            Err(why) => self.fail(&why),
        }
    }

    pub(crate) fn begin(&self) {
        let now = self.journal.now();
        let mut counts = self.lock();
        counts.begun += 1;
        counts.began_at = now;
    }

    pub(crate) fn complete(&self) -> bool {
        let now = self.journal.now();
        let mut counts = self.lock();
        counts.completed += 1;
        counts.last_good = counts.began_at;
        counts.longest = counts.longest.max(now.saturating_sub(counts.began_at));
        true
    }

    pub(crate) fn fail(&self, why: &str) -> bool {
        self.lock().failed += 1;
        self.journal.note(&self.name, why);
        false
    }

    /// Notes a trouble of the workload that is no operation's failure.
    pub(crate) fn trouble(&self, what: &str) {
        self.journal.note(&self.name, what);
    }

    /// Counts what a program prints: `begin`, `done`, or `failed WHY`. Other lines are troubles.
    pub(crate) fn line(&self, line: &str) {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("begin", "") => self.begin(),
            ("done", "") => drop(self.complete()),
            ("failed", why) => drop(self.fail(why)),
            _ => self.trouble(line),
        }
    }

    /// Counts the operation that a program had begun when it ended as failed.
    pub(crate) fn end_of_program(&self) {
        if self.counts().open() > 0 {
            self.fail("its program ended during an operation");
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.lock()
    }

    /// Returns `true` if an operation that began after this time has completed.
    pub(crate) fn works_since(&self, time: Duration) -> bool {
        self.counts().last_good > time
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_balances_and_its_failures_are_troubles() {
        let journal = Arc::new(Journal::start());
        let account = Account::open(&journal, "channel");
        for line in ["begin", "done", "begin", "failed the device is gone", "begin"] {
            account.line(line);
        }
        let counts = account.counts();
        assert_eq!((counts.begun, counts.completed, counts.failed, counts.open()), (3, 1, 1, 1));
        account.end_of_program();
        assert_eq!(account.counts().open(), 0);
        account.line("thread 'main' panicked");
        let troubles = journal.since(0);
        let texts: Vec<_> = troubles.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(texts[0], "the device is gone");
        assert_eq!(texts[2], "thread 'main' panicked");
        assert!(account.works_since(Duration::ZERO) && !account.works_since(journal.now()));
    }
}
