//! The receiving end of a connection.

use core::ffi::{c_int, c_void};
use std::io::ErrorKind;

use weft_nccl_abi::NCCL_NET_MAX_REQUESTS;
use weft_verbs_abi::{ibv_wc, wc_flag, wc_status};

use super::clear::Clear;
use super::staging::{Pool, Staged};
use super::{POLLS_PER_LOOK, lines, not_in_progress};
use crate::device::Device;
use crate::failure::Failure;
use crate::meet::{Change, Link};
use crate::verbs::{MAX_RECEIVES, Region};

/// The interval of announcements that ask for a completion, which frees the work requests of those before it.
const SIGNAL_EVERY: u64 = 16;
/// The looks at the control connection, after the peer's end, for which messages may still be on the way through the device.
const LOOKS_AFTER_END: u32 = 64;

/// The memory of a receive.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
    pub(crate) data: *mut c_void,
    pub(crate) size: usize,
    pub(crate) region: Option<&'a Region>,
    /// `true` if a GPU may read the buffer before the receive is complete (LL and LL128).
    pub(crate) watched: bool,
}

/// A receive in progress.
#[derive(Debug)]
struct Receive {
    clear: Clear,
    /// The memory to which the message is copied once it is whole; without it the peer writes there itself.
    staged: Option<Staged>,
    data: *mut u8,
    /// The size of the message, bytes, once it has arrived.
    done: Option<usize>,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Receiving {
    link: Link,
    receives: [Option<Receive>; NCCL_NET_MAX_REQUESTS],
    /// The number of the next message.
    next: u64,
    /// Messages received.
    received: u64,
    /// The rank of the peer, as NCCL's last tag names it.
    tag: c_int,
    pool: Pool,
    polls: u32,
    /// Looks at the control connection since the peer's end.
    looks_after_end: Option<u32>,
    failed: Option<Failure>,
}

// SAFETY: the pointers in it are to buffers that NCCL lends until the receive is complete, for any thread.
unsafe impl Send for Receiving {}

impl Receiving {
    pub(super) fn new(link: Link) -> Result<Self, Failure> {
        let mut this = Self {
            link,
            receives: core::array::from_fn(|_| None),
            next: 0,
            received: 0,
            tag: -1,
            pool: Pool::default(),
            polls: 0,
            looks_after_end: None,
            failed: None,
        };
        this.post_receives()?;
        Ok(this)
    }

    /// Posts a receive and returns the index of its request; `None` if NCCL must call again: too many receives are in progress.
    ///
    /// # Errors
    /// The connection has failed, or the device refuses memory.
    pub(crate) fn post(
        &mut self,
        buffer: &Buffer<'_>,
        tag: c_int,
    ) -> Result<Option<usize>, Failure> {
        self.tag = tag;
        self.advance()?;
        let Some(index) = self.receives.iter().position(Option::is_none) else { return Ok(None) };
        let staged = match buffer.watched && buffer.size > 0 {
            true => Some(self.pool.take(&Device::current()?.domain, buffer.size)?),
            false => None,
        };
        let (address, rkey) = match &staged {
            Some(staged) => (staged.address(), staged.region().rkey()),
            None => (buffer.data.expose_provenance() as u64, buffer.region.map_or(0, Region::rkey)),
        };
        let clear = Clear { number: self.next, address, rkey, size: buffer.size as u64 };
        if self.link.live && !self.announce(clear)? {
            self.pool.give(staged);
            return Ok(None);
        }
        self.receives[index] =
            Some(Receive { clear, staged, data: buffer.data.cast(), done: None });
        self.next += 1;
        Ok(Some(index))
    }

    /// Sends the place of a receive to the peer. Returns `false` if the device has no room for the request.
    fn announce(&mut self, clear: Clear) -> Result<bool, Failure> {
        let signaled = clear.number % SIGNAL_EVERY == SIGNAL_EVERY - 1;
        match self.link.pair.post_send(clear.number, &clear.to_bytes(), signaled) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(false),
            // The renewed queue pair announces every receive in progress.
            Err(error) => self.renew(&format!("receiving: {error}")).map(|()| false),
        }
    }

    /// Returns the size of a message if it has arrived, and frees its request.
    ///
    /// # Errors
    /// The connection has failed, or the request is not in progress.
    pub(super) fn test(&mut self, index: usize) -> Result<Option<usize>, Failure> {
        let is_done =
            |this: &Self| this.receives[index].as_ref().map(|receive| receive.done.is_some());
        let advanced = if is_done(self) == Some(false) { self.advance() } else { Ok(()) };
        match is_done(self) {
            Some(true) => Ok(self.receives[index].take().and_then(|receive| receive.done)),
            Some(false) => advanced.map(|()| None),
            None => Err(not_in_progress()),
        }
    }

