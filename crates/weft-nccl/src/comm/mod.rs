//! Comms: the objects behind NCCL's pointers to open connections, and the requests on them. A comm goes one way.
//!
//! A receive sends its place in memory to the sender (clear to send, [`Clear`]); the sender writes the message there and completes
//! the receive with the WRITE's immediate value. Both happen in the order in which NCCL posts, so the messages match in order.

mod clear;
mod lines;
mod receive;
mod send;
mod staging;

use core::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use weft_nccl_abi::NCCL_NET_MAX_REQUESTS;

use crate::failure::Failure;
use crate::meet::Link;

pub(crate) use receive::{Buffer, Receiving};
pub(crate) use send::Sending;

/// The number of polls without a result between two looks at the control connection.
const POLLS_PER_LOOK: u32 = 64;

/// One direction of a connection.
#[derive(Debug)]
enum Direction {
    Send(Box<Mutex<Sending>>),
    Receive(Box<Mutex<Receiving>>),
}

/// A comm.
#[derive(Debug)]
pub(crate) struct Comm {
    direction: Direction,
    /// NCCL holds pointers to these while the requests of the same index are in progress.
    requests: Box<[Request; NCCL_NET_MAX_REQUESTS]>,
}

/// The object behind NCCL's pointer to a request.
#[derive(Debug)]
pub(crate) struct Request {
    comm: *const Comm,
    index: usize,
}

// SAFETY: the pointer is to the comm that contains the request.
unsafe impl Send for Request {}
// SAFETY: likewise, and it does not change.
unsafe impl Sync for Request {}

impl Comm {
    /// Makes the sending end of a link; NCCL owns the pointer until [`Self::close`].
    ///
    /// # Errors
    /// The device has no resources left.
    pub(crate) fn sending(link: Link) -> Result<*mut c_void, Failure> {
        Ok(Self::give(Direction::Send(Box::new(Mutex::new(Sending::new(link)?)))))
    }

    /// Makes the receiving end of a link; NCCL owns the pointer until [`Self::close`].
    ///
    /// # Errors
    /// The device has no resources left.
    pub(crate) fn receiving(link: Link) -> Result<*mut c_void, Failure> {
        Ok(Self::give(Direction::Receive(Box::new(Mutex::new(Receiving::new(link)?)))))
    }

    fn give(direction: Direction) -> *mut c_void {
        let request = |index| Request { comm: core::ptr::null(), index };
        let comm = Self { direction, requests: Box::new(core::array::from_fn(request)) };
        let comm = Box::into_raw(Box::new(comm));
        // SAFETY: the comm was just made, and no other pointer to it exists.
        unsafe { (*comm).requests.iter_mut().for_each(|request| request.comm = comm) };
        comm.cast()
    }

    /// Returns the comm of NCCL's pointer.
    ///
    /// # Safety
    /// [`Self::sending`] or [`Self::receiving`] returned it, and it is not closed while the reference is used.
    pub(crate) unsafe fn of<'a>(comm: *mut c_void) -> Result<&'a Self, Failure> {
        // SAFETY: guaranteed by the caller.
        unsafe { comm.cast::<Self>().as_ref() }.ok_or_else(|| Failure::argument("the comm is null"))
    }

    /// Closes a comm; requests in progress end with it.
    ///
    /// # Safety
    /// As [`Self::of`], and it is not used afterwards.
    pub(crate) unsafe fn close(comm: *mut c_void) {
        if !comm.is_null() {
            // SAFETY: guaranteed by the caller.
            let comm = unsafe { Box::from_raw(comm.cast::<Self>()) };
            if let Direction::Receive(receiving) = &comm.direction
                && let Ok(mut receiving) = receiving.lock()
            {
                receiving.send_farewell();
            }
        }
    }

    /// Returns the sending end.
    ///
    /// # Errors
    /// It is a receiving end.
    pub(crate) fn send(&self) -> Result<MutexGuard<'_, Sending>, Failure> {
        match &self.direction {
            Direction::Send(sending) => sending.lock().map_err(|_| poisoned()),
            Direction::Receive(_) => Err(Failure::argument("isend on a comm that receives")),
        }
    }

    /// Returns the receiving end.
    ///
    /// # Errors
    /// It is a sending end.
    pub(crate) fn receive(&self) -> Result<MutexGuard<'_, Receiving>, Failure> {
        match &self.direction {
            Direction::Receive(receiving) => receiving.lock().map_err(|_| poisoned()),
            Direction::Send(_) => Err(Failure::argument("irecv on a comm that sends")),
        }
    }

    /// Returns NCCL's pointer to the request of this index.
    pub(crate) fn request(&self, index: usize) -> *mut c_void {
        (&raw const self.requests[index]).cast_mut().cast()
    }

    /// Returns the size of a message, bytes, if its request is complete, and frees the request.
    ///
    /// # Errors
    /// The connection has failed, or the request is not in progress.
    ///
    /// # Safety
    /// [`Self::request`] returned the pointer, and its comm is open.
    pub(crate) unsafe fn test(request: *mut c_void) -> Result<Option<usize>, Failure> {
        // SAFETY: guaranteed by the caller.
        let request = unsafe { request.cast::<Request>().as_ref() };
        let Some(request) = request else { return Err(Failure::argument("the request is null")) };
        // SAFETY: the comm is open.
        match unsafe { &(*request.comm).direction } {
            Direction::Send(sending) => sending.lock().map_err(|_| poisoned())?.test(request.index),
            Direction::Receive(receiving) => {
                receiving.lock().map_err(|_| poisoned())?.test(request.index)
            }
        }
    }
}

fn poisoned() -> Failure {
    Failure::internal("an earlier call on this comm has panicked")
}

/// Returns the error of a request that is not in progress.
fn not_in_progress() -> Failure {
    Failure::argument("test of a request that is not in progress")
}
