//! One channel: a queue pair, a window in each direction, and their waiting frames.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_units::{Duration, Histogram, Instant};
use weft_wire::ChannelOffer;

use crate::calls::Calls;
use crate::carrier::Carrier;
use crate::flow::Posted;
use crate::memory::Block;
use crate::stats::{ChannelState, ChannelStats};
use crate::trace::ClockOffset;
use crate::verbs::Qp;
use crate::window::{ReceiveWindow, SendWindow};
use crate::{ChannelId, Config};

mod congestion;
mod deliver;
mod fetch;
mod outgoing;
mod receive;
mod receive_requests;
mod renewal;
mod send;
mod stream;

pub(crate) use congestion::Congestion;
pub(crate) use fetch::Fetch;
pub(crate) use outgoing::{Body, Outgoing, Stamp};
pub(crate) use renewal::{Renewal, Return};
pub(crate) use stream::Stream;

/// The state of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The peer's offer has not arrived.
    Offered,
    /// The queue pair is connected; the peer's first frame will confirm that the peer's is too.
    Connected,
    /// Both ends may send.
    Open,
    /// The backlog is sent, then the close.
    Closing {
        /// The deadline for the peer's acknowledgement.
        until: Instant,
    },
    /// The peer has closed; the acknowledgement of its close must still leave.
    PeerClosed {
        /// The deadline for the acknowledgement.
        until: Instant,
    },
}

impl From<State> for ChannelState {
    fn from(state: State) -> Self {
        match state {
            State::Offered => Self::Offered,
            State::Connected => Self::Connected,
            State::Open => Self::Open,
            State::Closing { .. } => Self::Closing,
            State::PeerClosed { .. } => Self::PeerClosed,
        }
    }
}

/// A call without a response yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCall {
    /// The time of its submission.
    pub(crate) at: Instant,
    /// The time at which its frame was sent; a trace's T1.
    pub(crate) sent_at: Option<Instant>,
}

/// A frame whose receive request must be replaced before the frame is finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unposted {
    /// The frame's number; `None` for an ACK frame.
    pub(crate) number: Option<u64>,
    /// `true` if the owner has received it.
    pub(crate) done: bool,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) qp: Qp,
    /// This end's offer.
    pub(crate) offer: ChannelOffer,
    /// The peer's offer; zeros until it arrives.
    pub(crate) peer: ChannelOffer,
    pub(crate) state: State,
    pub(crate) tx: SendWindow<Outgoing>,
    pub(crate) rx: ReceiveWindow,
    /// Messages that wait for the window.
    pub(crate) backlog: VecDeque<Outgoing>,
    /// The acknowledgement count in each ACK frame that the peer may not have received, oldest first.
    pub(crate) unseen_acks: VecDeque<u64>,
    /// Memory of posted receive requests, in order.
    pub(crate) posted: VecDeque<Block>,
    /// Frames whose receive requests are not replaced yet, in order of arrival.
    pub(crate) unposted: VecDeque<Unposted>,
    /// Number of ACK frames among them.
    pub(crate) unposted_acks: usize,
    /// Number of entries at the front of `unposted` that `stats.starved` counts already.
    pub(crate) starved_counted: usize,
    /// The acknowledgement count that this end may report to the peer as received.
    pub(crate) known: u64,
    /// Large messages that are being read or wait for memory, in order of arrival.
    pub(crate) fetches: VecDeque<Fetch>,
    /// Large messages whose READs were cancelled when the queue pair broke, in order of arrival: their bodies arrive on the
    /// stream.
    pub(crate) cancelled: VecDeque<Fetch>,
    /// READs in flight.
    pub(crate) reads: Posted,
    /// SENDs in flight.
    pub(crate) sends: Posted,
    /// Number of send requests since the last signalled one.
    pub(crate) unsignaled: u16,
    /// Calls that wait for their response.
    pub(crate) pending_calls: Calls<PendingCall>,
    /// The peer's requests that wait for a response, each with its trace if it is traced.
    pub(crate) to_answer: Calls<Option<Stamp>>,
    /// Numbers of delivered frames that keep their places in the window while too many requests wait for a response.
    pub(crate) parked: VecDeque<u64>,
    pub(crate) clock: ClockOffset,
    pub(crate) stream: Stream,
    /// The attempts to return to RDMA after the queue pair broke.
    pub(crate) back: Return,
    pub(crate) congestion: Congestion,
    pub(crate) last_received: Instant,
    /// The last time at which the peer acknowledged a frame or the window was not full.
    pub(crate) last_progress: Instant,
    pub(crate) probing: bool,
    /// The time of the last probe, or the last time at which anything arrived from the peer's host since.
    pub(crate) probed_at: Instant,
    /// The time since which a frame waits to be acknowledged.
    pub(crate) ack_owed_since: Option<Instant>,
    /// `true` if a NOP arrived: the ACK is due now.
    pub(crate) ack_now: bool,
    /// The deadline in the context's timers.
    pub(crate) timer: Option<Instant>,
    /// `true` if it is in the context's list of channels to service.
    pub(crate) touched: bool,
    /// `true` if it is in the context's list of channels that wait for memory.
    pub(crate) in_memory_queue: bool,
    /// `true` if it is in the context's queue of channels with READs.
    pub(crate) in_read_queue: bool,
    /// `true` if it is in the context's queue of channels that wait for the limit of SENDs.
    pub(crate) in_send_queue: bool,
    /// `true` if it is in the context's queue of channels whose streams need the owner.
    pub(crate) in_stream_queue: bool,
    pub(crate) stats: ChannelStats,
    /// The durations of answered calls.
    pub(crate) calls: Histogram,
}

