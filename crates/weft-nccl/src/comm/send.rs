//! The sending end of a connection.

use core::ffi::{c_int, c_void};
use std::collections::VecDeque;

use weft_nccl_abi::NCCL_NET_MAX_REQUESTS;
use weft_verbs_abi::{ibv_sge, ibv_wc, rdma_target, wc_status};

use super::clear::{Clear, LEN};
use super::staging::Staged;
use super::{POLLS_PER_LOOK, not_in_progress};
use crate::device::Device;
use crate::failure::Failure;
use crate::meet::{Change, Link};
use crate::verbs::{MAX_RECEIVES, Region};

/// The bit of a work request's number that marks the receives of [`Clear`].
const RECEIVE: u64 = 1 << 32;

/// A message in progress.
#[derive(Debug)]
struct Message {
    number: u64,
    from: ibv_sge,
    /// The peer has it.
    done: bool,
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Sending {
    link: Link,
    /// The places that the peer has announced for messages not posted yet, in order.
    clear: VecDeque<Clear>,
    messages: [Option<Message>; NCCL_NET_MAX_REQUESTS],
    /// The number of the next message.
    next: u64,
    /// This rank, as NCCL's last tag names it.
    tag: c_int,
    landing: Staged,
    polls: u32,
    failed: Option<Failure>,
}

impl Sending {
    pub(super) fn new(link: Link) -> Result<Self, Failure> {
        let landing = Staged::new(&Device::current()?.domain, LEN * MAX_RECEIVES as usize)?;
        let messages = core::array::from_fn(|_| None);
        let mut this = Self {
            link,
            clear: VecDeque::new(),
            messages,
            next: 0,
            tag: -1,
            landing,
            polls: 0,
            failed: None,
        };
        this.post_receives()?;
        Ok(this)
    }

    /// Posts a message and returns the index of its request; `None` if NCCL must call again: the peer has not posted the receive, or
    /// too many messages are in progress.
    ///
    /// # Errors
    /// The connection has failed, or the message is longer than its receive.
    pub(crate) fn post(
        &mut self,
        data: *mut c_void,
        size: usize,
        tag: c_int,
        region: Option<&Region>,
    ) -> Result<Option<usize>, Failure> {
        self.tag = tag;
        self.advance()?;
        let Some(index) = self.messages.iter().position(Option::is_none) else { return Ok(None) };
        if !self.link.live {
            return Ok(None);
        }
        let Some(&clear) = self.clear.front() else { return Ok(None) };
        let length = u32::try_from(size).ok().filter(|&length| u64::from(length) <= clear.size);
        let Some(length) = length else {
            return Err(Failure::argument(format!(
                "message {} of rank {tag} to {} has {size} bytes, and its receive {}",
                self.next,
                self.link.peer(),
                clear.size
            )));
        };
        let lkey = region.map_or(0, Region::lkey);
        let from = ibv_sge { addr: data.expose_provenance() as u64, length, lkey };
        let message = Message { number: self.next, from, done: false };
        if !self.write(index, &message, clear)? {
            return Ok(None);
        }
        self.clear.pop_front();
        self.messages[index] = Some(message);
        self.next += 1;
        Ok(Some(index))
    }

