//! Submission of messages, and release of received ones.

use weft_units::{Duration, Instant};
use weft_wire::{CallRole, FrameHeader, FrameKind};

use super::shared::Held;
use super::{ChannelId, Context, Shared};
use crate::channel::{Body, Channel, Outgoing, PendingCall, Stamp};
use crate::event::{Message, SendError};
use crate::filter::{Direction, Fault, corrupt};
use crate::memory::Block;
use crate::verbs::{DeviceError, Slice, Verbs};

/// The body of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Bytes that are copied immediately.
    Copy(&'a [u8]),
    /// Registered memory that the message owns until `Delivered` arrives for it, or the channel ends.
    Lent(Slice),
}

impl Payload<'_> {
    const fn len(&self) -> u64 {
        match self {
            Self::Copy(bytes) => bytes.len() as u64,
            Self::Lent(slice) => slice.len as u64,
        }
    }
}

/// A message to be sent.
#[derive(Clone, Copy)]
struct Submission<'a> {
    call: CallRole,
    number: u64,
    /// The stamp of a traced call.
    trace: Option<Stamp>,
    body: Payload<'a>,
}

impl<V: Verbs> Context<V> {
    /// Sends a message and returns its number.
    ///
    /// # Errors
    /// The channel is closed or full, the message is too long, or there is no memory; nothing was sent.
    pub fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        body: Payload<'_>,
    ) -> Result<u64, SendError> {
        let number = self.next_number;
        let message = Submission { call: CallRole::OneWay, number, trace: None, body };
        self.submit(now, channel, message)?;
        self.next_number += 1;
        Ok(number)
    }

    /// Sends a request and returns its number, which the response will carry.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn request(
        &mut self,
        now: Instant,
        channel: ChannelId,
        body: Payload<'_>,
    ) -> Result<u64, SendError> {
        let id = self.next_number;
        let interval = u64::from(self.shared.config.trace_every);
        // Not by the message's number, which all messages share: what is sent between requests must not matter.
        let traced = interval > 0 && (self.requests + 1).is_multiple_of(interval);
        let trace = traced.then_some(Stamp { id, received_at: 0 });
        let message = Submission { call: CallRole::Request(id), number: id, trace, body };
        self.submit(now, channel, message)?;
        self.requests += 1;
        self.next_number += 1;
        Ok(id)
    }

    /// Responds to a request of this channel.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send), and `NoRequest` if there is no such request, or it was answered.
    pub fn respond(
        &mut self,
        now: Instant,
        channel: ChannelId,
        id: u64,
        body: Payload<'_>,
    ) -> Result<u64, SendError> {
        let requester = self.channels.get(channel).ok_or(SendError::Closed)?;
        let trace = *requester.to_answer.get(id).ok_or(SendError::NoRequest { id })?;
        let number = self.next_number;
        let message = Submission { call: CallRole::Response(id), number, trace, body };
        self.submit(now, channel, message)?;
        self.next_number += 1;
        Ok(number)
    }

    /// Discards a received request without a response. The requester is not notified.
    pub fn decline(&mut self, now: Instant, channel: ChannelId, id: u64) {
        self.with(now, channel, |channel, _| {
            channel.finish_request(now, id);
            Ok(())
        });
        self.service_touched(now);
    }

    /// Cancels a request; its response will be dropped.
    pub fn cancel(&mut self, channel: ChannelId, id: u64) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.pending_calls.remove(id);
        }
    }

    /// Submits a message, unless a filter rule drops it.
    #[inline(always)]
    fn submit(
        &mut self,
        now: Instant,
        id: ChannelId,
        message: Submission<'_>,
    ) -> Result<(), SendError> {
        let channel = self.channels.get(id).ok_or(SendError::Closed)?;
        check_submission(channel, self.shared.config.backlog, message.body.len())?;
        if self.shared.filter.rules.is_empty() {
            self.submit_frame(now, id, message, None)
        } else {
            self.submit_filtered(now, id, message)
        }
    }

    /// Submits a message to which filter rules may apply.
    #[cold]
    fn submit_filtered(
        &mut self,
        now: Instant,
        id: ChannelId,
        message: Submission<'_>,
    ) -> Result<(), SendError> {
        let Submission { call, number, body, .. } = message;
        let Shared { filter, rng, verbs, .. } = &mut self.shared;
        match filter.verdict(Direction::Out, call, rng) {
            None => self.submit_frame(now, id, message, None),
            Some(Fault::Delay(delay)) => self.submit_frame(now, id, message, Some(delay)),
            Some(Fault::Drop) => {
                self.activity += 1;
                self.channels[id].on_submitted(now, call, body.len());
                self.free_lent(id, number, body);
                Ok(())
            }
            Some(Fault::Corrupt) => {
                // The owner's memory must not be modified.
                let mut bytes = match body {
                    Payload::Copy(bytes) => bytes.to_vec(),
                    Payload::Lent(slice) => verbs.bytes(slice).to_vec(),
                };
                corrupt(&mut bytes, rng);
                let copy = Submission { body: Payload::Copy(&bytes), ..message };
                self.submit_frame(now, id, copy, None)?;
                self.free_lent(id, number, body);
                Ok(())
            }
        }
    }

    /// Builds the frame of a message, and sends it if nothing waits before it. A filter rule may delay it.
    #[inline(always)]
    fn submit_frame(
        &mut self,
        now: Instant,
        id: ChannelId,
        message: Submission<'_>,
        delay: Option<Duration>,
    ) -> Result<(), SendError> {
        let Submission { call, number, trace, body } = message;
        let Self { channels, shared, .. } = self;
        let channel = channels.get_mut(id).ok_or(SendError::Closed)?;
        let length = u32::try_from(body.len()).expect("checked against the peer's limit");
        let is_small = length <= channel.peer.small;
        let kind = if is_small { FrameKind::Small } else { FrameKind::Large };
        let frame = shared.frame_block()?;
        let elsewhere = match shared.place(&frame, kind, trace, body) {
            Ok(elsewhere) => elsewhere,
            Err(error) => {
                shared.memory.release(now, frame);
                return Err(error.into());
            }
        };
        let frame = Outgoing { kind, call, number, length, frame, body: elsewhere, trace };
        self.activity += 1;
        channel.on_submitted(now, call, body.len());
        if let Some(delay) = delay {
            shared.hold(now + delay, Held::Out(id, frame));
            return Ok(());
        }
        channel.stats.large += u64::from(kind == FrameKind::Large);
        shared.current = id;
        if !channel.is_clear(shared, &frame) {
            channel.backlog.push_back(frame);
            self.touch(id);
            self.service_touched(now);
            return Ok(());
        }
        match channel.launch(now, shared, frame) {
            Ok(()) if channel.touched => {}
            Ok(()) => self.reschedule(id),
            Err(reason) => {
                self.fail(now, id, reason);
                self.service_touched(now);
            }
        }
        Ok(())
    }

    /// Reports lent memory as delivered after a filter rule dropped or copied its message, as without the rule.
    fn free_lent(&mut self, channel: ChannelId, number: u64, body: Payload<'_>) {
        if let Payload::Lent(_) = body {
            self.shared.events.push_back(crate::Event::Delivered { channel, number });
        }
    }

    /// Returns the bytes of a message's body.
    pub fn body(&self, message: &Message) -> &[u8] {
        self.shared.verbs.bytes(message.body())
    }

    /// Releases a message's memory.
    pub fn release(&mut self, now: Instant, message: Message) {
        self.shared.memory.release(now, message.block);
    }

    /// Allocates registered memory of at least `len` bytes (`reg_mem`), for sending without a copy.
    ///
    /// # Errors
    /// The memory cache is at its limit, or the device has no memory.
    pub fn allocate(&mut self, len: u32) -> Result<Block, DeviceError> {
        let shared = &mut self.shared;
        shared.memory.allocate(&mut shared.verbs, len)
    }

    /// Frees registered memory (`dereg_mem`). A message that it was lent to must have been delivered, or its channel
    /// have ended.
    pub fn free(&mut self, now: Instant, block: Block) {
        self.shared.memory.release(now, block);
    }

    /// Returns the bytes of registered memory.
    pub fn bytes_mut(&mut self, block: &Block) -> &mut [u8] {
        self.shared.verbs.bytes_mut(block.slice())
    }
}

