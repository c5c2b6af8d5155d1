//! The arena of this process, made with its first block.

use core::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::arena::{Arena, Block, Place};

/// The process's arena.
#[derive(Debug)]
pub(crate) enum State {
    /// No block was requested yet.
    Unmade,
    Made(Arena),
    /// The system has refused it.
    Unavailable,
}

static STATE: Mutex<State> = Mutex::new(State::Unmade);
/// The arena's first address.
static START: AtomicUsize = AtomicUsize::new(0);
/// The arena's length in bytes, stored after its first address.
static LEN: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `true` if an address is one of the arena's. The check of every block that is freed.
pub(crate) fn contains(block: *mut c_void) -> bool {
    let len = LEN.load(Ordering::Acquire);
    block.addr().wrapping_sub(START.load(Ordering::Relaxed)) < len
}

/// Allocates a block in the arena ([`Arena::allocate`]); returns `None` if it has no room.
pub(crate) fn allocate(bytes: usize, align: usize, place: Place) -> Option<Block> {
    let mut state = lock();
    if matches!(*state, State::Unmade) {
        *state = Arena::for_this_machine().map_or(State::Unavailable, |arena| {
            START.store(arena.start, Ordering::Relaxed);
            LEN.store(arena.len, Ordering::Release);
            State::Made(arena)
        });
    }
    let State::Made(arena) = &mut *state else { return None };
    arena.allocate(bytes, align, place)
}

/// Runs `act` on the arena, which has made this block. The process ends if it has not: the block was freed before.
fn with_block<T>(block: *mut c_void, act: impl FnOnce(&mut Arena) -> Option<T>) -> T {
    let found = match &mut *lock() {
        State::Made(arena) => act(arena),
        _ => None,
    };
    found.unwrap_or_else(|| invalid(block))
}

/// Returns the length of a block of the arena, bytes.
pub(crate) fn len_of(block: *mut c_void) -> usize {
    with_block(block, |arena| arena.len_of(block))
}

/// Makes a block longer or shorter in its place; returns `false` if it cannot.
pub(crate) fn resize(block: *mut c_void, bytes: usize) -> bool {
    with_block(block, |arena| Some(arena.resize(block, bytes)))
}

/// Frees a block of the arena. The program's `errno` stays (free(3)).
pub(crate) fn free(block: *mut c_void) {
    // SAFETY: the location is this thread's.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: likewise.
    let before = unsafe { *errno };
    with_block(block, |arena| arena.free(block).then_some(()));
    // SAFETY: likewise.
    unsafe { *errno = before };
}

fn invalid(block: *mut c_void) -> ! {
    eprintln!("weft: free or realloc of {block:p}, which is no block (freed twice?)");
    std::process::abort()
}
