//! The threads of a daemon, as the one that is asked sees them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use crate::OpenError;
use crate::post::Address;
use crate::worker::Worker;

/// Threads that carry frames until this is dropped.
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
    /// The system has none to give.
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

    /// Asks one thread to do something, and waits until it has.
    ///
    /// # Errors
    /// It has stopped.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        thread: u8,
        act: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, OpenError> {
        answer(thread, &self.order(thread, act))
    }

    /// Asks all of them, who do it at the same time.
    ///
    /// # Errors
    /// One has stopped.
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
        // Whoever asked may have given up; one that has stopped answers nothing.
        self.members[usize::from(thread)].address.send(Box::new(move |worker| {
            let _ = answers.send(act(worker));
        }));
        answer
    }

    /// Their numbers.
    pub(crate) fn threads(&self) -> impl Iterator<Item = u8> + use<> {
        0..u8::try_from(self.members.len()).expect("as many as configured")
    }

    /// Whether one has stopped that nobody asked to.
    ///
    /// # Errors
    /// Why it has.
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
            // It wakes up, and looks.
            member.address.send(Box::new(|_| ()));
        }
        for member in &mut self.members {
            // What ended it was said by `check`, or nobody wants to know any more.
            let _ = member.thread.take().map(JoinHandle::join);
        }
    }
}
