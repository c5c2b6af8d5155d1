//! The second carrier: a TCP stream of the owner that replaces the queue pair temporarily, or permanently when
//! the queue pair broke (X-RDMA's Mock, section VI.C). Frames keep their numbers, so none is lost or delivered
//! twice.
//!
//! On the stream a frame consists of its length and its word, 4 bytes each in network byte order, then header
//! and body. Large messages are sent whole. An end that changes its carrier announces this with the last frame
//! on the old carrier; frames on the new one wait for it. If the queue pair broke, there is no last frame:
//! [`FAILED_OVER`] replaces it, and all unacknowledged frames are retransmitted.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_units::Instant;
use weft_wire::{FrameHeader, FrameKind, SequenceWord};

use super::{Carrier, Channel, Renewal, State, Unposted};
use crate::Config;
use crate::context::Shared;
use crate::event::{CloseReason, Message, ProtocolError};
use crate::journal::NoteKind;
use crate::memory::Block;
use crate::verbs::{Slice, Verbs};
use crate::window::{WindowError, low};

/// A length that no frame has: the sender's queue pair is broken, and unacknowledged frames follow.
const FAILED_OVER: u32 = u32::MAX;

/// Length in bytes of a frame's prefix: its length and its word.
const PREFIX: usize = 8;

/// The carriers of both directions, and the stream's queues.
#[derive(Debug)]
pub(crate) struct Stream {
    /// `true` if the owner has a stream for this channel.
    pub(crate) attached: bool,
    /// `true` if the queue pair is broken.
    pub(crate) rdma_lost: bool,
    pub(crate) sending: Carrier,
    pub(crate) receiving: Carrier,
    /// The requested carrier of outgoing frames.
    pub(crate) wanted: Carrier,
    /// Frames that wait to be written. They are copies: if a peer acknowledges a frame that it has not
    /// received, the frame's memory may already belong to another message.
    out: VecDeque<Vec<u8>>,
    /// Number of bytes of the first frame that are written.
    written: usize,
    input: Vec<u8>,
    /// `true` after this end failed over, until the peer confirms it: frames before that are retransmitted, so
    /// they are skipped.
    skipping: bool,
    /// Frames of the queue pair that arrived before the last frame of the stream.
    pub(crate) early: VecDeque<(Block, u32, SequenceWord)>,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            attached: false,
            rdma_lost: false,
            sending: Carrier::Rdma,
            receiving: Carrier::Rdma,
            wanted: Carrier::Rdma,
            out: VecDeque::new(),
            written: 0,
            input: Vec::new(),
            skipping: false,
            early: VecDeque::new(),
        }
    }
}

impl Stream {
    /// Queues a frame on the stream.
    pub(crate) fn put(
        &mut self,
        verbs: &impl Verbs,
        word: SequenceWord,
        header: &FrameHeader,
        body: Slice,
    ) {
        let len = u32::try_from(header.len()).expect("a header") + header.length;
        let mut bytes = alloc::vec![0; PREFIX + header.len()];
        bytes[..4].copy_from_slice(&len.to_be_bytes());
        bytes[4..PREFIX].copy_from_slice(&word.immediate().to_be_bytes());
        header.emit(&mut bytes[PREFIX..]);
        if body.len > 0 {
            bytes.extend_from_slice(verbs.bytes(body));
        }
        self.out.push_back(bytes);
    }

    /// Queues an ACK on the stream.
    pub(crate) fn put_ack(&mut self, word: SequenceWord) {
        let mut bytes = alloc::vec![0; PREFIX];
        bytes[4..].copy_from_slice(&word.immediate().to_be_bytes());
        self.out.push_back(bytes);
    }

    /// Fills `buffer` with the next bytes to write. Returns their number.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while let (Some(bytes), true) = (self.out.front(), filled < buffer.len()) {
            let count = (bytes.len() - self.written).min(buffer.len() - filled);
            let source = &bytes[self.written..self.written + count];
            buffer[filled..filled + count].copy_from_slice(source);
            filled += count;
            self.written += count;
            if self.written == bytes.len() {
                self.out.pop_front();
                self.written = 0;
            }
        }
        filled
    }

    pub(crate) fn wants_to_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// Returns `true` if the channel cannot continue without the stream.
    pub(crate) fn in_use(&self) -> bool {
        self.rdma_lost || self.sending == Carrier::Stream || self.receiving == Carrier::Stream
    }

    /// Returns `true` if the stream is the incoming carrier and bytes are queued: a frame may wait for memory.
    pub(crate) fn waits_for_memory(&self) -> bool {
        self.receiving == Carrier::Stream && self.input.len() >= PREFIX
    }
}

