//! Counters and status of channels and contexts.

use core::net::Ipv6Addr;

use weft_units::{Duration, Histogram};

use crate::carrier::Carrier;
use crate::trace::Decomposition;
use crate::verbs::Qp;

/// Counters of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Messages sent, without retransmissions on another carrier.
    pub sent: u64,
    /// Bytes of the bodies sent.
    pub sent_bytes: u64,
    /// Messages delivered to the owner.
    pub received: u64,
    /// Bytes of the bodies received.
    pub received_bytes: u64,
    /// Messages sent or received that are too long for a frame.
    pub large: u64,
    /// ACK frames sent.
    pub acks: u64,
    /// NOPs sent because the window stayed full for `deadlock_after`.
    pub nops: u64,
    /// Probes of a silent peer: zero-byte WRITEs, or NOPs on a stream.
    pub probes: u64,
    /// Changes of the sending carrier.
    pub switches: u64,
    /// Frames retransmitted on another carrier.
    pub frames_retransmitted: u64,
    /// Receive requests posted late for lack of memory.
    pub starved: u64,
}

/// The state of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// This end sent its offer; the peer has not answered.
    Offered,
    /// The queue pair is connected; the peer's first frame has not arrived.
    Connected,
    /// Both ends may send.
    Open,
    /// This end closed it, and sends its backlog.
    Closing,
    /// The peer closed it.
    PeerClosed,
}

/// The current status of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelStatus {
    /// The state.
    pub state: ChannelState,
    /// The queue pair.
    pub qp: Qp,
    /// The peer's address; this end's own until the peer has answered.
    pub peer: Ipv6Addr,
    /// The peer's queue pair.
    pub peer_qp: Qp,
    /// Counters since the channel began.
    pub stats: ChannelStats,
    /// Number of frames in flight.
    pub in_flight: u16,
    /// Maximum number of frames in flight.
    pub depth: u16,
    /// Number of messages that wait for the window.
    pub backlog: u32,
    /// Number of large messages being fetched.
    pub fetching: u32,
    /// Number of requests that wait for the peer's response.
    pub pending_calls: u32,
    /// Number of requests that wait for this end's response.
    pub to_answer: u32,
    /// Bytes of registered memory in its receive requests.
    pub receive_bytes: u64,
    /// The smoothed round trip on RDMA; `None` before the first measurement.
    pub round_trip: Option<Duration>,
    /// The carrier of outgoing frames.
    pub carrier: Carrier,
}

/// The limits of a context's work in flight, in bytes (X-RDMA, section V.C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStatus {
    /// N for SENDs.
    pub sends_limit: u64,
    /// SENDs in flight.
    pub sends_in_flight: u64,
    /// N for READs.
    pub reads_limit: u64,
    /// READs in flight.
    pub reads_in_flight: u64,
}

/// The times of a context's traced calls (X-RDMA, section VI.A, method I).
#[derive(Clone, Debug, Default)]
pub struct TracedTimes {
    /// The requests' transfer times.
    pub request: Histogram,
    /// The times at the peers.
    pub peer: Histogram,
    /// The responses' transfer times.
    pub response: Histogram,
}

impl TracedTimes {
    pub(crate) fn record(&mut self, time: &Decomposition) {
        self.request.record(time.request);
        self.peer.record(time.peer);
        self.response.record(time.response);
    }
}

/// Counters of one context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextStats {
    /// Channels begun.
    pub channels: u64,
    /// Channels ended, for any reason.
    pub closed: u64,
    /// Queue pairs created.
    pub qps_created: u64,
    /// Queue pairs taken from the cache.
    pub qps_reused: u64,
    /// Times that as many frames waited as the shared receive queue has requests; peers may have retried.
    pub srq_dry: u64,
    /// Polls that found completions later than `polling_warn` after the previous poll.
    pub slow_polls: u64,
    /// Calls longer than `slow_threshold`.
    pub slow_calls: u64,
    /// Messages that a filter rule matched.
    pub filtered: u64,
}
