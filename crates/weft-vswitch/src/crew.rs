//! The threads of a daemon, which run closures that the daemon's own thread sends them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use crate::OpenError;
use crate::post::Address;
use crate::worker::Worker;

/// Threads that carry frames until the pool is dropped.
#[derive(Debug)]
pub(crate) struct Crew {
    members: Vec<Member>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Member {
    address: Address,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Crew {
    /// Starts a thread for each worker.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(workers: Vec<(Worker, Address)>) -> Result<Self, OpenError> {
        let mut crew = Self { members: vec![], stop: Arc::default() };
        for (number, (mut worker, address)) in workers.into_iter().enumerate() {
            let stop = Arc::clone(&crew.stop);
            let run = move || worker.run(|| stop.load(Ordering::Relaxed));
            let thread = thread::Builder::new().name(format!("vpc-{number}")).spawn(run);
            let thread = Some(thread.map_err(OpenError::Thread)?);
            crew.members.push(Member { address, thread });
        }
        Ok(crew)
    }

    /// Runs a closure on one thread and waits for its result.
    ///
    /// # Errors
    /// The thread has stopped.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        thread: u8,
        act: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, OpenError> {
        answer(thread, &self.order(thread, act))
    }

    /// Runs a closure on all threads at the same time and waits for their results.
    ///
    /// # Errors
    /// A thread has stopped.
    pub(crate) fn ask_all<T: Send + 'static>(
        &self,
        act: impl Fn(&mut Worker) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, OpenError> {
        let asked: Vec<_> =
            self.threads().map(|thread| (thread, self.order(thread, act.clone()))).collect();
        asked.iter().map(|(thread, answers)| answer(*thread, answers)).collect()
    }

    fn order<T: Send + 'static>(
        &self,
        thread: u8,
        act: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (answers, answer) = channel();
        // The caller may no longer wait; a thread that has stopped sends no result.
        self.members[usize::from(thread)].address.send(Box::new(move |worker| {
            let _ = answers.send(act(worker));
        }));
        answer
    }

    /// Returns the indices of the threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = u8> + use<> {
        0..u8::try_from(self.members.len()).expect("as many as configured")
    }

    /// Checks that no thread has stopped by itself.
    ///
    /// # Errors
    /// The error that stopped a thread.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        for member in &mut self.members {
            if let Some(thread) = member.thread.take_if(|thread| thread.is_finished()) {
                thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
            }
        }
        Ok(())
    }
}

fn answer<T>(thread: u8, answers: &Receiver<T>) -> Result<T, OpenError> {
    answers.recv().map_err(|_| OpenError::Stopped { thread })
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for member in &self.members {
            // The closure wakes the thread, which then reads `stop`.
            member.address.send(Box::new(|_| ()));
        }
        for member in &mut self.members {
            // `check` has returned the thread's error, or no caller needs it any more.
            let _ = member.thread.take().map(JoinHandle::join);
        }
    }
}
