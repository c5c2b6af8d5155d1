//! The objects that programs hold, and the functions of `libibverbs.so.1` that are about them, each the one
//! of its manual page.
//!
//! A program holds a pointer to a structure of C; ours is longer and begins with it. What a program may do
//! wrong without breaking C's own rules (an unknown key, a full queue, the wrong order) is refused with an
//! error number; that a pointer is one that we gave, and not destroyed yet, is its promise.

use core::cell::UnsafeCell;

mod address_handle;
mod asynchronous;
mod builder;
mod channel;
mod completion;
mod completion_queue;
mod domain;
mod queue_pair;
mod region;
mod shared_receive_queue;
mod window;
mod work;

pub(crate) use completion_queue::{create_cq_ex, poll_cq, req_notify_cq};
pub(crate) use queue_pair::create_qp_ex;
pub(crate) use shared_receive_queue::{create_srq_ex, post_srq_recv};
pub(crate) use window::{alloc_mw, bind_mw, dealloc_mw};
pub(crate) use work::{post_recv, post_send};

/// What programs hold a pointer to.
///
/// # Safety
/// The type is `repr(C)`, and its first field a [`Shared`] of `Public`.
pub(crate) unsafe trait Object: Sized {
    /// The structure of C.
    type Public;

    /// Gives it to the program.
    fn publish(self) -> *mut Self::Public {
        Box::into_raw(Box::new(self)).cast()
    }

    /// What the program holds.
    ///
    /// # Safety
    /// It was published and is not taken back while the reference is used.
    unsafe fn of<'a>(public: *mut Self::Public) -> &'a Self {
        // SAFETY: the structure of C is the first field of ours.
        unsafe { &*public.cast_const().cast::<Self>() }
    }

    /// Takes it back.
    ///
    /// # Safety
    /// It was published, and nobody uses it any more.
    unsafe fn take(public: *mut Self::Public) -> Box<Self> {
        // SAFETY: it was made from a box of ours.
        unsafe { Box::from_raw(public.cast::<Self>()) }
    }
}

/// A structure that the program reads and writes too.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Shared<T>(UnsafeCell<T>);

impl<T> Shared<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
}
