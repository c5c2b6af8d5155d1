//! Faults in mapped memory of neighbours. A neighbour may truncate a file that this process has mapped, and huge pages may
//! be used up: the kernel then sends SIGBUS to the thread that accesses the memory, which would end the program. A
//! handler replaces the mapping by memory without content and marks it as broken, and the access continues. Its caller
//! then discards the result.
//!
//! The handler uses atomics and system calls only, and passes all other faults to the handler before it.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::cell::Cell;
use std::sync::OnceLock;

/// Maximum number of guarded mappings of a process.
const MAX_GUARDS: usize = 1024;

/// A range that the handler knows.
#[derive(Debug)]
struct Slot {
    /// The process that uses the slot; zero if none does. A child of `fork` has its parent's slots, but no such memory.
    process: AtomicI32,
    /// The range of addresses; empty while it is being changed.
    start: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicBool,
}

static SLOTS: [Slot; MAX_GUARDS] = [const {
    Slot {
        process: AtomicI32::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; MAX_GUARDS];

/// The action before this one, once it is installed.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// The guard of a mapping: until it is dropped, a fault there replaces the mapping.
#[derive(Debug)]
pub(super) struct Guard(&'static Slot);

impl Guard {
    /// Returns a guard of a mapping. Returns `None` if there are too many, or the program has a handler that was installed
    /// after this one.
    pub(super) fn new(start: usize, len: usize) -> Option<Self> {
        if !install() {
            return None;
        }
        let own = process();
        let slot = SLOTS.iter().find(|slot| {
            let of = slot.process.load(Ordering::Relaxed);
            let free = of != own;
            free && slot
                .process
                .compare_exchange(of, own, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })?;
        slot.len.store(0, Ordering::Release);
        slot.broken.store(false, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        slot.len.store(len, Ordering::Release);
        Some(Self(slot))
    }

    /// Returns `true` if a fault of the calling thread reaches the handler: a thread that blocks the signal would be
    /// ended with its process. Threads are examined once.
    #[inline]
    pub(super) fn is_effective_here(&self) -> bool {
        thread_local! {
            static TAKES_FAULTS: Cell<Option<bool>> = const { Cell::new(None) };
        }
        TAKES_FAULTS.with(|known| {
            known.get().unwrap_or_else(|| {
                let takes = takes_faults();
                known.set(Some(takes));
                takes
            })
        })
    }

    /// Returns `true` if the mapping was replaced.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        // The handler runs in the thread that accesses the memory: only the compiler could read this too early.
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.0.broken.load(Ordering::Relaxed)
    }

    /// Returns `true` if the handler is the program's current one.
    pub(super) fn has_handler() -> bool {
        action().is_some_and(|action| action.sa_sigaction == address_of_handler())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.len.store(0, Ordering::Release);
        self.0.process.store(0, Ordering::Release);
    }
}

fn process() -> i32 {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::getpid() }
}

/// Returns `true` if the calling thread does not block the signal.
fn takes_faults() -> bool {
    // SAFETY: all-zero bytes are a valid set, which the kernel overwrites.
    unsafe {
        let mut mask = core::mem::zeroed();
        let read = libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &raw mut mask);
        read == 0 && libc::sigismember(&raw const mask, libc::SIGBUS) == 0
    }
}

/// Returns the program's action.
fn action() -> Option<libc::sigaction> {
    // SAFETY: all-zero bytes are a valid action, which the kernel overwrites.
    unsafe {
        let mut action = core::mem::zeroed();
        let read = libc::sigaction(libc::SIGBUS, core::ptr::null(), &raw mut action);
        (read == 0).then_some(action)
    }
}

fn address_of_handler() -> libc::sighandler_t {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    handler as libc::sighandler_t
}

/// Installs the handler, once. Returns `true` if it is the program's current one.
fn install() -> bool {
    let mut installed = true;
    FORMER.get_or_init(|| {
        let former = action().unwrap_or_else(|| {
            // SAFETY: all-zero bytes are the default action.
            unsafe { core::mem::zeroed() }
        });
        let kept = former.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        let flags = kept | libc::SA_SIGINFO | libc::SA_ONSTACK;
        let handler = address_of_handler();
        let own = libc::sigaction { sa_sigaction: handler, sa_flags: flags, ..former };
        // SAFETY: the handler makes system calls only, and calls the former one.
        installed =
            unsafe { libc::sigaction(libc::SIGBUS, &raw const own, core::ptr::null_mut()) == 0 };
        former
    });
    installed && Guard::has_handler()
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure, with an address for its own codes; errno is the thread's.
    unsafe {
        let (code, errno) = ((*info).si_code, libc::__errno_location());
        let before = *errno;
        let handled = code > 0 && replace((*info).si_addr().addr());
        *errno = before;
        if !handled {
            pass_on(signal, info, context);
        }
    }
}

/// Replaces the guarded mapping at an address by memory without content. Returns `false` if there is none.
fn replace(address: usize) -> bool {
    let own = process();
    let is_there = |slot: &&Slot| {
        let (len, start) = (slot.len.load(Ordering::Acquire), slot.start.load(Ordering::Acquire));
        address.wrapping_sub(start) < len && slot.process.load(Ordering::Acquire) == own
    };
    let Some(slot) = SLOTS.iter().find(is_there) else { return false };
    let (start, len) = (slot.start.load(Ordering::Relaxed), slot.len.load(Ordering::Relaxed));
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the range is a mapping of this library, which only the interrupted access uses. The call is made without
    // the C library, whose function another library may have replaced.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, start, len, rights, flags, -1, 0) };
    slot.broken.store(true, Ordering::Relaxed);
    usize::try_from(mapped) == Ok(start)
}

/// Does what the program's former action would have done.
///
/// # Safety
/// The arguments are those of the handler.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(former) = FORMER.get() else { return };
    // SAFETY: guaranteed by the caller.
    let is_fault = unsafe { (*info).si_code } > 0;
    match former.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        // The kernel ends a process that ignores its own fault.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all-zero bytes are the default action, which then ends the process: a fault is repeated on
            // return, and a signal from a process is sent again.
            unsafe {
                let default: libc::sigaction = core::mem::zeroed();
                libc::sigaction(signal, &raw const default, core::ptr::null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
        }
        handler if former.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the program installed a function of this type.
            unsafe {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    core::mem::transmute(handler);
                handler(signal, info, context);
            }
        }
        handler => {
            // SAFETY: the program installed a function of this type.
            unsafe {
                let handler: extern "C" fn(libc::c_int) = core::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
