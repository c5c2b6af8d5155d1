//! The objects that programs hold, and their functions of `libibverbs.so.1`, each with its manual page's behaviour.
//!
//! A program holds a pointer to a structure of C; ours is longer and begins with it. Misuse that breaks no rule of C
//! (an unknown key, a full queue, the wrong order) is refused with an error number; the program guarantees that a
//! pointer came from this library and is not destroyed.

use core::cell::UnsafeCell;

mod address_handle;
mod asynchronous;
mod channel;
mod completion;
mod completion_event;
mod completion_queue;
mod domain;
mod file_mapping;
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

/// An object behind a program's pointer.
///
/// # Safety
/// The type is `repr(C)`, and its first field a [`Shared`] of `Public`.
pub(crate) unsafe trait Object: Sized {
    /// The structure of C.
    type Public;

    /// Passes it to the program.
    fn publish(self) -> *mut Self::Public {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Returns the object of a program's pointer.
    ///
    /// # Safety
    /// It was published and is not taken back while the reference is used.
    unsafe fn of<'a>(public: *mut Self::Public) -> &'a Self {
        // SAFETY: the structure of C is the first field of ours.
        unsafe { &*public.cast_const().cast::<Self>() }
    }

    /// Takes it back from the program.
    ///
    /// # Safety
    /// It was published and is not used afterwards.
    unsafe fn take(public: *mut Self::Public) -> Box<Self> {
        // SAFETY: it was made from such a box.
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
