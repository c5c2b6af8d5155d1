//! A question to a source. A daemon that hangs must not hold up the page, so each question is asked on a thread of its
//! own, and a source is not asked again while it has not answered.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use super::sample::Source;

/// The function that asks; it returns the time of the answer, ns since the boot of the source's host, and the answer.
type Ask<T> = Arc<dyn Fn() -> Result<(u64, T)> + Send + Sync>;

/// A question that is asked again and again.
pub(super) struct Question<T> {
    name: String,
    ask: Ask<T>,
    /// The answer to the question that is being asked.
    pending: Option<Receiver<Result<(u64, T)>>>,
}

impl<T: Send + 'static> Question<T> {
    /// Returns a question to the source of this name.
    pub(super) fn new(
        name: impl Into<String>,
        ask: impl Fn() -> Result<(u64, T)> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), ask: Arc::new(ask), pending: None }
    }

    /// Asks, unless the source still owes an answer.
    pub(super) fn ask(&mut self) {
        if self.pending.is_some() {
            return;
        }
        let (done, pending) = mpsc::channel();
        let ask = Arc::clone(&self.ask);
        // Nobody waits for the answer after the end of the page.
        let spawned =
            thread::Builder::new().name("ask".into()).spawn(move || drop(done.send(ask())));
        // Without a thread the channel is closed, which `answer` reports.
        drop(spawned);
        self.pending = Some(pending);
    }

    /// Returns the answer; waits for it until `deadline`.
    pub(super) fn answer(&mut self, deadline: Instant) -> Source<T> {
        let wait = deadline.saturating_duration_since(Instant::now());
        let received = self.pending.as_ref().map(|pending| pending.recv_timeout(wait));
        let answer = match received {
            Some(Err(RecvTimeoutError::Timeout)) => {
                return self.source(Err("it has not answered yet: does it hang?".to_owned()));
            }
            Some(Ok(Ok(answer))) => Ok(answer),
            Some(Ok(Err(error))) => Err(describe(&error)),
            Some(Err(RecvTimeoutError::Disconnected)) | None => {
                Err("it could not be asked: this process has no threads left".to_owned())
            }
        };
        self.pending = None;
        self.source(answer)
    }

    fn source(&self, answer: Result<(u64, T), String>) -> Source<T> {
        let (at, answer) = match answer {
            Ok((at, value)) => (at, Ok(value)),
            Err(reason) => (0, Err(reason)),
        };
        Source { name: self.name.clone(), at, answer }
    }
}

impl<T> fmt::Debug for Question<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the error and its causes on one line.
fn describe(error: &Error) -> String {
    format!("{error:#}").replace('\n', " ")
}

/// The longest time for which a page waits for its sources.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_source_that_hangs_is_asked_once_and_answers_later() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        let mut question = Question::new("overlay", move || {
            *count.lock().unwrap() += 1;
            wait.lock().unwrap().recv()?;
            Ok((7, "pairs"))
        });
        for _ in 0..3 {
            question.ask();
            let reason = question.answer(Instant::now()).answer.unwrap_err();
            assert!(reason.contains("has not answered"), "{reason}");
        }
        go.send(()).unwrap();
        question.ask();
        let source = question.answer(Instant::now() + Duration::from_secs(60));
        assert_eq!(source, Source { name: "overlay".into(), at: 7, answer: Ok("pairs") });
        assert_eq!(*asked.lock().unwrap(), 1);
    }

    #[test]
    fn an_error_is_one_line_with_its_causes() {
        let ask = || Err::<(u64, ()), _>(anyhow!("refused\nby it").context("no daemon"));
        let mut question = Question::new("device", ask);
        question.ask();
        let answer = question.answer(Instant::now() + Duration::from_secs(60)).answer;
        assert_eq!(answer, Err("no daemon: refused by it".to_owned()));
    }
}
