//! The thread on which a client's connections live. Callers wait on their own threads.

use std::fmt;
use std::future::Future;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::EtcdError;

/// A thread that drives sockets and timers until this is dropped.
pub(crate) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(crate) fn start() -> Result<Self, EtcdError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EtcdError::Runtime)?;
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let run = move || {
            // The sender is dropped or used: both are the end.
            let _ = runtime.block_on(stopped);
        };
        let thread = Builder::new().name("etcd".into()).spawn(run).map_err(EtcdError::Runtime)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Waits for a future on the caller's thread.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }

    /// Runs a future on the runtime's thread.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.handle.spawn(future).abort_handle()
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Runtime").finish_non_exhaustive()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}