    /// Handles what has happened.
    ///
    /// # Errors
    /// The connection has failed, now or earlier.
    fn advance(&mut self) -> Result<(), Failure> {
        if let Some(failed) = &self.failed {
            return Err(failed.again());
        }
        self.polls += 1;
        let looks = !self.link.live || self.polls.is_multiple_of(POLLS_PER_LOOK);
        self.handle(looks)
    }

    /// Handles what has happened, while NCCL may make no call; the next call returns the error.
    pub(super) fn service(&mut self) {
        if self.failed.is_none() {
            let _ = self.handle(true);
        }
    }

    fn handle(&mut self, looks: bool) -> Result<(), Failure> {
        let handled = self.poll().and_then(|()| {
            // `poll` may have found the queue pair broken.
            if looks || !self.link.live { self.look() } else { Ok(()) }
        });
        handled.inspect_err(|failure| self.failed = Some(failure.clone()))
    }

    fn poll(&mut self) -> Result<(), Failure> {
        let mut batch = [ibv_wc::default(); 16];
        while self.link.live {
            let polled = self.link.pair.poll(&mut batch);
            for completion in &batch[..polled] {
                if completion.status != wc_status::SUCCESS {
                    return self.renew(&format!("the device reports error {}", completion.status));
                }
                if completion.wc_flags & wc_flag::WITH_IMM != 0 {
                    self.complete(u32::from_be(completion.imm_data), completion.byte_len as usize)?;
                }
            }
            if polled < batch.len() {
                break;
            }
        }
        Ok(())
    }

    /// Completes the receive of the message whose number has this low half.
    fn complete(&mut self, number: u32, len: usize) -> Result<(), Failure> {
        self.post_receive()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the low half identifies one of 32 messages"
        )]
        let is_it = |receive: &&mut Receive| {
            receive.clear.number as u32 == number && receive.done.is_none()
        };
        let Some(receive) = self.receives.iter_mut().flatten().find(is_it) else {
            return Err(Failure::remote(format!(
                "rank {} at {} has sent message {number} for a receive that is not in progress",
                self.tag,
                self.link.peer()
            )));
        };
        if let Some(staged) = &receive.staged {
            // SAFETY: the device has checked `len` against the region, no WRITE to it is left, and NCCL lends the buffer of this
            // size until the receive is complete.
            unsafe { lines::copy(staged.start(), receive.data, len.min(staged.len())) };
        }
        self.pool.give(receive.staged.take());
        receive.done = Some(len);
        self.received += 1;
        Ok(())
    }

    /// Looks at the control connection.
    fn look(&mut self) -> Result<(), Failure> {
        if let Some(looks) = &mut self.looks_after_end {
            *looks += 1;
            return if *looks > LOOKS_AFTER_END { self.end() } else { Ok(()) };
        }
        loop {
            match self.link.service(self.received)? {
                Change::None => return Ok(()),
                Change::Ready | Change::Farewell { .. } => {}
                Change::Renewed { .. } => {
                    self.post_receives()?;
                    self.announce_all()?;
                }
                Change::End => {
                    self.looks_after_end = Some(0);
                    return Ok(());
                }
            }
        }
    }

    /// Announces every receive in progress to a new queue pair, in order.
    fn announce_all(&mut self) -> Result<(), Failure> {
        let waiting = self.receives.iter().flatten().filter(|receive| receive.done.is_none());
        let mut places: Vec<Clear> = waiting.map(|receive| receive.clear).collect();
        places.sort_unstable_by_key(|clear| clear.number);
        for clear in places {
            if !self.announce(clear)? {
                // Replaced again: the next one announces them.
                break;
            }
        }
        Ok(())
    }

    /// Returns the error of the peer's end.
    fn end(&self) -> Result<(), Failure> {
        let left = self.receives.iter().flatten().filter(|receive| receive.done.is_none()).count();
        let peer = self.link.peer();
        Err(Failure::remote(format!(
            "rank {} at {peer} has closed the connection, or its process has ended, before it sent {left} messages",
            self.tag
        )))
    }

    fn renew(&mut self, reason: &str) -> Result<(), Failure> {
        let epoch = self.link.epoch();
        // The peer may have ended, or replaced its queue pair before.
        self.look()?;
        if self.looks_after_end.is_some() {
            return self.end();
        }
        if self.link.epoch() == epoch { self.link.renew(self.received, reason) } else { Ok(()) }
    }

    /// Reports the number of received messages to the peer, before this end closes.
    pub(super) fn send_farewell(&mut self) {
        self.link.send_farewell(self.received);
    }

    fn post_receives(&mut self) -> Result<(), Failure> {
        (0..MAX_RECEIVES).try_for_each(|_| self.post_receive())
    }

    /// Posts a receive request for the completion of one message.
    fn post_receive(&mut self) -> Result<(), Failure> {
        let posted = self.link.pair.post_receive(0, None);
        posted.map_err(|error| Failure::system("posting a receive request", &error))
    }
}
