//! What channels and contexts count.

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

/// What a channel is like now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelStatus {
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
    /// Polls that came later than `polling_warn`.
    pub slow_polls: u64,
    /// Calls that took longer than `slow_threshold`.
    pub slow_calls: u64,
    /// Messages that a filter rule struck.
    pub filtered: u64,
}
