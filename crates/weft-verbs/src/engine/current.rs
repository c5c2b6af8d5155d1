//! The engine of this process. Objects share it: one whose daemon has ended is replaced, and is freed with its last object.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::Engine;

/// The engine, which counts as one share of it; null before the first device is opened, and again in a child of `fork`.
static CURRENT: AtomicPtr<Engine> = AtomicPtr::new(ptr::null_mut());

/// `true` while a thread uses [`CURRENT`]: for as long as it takes to count a share. A mutex of the standard library would stay
/// locked in a child of `fork` for ever if another thread of the parent had it.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Calls `use_it` with the pointer, which no other thread changes meanwhile.
fn with<T>(use_it: impl FnOnce(*mut Engine) -> T) -> T {
    while IN_USE.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
    let result = use_it(CURRENT.load(Ordering::Acquire));
    IN_USE.store(false, Ordering::Release);
    result
}

/// Returns another share of the engine behind a pointer.
///
/// # Safety
/// The pointer is null, or came from `Arc::into_raw` and counts as a share.
unsafe fn share(engine: *mut Engine) -> Option<Arc<Engine>> {
    if engine.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller; the new share is the returned one.
    unsafe {
        Arc::increment_strong_count(engine);
        Some(Arc::from_raw(engine))
    }
}

/// Returns the engine, if there is one.
pub(super) fn get() -> Option<Arc<Engine>> {
    // SAFETY: the pointer is null or a share that stays while no other thread changes it.
    with(|engine| unsafe { share(engine) })
}

/// Puts `new` in the place of `former`. If another thread has replaced that meanwhile, returns its engine instead.
pub(super) fn replace(former: Option<&Arc<Engine>>, new: &Arc<Engine>) -> Option<Arc<Engine>> {
    let expected = former.map_or(ptr::null(), Arc::as_ptr);
    with(|engine| {
        if !ptr::eq(engine, expected) && !engine.is_null() {
            // SAFETY: as in `get`.
            return unsafe { share(engine) };
        }
        CURRENT.store(Arc::into_raw(new.clone()).cast_mut(), Ordering::Release);
        if !engine.is_null() {
            // SAFETY: the pointer's share, which nothing refers to any more; `former` is another, so nothing is freed here.
            drop(unsafe { Arc::from_raw(engine.cast_const()) });
        }
        None
    })
}

/// Abandons the parent's engine in a child of `fork`, which has only this thread. It only stores values, as a handler of
/// `fork` must.
pub(super) fn abandon() {
    CURRENT.store(ptr::null_mut(), Ordering::Release);
    IN_USE.store(false, Ordering::Release);
}
