//! The threads of a daemon, which run closures that the daemon's own thread sends them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use crate::OpenError;
use crate::mailbox::Address;
use crate::worker::Worker;

/// Threads that carry frames until the pool is dropped.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    threads: Vec<WorkerThread>,
    stop: Arc<AtomicBool>,
    /// The pings of [`Self::is_responsive`] that threads have not answered.
    pings: Vec<Receiver<()>>,
}

#[derive(Debug)]
struct WorkerThread {
    address: Address,
    handle: Option<JoinHandle<io::Result<()>>>,
}

impl WorkerPool {
    /// Starts a thread for each worker.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(workers: Vec<(Worker, Address)>) -> Result<Self, OpenError> {
        let mut pool = Self { threads: vec![], stop: Arc::default(), pings: vec![] };
        for (number, (mut worker, address)) in workers.into_iter().enumerate() {
            let stop = Arc::clone(&pool.stop);
            let run = move || worker.run(|| stop.load(Ordering::Relaxed));
            let handle = thread::Builder::new().name(format!("vpc-{number}")).spawn(run);
            let handle = Some(handle.map_err(OpenError::Thread)?);
            pool.threads.push(WorkerThread { address, handle });
        }
        Ok(pool)
    }

    /// Runs a closure on one thread and waits for its result.
    ///
    /// # Errors
    /// The thread has stopped.
    pub(crate) fn run_on<T: Send + 'static>(
        &self,
        thread: u8,
        act: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, OpenError> {
        answer(thread, &self.submit(thread, act))
    }

    /// Runs a closure on all threads at the same time and waits for their results.
    ///
    /// # Errors
    /// A thread has stopped.
    pub(crate) fn run_on_all<T: Send + 'static>(
        &self,
        act: impl Fn(&mut Worker) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, OpenError> {
        let submitted: Vec<_> =
            self.threads().map(|thread| (thread, self.submit(thread, act.clone()))).collect();
        submitted.iter().map(|(thread, answers)| answer(*thread, answers)).collect()
    }

    fn submit<T: Send + 'static>(
        &self,
        thread: u8,
        act: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (answers, answer) = channel();
        // The caller may no longer wait; a thread that has stopped sends no result.
        self.threads[usize::from(thread)].address.send(Box::new(move |worker| {
            let _ = answers.send(act(worker));
        }));
        answer
    }

    /// Returns `true` if every thread has taken a turn since the last call that returned `true`; a thread that hangs does
    /// not. It does not wait: called again and again, it is `true` every other time while all threads take turns.
    pub(crate) fn is_responsive(&mut self) -> bool {
        if self.pings.is_empty() {
            self.pings = self.threads().map(|thread| self.submit(thread, |_| ())).collect();
            return false;
        }
        self.pings.retain(|ping| ping.try_recv().is_err());
        self.pings.is_empty()
    }

    /// Returns the indices of the threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = u8> + use<> {
        0..u8::try_from(self.threads.len()).expect("as many as configured")
    }

    /// Checks that no thread has stopped by itself.
    ///
    /// # Errors
    /// The error that stopped a thread.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        for thread in &mut self.threads {
            if let Some(handle) = thread.handle.take_if(|handle| handle.is_finished()) {
                handle.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
            }
        }
        Ok(())
    }
}

fn answer<T>(thread: u8, answers: &Receiver<T>) -> Result<T, OpenError> {
    answers.recv().map_err(|_| OpenError::Stopped { thread })
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in &self.threads {
            // The closure wakes the thread, which then reads `stop`.
            thread.address.send(Box::new(|_| ()));
        }
        for thread in &mut self.threads {
            // `check` has returned the thread's error, or no caller needs it any more.
            let _ = thread.handle.take().map(JoinHandle::join);
        }
    }
}
