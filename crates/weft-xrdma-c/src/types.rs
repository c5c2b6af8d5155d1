//! The structures of the header.

use core::ffi::{c_char, c_int, c_void};

/// A device, its memory, and the channels of one thread. Only that thread may use it.
#[derive(Debug)]
pub struct xrdma_context {
    _opaque: (),
}

/// A connection that carries messages, in both directions and in any number.
#[derive(Debug)]
pub struct xrdma_channel {
    _opaque: (),
}

/// A message that arrived. Its memory is the context's until xrdma_msg_release(3).
#[derive(Debug)]
pub struct xrdma_msg {
    _opaque: (),
}

/// A flag for sending: the body lies in memory of xrdma_reg_mem(3), which is not copied and must not change until
/// XRDMA_EVENT_DELIVERED comes for the message, or its channel is gone.
pub const XRDMA_LENT: u32 = 1;

/// Whether a message asks, answers, or neither.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum xrdma_msg_kind {
    /// It is no message: the handle is null, or was released.
    XRDMA_MSG_NONE = 0,
    /// Neither.
    XRDMA_MSG_ONE_WAY = 1,
    /// It asks: answer with xrdma_send_response(3).
    XRDMA_MSG_REQUEST = 2,
    /// It answers the request of its number.
    XRDMA_MSG_RESPONSE = 3,
}

/// What happened.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum xrdma_event_kind {
    /// A channel that xrdma_connect_async(3) asked for is there. `number` is what that call returned.
    XRDMA_EVENT_CONNECTED = 1,
    /// A channel that xrdma_connect_async(3) asked for is not to be had: `number`, `error`, `text`.
    XRDMA_EVENT_CONNECT_FAILED = 2,
    /// A peer began a channel, after xrdma_listen(3).
    XRDMA_EVENT_ACCEPTED = 3,
    /// A message arrived: `msg`, which is to be released.
    XRDMA_EVENT_MESSAGE = 4,
    /// The peer has the message `number`; what was lent to it with XRDMA_LENT is free again.
    XRDMA_EVENT_DELIVERED = 5,
    /// The channel is gone, and this is the last that its handle is good for: `error` is 0 if this end closed it, and
    /// `text` says why. What was lent on it is free again.
    XRDMA_EVENT_CLOSED = 6,
    /// The thread did not poll for `nanos`, which is more than `polling_warn`, while something waited.
    XRDMA_EVENT_SLOW_POLL = 7,
    /// The answer to request `number` took `nanos`, which is more than `slow_threshold`.
    XRDMA_EVENT_SLOW_CALL = 8,
    /// This end answers fewer requests than come: `number` of them wait, and the peer does until some are answered
    /// or declined (xrdma_decline(3)).
    XRDMA_EVENT_SLOW_ANSWERS = 9,
    /// A channel that a peer began did not come about, or none can be taken for a while: `error`, `text`.
    XRDMA_EVENT_ACCEPT_FAILED = 10,
}

/// What happened, and to whom. What a kind of event has no use for is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct xrdma_event {
    /// What.
    pub kind: xrdma_event_kind,
    /// Zero, or a negative number of errno(3).
    pub error: c_int,
    /// Where.
    pub channel: *mut xrdma_channel,
    /// What xrdma_set_user_data(3) gave the channel.
    pub user_data: *mut c_void,
    /// The message.
    pub msg: *mut xrdma_msg,
    /// Of which message, or of which call.
    pub number: u64,
    /// How long it took, ns.
    pub nanos: u64,
    /// Why, in words, until xrdma_polling(3) is called again.
    pub text: *const c_char,
}

/// Where the time of a traced call went.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct xrdma_trace {
    /// The request's way, ns: T2 - T1 - Toff.
    pub request_ns: u64,
    /// At the peer, ns: T3 - T2.
    pub peer_ns: u64,
    /// The response's way, ns: T4 - T3 + Toff.
    pub response_ns: u64,
    /// How far the peer's clock is ahead, ns: Toff.
    pub offset_ns: i64,
}

/// What carries a channel's frames.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum xrdma_carrier {
    /// Its queue pair.
    XRDMA_CARRIER_RDMA = 0,
    /// A TCP connection, because RDMA broke.
    XRDMA_CARRIER_TCP = 1,
}

/// What a channel is like.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct xrdma_channel_state {
    /// Messages sent.
    pub sent: u64,
    /// Bytes of their bodies.
    pub sent_bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Bytes of their bodies.
    pub received_bytes: u64,
    /// Of both, those too long for a frame.
    pub large: u64,
    /// ACK frames sent.
    pub acks: u64,
    /// NOPs sent.
    pub nops: u64,
    /// Probes of a silent peer.
    pub probes: u64,
    /// Changes of the carrier.
    pub switches: u64,
    /// Frames sent again by another carrier.
    pub repeats: u64,
    /// Receive requests that were late for want of memory.
    pub starved: u64,
    /// Bytes of registered memory that it holds for receiving.
    pub receive_bytes: u64,
    /// How far the peer's clock is ahead, ns; 0 until a call was traced.
    pub clock_offset_ns: i64,
    /// Frames under way.
    pub in_flight: u32,
    /// Frames that may be.
    pub depth: u32,
    /// Messages that wait for the window.
    pub backlog: u32,
    /// Large messages that are being read.
    pub fetching: u32,
    /// Requests that wait for their response.
    pub asked: u32,
    /// What carries its frames.
    pub carrier: xrdma_carrier,
}

/// What a context is like.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct xrdma_context_state {
    /// Bytes of registered memory.
    pub memory_bytes: u64,
    /// Of them, those in use.
    pub memory_used_bytes: u64,
    /// Channels there are.
    pub channels: u64,
    /// Channels that were begun.
    pub channels_begun: u64,
    /// Channels that ended.
    pub channels_closed: u64,
    /// Queue pairs that wait for the next channels.
    pub qps_cached: u64,
    /// Queue pairs made.
    pub qps_created: u64,
    /// Queue pairs taken from the cache.
    pub qps_reused: u64,
    /// Polls that were late.
    pub slow_polls: u64,
    /// Calls that were slow.
    pub slow_calls: u64,
}
