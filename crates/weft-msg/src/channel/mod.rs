//! One channel: a queue pair, a window in each direction, and what waits for them.

use alloc::collections::VecDeque;

use weft_units::{Histogram, Instant};
use weft_wire::ChannelOffer;

use crate::Config;
use crate::calls::Calls;
use crate::memory::Block;
use crate::stats::{ChannelState, ChannelStats};
use crate::trace::ClockOffset;
use crate::verbs::Qp;
use crate::window::{ReceiveWindow, SendWindow};

mod fetch;
mod outgoing;
mod receive;
mod send;
mod stream;

pub(crate) use fetch::Fetch;
pub(crate) use outgoing::{Body, Outgoing, Stamp};
pub(crate) use stream::Stream;

/// How far a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The peer's offer is not there.
    Offered,
    /// The queue pair is connected; the peer's first frame will say that its own is.
    Connected,
    /// Both ends may send.
    Open,
    /// What waits is still sent, then the close.
    Closing {
        /// When the peer is no longer waited for.
        until: Instant,
    },
    /// The peer has closed; it waits for the acknowledgement of its close to leave.
    PeerClosed {
        /// When the acknowledgement is no longer waited for.
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

/// What carries the frames of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The queue pair.
    Rdma,
    /// A TCP stream of the owner's (X-RDMA's Mock, section VI.C).
    Stream,
}

/// A call that was made and not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    /// When its frame left; a trace's T1.
    pub(crate) sent_at: Option<Instant>,
}

/// A frame whose receive request is to be replaced. It is not done with before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unposted {
    /// An ACK frame has none.
    pub(crate) number: Option<u64>,
    /// The owner has it.
    pub(crate) done: bool,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) qp: Qp,
    /// What this end said of itself.
    pub(crate) offer: ChannelOffer,
    /// What the peer said; zeros until it has.
    pub(crate) peer: ChannelOffer,
    pub(crate) state: State,
    pub(crate) tx: SendWindow<Outgoing>,
    pub(crate) rx: ReceiveWindow,
    /// Messages that wait for the window.
    pub(crate) backlog: VecDeque<Outgoing>,
    /// What each ACK frame acknowledged that the peer may not have seen.
    pub(crate) unseen_acks: VecDeque<u64>,
    /// Memory of receive requests, in the order they were posted.
    pub(crate) posted: VecDeque<Block>,
    /// Frames whose receive requests are not replaced yet, in the order they came.
    pub(crate) unposted: VecDeque<Unposted>,
    /// As many of the first of them as there was no memory for.
    pub(crate) late: usize,
    /// What the peer may be told that this end knows to be acknowledged.
    pub(crate) known: u64,
    /// Large messages that are being read or wait for memory, in the order they came.
    pub(crate) fetches: VecDeque<Fetch>,
    /// READs under way.
    pub(crate) reading: u8,
    /// Send requests since the last that was signalled.
    pub(crate) unsignaled: u16,
    /// Calls that wait for their answer.
    pub(crate) asked: Calls<Asked>,
    /// Requests that are not answered, and the trace of each.
    pub(crate) to_answer: Calls<Option<Stamp>>,
    /// Frames of requests that the owner has, beyond those it may leave unanswered.
    pub(crate) parked: VecDeque<u64>,
    pub(crate) clock: ClockOffset,
    pub(crate) stream: Stream,
    pub(crate) last_heard: Instant,
    /// When the peer was last known to have taken something, or the window was not full.
    pub(crate) last_progress: Instant,
    pub(crate) probing: bool,
    /// Since when a frame waits to be acknowledged.
    pub(crate) ack_owed_since: Option<Instant>,
    /// A NOP came: the ACK is due now.
    pub(crate) ack_now: bool,
    /// The deadline the context has noted.
    pub(crate) timer: Option<Instant>,
    /// It is in the context's list of channels to see to.
    pub(crate) touched: bool,
    /// It is in the context's list of channels that wait for memory.
    pub(crate) in_want: bool,
    /// It is in the context's queue of channels that read.
    pub(crate) in_read_queue: bool,
    pub(crate) stats: ChannelStats,
    /// How long answered calls took.
    pub(crate) calls: Histogram,
}

impl Channel {
    pub(crate) fn new(now: Instant, qp: Qp, offer: ChannelOffer) -> Self {
        let nobody = ChannelOffer { depth: 0, ..offer };
        Self {
            qp,
            offer,
            peer: nobody,
            state: State::Offered,
            tx: SendWindow::new(0),
            rx: ReceiveWindow::new(offer.depth),
            backlog: VecDeque::new(),
            unseen_acks: VecDeque::new(),
            posted: VecDeque::new(),
            unposted: VecDeque::new(),
            late: 0,
            known: 0,
            fetches: VecDeque::new(),
            reading: 0,
            unsignaled: 0,
            asked: Calls::new(),
            to_answer: Calls::new(),
            parked: VecDeque::new(),
            clock: ClockOffset::default(),
            stream: Stream::default(),
            last_heard: now,
            last_progress: now,
            probing: false,
            ack_owed_since: None,
            ack_now: false,
            timer: None,
            touched: false,
            in_want: false,
            in_read_queue: false,
            stats: ChannelStats::default(),
            calls: Histogram::default(),
        }
    }

    /// The peer's offer is there. Neither end sends more than it would take itself.
    pub(crate) fn meet(&mut self, peer: &ChannelOffer) {
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

    /// When something is due next.
    pub(crate) fn deadline(&self, config: &Config) -> Option<Instant> {
        let on_stream = self.stream.sending == Carrier::Stream;
        let alive = match (self.probing, on_stream) {
            _ if self.state == State::Offered => None,
            (false, _) => Some(self.last_heard + config.keepalive),
            (true, true) => Some(self.last_heard + config.keepalive * 2),
            // The device says what became of a probe.
            (true, false) => None,
        };
        let owed = self.ack_owed_since.filter(|_| self.may_acknowledge());
        let acknowledge = owed.map(|since| since + config.ack_delay);
        let stuck = self.may_send() && !self.tx.open() && self.tx.reserve_open();
        let unlock = stuck.then(|| self.last_progress + config.deadlock_after);
        let close = match self.state {
            State::Closing { until } | State::PeerClosed { until } => Some(until),
            State::Offered | State::Connected | State::Open => None,
        };
        [acknowledge, unlock, close].into_iter().fold(alive, sooner)
    }

    /// Whether messages may still be handed in.
    pub(crate) const fn takes_messages(&self) -> bool {
        matches!(self.state, State::Offered | State::Connected | State::Open)
    }

    /// Whether frames may leave.
    pub(crate) const fn may_send(&self) -> bool {
        matches!(self.state, State::Open | State::Closing { .. })
    }
}

fn sooner(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
