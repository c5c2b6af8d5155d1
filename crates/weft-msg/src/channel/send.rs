//! Outgoing frames: from the backlog through the window to a carrier.

use weft_units::Instant;
use weft_wire::{FrameKind, RemoteBody, SequenceWord};

use super::{Carrier, Channel, Outgoing, State};
use crate::context::{Shared, WorkId};
use crate::event::CloseReason;
use crate::journal::NoteKind;
use crate::verbs::{Slice, Verbs, Work};
use crate::window::low;

impl Channel {
    /// Sends frames from the backlog while the window is open and the context's limit has room.
    pub(crate) fn flush<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        if !self.may_send() {
            return Ok(());
        }
        while self.window_has_room() {
            if self.counted_len().is_some_and(|len| !self.limit_has_room(shared, len)) {
                break;
            }
            self.send_next(now, shared)?;
        }
        Ok(())
    }

    /// Sends the first frame of the backlog.
    pub(crate) fn send_next<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        let Some(next) = self.backlog.pop_front() else { return Ok(()) };
        self.launch(now, shared, next)
    }

    /// Returns `true` if a frame waits and the window has a place for it.
    fn window_has_room(&self) -> bool {
        self.backlog.front().is_some_and(|next| {
            if next.is_message() { self.tx.open() } else { self.tx.reserve_open() }
        })
    }

    /// Returns the bytes that the first frame of the backlog adds to the context's SENDs in flight; `None` if it does not
    /// count: control frames end deadlocks, and a stream has a flow control of its own.
    pub(crate) fn counted_len(&self) -> Option<u64> {
        let next = self.backlog.front().filter(|next| next.is_message())?;
        (self.stream.sending == Carrier::Rdma).then(|| next.sent_len())
    }

    /// Returns `true` if only the context's limit may keep the first frame of the backlog.
    pub(crate) fn waits_for_limit(&self) -> bool {
        let can = self.may_send() && self.window_has_room() && !self.sends.is_stuck();
        can && self.counted_len().is_some()
    }

    /// Returns `true` if a message may be sent immediately, because none waits before it.
    #[inline]
    pub(crate) fn is_clear<V: Verbs>(&self, shared: &mut Shared<V>, frame: &Outgoing) -> bool {
        let switching = self.stream.wanted != self.stream.sending;
        let clear = self.may_send() && self.backlog.is_empty() && self.tx.open() && !switching;
        let counted = self.stream.sending == Carrier::Rdma;
        clear && (!counted || self.limit_has_room(shared, frame.sent_len()))
    }

    /// Returns `true` if the context's limit has room for `len` bytes of this channel. Channels that wait already are
    /// served first, in turn.
    #[inline]
    fn limit_has_room<V: Verbs>(&self, shared: &mut Shared<V>, len: u64) -> bool {
        shared.send_queue.is_empty() && !self.sends.is_stuck() && shared.sends.has_room(len)
    }

    /// Adds a frame to the window and sends it.
    #[inline(always)]
    pub(crate) fn launch<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        frame: Outgoing,
    ) -> Result<(), CloseReason> {
        if self.tx.in_flight() == 0 {
            self.last_progress = now;
        }
        if let Some(pending) = frame.call.request().and_then(|id| self.pending_calls.get_mut(id)) {
            pending.sent_at = Some(now);
        }
        let switches = frame.kind == FrameKind::Switch;
        let seq = self.tx.seq();
        let put = self.put(now, shared, seq, &frame);
        // A frame that the queue pair refuses is retransmitted on the stream.
        self.tx.push(frame);
        put?;
        if switches {
            self.stream.sending = self.stream.sending.other();
            self.stats.switches += 1;
            shared.note(now, Some(self.peer.gid), NoteKind::Switched(self.stream.sending));
        }
        Ok(())
    }

    /// Passes a frame to the carrier.
    #[inline(always)]
    pub(super) fn put<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        seq: u64,
        frame: &Outgoing,
    ) -> Result<(), CloseReason> {
        let word = SequenceWord { seq: low(seq), ack: self.rx.next_ack() };
        self.ack_owed_since = None;
        self.ack_now = false;
        if self.stream.sending == Carrier::Stream {
            let header = frame.header(now, low(self.known), Carrier::Stream);
            self.stream.put(&shared.verbs, word, &header, frame.body_slice());
            return Ok(());
        }
        let header = frame.header(now, low(self.known), Carrier::Rdma);
        let room = frame.frame.slice();
        let bytes = shared.verbs.bytes_mut(room);
        let end = header.emit(bytes);
        let head = Slice { len: u32::try_from(end).expect("a header"), ..room };
        let mut pieces = [head, Slice::default()];
        let mut count = 1;
        match &frame.body {
            // It follows the header. A control frame has none.
            None => pieces[0].len += frame.length,
            Some(body) if header.kind == FrameKind::Large => {
                let Slice { address, rkey, .. } = body.slice();
                RemoteBody { address, rkey }.emit(&mut bytes[end..]);
                pieces[0].len += u32::try_from(RemoteBody::LEN).expect("a header");
            }
            Some(body) => {
                pieces[1] = body.slice();
                count = 2;
            }
        }
        let work = Work::Send { from: &pieces[..count], immediate: word.immediate() };
        let counted = if frame.is_message() { frame.sent_len() } else { 0 };
        self.post(now, shared, WorkId::Send, work, counted)
    }

    /// Posts a SEND, of which `counted` bytes count against the context's limit. One per quarter of the window is
    /// signalled, and the last ACK, so that completions free the queue; others if the limit needs it.
    #[inline(always)]
    fn post<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        id: WorkId,
        work: Work<'_>,
        counted: u64,
    ) -> Result<(), CloseReason> {
        let interval = (self.peer.depth / 4).max(1);
        self.unsignaled += 1;
        let signaled = self.unsignaled >= interval
            || id == WorkId::LastAck
            || counted > 0 && shared.sends.needs_signal(counted);
        if signaled {
            self.unsignaled = 0;
        }
        let id = shared.work_id(id);
        let posted = shared.verbs.post_send(now, self.qp, id, work, signaled);
        posted.map_err(CloseReason::Device)?;
        self.sends.post(&mut shared.sends, now, counted, signaled);
        Ok(())
    }

    /// Handles the success of a work request that is no receive request.
    ///
    /// # Errors
    /// It was the channel's last, or a frame that follows it is refused.
    pub(crate) fn completed<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        work: WorkId,
    ) -> Result<(), CloseReason> {
        match work {
            WorkId::Receive | WorkId::SharedReceive => {}
            WorkId::Read => self.fragment_read(now, shared),
            WorkId::Probe => self.probe_completed(now, shared)?,
            WorkId::LastAck => return Err(CloseReason::ByPeer),
            WorkId::Send => {
                let took = self.sends.complete(&mut shared.sends, now, shared.poll_gap);
                if let Some(took) = took {
                    self.on_round_trip(now, took, shared.poll_gap, &shared.config);
                }
            }
        }
        self.last_received = now;
        Ok(())
    }

    /// Sends an ACK frame if one is due and no message carried the acknowledgement.
    pub(crate) fn acknowledge_if_due<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        if !self.may_acknowledge() {
            return Ok(());
        }
        let unacknowledged = self.rx.unacknowledged();
        if unacknowledged == 0 && !self.ack_now {
            return Ok(());
        }
        let delay = shared.config.ack_delay;
        let late = self.ack_owed_since.is_some_and(|since| since + delay <= now);
        let due = self.ack_now || late || unacknowledged >= u64::from(shared.config.ack_every);
        if !due {
            return Ok(());
        }
        self.send_ack(now, shared)
    }

    /// Returns `true` if an ACK frame may be sent: the peer is certain to have a receive request for it.
    pub(super) fn may_acknowledge(&self) -> bool {
        let connected = self.may_send() || matches!(self.state, State::PeerClosed { .. });
        connected && self.unseen_acks.len() < usize::from(self.peer.ack_frames)
    }

    fn send_ack<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        self.ack_now = false;
        self.ack_owed_since = None;
        let word = SequenceWord { seq: low(self.tx.seq()), ack: self.rx.next_ack() };
        self.stats.acks += 1;
        if self.stream.sending == Carrier::Stream {
            self.stream.put_ack(word);
            return Ok(());
        }
        self.unseen_acks.push_back(self.rx.ready());
        let last = matches!(self.state, State::PeerClosed { .. }) && self.rx.all_done();
        let id = if last { WorkId::LastAck } else { WorkId::Send };
        self.post(now, shared, id, Work::Send { from: &[], immediate: word.immediate() }, 0)
    }

    /// Probes the peer if nothing arrived from it for the keepalive time (section V.A): with a zero-byte WRITE, or with
    /// a NOP on a stream.
    pub(crate) fn probe_if_due<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        let silent = now.since(self.last_received) >= shared.config.keepalive;
        if !silent || self.probing || self.state == State::Offered {
            return Ok(());
        }
        (self.probing, self.probed_at) = (true, now);
        self.stats.probes += 1;
        if self.stream.sending == Carrier::Stream {
            self.send_control(now, shared, FrameKind::Nop)?;
            // The NOP may have taken the last place of the window that is not reserved.
            return self.nop_if_stuck(now, shared);
        }
        let id = shared.work_id(WorkId::Probe);
        let posted = shared.verbs.post_send(now, self.qp, id, Work::Probe, true);
        posted.map_err(CloseReason::Device)
    }

    /// Sends a NOP to break a deadlock, in which both windows are full and no frame can carry an
    /// acknowledgement (section V.B).
    pub(crate) fn nop_if_stuck<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        let stuck = !self.tx.open() && self.tx.reserve_open();
        let timed_out = now.since(self.last_progress) >= shared.config.deadlock_after;
        if !stuck || !timed_out || !self.may_send() {
            return Ok(());
        }
        self.stats.nops += 1;
        self.send_control(now, shared, FrameKind::Nop)
    }

    /// Sends a control frame in the reserved place of the window.
    pub(crate) fn send_control<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        kind: FrameKind,
    ) -> Result<(), CloseReason> {
        if !self.tx.reserve_open() {
            return Ok(());
        }
        let frame = shared.control(kind).map_err(CloseReason::Device)?;
        self.launch(now, shared, frame)
    }
}
