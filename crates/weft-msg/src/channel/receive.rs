//! Incoming frames of both carriers.

use alloc::vec::Vec;

use weft_units::{Duration, Instant};
use weft_wire::{FrameHeader, FrameKind, RemoteBody, SequenceWord};

use super::{Body, Carrier, Channel, Fetch, State, Unposted};
use crate::context::{Shared, WorkId};
use crate::event::{CloseReason, Event, Message, ProtocolError, Slow};
use crate::journal::NoteKind;
use crate::memory::Block;
use crate::verbs::{Completion, Slice, Verbs};

/// Windows of fewer frames are small: their receive requests are replaced immediately.
const SMALL_WINDOW: u16 = 8;

impl Channel {
    /// Posts receive requests for all frames that the peer may have in flight.
    pub(crate) fn post_receives<V: Verbs>(
        &mut self,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        if shared.receives.is_some() {
            return Ok(());
        }
        let wanted = usize::from(self.offer.depth + self.offer.ack_frames);
        let before = self.posted.len();
        self.posted.reserve(wanted.saturating_sub(before));
        while self.posted.len() < wanted {
            self.posted.push_back(shared.frame_block().map_err(CloseReason::Device)?);
        }
        let len = shared.frame_len();
        let new = self.posted.range(before..);
        let to: Vec<_> = new.map(|block| Slice { len, ..block.slice() }).collect();
        let id = shared.work_id(WorkId::Receive);
        shared.verbs.post_receives(self.qp, id, &to).map_err(CloseReason::Device)
    }

    fn post_receive<V: Verbs>(
        &mut self,
        shared: &mut Shared<V>,
        block: Block,
    ) -> Result<(), CloseReason> {
        let to = Slice { len: shared.frame_len(), ..block.slice() };
        let id = shared.work_id(WorkId::Receive);
        self.posted.push_back(block);
        shared.verbs.post_receive(self.qp, id, to).map_err(CloseReason::Device)
    }

    /// Replaces the memory of a received frame: immediately if the window is small, because the peer may wait
    /// for it; otherwise when the channel is serviced, because the owner may wait for the frame.
    fn replace_receive<V: Verbs>(
        &mut self,
        shared: &mut Shared<V>,
        number: Option<u64>,
    ) -> Result<(), CloseReason> {
        if shared.receives.is_some() {
            // No frame waits for this replacement: a peer may find the shared queue empty in any case.
            return Ok(());
        }
        if self.offer.depth < SMALL_WINDOW
            && self.unposted.is_empty()
            && let Ok(block) = shared.frame_block()
        {
            return self.post_receive(shared, block);
        }
        self.unposted.push_back(Unposted { number, done: false });
        Ok(())
    }

