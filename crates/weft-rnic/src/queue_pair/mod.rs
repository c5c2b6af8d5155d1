//! One queue pair: what it is, and what it knows of its peer.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::SocketAddr;

use weft_transport::ConnectionId;
use weft_units::{Duration, Instant};
use weft_wire::RdmaOperation;

use crate::memory::Access;
use crate::receive_queue::{Receive, ReceiveQueue};
use crate::{CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue};

mod admission;
mod inbox;
mod leases;
mod send_queue;
mod state;
mod token;
mod wqe;

pub(crate) use inbox::{HeldPart, Inbox, Incoming, Intake, Part, Refusal};
pub(crate) use leases::{Borrowed, Reachable, Row};
pub(crate) use send_queue::{SendQueue, after};
pub(crate) use state::transition;
pub use state::{Attributes, Service, State};
pub(crate) use token::{ROUNDS, Syndrome, Token, rnr_delay};
pub(crate) use wqe::{ATOMIC, Done, Wqe};

/// A queue pair's number on its host: 24 bits, never 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QueuePairNumber(pub u32);

/// A queue pair to create (`struct ibv_qp_init_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QueuePairRequest {
    /// Its protection domain.
    pub domain: ProtectionDomain,
    /// What it offers.
    pub service: Service,
    /// Where send requests complete.
    pub send_cq: CompletionQueue,
    /// Where receive requests complete.
    pub receive_cq: CompletionQueue,
    /// Where receive requests come from, instead of its own queue.
    pub srq: Option<SharedReceiveQueue>,
    /// Send requests that wait or are under way.
    pub max_send: u32,
    /// Receive requests that wait.
    pub max_receive: u32,
    /// Pieces of memory of a send request.
    pub max_send_sge: u32,
    /// Pieces of memory of a receive request.
    pub max_receive_sge: u32,
    /// Bytes that travel with a send request itself.
    pub max_inline: u32,
    /// Whether every send request is signalled.
    pub signal_all: bool,
}

/// No program is left without an answer for longer, whatever its timeout: silent peers are given up about
/// as soon (`peer_timeout`).
pub(crate) const MAX_RETRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Which end of a connection a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// It made the connection and sends its requests.
    Requester,
    /// It answers the peer's requests.
    Responder,
}

/// A connection, and what has begun to arrive on it.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) connection: ConnectionId,
    pub(crate) inbox: Inbox,
    /// The key that its peer got a lease of last, and after how many changes of keys.
    pub(crate) lent: Option<(u32, u32)>,
}

impl Flow {
    pub(crate) fn new(connection: ConnectionId) -> Self {
        Self { connection, inbox: Inbox::default(), lent: None }
    }
}

/// An answer whose packets are not all acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// To a READ: which memory.
    Read { psn: u32, key: u32, address: u64 },
    /// To an atomic: what was there.
    Atomic { psn: u32, value: u64 },
}

impl Answer {
    /// Returns the operation that the response's message has on the wire.
    pub(crate) const fn wire(self) -> RdmaOperation {
        match self {
            Self::Read { .. } => RdmaOperation::ReadResponse,
            Self::Atomic { value, .. } => RdmaOperation::AtomicAcknowledge { value },
        }
    }
}

/// The half that sends requests.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    pub(crate) flow: Option<Flow>,
    /// The peer said that it answers.
    pub(crate) ready: bool,
    /// Attempts to reach the peer since it last answered.
    pub(crate) tries: u8,
    /// Since when the peer was asked for a connection in vain.
    pub(crate) asks_since: Option<Instant>,
    /// Attempts of the first request since something was accepted.
    pub(crate) rnr_tries: u8,
    /// Grows each time requests are sent again: what the transport says of earlier ones is old.
    pub(crate) round: u8,
    /// Nothing is sent before.
    pub(crate) wait_until: Option<Instant>,
    /// The peer ended the connection with requests under way: they fail after the wait.
    pub(crate) lost: bool,
    /// The peer's process is no more. Another may have its address and its numbers by now, so nothing is asked
    /// there: requests fail as late as those that nobody answers.
    pub(crate) orphaned: bool,
    /// A request failed here; those behind it are not begun.
    pub(crate) broken: bool,
    /// The owner is to be told when what is under way is done.
    pub(crate) draining: bool,
    /// What the peer lets us reach by ourselves, by its keys, as long as the connection lasts.
    pub(crate) leases: BTreeMap<u32, Borrowed>,
    pub(crate) row: Row,
}

impl Requester {
    /// Whether nothing but its place in the queue holds up a request that travels.
    #[inline]
    pub(crate) const fn is_free(&self) -> bool {
        self.ready && !self.broken && !self.orphaned && self.wait_until.is_none()
    }
}

