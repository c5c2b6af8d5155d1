//! What channels and contexts count.

use core::net::Ipv6Addr;

use crate::verbs::Qp;

/// Counts of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Messages sent, not counting repeats on another carrier.
    pub sent: u64,
    /// Bytes of their bodies.
    pub sent_bytes: u64,
    /// Messages handed to the owner.
    pub received: u64,
    /// Bytes of their bodies.
    pub received_bytes: u64,
    /// Of both, those too long for a frame.
    pub large: u64,
    /// ACK frames sent.
    pub acks: u64,
    /// NOPs sent.
    pub nops: u64,
    /// Zero-byte WRITEs sent to see whether the peer is there.
    pub probes: u64,
    /// Changes of the sending carrier.
    pub switches: u64,
    /// Frames sent again by another carrier.
    pub repeats: u64,
    /// Receive requests that were late because there was no memory.
    pub starved: u64,
}

/// How far a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// The peer has not answered.
    Offered,
    /// The peer's first frame is awaited.
    Connected,
    /// Both ends may send.
    Open,
    /// This end closed it, and sends what waits.
    Closing,
    /// The peer closed it.
    PeerClosed,
}

/// What a channel is like now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelStatus {
    /// How far it is.
    pub state: ChannelState,
    /// Its queue pair.
    pub qp: Qp,
    /// The peer's address; its own until the peer has answered.
    pub peer: Ipv6Addr,
    /// The peer's queue pair.
    pub peer_qp: Qp,
    /// Counts since it began.
    pub stats: ChannelStats,
    /// Frames under way.
    pub in_flight: u16,
    /// Frames that may be.
    pub depth: u16,
    /// Messages that wait for the window.
    pub backlog: u32,
    /// Large messages that are being read.
    pub fetching: u32,
    /// Requests that wait for their answer.
    pub asked: u32,
    /// Requests that wait for this end's answer.
    pub to_answer: u32,
    /// Bytes of registered memory that it holds for receiving.
    pub receive_bytes: u64,
    /// How far the peer's clock is ahead, ns, as far as calls have told.
    pub clock_offset: Option<i64>,
    /// Whether frames leave by the queue pair or by a stream.
    pub carrier: crate::Carrier,
}

/// Counts of one context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextStats {
    /// Channels that were begun.
    pub channels: u64,
    /// Channels that ended, for whatever reason.
    pub closed: u64,
    /// Queue pairs made.
    pub qps_created: u64,
    /// Queue pairs taken from the cache.
    pub qps_reused: u64,
    /// Times that as many frames waited as the shared receive queue has requests: peers may have had to try again.
    pub srq_dry: u64,
    /// Polls that came later than `polling_warn`.
    pub slow_polls: u64,
    /// Calls that took longer than `slow_threshold`.
    pub slow_calls: u64,
    /// Messages that a filter rule struck.
    pub filtered: u64,
}
