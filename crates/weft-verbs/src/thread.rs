//! Threads of a library in a program that knows nothing of them.

use std::io;

/// The size of such a thread's stack, bytes.
const STACK: usize = 256 << 10;

/// Starts a thread, to which no signal of the program is delivered: they are for its own threads. The thread handles its
/// own faults in memory of neighbours: the kernel would end a process whose thread blocks the signal.
///
/// # Errors
/// The process may have no more threads.
pub fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _signals = SignalsBlocked::new();
    let thread = std::thread::Builder::new().name("weft".into()).stack_size(STACK);
    thread.spawn(run).map(drop)
}

/// Blocks signals in the calling thread, and so in a thread that it starts meanwhile.
pub(crate) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    /// Blocks them until the value is dropped.
    pub(crate) fn new() -> Self {
        // SAFETY: all-zero bytes are a valid set of signals, and both pointers refer to a set.
        unsafe {
            let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::sigdelset(&raw mut all, libc::SIGBUS);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: this is the set from before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn blocked() -> bool {
        // SAFETY: all-zero bytes are a valid set, which the kernel overwrites.
        unsafe {
            let mut mask = core::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), &raw mut mask);
            libc::sigismember(&raw const mask, libc::SIGUSR1) == 1
        }
    }

    #[test]
    fn signals_are_blocked_in_the_new_thread_alone() {
        let (sender, receiver) = channel();
        spawn(move || sender.send(blocked()).unwrap()).unwrap();
        assert_eq!((receiver.recv(), blocked()), (Ok(true), false));
    }
}