    /// Posts the missing receive requests. While there is no memory for them, the peer's window is smaller by
    /// their number.
    pub(crate) fn replenish<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        while let Some(&Unposted { number, done }) = self.unposted.front() {
            let Ok(block) = shared.frame_block() else { break };
            self.unposted.pop_front();
            self.starved_counted = self.starved_counted.saturating_sub(1);
            self.post_receive(shared, block)?;
            if let Some(number) = number.filter(|_| done) {
                self.finish(now, number);
            }
        }
        self.stats.starved += (self.unposted.len() - self.starved_counted) as u64;
        self.starved_counted = self.unposted.len();
        self.update_known();
        Ok(())
    }

    /// Marks a frame as received by the owner; it is finished when its receive request is replaced too.
    pub(crate) fn finish(&mut self, now: Instant, seq: u64) {
        // The most recent frame is usually finished first.
        let unposted = self.unposted.iter_mut().rfind(|frame| frame.number == Some(seq));
        if let Some(frame) = unposted {
            frame.done = true;
            return;
        }
        self.rx.finish(seq);
        if self.rx.unacknowledged() > 0 {
            self.ack_owed_since.get_or_insert(now);
        }
    }

    /// Finishes a message received by the owner, unless too many requests wait for a response: then it keeps its
    /// place in the window until one is answered or declined.
    pub(super) fn finish_message<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        seq: u64,
    ) {
        let waiting = u32::try_from(self.to_answer.len()).unwrap_or(u32::MAX);
        if waiting <= shared.config.unanswered {
            return self.finish(now, seq);
        }
        if self.parked.is_empty() {
            let channel = shared.current;
            shared.events.push_back(Event::Slow(Slow::Answers { channel, waiting }));
        }
        self.parked.push_back(seq);
    }

    /// Removes a request that was answered or declined, and finishes the oldest frame that kept its place.
    pub(crate) fn finish_request(&mut self, now: Instant, id: u64) {
        if self.to_answer.remove(id).is_some()
            && let Some(seq) = self.parked.pop_front()
        {
            self.finish(now, seq);
        }
    }

    /// Handles a completed receive request.
    pub(crate) fn received<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        completion: &Completion,
    ) -> Result<(), CloseReason> {
        let Some(block) = self.posted.pop_front() else { return Ok(()) };
        self.received_in(now, shared, completion, block)
    }

    /// Handles a completed receive request with this memory.
    pub(crate) fn received_in<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        completion: &Completion,
        block: Block,
    ) -> Result<(), CloseReason> {
        self.last_received = now;
        let Some(word) = completion.immediate else {
            shared.memory.release(now, block);
            return Err(CloseReason::Protocol(ProtocolError::NoSequenceWord));
        };
        let word = SequenceWord::from_immediate(word);
        let got = Slice { len: completion.len, ..block.slice() };
        if self.stream.receiving == Carrier::Stream {
            self.stream.early.push_back((block, got.len, word));
            return Ok(());
        }
        self.ingest(now, shared, word, block, got)
    }

    /// Handles a frame from the queue pair.
    pub(super) fn ingest<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        word: SequenceWord,
        block: Block,
        got: Slice,
    ) -> Result<(), CloseReason> {
        let mut block = Some(block);
        let outcome = self.handle_frame(now, shared, word, &mut block, got);
        // Either a message owns the block now, or it is released.
        if let Some(block) = block {
            shared.memory.release(now, block);
        }
        outcome
    }

    fn handle_frame<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        word: SequenceWord,
        block: &mut Option<Block>,
        got: Slice,
    ) -> Result<(), CloseReason> {
        self.handle_ack(now, shared, word)?;
        if got.len == 0 {
            self.replace_receive(shared, None)?;
            self.update_known();
            return Ok(());
        }
        let parsed = FrameHeader::parse(shared.verbs.bytes(got));
        let (header, rest) = parsed.map_err(|error| CloseReason::Protocol(error.into()))?;
        let (at, len) = (got.len - len_u32(rest), len_u32(rest));
        let body = Slice { address: got.address + u64::from(at), len, ..got };
        let seq = self.arrive(&header, word)?;
        self.replace_receive(shared, Some(seq))?;
        self.update_known();
        match header.kind {
            FrameKind::Small if header.length == len => {
                let block = block.take().expect("the block is not taken yet");
                let message = Message { call: header.call, block, body };
                self.deliver(now, shared, &header, message);
                self.finish_message(now, shared, seq);
            }
            FrameKind::Large => {
                let from = RemoteBody::parse(shared.verbs.bytes(body));
                let from = from.map_err(|error| CloseReason::Protocol(error.into()))?;
                self.begin_fetch(now, &header, seq, from)?;
            }
            FrameKind::Small => {
                let wrong = ProtocolError::Length { stated: header.length, got: len };
                return Err(CloseReason::Protocol(wrong));
            }
            // Offers come on the stream.
            FrameKind::Offer => return Err(CloseReason::Protocol(ProtocolError::NotBroken)),
            FrameKind::Ack | FrameKind::Nop | FrameKind::Switch | FrameKind::Close => {
                self.control(now, shared.config.close_timeout, header.kind, seq)?;
            }
        }
        Ok(())
    }

    /// Checks a frame's number and updates the state from its header.
    pub(super) fn arrive(
        &mut self,
        header: &FrameHeader,
        word: SequenceWord,
    ) -> Result<u64, CloseReason> {
        let broken = CloseReason::Protocol;
        if matches!(self.state, State::PeerClosed { .. }) {
            return Err(broken(ProtocolError::AfterClose));
        }
        let max = self.offer.longest;
        if header.length > max {
            return Err(broken(ProtocolError::TooLong { got: header.length, max }));
        }
        let seq = self.rx.arrive(word.seq).map_err(|error| broken(error.into()))?;
        // The peer's `known` count shows which ACK frames it has received.
        let behind = crate::window::low(self.rx.ready()).wrapping_sub(header.known);
        let known = self.rx.ready().saturating_sub(behind.into());
        while self.unseen_acks.front().is_some_and(|&count| count <= known) {
            self.unseen_acks.pop_front();
        }
        Ok(seq)
    }

    /// Handles a control frame.
    pub(super) fn control(
        &mut self,
        now: Instant,
        close_timeout: Duration,
        kind: FrameKind,
        seq: u64,
    ) -> Result<(), CloseReason> {
        self.finish(now, seq);
        match kind {
            FrameKind::Nop => self.ack_now = true,
            FrameKind::Close => {
                self.state = State::PeerClosed { until: now + close_timeout };
                self.ack_now = true;
            }
            FrameKind::Switch => self.peer_switched(now)?,
            FrameKind::Ack | FrameKind::Small | FrameKind::Large | FrameKind::Offer => {}
        }
        Ok(())
    }

    /// Finishes the frames that a sequence word acknowledges. The first word opens a connected channel.
    ///
    /// # Errors
    /// The acknowledgement is invalid, or it covers this end's close ([`CloseReason::Finished`]).
    pub(super) fn handle_ack<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        word: SequenceWord,
    ) -> Result<(), CloseReason> {
        if self.state == State::Connected {
            self.state = State::Open;
            shared.events.push_back(Event::Open { channel: shared.current });
            shared.note(now, Some(self.peer.gid), NoteKind::Opened);
        }
        let acked = self.tx.acknowledge(word.ack);
        let acked = acked.map_err(|error| CloseReason::Protocol(error.into()))?;
        let mut finished = false;
        let mut any = false;
        for frame in acked {
            any = true;
            self.last_progress = now;
            finished |= frame.kind == FrameKind::Close;
            shared.memory.release(now, frame.frame);
            match frame.body {
                Some(Body::Lent(_)) => {
                    let (channel, number) = (shared.current, frame.number);
                    shared.events.push_back(Event::Delivered { channel, number });
                }
                Some(Body::Copied(block, _)) => shared.memory.release(now, block),
                None => {}
            }
        }
        if any && self.tx.in_flight() == 0 {
            self.sends.acknowledge(&mut shared.sends);
        }
        if finished { Err(CloseReason::Finished) } else { Ok(()) }
    }

    /// Updates `known` once the receive requests of ACK frames are replaced: only then may this end confirm them.
    fn update_known(&mut self) {
        if self.unposted.iter().all(|frame| frame.number.is_some()) {
            self.known = self.tx.acked();
        }
    }

    /// Starts a fetch for an announced large message.
    fn begin_fetch(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        seq: u64,
        from: RemoteBody,
    ) -> Result<(), CloseReason> {
        if header.length == 0 {
            let wrong = ProtocolError::Length { stated: 0, got: 0 };
            return Err(CloseReason::Protocol(wrong));
        }
        self.fetches.push_back(Fetch {
            seq,
            header: *header,
            announced_at: now,
            from,
            to: None,
            requested: 0,
            done: 0,
        });
        Ok(())
    }
}

fn len_u32(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("no longer than a frame")
}
