//! Incoming frames of both carriers.

use weft_units::{Duration, Instant};
use weft_wire::{CallRole, FrameHeader, FrameKind, RemoteBody, SequenceWord, TraceExtension};

use super::{Body, Carrier, Channel, Fetch, State, Unposted};
use crate::context::Shared;
use crate::event::{CloseReason, Event, Message, ProtocolError};
use crate::journal::NoteKind;
use crate::memory::Block;
use crate::verbs::{Completion, Slice, Verbs};

/// A message with its body that arrived in one frame.
struct Arrived {
    seq: u64,
    call: CallRole,
    trace: Option<TraceExtension>,
    /// The body's place in the frame, and its length, in bytes.
    at: u32,
    len: u32,
}

impl Channel {
    /// Handles a completed receive request.
    #[inline(always)]
    pub(crate) fn received<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        completion: &Completion,
    ) -> Result<(), CloseReason> {
        let Some(room) = self.posted.front().map(Block::slice) else { return Ok(()) };
        // A block is moved once, from here into its message.
        let take = |channel: &mut Self| channel.posted.pop_front().expect("it is the first");
        self.received_in(now, shared, completion, room, take)
    }

    /// Handles a completed receive request whose memory is `room`; `take` removes its block from where it is.
    #[inline(always)]
    pub(crate) fn received_in<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        completion: &Completion,
        room: Slice,
        take: impl FnOnce(&mut Self) -> Block,
    ) -> Result<(), CloseReason> {
        self.last_received = now;
        let got = Slice { len: completion.len, ..room };
        let Some(word) = completion.immediate.map(SequenceWord::from_immediate) else {
            let block = take(self);
            shared.memory.release(now, block);
            return Err(CloseReason::Protocol(ProtocolError::NoSequenceWord));
        };
        if self.stream.receiving == Carrier::Stream {
            let block = take(self);
            self.stream.early.push_back((block, got.len, word));
            return Ok(());
        }
        self.ingest(now, shared, word, got, take)
    }

    /// Handles a frame from the queue pair.
    #[inline(always)]
    pub(super) fn ingest<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        word: SequenceWord,
        got: Slice,
        take: impl FnOnce(&mut Self) -> Block,
    ) -> Result<(), CloseReason> {
        let handled = self.handle_frame(now, shared, word, got);
        let block = take(self);
        match handled {
            Ok(Some(Arrived { seq, call, trace, at, len })) => {
                self.deliver(now, shared, trace, Message { call, block, at, len });
                let done = !self.keeps_place(shared, seq);
                let outcome =
                    self.replace_receive(now, shared, Unposted { number: Some(seq), done });
                self.update_known();
                outcome
            }
            Ok(None) => {
                shared.memory.release(now, block);
                Ok(())
            }
            Err(reason) => {
                shared.memory.release(now, block);
                Err(reason)
            }
        }
    }

    /// Handles a frame of the queue pair. Returns it if it is a message with its body.
    #[inline(always)]
    fn handle_frame<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        word: SequenceWord,
        got: Slice,
    ) -> Result<Option<Arrived>, CloseReason> {
        self.handle_ack(now, shared, word)?;
        if got.len == 0 {
            self.replace_receive(now, shared, Unposted { number: None, done: false })?;
            self.update_known();
            return Ok(None);
        }
        let parsed = FrameHeader::parse(shared.verbs.bytes(got));
        let (header, _) = parsed.map_err(|error| CloseReason::Protocol(error.into()))?;
        let at = u32::try_from(header.len()).expect("a header");
        let len = got.len - at;
        let seq = self.arrive(&header, word)?;
        if header.kind == FrameKind::Small && header.length == len {
            let FrameHeader { call, trace, .. } = header;
            return Ok(Some(Arrived { seq, call, trace, at, len }));
        }
        self.replace_receive(now, shared, Unposted { number: Some(seq), done: false })?;
        self.update_known();
        let body = Slice { address: got.address + u64::from(at), len, ..got };
        self.handle_other(now, shared, seq, header, body)?;
        Ok(None)
    }

    /// Handles a frame that is no message with its body.
    fn handle_other<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        seq: u64,
        header: FrameHeader,
        body: Slice,
    ) -> Result<(), CloseReason> {
        match header.kind {
            FrameKind::Large => {
                let from = RemoteBody::parse(shared.verbs.bytes(body));
                let from = from.map_err(|error| CloseReason::Protocol(error.into()))?;
                self.begin_fetch(now, &header, seq, from)
            }
            FrameKind::Small => {
                let wrong = ProtocolError::Length { stated: header.length, got: body.len };
                Err(CloseReason::Protocol(wrong))
            }
            // Offers come on the stream.
            FrameKind::Offer => Err(CloseReason::Protocol(ProtocolError::NotBroken)),
            FrameKind::Ack | FrameKind::Nop | FrameKind::Switch | FrameKind::Close => {
                self.control(now, shared.config.close_timeout, header.kind, seq)
            }
        }
    }

    /// Checks a frame's number and updates the state from its header.
    #[inline(always)]
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

    /// Handles the acknowledgement in a sequence word. The first word opens a connected channel. The memory of the
    /// acknowledged frames is released when the channel is serviced, because the owner may wait for the message of this
    /// frame.
    ///
    /// # Errors
    /// The acknowledgement is invalid, or it covers this end's close ([`CloseReason::Finished`]).
    #[inline(always)]
    pub(super) fn handle_ack<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        word: SequenceWord,
    ) -> Result<(), CloseReason> {
        if self.state == State::Connected {
            self.on_open(now, shared);
        }
        let acked = self.tx.acknowledge(word.ack);
        let acked = acked.map_err(|error| CloseReason::Protocol(error.into()))?;
        if acked == 0 {
            return Ok(());
        }
        self.last_progress = now;
        if self.tx.in_flight() == 0 {
            self.sends.acknowledge(&mut shared.sends);
        }
        match self.state {
            State::Closing { .. } => self.release_acknowledged(now, shared),
            _ => Ok(()),
        }
    }

    /// Reports that both ends may send.
    pub(super) fn on_open<V: Verbs>(&mut self, now: Instant, shared: &mut Shared<V>) {
        self.state = State::Open;
        shared.events.push_back(Event::Open { channel: shared.current });
        shared.note(now, Some(self.peer.gid), NoteKind::Opened);
    }

    /// Releases the memory of acknowledged frames.
    ///
    /// # Errors
    /// This end's close is among them ([`CloseReason::Finished`]).
    pub(crate) fn release_acknowledged<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        let mut finished = false;
        while let Some(frame) = self.tx.take_acknowledged() {
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
        if finished { Err(CloseReason::Finished) } else { Ok(()) }
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
