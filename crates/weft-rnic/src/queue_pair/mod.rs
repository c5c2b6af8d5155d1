//! One queue pair: its queues, its state, and its connections to the peer.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::SocketAddr;

use weft_transport::ConnectionId;
use weft_units::{Duration, Instant};
use weft_wire::RdmaOperation;

use crate::memory::Access;
use crate::receive_queue::{Receive, ReceiveQueue};
use crate::{CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue};

mod admission;
mod attributes;
mod ends;
mod inbox;
mod leases;
mod marking;
mod send_queue;
mod state;
mod token;
mod wqe;

pub use attributes::Attributes;
pub(crate) use attributes::transition;
pub(crate) use ends::{ends, service};
pub(crate) use inbox::{HeldPart, Inbox, Incoming, Intake, Part, Refusal};
pub(crate) use leases::{Borrowed, Burst, Reachable};
pub use marking::Marking;
pub(crate) use send_queue::{SendQueue, after};
pub use state::{Service, State};
pub(crate) use token::{ROUNDS, Syndrome, Token, rnr_delay};
pub(crate) use wqe::{ATOMIC_BYTES, Done, Wqe};

/// A queue pair to create (`struct ibv_qp_init_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QueuePairRequest {
    /// The protection domain.
    pub domain: ProtectionDomain,
    /// The transport service.
    pub service: Service,
    /// The completion queue of send requests.
    pub send_cq: CompletionQueue,
    /// The completion queue of receive requests.
    pub receive_cq: CompletionQueue,
    /// The shared receive queue, instead of a receive queue of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// Capacity of the send queue, including requests in flight.
    pub max_send: u32,
    /// Capacity of the receive queue.
    pub max_receive: u32,
    /// Maximum scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Maximum scatter/gather entries of a receive request.
    pub max_receive_sge: u32,
    /// Maximum bytes of inline data of a send request.
    pub max_inline: u32,
    /// `true` if every send request is signalled.
    pub signal_all: bool,
}

/// Upper bound of the time until a request fails whose peer has closed its connection, since no retry would find its queue pair;
/// lower bound of the time for which a connection is attempted, since the transport tries its paths for so long by default.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// The role of a queue pair on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// The queue pair opened the connection and sends requests.
    Requester,
    /// The queue pair executes the peer's requests.
    Responder,
}

/// A connection, and the messages that are arriving on it.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) connection: ConnectionId,
    pub(crate) inbox: Inbox,
    /// The key of the last lease that was granted to the peer, and the table's
    /// [`changes`](crate::memory::Emtt::changes) at that time.
    pub(crate) lent: Option<(u32, u32)>,
}

impl Flow {
    pub(crate) fn new(connection: ConnectionId) -> Self {
        Self { connection, inbox: Inbox::default(), lent: None }
    }
}

/// A response whose packets are not all acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// The response to a READ, with the memory to read.
    Read { psn: u32, key: u32, address: u64 },
    /// The response to an atomic, with the value before it.
    Atomic { psn: u32, value: u64 },
}

impl Answer {
    /// Returns the operation of the response's message on the wire.
    pub(crate) const fn wire(self) -> RdmaOperation {
        match self {
            Self::Read { .. } => RdmaOperation::ReadResponse,
            Self::Atomic { value, .. } => RdmaOperation::AtomicAcknowledge { value },
        }
    }
}

/// The half of a queue pair that sends requests.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    pub(crate) flow: Option<Flow>,
    /// `true` once the peer is ready to execute requests.
    pub(crate) ready: bool,
    /// Connection attempts since the peer last responded.
    pub(crate) tries: u8,
    /// The time of the first connection attempt since the peer last responded.
    pub(crate) connecting_since: Option<Instant>,
    /// RNR retries since a request was last accepted.
    pub(crate) rnr_tries: u8,
    /// Incremented each time that requests are retransmitted: acknowledgements of earlier rounds are stale.
    pub(crate) round: u8,
    /// No request is sent before this time.
    pub(crate) wait_until: Option<Instant>,
    /// `true` if the peer closed the connection with requests in flight: they fail after the wait.
    pub(crate) lost: bool,
    /// `true` if the peer's process has exited. Another process may reuse its address and its numbers, so no connection
    /// is attempted: requests fail after the same timeout as those that are never answered.
    pub(crate) peer_exited: bool,
    /// `true` if a request failed locally: later requests are not sent.
    pub(crate) broken: bool,
    /// `true` while the send queue drains: the owner gets an event when the requests in flight are done.
    pub(crate) draining: bool,
    /// The leases of the peer's memory by key, valid while the connection lasts.
    pub(crate) leases: BTreeMap<u32, Borrowed>,
    pub(crate) burst: Burst,
}