impl Channel {
    pub(crate) fn new(now: Instant, qp: Qp, offer: ChannelOffer) -> Self {
        let no_peer = ChannelOffer { depth: 0, ..offer };
        Self {
            qp,
            offer,
            peer: no_peer,
            state: State::Offered,
            tx: SendWindow::new(0),
            rx: ReceiveWindow::new(offer.depth),
            backlog: VecDeque::new(),
            unseen_acks: VecDeque::new(),
            posted: VecDeque::new(),
            unposted: VecDeque::new(),
            unposted_acks: 0,
            starved_counted: 0,
            known: 0,
            fetches: VecDeque::new(),
            cancelled: VecDeque::new(),
            reads: Posted::default(),
            sends: Posted::default(),
            unsignaled: 0,
            pending_calls: Calls::new(),
            to_answer: Calls::new(),
            parked: VecDeque::new(),
            clock: ClockOffset::default(),
            stream: Stream::default(),
            back: Return::default(),
            congestion: Congestion::default(),
            last_received: now,
            last_progress: now,
            probing: false,
            probed_at: now,
            ack_owed_since: None,
            ack_now: false,
            timer: None,
            touched: false,
            in_memory_queue: false,
            in_read_queue: false,
            in_send_queue: false,
            in_stream_queue: false,
            stats: ChannelStats::default(),
            calls: Histogram::default(),
        }
    }

    /// Applies the peer's offer. Neither end sends more than it would accept itself.
    pub(crate) fn apply_offer(&mut self, peer: &ChannelOffer) {
        let own = &self.offer;
        self.peer = ChannelOffer {
            depth: peer.depth.min(own.depth),
            ack_frames: peer.ack_frames.min(own.ack_frames),
            small: peer.small.min(own.small),
            ..*peer
        };
        self.tx = SendWindow::new(self.peer.depth);
        self.state = State::Connected;
    }

    /// Returns the channel's next deadline.
    pub(crate) fn deadline(&self, config: &Config) -> Option<Instant> {
        let on_stream = self.stream.sending == Carrier::Stream;
        let probe = match (self.probing, on_stream) {
            _ if self.state == State::Offered => None,
            (false, _) => Some(self.last_received + config.keepalive),
            (true, true) => Some(self.probed_at + config.keepalive),
            (true, false) => self.unanswered_at(config),
        };
        let mut due = probe.unwrap_or(Instant::FAR_FUTURE);
        let mut consider = |at: Option<Instant>| due = due.min(at.unwrap_or(Instant::FAR_FUTURE));
        if let Some(since) = self.ack_owed_since.filter(|_| self.may_acknowledge()) {
            consider(Some(since + config.ack_delay));
        }
        if self.may_send() && !self.tx.open() && self.tx.reserve_open() {
            consider(Some(self.last_progress + config.deadlock_after));
        }
        if let State::Closing { until } | State::PeerClosed { until } = self.state {
            consider(Some(until));
        }
        consider(self.sends.stuck_at(config.deadlock_after));
        consider(self.reads.stuck_at(config.deadlock_after));
        consider(self.back.due.filter(|_| self.stream.rdma_lost));
        consider(self.next_measurement());
        (due < Instant::FAR_FUTURE).then_some(due)
    }

    /// Adds the channel to the context's list of channels to service, once.
    #[inline]
    pub(crate) fn touch(&mut self, id: ChannelId, touched: &mut Vec<ChannelId>) {
        if !core::mem::replace(&mut self.touched, true) {
            touched.push(id);
        }
    }

    /// Returns the time from which a probe on RDMA counts as unanswered. `None` if there is no such probe or no time limit:
    /// the device then reports the result.
    pub(crate) fn unanswered_at(&self, config: &Config) -> Option<Instant> {
        let on_rdma = self.stream.sending == Carrier::Rdma;
        let is_limited = config.keepalive_timeout > Duration::ZERO;
        (self.probing && on_rdma && is_limited).then(|| self.probed_at + config.keepalive_timeout)
    }

    /// Returns `true` if the channel still accepts messages.
    #[inline]
    pub(crate) const fn accepts_messages(&self) -> bool {
        matches!(self.state, State::Offered | State::Connected | State::Open)
    }

    /// Returns `true` if frames may be sent.
    #[inline]
    pub(crate) const fn may_send(&self) -> bool {
        matches!(self.state, State::Open | State::Closing { .. })
    }
}