impl Channel {
    /// Handles received bytes of the stream.
    pub(crate) fn stream_received<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        bytes: &[u8],
    ) -> Result<(), CloseReason> {
        if !self.stream_has_room() {
            return Err(CloseReason::Protocol(ProtocolError::StreamOverrun));
        }
        self.stream.input.extend_from_slice(bytes);
        self.last_received = now;
        self.read_stream(now, shared)
    }

    /// Returns `true` if the stream may be read: at most the longest frame may be queued.
    pub(crate) fn stream_has_room(&self) -> bool {
        let longest = PREFIX + FrameHeader::MAX_LEN + self.offer.longest as usize;
        self.stream.input.len() < longest
    }

    /// Handles the complete frames of the stream whose turn it is.
    pub(crate) fn read_stream<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        let mut input = core::mem::take(&mut self.stream.input);
        let mut taken = 0;
        let outcome = loop {
            match self.read_frame(now, shared, &input[taken..]) {
                Ok(0) => break Ok(()),
                Ok(frame) => taken += frame,
                Err(reason) => break Err(reason),
            }
        };
        input.drain(..taken);
        self.stream.input = input;
        outcome
    }

    /// Handles one frame and returns its number of bytes; 0 if it is incomplete, it is not its turn, or there
    /// is no memory for it.
    fn read_frame<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        input: &[u8],
    ) -> Result<usize, CloseReason> {
        let Some((prefix, rest)) = input.split_first_chunk::<PREFIX>() else { return Ok(0) };
        let number =
            |at: usize| u32::from_be_bytes(prefix[at..at + 4].try_into().expect("four bytes"));
        if number(0) == FAILED_OVER {
            // Either it confirms this end's failure, or the peer waits for a confirmation.
            if !self.stream.skipping {
                self.fail_over(now, shared)?;
            }
            self.stream.skipping = false;
            return Ok(PREFIX);
        }
        if self.stream.receiving == Carrier::Rdma {
            return Ok(0);
        }
        let len = number(0) as usize;
        if len > FrameHeader::MAX_LEN + self.offer.longest as usize {
            let (got, max) = (number(0), self.offer.longest);
            return Err(CloseReason::Protocol(ProtocolError::TooLong { got, max }));
        }
        let Some(frame) = rest.get(..len) else { return Ok(0) };
        if self.stream.skipping {
            return Ok(PREFIX + len);
        }
        let word = SequenceWord::from_immediate(number(4));
        self.probing = false;
        let taken = self.ingest_streamed(now, shared, word, frame)?;
        Ok(if taken { PREFIX + len } else { 0 })
    }

    /// Handles a frame from the stream. Returns `false` if there is no memory for it.
    fn ingest_streamed<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        word: SequenceWord,
        frame: &[u8],
    ) -> Result<bool, CloseReason> {
        if frame.is_empty() {
            self.handle_ack(now, shared, word)?;
            self.known = self.tx.acked();
            return Ok(true);
        }
        let parsed = FrameHeader::parse(frame);
        let (header, body) = parsed.map_err(|error| CloseReason::Protocol(error.into()))?;
        let got = u32::try_from(body.len()).expect("checked above");
        if header.length != got {
            let wrong = ProtocolError::Length { stated: header.length, got };
            return Err(CloseReason::Protocol(wrong));
        }
        let ahead = word.seq.wrapping_sub(low(self.rx.expected()));
        if ahead > u16::MAX / 2 && self.stream.rdma_lost {
            // The frame is a retransmission: the sender's queue pair broke before the acknowledgement arrived.
            let expected = self.rx.expected();
            let seq = expected.checked_sub(ahead.wrapping_neg().into());
            let out_of_sequence =
                WindowError::OutOfSequence { got: word.seq, expected: low(expected) };
            let seq = seq.ok_or_else(|| CloseReason::Protocol(out_of_sequence.into()))?;
            self.handle_ack(now, shared, word)?;
            return self.complete_fetch(now, shared, seq, body);
        }
        let mut block = None;
        if header.kind == FrameKind::Small {
            let allocated = shared.memory.allocate(&mut shared.verbs, got.max(1));
            let Ok(allocated) = allocated else { return Ok(false) };
            block = Some(allocated);
        }
        let arrived = self.handle_ack(now, shared, word).and_then(|()| self.arrive(&header, word));
        match (arrived, block) {
            (Err(reason), block) => {
                block.into_iter().for_each(|block| shared.memory.release(now, block));
                return Err(reason);
            }
            (Ok(seq), Some(block)) => {
                let slice = Slice { len: got, ..block.slice() };
                shared.verbs.bytes_mut(slice).copy_from_slice(body);
                let message = Message { call: header.call, block, at: 0, len: got };
                self.deliver(now, shared, header.trace, message);
                self.finish_message(now, shared, seq);
            }
            (Ok(seq), None) => {
                if header.kind == FrameKind::Offer {
                    self.handle_offer(body)?;
                }
                self.control(now, shared.config.close_timeout, header.kind, seq)?;
            }
        }
        self.known = self.tx.acked();
        if self.stream.receiving == Carrier::Rdma {
            self.ingest_early(now, shared)?;
        }
        Ok(true)
    }

    /// Handles frames that the queue pair delivered before the last frame of the stream.
    fn ingest_early<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        while let Some((block, len, word)) = self.stream.early.pop_front() {
            let got = Slice { len, ..block.slice() };
            self.ingest(now, shared, word, got, |_| block)?;
        }
        Ok(())
    }

    /// Switches the carrier of incoming frames.
    pub(super) fn peer_switched(&mut self, now: Instant) -> Result<(), CloseReason> {
        if self.back.renewal == Renewal::Ready {
            self.return_to_rdma(now)?;
        }
        if self.stream.rdma_lost {
            // The peer sent the switch before the queue pair broke; only the stream is left.
            return Ok(());
        }
        if !self.stream.attached {
            return Err(CloseReason::Protocol(ProtocolError::NoStream));
        }
        self.stream.receiving = self.stream.receiving.other();
        if self.stream.wanted != self.stream.receiving {
            // This end follows; the peer decides when to go back.
            self.stream.wanted = self.stream.receiving;
            self.congestion.reset();
        }
        Ok(())
    }

    /// Changes the carrier of outgoing frames if that was requested and the window has room for the switch.
    pub(crate) fn switch_if_wanted<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        let wanted = self.stream.attached && self.stream.wanted != self.stream.sending;
        if !wanted || !self.may_send() || self.stream.rdma_lost {
            return Ok(());
        }
        self.send_control(now, shared, FrameKind::Switch)
    }

    /// Returns `true` if the peer did not answer a probe on the stream for the keepalive time. The silence before the
    /// probe does not count: the device's retries take long, and the owner may have polled late.
    pub(crate) fn stream_silent(&self, now: Instant, config: &Config) -> bool {
        self.probing
            && self.stream.sending == Carrier::Stream
            && self.probed_at + config.keepalive <= now
    }

    /// Fails over to the stream after the queue pair broke, starting with the first unacknowledged frame.
    pub(crate) fn fail_over<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        if !self.stream.attached {
            return Err(CloseReason::Protocol(ProtocolError::NoStream));
        }
        if self.state == State::Connected {
            self.on_open(now, shared);
        }
        if self.has_qp() {
            shared.reclaim_shared(now, self.qp);
            shared.verbs.destroy_qp(now, self.qp);
        }
        self.congestion.reset();
        self.back.renewal = Renewal::Idle;
        self.back.received = None;
        self.schedule_renewal(now, &shared.config);
        self.stream.rdma_lost = true;
        self.stream.skipping = true;
        self.cancel_reads(shared);
        self.sends.abandon(&mut shared.sends);
        let early = self.stream.early.drain(..).map(|(block, ..)| block);
        for block in self.posted.drain(..).chain(early) {
            shared.memory.release(now, block);
        }
        for Unposted { number, done } in self.unposted.drain(..) {
            number.filter(|_| done).into_iter().for_each(|seq| self.rx.finish(seq));
        }
        self.unposted_acks = 0;
        self.starved_counted = 0;
        self.unseen_acks.clear();
        self.probing = false;
        self.known = self.tx.acked();
        self.stream.receiving = Carrier::Stream;
        self.stream.switch_to_stream();
        let word = |seq, ack| SequenceWord { seq: low(seq), ack };
        let ack = self.rx.next_ack();
        // ACK frames in flight are lost with the queue pair. If no frame is retransmitted, a new ACK carries the count.
        self.ack_now = self.tx.in_flight() == 0;
        self.ack_owed_since = None;
        for (seq, frame) in self.tx.iter() {
            let header = frame.header(now, low(self.known), Carrier::Stream);
            self.stream.put(&shared.verbs, word(seq, ack), &header, frame.body_slice());
            self.stats.frames_retransmitted += 1;
        }
        self.stats.switches += 1;
        shared.note(now, Some(self.peer.gid), NoteKind::Switched(Carrier::Stream));
        Ok(())
    }
}

impl Stream {
    /// Discards queued frames, which are retransmitted with the others, and queues the marker.
    fn switch_to_stream(&mut self) {
        (self.sending, self.wanted) = (Carrier::Stream, Carrier::Stream);
        // A partially written frame must be completed.
        self.out.truncate(usize::from(self.written > 0));
        let mut marker = alloc::vec![0; PREFIX];
        marker[..4].copy_from_slice(&FAILED_OVER.to_be_bytes());
        self.out.push_back(marker);
    }
}