impl Requester {
    /// Returns `true` if the next request can be sent now.
    #[inline]
    pub(crate) const fn can_send(&self) -> bool {
        self.ready && !self.broken && !self.peer_exited && self.wait_until.is_none()
    }
}

/// The half of a queue pair that executes the peer's requests.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) flow: Option<Flow>,
    /// The expected PSN.
    pub(crate) expected: u32,
    /// `true` after an RNR NAK requested retransmission from `expected`: until that arrives, other PSNs are stale.
    pub(crate) rewinds: bool,
    pub(crate) answers: VecDeque<Answer>,
    /// Number of the first answer.
    pub(crate) first_answer: u32,
    /// For each acknowledgement in flight, in order: the PSN of the packet that is acknowledged after it.
    pub(crate) acknowledgements: VecDeque<Option<u32>>,
    /// `true` if the connection closes when the acknowledgements in flight have arrived at the peer.
    pub(crate) closing: bool,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// The context of its protection domain.
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

    /// Returns `true` if messages that consume its own receive requests may be dropped, so that the peer's count of
    /// them may differ.
    #[inline]
    pub(crate) fn drops_messages(&self) -> bool {
        !self.is_reliable() && self.request.srq.is_none()
    }

    /// Returns `true` if it accepts the peer's requests in its state.
    pub(crate) fn receives(&self) -> bool {
        matches!(
            self.state,
            State::ReadyToReceive
                | State::ReadyToSend
                | State::SendQueueDrained
                | State::SendQueueError
        )
    }

    /// Returns `true` if the queue pair gives its peer these rights.
    pub(crate) fn allows(&self, access: Access) -> bool {
        self.attributes.access.unwrap_or_default().contains(access)
    }

    /// Returns the receive request of its own queue for the SEND to which the peer gave this number; on unreliable
    /// services, the first request.
    pub(crate) fn own_receive(&self, number: u64) -> Option<&Receive> {
        if self.is_reliable() { self.receive.numbered(number) } else { self.receive.first() }
    }

    /// Returns `true`, once, when a draining send queue has no more requests in flight and the owner asked for the event.
    #[inline]
    pub(crate) fn has_drained(&mut self) -> bool {
        let drained = self.requester.draining && !self.send.is_in_flight();
        self.requester.draining &= !drained;
        drained && self.attributes.drained_event == Some(true)
    }

    pub(crate) fn dest_qp(&self) -> u32 {
        self.attributes.dest_qp.unwrap_or_default()
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.attributes.destination
    }

    /// Returns the labels of its packets.
    pub(crate) fn marking(&self) -> Marking {
        self.attributes.marking.unwrap_or_default()
    }

    pub(crate) fn flow(&mut self, role: Role) -> Option<&mut Flow> {
        match role {
            Role::Requester => self.requester.flow.as_mut(),
            Role::Responder => self.responder.flow.as_mut(),
        }
    }

    /// Returns the local ACK timeout (IBTA volume 1, chapter 9).
    pub(crate) fn ack_timeout(&self) -> Duration {
        let exponent = self.attributes.timeout.filter(|&timeout| timeout > 0).unwrap_or(14);
        Duration::from_nanos(4096 << exponent.min(31))
    }

    /// Returns the time until all retries have failed (IBTA volume 1, chapter 9).
    fn retries_timeout(&self) -> Duration {
        let tries = u64::from(self.attributes.retry_count.unwrap_or(7)) + 1;
        self.ack_timeout() * tries
    }

    /// Returns the time for which the program lets a peer be silent before requests fail: until all retries have failed, without end
    /// with a timeout of zero, and zero if it has set no timeout, as on unreliable services.
    pub(crate) fn silence_timeout(&self) -> Duration {
        match self.attributes.timeout {
            None => Duration::ZERO,
            Some(0) => Duration::MAX,
            Some(_) => self.retries_timeout(),
        }
    }

    /// Returns the time after which a connection is no longer attempted.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.silence_timeout().max(PEER_TIMEOUT)
    }

    /// Returns the time until requests fail whose peer has closed its connection: that of all retries, since by then programs have
    /// often finished, at most [`PEER_TIMEOUT`].
    pub(crate) fn closed_timeout(&self) -> Duration {
        self.retries_timeout().min(PEER_TIMEOUT)
    }

    /// Applies the attributes of a transition.
    pub(crate) fn set_attributes(&mut self, new: &Attributes) {
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
            marking: new.marking.or(old.marking),
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