impl Channel {
    /// Records a message that the owner submitted.
    #[inline(always)]
    fn on_submitted(&mut self, now: Instant, call: CallRole, len: u64) {
        match call {
            CallRole::Request(id) => {
                self.pending_calls.insert(id, PendingCall { at: now, sent_at: None });
            }
            CallRole::Response(id) => self.finish_request(now, id),
            CallRole::OneWay => {}
        }
        self.stats.sent += 1;
        self.stats.sent_bytes += len;
    }
}

impl<V: Verbs> Shared<V> {
    /// Places the body of a message: a short one is copied behind the header. Returns the place of any other.
    #[inline(always)]
    fn place(
        &mut self,
        frame: &Block,
        kind: FrameKind,
        trace: Option<Stamp>,
        body: Payload<'_>,
    ) -> Result<Option<Body>, DeviceError> {
        match body {
            Payload::Copy(bytes) if kind == FrameKind::Small => {
                self.copy_behind(frame, trace, bytes);
                Ok(None)
            }
            Payload::Copy(bytes) => self.copy_apart(bytes).map(Some),
            Payload::Lent(slice) => Ok(Some(Body::Lent(slice))),
        }
    }

    /// Copies a short body behind its header.
    #[inline(always)]
    fn copy_behind(&mut self, frame: &Block, trace: Option<Stamp>, bytes: &[u8]) {
        let header = if trace.is_some() { FrameHeader::MAX_LEN } else { FrameHeader::LEN };
        let room = self.verbs.bytes_mut(frame.slice());
        room[header..header + bytes.len()].copy_from_slice(bytes);
    }

    /// Copies a long body into its own block.
    fn copy_apart(&mut self, bytes: &[u8]) -> Result<Body, DeviceError> {
        let len = u32::try_from(bytes.len()).expect("checked against the peer's limit");
        let block = self.memory.allocate(&mut self.verbs, len)?;
        self.verbs.bytes_mut(Slice { len, ..block.slice() }).copy_from_slice(bytes);
        Ok(Body::Copied(block, len))
    }
}

/// Checks that a channel accepts a message of `len` bytes.
#[inline(always)]
fn check_submission(channel: &Channel, backlog: u32, len: u64) -> Result<(), SendError> {
    if !channel.accepts_messages() {
        return Err(SendError::Closed);
    }
    let max = channel.peer.longest;
    if len > u64::from(max) {
        return Err(SendError::TooLong { got: len, max });
    }
    let waiting = u32::try_from(channel.backlog.len()).unwrap_or(u32::MAX);
    // A message that is sent immediately does not wait.
    if waiting > 0 && waiting >= backlog || backlog == 0 && !channel.tx.open() {
        return Err(SendError::Full { waiting });
    }
    Ok(())
}