    /// Writes a message to its place. Returns `false` if the device has no room for the request.
    fn write(&mut self, index: usize, message: &Message, clear: Clear) -> Result<bool, Failure> {
        let to = rdma_target { remote_addr: clear.address, rkey: clear.rkey };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the low half identifies one of 32 messages"
        )]
        let immediate = clear.number as u32;
        match self.link.pair.post_write(index as u64, message.from, to, immediate) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => Ok(false),
            Err(error) => self.renew(&format!("sending: {error}")).map(|()| false),
        }
    }

    /// Returns the size of a message if the peer has it, and frees its request.
    ///
    /// # Errors
    /// The connection has failed, or the request is not in progress.
    pub(super) fn test(&mut self, index: usize) -> Result<Option<usize>, Failure> {
        let is_done = |this: &Self| this.messages[index].as_ref().map(|message| message.done);
        let advanced = if is_done(self) == Some(false) { self.advance() } else { Ok(()) };
        match is_done(self) {
            Some(true) => {
                Ok(self.messages[index].take().map(|message| message.from.length as usize))
            }
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
        let advanced = self.poll().and_then(|()| {
            self.polls += 1;
            match self.link.live && !self.polls.is_multiple_of(POLLS_PER_LOOK) {
                true => Ok(()),
                false => self.look(),
            }
        });
        advanced.inspect_err(|failure| self.failed = Some(failure.clone()))
    }

    fn poll(&mut self) -> Result<(), Failure> {
        let mut batch = [ibv_wc::default(); 16];
        let epoch = self.link.epoch();
        while self.link.live {
            let polled = self.link.pair.poll(&mut batch);
            for completion in &batch[..polled] {
                if completion.status != wc_status::SUCCESS {
                    return self.renew(&format!("the device reports error {}", completion.status));
                }
                self.complete(completion.wr_id)?;
                if self.link.epoch() != epoch {
                    // The other completions are those of a queue pair that is gone.
                    return Ok(());
                }
            }
            if polled < batch.len() {
                break;
            }
        }
        Ok(())
    }

    fn complete(&mut self, wr_id: u64) -> Result<(), Failure> {
        if wr_id & RECEIVE == 0 {
            let index = usize::try_from(wr_id).unwrap_or(usize::MAX);
            if let Some(Some(message)) = self.messages.get_mut(index) {
                message.done = true;
            }
            return Ok(());
        }
        let at = usize::try_from(wr_id ^ RECEIVE).unwrap_or(0) * LEN;
        // SAFETY: the receive of this number wrote to these bytes, and is not posted again yet.
        let bytes = unsafe { self.landing.start().add(at).cast::<[u8; LEN]>().read() };
        self.post_receive(wr_id ^ RECEIVE)?;
        self.on_clear(Clear::from_bytes(&bytes))
    }

    /// Handles the place of a message: the next one's, or that of one which a failed queue pair did not deliver.
    fn on_clear(&mut self, clear: Clear) -> Result<(), Failure> {
        let index = self.messages.iter().position(|message| {
            message.as_ref().is_some_and(|message| message.number == clear.number && !message.done)
        });
        let Some(index) = index else {
            self.clear.push_back(clear);
            return Ok(());
        };
        let Some(message) = self.messages[index].take() else { return Ok(()) };
        let written = self.write(index, &message, clear);
        self.messages[index] = Some(message);
        match written? {
            true => Ok(()),
            false if !self.link.live => Ok(()),
            false => Err(Failure::internal("a new queue pair has no room for 32 messages")),
        }
    }

    /// Looks at the control connection.
    fn look(&mut self) -> Result<(), Failure> {
        loop {
            match self.link.service(0)? {
                Change::None => return Ok(()),
                Change::Ready => {}
                Change::Renewed { received } => {
                    self.finish(received);
                    self.clear.clear();
                    self.post_receives()?;
                }
                Change::Farewell { received } => self.finish(received),
                Change::End => return self.end(),
            }
        }
    }

    /// Completes the messages that the peer has received.
    fn finish(&mut self, received: u64) {
        for message in self.messages.iter_mut().flatten() {
            message.done |= message.number < received;
        }
    }

    /// Handles the end of the peer: an error, unless it has everything and NCCL sends nothing more.
    fn end(&mut self) -> Result<(), Failure> {
        let left = self.messages.iter().flatten().filter(|message| !message.done).count();
        let peer = self.link.peer();
        let text = match left {
            0 => format!(
                "{peer} has closed its connection from rank {}, or its process has ended",
                self.tag
            ),
            _ => format!(
                "the process at {peer} has ended before it received {left} messages of rank {}",
                self.tag
            ),
        };
        Err(Failure::remote(text))
    }

    fn renew(&mut self, reason: &str) -> Result<(), Failure> {
        let epoch = self.link.epoch();
        // The peer may have ended, or replaced its queue pair before.
        self.look()?;
        if self.link.epoch() == epoch { self.link.renew(0, reason) } else { Ok(()) }
    }

    /// Breaks the queue pair, as the device does after two seconds without an ACK.
    #[cfg(test)]
    pub(super) fn break_pair(&mut self) {
        self.renew("the test breaks it").unwrap();
    }

    fn post_receives(&mut self) -> Result<(), Failure> {
        (0..u64::from(MAX_RECEIVES)).try_for_each(|number| self.post_receive(number))
    }

    fn post_receive(&mut self, number: u64) -> Result<(), Failure> {
        let to = ibv_sge {
            addr: self.landing.address() + number * LEN as u64,
            length: u32::try_from(LEN).expect("few bytes"),
            lkey: self.landing.region().lkey(),
        };
        let posted = self.link.pair.post_receive(RECEIVE | number, Some(to));
        posted.map_err(|error| Failure::system("posting a receive request", &error))
    }
}
