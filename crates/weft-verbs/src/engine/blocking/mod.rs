//! Calls that a tenant can block: on its memory, whose pages may belong to a file system that never answers, and on
//! descriptors that it sends. The kernel's wait ends only with that file system, or when it has freed a file's memory.
//!
//! The daemon's engine is a coroutine, run by [`supervise`]. It suspends for each such call; the worker thread that
//! resumes it makes the call in between, on the worker's own memory. A call that does not return thus blocks only the
//! worker: the supervisor has another worker resume the engine, for which the call has failed.
//!
//! [`super::memory`] and the daemon make the calls. An engine outside a coroutine makes them directly: a program's
//! engine, on its own memory, and a test's.

use core::cell::{Cell, RefCell};
use core::ptr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, Weak};

use corosensei::Yielder;
use weft_rnic::Owner;

mod supervisor;
mod worker;

pub(crate) use supervisor::supervise;
use worker::Worker;

/// A copy between the engine's memory and a file of a process's memory.
#[derive(Clone, Copy, Debug)]
struct Copy {
    file: RawFd,
    at: libc::off_t,
    /// The engine's memory, which nothing else uses while it is suspended.
    bytes: *mut u8,
    len: usize,
}

/// A call for which the engine suspends.
enum Call {
    Read(Copy),
    Write(Copy),
    Other(Box<dyn FnOnce() + Send>),
}

/// The result of a call.
#[derive(Debug, Default)]
struct Returned {
    succeeded: bool,
    stall: Stall,
}

/// A call's delay of the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stall {
    /// Number of the supervisor's checks that found the call's worker blocked in it.
    pub(crate) checks: u32,
    /// The worker that the call blocks for good, if the supervisor gave it up.
    stuck: Option<Weak<Worker>>,
}

impl Stall {
    /// Returns `true` if the call never returned to the engine.
    pub(crate) const fn is_given_up(&self) -> bool {
        self.stuck.is_some()
    }

    /// Returns `true` while the call keeps a thread.
    pub(crate) fn keeps_a_thread(&self) -> bool {
        self.stuck.as_ref().is_some_and(|worker| worker.strong_count() > 0)
    }

    #[cfg(test)]
    pub(crate) const fn of(checks: u32) -> Self {
        Self { checks, stuck: None }
    }
}

/// The engine's side of the coroutine.
struct Suspender<'a> {
    yielder: &'a Yielder<Returned, Call>,
    /// The calls that delayed the engine since the last `take_stalls`, with the memory's owner.
    stalls: RefCell<Vec<(Owner, Stall)>>,
}

thread_local! {
    /// The suspender of the engine that this thread runs; null outside coroutines.
    static CURRENT: Cell<*const Suspender<'static>> = const { Cell::new(ptr::null()) };
}

/// Returns the coroutine that this runs in. Never inlined: each suspension may change the thread, and with it the
/// address of a thread-local.
#[inline(never)]
fn current<'a>() -> Option<&'a Suspender<'a>> {
    // SAFETY: it lives as long as the engine's function runs, and the caller is a part of that.
    unsafe { CURRENT.get().as_ref() }
}

/// Records the coroutine that runs on this thread. Never inlined, like [`current`].
#[inline(never)]
fn set_current(suspender: &Suspender<'_>) {
    CURRENT.set(ptr::from_ref(suspender).cast());
}

impl Suspender<'_> {
    fn make(&self, call: Call) -> Returned {
        let returned = self.yielder.suspend(call);
        if returned.stall.is_given_up() {
            set_current(self);
        }
        returned
    }

    /// Makes a call on memory of `owner`. Returns `true` if it moved all its bytes.
    fn make_for(&self, owner: Owner, call: Call) -> bool {
        let is_given_up = |(of, stall): &(Owner, Stall)| *of == owner && stall.is_given_up();
        if self.stalls.borrow().iter().any(is_given_up) {
            return false;
        }
        let Returned { succeeded, stall } = self.make(call);
        if stall.checks > 0 {
            self.stalls.borrow_mut().push((owner, stall));
        }
        succeeded
    }
}

/// Copies `len` bytes at `at` in a file of the memory of `owner` to `to`. Returns `false` if the address does not
/// exist, or does not respond.
///
/// # Safety
/// `to` has room for `len` bytes.
pub(super) unsafe fn read(
    owner: Owner,
    file: RawFd,
    at: libc::off_t,
    to: *mut u8,
    len: usize,
) -> bool {
    let copy = Copy { file, at, bytes: to, len };
    match current() {
        Some(suspender) => suspender.make_for(owner, Call::Read(copy)),
        // SAFETY: guaranteed by the caller.
        None => unsafe { copy.read_to(to) },
    }
}

/// Copies `len` bytes from `from` to `at` in a file of the memory of `owner`, the last byte after the others. Returns
/// `false` if the address does not exist, or does not respond.
///
/// # Safety
/// `from` has `len` bytes, which other threads may change meanwhile.
pub(super) unsafe fn write(
    owner: Owner,
    file: RawFd,
    at: libc::off_t,
    from: *const u8,
    len: usize,
) -> bool {
    let copy = Copy { file, at, bytes: from.cast_mut(), len };
    match current() {
        Some(suspender) => suspender.make_for(owner, Call::Write(copy)),
        // SAFETY: guaranteed by the caller.
        None => unsafe { copy.write_from(from) },
    }
}

/// Runs a function that may never return. Returns its result, or `None` if it was given up, and its delay of the
/// engine.
pub(crate) fn run<T: Send + 'static>(
    function: impl FnOnce() -> T + Send + 'static,
) -> (Option<T>, Stall) {
    let Some(suspender) = current() else { return (Some(function()), Stall::default()) };
    let result = Arc::new(Mutex::new(None));
    let slot = Arc::downgrade(&result);
    let call = move || {
        let done = function();
        // If the call was given up, nothing receives the result: it is dropped here.
        if let Some(slot) = slot.upgrade() {
            *slot.lock().expect("nothing panics here") = Some(done);
        }
    };
    let Returned { stall, .. } = suspender.make(Call::Other(Box::new(call)));
    let done = result.lock().expect("nothing panics here").take();
    (done, stall)
}

/// Takes the calls that delayed the engine since the last call of this, with the memory's owner.
pub(crate) fn take_stalls() -> Vec<(Owner, Stall)> {
    current().map_or_else(Vec::new, |suspender| suspender.stalls.take())
}

impl Copy {
    /// # Safety
    /// `to` has room for `self.len` bytes.
    unsafe fn read_to(&self, to: *mut u8) -> bool {
        // SAFETY: guaranteed by the caller.
        let read = unsafe { libc::pread(self.file, to.cast(), self.len, self.at) };
        usize::try_from(read) == Ok(self.len)
    }

    /// # Safety
    /// `from` has `self.len` bytes.
    unsafe fn write_from(&self, from: *const u8) -> bool {
        let Some(others) = self.len.checked_sub(1) else { return true };
        let slice =
            |start: *const u8, len| libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
        // This file writes one slice after the other. SAFETY: within the bytes.
        let slices = [slice(from, others), slice(unsafe { from.add(others) }, 1)];
        // SAFETY: guaranteed by the caller; the bytes are only read.
        let written = unsafe { libc::pwritev(self.file, slices.as_ptr(), 2, self.at) };
        usize::try_from(written) == Ok(self.len)
    }
}