/// The half that answers requests.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) flow: Option<Flow>,
    /// Number of the next request.
    pub(crate) expected: u32,
    /// The peer was told to send again from that number: until it does, other numbers are old.
    pub(crate) rewinds: bool,
    pub(crate) answers: VecDeque<Answer>,
    /// Number of the first of them.
    pub(crate) first_answer: u32,
    /// For each acknowledgement under way, in order: the packet to be acknowledged after it.
    pub(crate) acknowledgements: VecDeque<Option<u32>>,
    /// The connection ends when they have arrived.
    pub(crate) closing: bool,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// Whose it is.
    pub(crate) context: Context,
    pub(crate) request: QueuePairRequest,
    pub(crate) state: State,
    pub(crate) attributes: Attributes,
    pub(crate) send: SendQueue,
    pub(crate) receive: ReceiveQueue,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}

impl QueuePair {
    pub(crate) fn new(context: Context, request: QueuePairRequest) -> Self {
        Self {
            context,
            request,
            state: State::Reset,
            attributes: Attributes::default(),
            send: SendQueue::new(request.max_send),
            receive: ReceiveQueue::new(request.max_receive, request.max_receive_sge),
            requester: Requester::default(),
            responder: Responder::default(),
        }
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.request.service == Service::ReliableConnected
    }

    /// Whether messages for its own receive requests may be dropped, so that the peer's count is not ours.
    #[inline]
    pub(crate) fn drops_messages(&self) -> bool {
        !self.is_reliable() && self.request.srq.is_none()
    }

    /// Whether it takes requests in.
    pub(crate) fn receives(&self) -> bool {
        matches!(
            self.state,
            State::ReadyToReceive
                | State::ReadyToSend
                | State::SendQueueDrained
                | State::SendQueueError
        )
    }

    pub(crate) fn allows(&self, access: Access) -> bool {
        self.attributes.access.unwrap_or_default().contains(access)
    }

    /// The receive request of its own queue that a SEND takes, to which the peer gives this number.
    pub(crate) fn own_receive(&self, number: u64) -> Option<&Receive> {
        if self.is_reliable() { self.receive.numbered(number) } else { self.receive.first() }
    }

    /// Whether what was under way is done just now, and the owner is to be told.
    #[inline]
    pub(crate) fn has_drained(&mut self) -> bool {
        let drained = self.requester.draining && !self.send.is_under_way();
        self.requester.draining &= !drained;
        drained && self.attributes.drained_event == Some(true)
    }

    pub(crate) fn dest_qp(&self) -> u32 {
        self.attributes.dest_qp.unwrap_or_default()
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.attributes.destination
    }

    pub(crate) fn flow(&mut self, role: Role) -> Option<&mut Flow> {
        match role {
            Role::Requester => self.requester.flow.as_mut(),
            Role::Responder => self.responder.flow.as_mut(),
        }
    }

    /// How long to wait before the peer is tried again (IBTA volume 1, chapter 9).
    pub(crate) fn ack_timeout(&self) -> Duration {
        let exponent = self.attributes.timeout.filter(|&timeout| timeout > 0).unwrap_or(14);
        Duration::from_nanos(4096 << exponent.min(31))
    }

    /// How long a peer that does not answer is tried (IBTA volume 1, chapter 9).
    pub(crate) fn retry_timeout(&self) -> Duration {
        let tries = u64::from(self.attributes.retry_count.unwrap_or(7)) + 1;
        (self.ack_timeout() * tries).min(MAX_RETRY_TIMEOUT)
    }

    /// Takes over attributes that a transition brought.
    pub(crate) fn assume(&mut self, new: &Attributes) {
        let old = self.attributes;
        self.attributes = Attributes {
            state: None,
            current_state: None,
            drained_event: new.drained_event,
            access: new.access.or(old.access),
            pkey_index: new.pkey_index.or(old.pkey_index),
            port: new.port.or(old.port),
            qkey: new.qkey.or(old.qkey),
            destination: new.destination.or(old.destination),
            path_mtu: new.path_mtu.or(old.path_mtu),
            timeout: new.timeout.or(old.timeout),
            retry_count: new.retry_count.or(old.retry_count),
            rnr_retry: new.rnr_retry.or(old.rnr_retry),
            rq_psn: new.rq_psn.or(old.rq_psn),
            sq_psn: new.sq_psn.or(old.sq_psn),
            max_rd_atomic: new.max_rd_atomic.or(old.max_rd_atomic),
            max_dest_rd_atomic: new.max_dest_rd_atomic.or(old.max_dest_rd_atomic),
            min_rnr_timer: new.min_rnr_timer.or(old.min_rnr_timer),
            dest_qp: new.dest_qp.or(old.dest_qp),
        };
        if let Some(psn) = new.sq_psn {
            self.send.number_from(psn);
        }
        if let Some(psn) = new.rq_psn {
            self.responder.expected = psn;
        }
    }
}
