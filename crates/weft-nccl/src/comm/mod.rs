//! Comms: the objects behind NCCL's pointers to open connections, and the requests on them. A comm goes one way.
//!
//! A receive sends its place in memory to the sender (clear to send, [`Clear`]); the sender writes the message there and completes
//! the receive with the WRITE's immediate value. Both happen in the order in which NCCL posts, so the messages match in order.

mod clear;
mod lines;
mod receive;
mod send;
mod service;
mod staging;

use core::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

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
    Receive(Arc<Mutex<Receiving>>),
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
        let receiving = Arc::new(Mutex::new(Receiving::new(link)?));
        service::add(&receiving)?;
        Ok(Self::give(Direction::Receive(receiving)))
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
            if let Direction::Receive(receiving) = &comm.direction {
                service::remove(receiving);
                if let Ok(mut receiving) = receiving.lock() {
                    receiving.send_farewell();
                }
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::device::Device;
    use crate::meet::{Attempt, Listener};
    use crate::verbs::Region;

    /// Returns the first result of a call that is made until it has one.
    fn until<T>(what: &str, mut call: impl FnMut() -> Option<T>) -> T {
        #[expect(clippy::disallowed_methods, reason = "bounds a test")]
        let now = Instant::now;
        let began = now();
        loop {
            if let Some(result) = call() {
                return result;
            }
            assert!(now() - began < Duration::from_secs(30), "not within half a minute: {what}");
            std::thread::yield_now();
        }
    }

    /// Returns both ends of a new connection.
    fn connected(device: &Device) -> [*mut c_void; 2] {
        let port = device.interfaces[0].port;
        let (mut listener, handle) = Listener::open(port).unwrap();
        let mut attempt = Attempt::new(handle, port);
        let (mut sending, mut receiving) = (None, None);
        until("both ends are open", || {
            sending = sending.take().or_else(|| attempt.advance(&device.domain).unwrap());
            receiving = receiving.take().or_else(|| listener.accept(&device.domain).unwrap());
            (sending.is_some() && receiving.is_some()).then_some(())
        });
        [Comm::sending(sending.unwrap()).unwrap(), Comm::receiving(receiving.unwrap()).unwrap()]
    }

    #[test]
    fn a_receiver_that_nobody_calls_answers_a_sender_whose_ack_was_lost() {
        let device = Device::current().unwrap();
        let ends = connected(device);
        // SAFETY: both ends are open, and closed last.
        let [sender, receiver] = ends.map(|end| unsafe { Comm::of(end) }.unwrap());
        let (mut from, mut to) = ([7_u8; 64], [0_u8; 64]);
        let [from_region, to_region] = [&mut from, &mut to].map(|memory| {
            // SAFETY: both regions are dropped before their memory.
            unsafe { Region::register(&device.domain, memory.as_mut_ptr().cast(), 64) }.unwrap()
        });
        let region = Some(&to_region);
        let buffer = Buffer { data: to.as_mut_ptr().cast(), size: 64, region, watched: false };
        let receive = until("a receive", || receiver.receive().unwrap().post(&buffer, 1).unwrap());
        let send = until("a send", || {
            sender
                .send()
                .unwrap()
                .post(from.as_mut_ptr().cast(), 64, 0, Some(&from_region))
                .unwrap()
        });
        until("the message", || receiver.receive().unwrap().test(receive).unwrap());
        // The sender has not polled: it knows of no ACK, and NCCL makes no more calls on the receiver.
        sender.send().unwrap().break_pair();
        until("the sender's completion", || sender.send().unwrap().test(send).unwrap());
        assert_eq!(to, from);
        // SAFETY: nothing uses them any more.
        ends.into_iter().for_each(|end| unsafe { Comm::close(end) });
    }
}
