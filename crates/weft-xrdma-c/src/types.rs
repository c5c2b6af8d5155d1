//! The structures of the header.

use core::ffi::{c_char, c_int, c_void};

/// A context: a device, its memory and the channels of one thread. Only that thread may use it.
#[derive(Debug)]
pub struct xrdma_context {
    _opaque: (),
}

/// A connection that carries messages, in both directions and in any number.
#[derive(Debug)]
pub struct xrdma_channel {
    _opaque: (),
}

/// A received message. The context owns its memory; xrdma_msg_release(3) gives it back.
#[derive(Debug)]
pub struct xrdma_msg {
    _opaque: (),
}

/// A send flag: the body lies in memory of xrdma_reg_mem(3). It is not copied and must not change until
/// XRDMA_EVENT_DELIVERED arrives for the message, or its channel is gone.
pub const XRDMA_LENT: u32 = 1;

/// The kind of a message.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum xrdma_msg_kind {
    /// No message: the handle is null, or was released.
    XRDMA_MSG_NONE = 0,
    /// A one-way message: the sender expects no response.
    XRDMA_MSG_ONE_WAY = 1,
    /// A request: respond with xrdma_send_response(3).
    XRDMA_MSG_REQUEST = 2,
    /// A response to the request of the same number.
    XRDMA_MSG_RESPONSE = 3,
}

/// The kind of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum xrdma_event_kind {
    /// A channel of xrdma_connect_async(3) is open. `number` is the number that call returned.
    XRDMA_EVENT_CONNECTED = 1,
    /// A channel of xrdma_connect_async(3) could not be opened: `number`, `error`, `text`.
    XRDMA_EVENT_CONNECT_FAILED = 2,
    /// A peer opened a channel, after xrdma_listen(3).
    XRDMA_EVENT_ACCEPTED = 3,
    /// A message arrived: `msg`, which the program must release.
    XRDMA_EVENT_MESSAGE = 4,
    /// The peer has message `number`, which was sent with XRDMA_LENT: its memory is free again.
    XRDMA_EVENT_DELIVERED = 5,
    /// The channel is gone, and its handle is invalid after this event: `error` is 0 if this end closed it, and
    /// `text` has the reason. Memory lent on it is free again.
    XRDMA_EVENT_CLOSED = 6,
    /// The thread did not poll for `nanos`, more than `polling_warn`, while work was pending.
    XRDMA_EVENT_SLOW_POLL = 7,
    /// The response to request `number` took `nanos`, more than `slow_threshold`.
    XRDMA_EVENT_SLOW_CALL = 8,
    /// This end answers fewer requests than arrive: `number` of them are pending, and the peer cannot send more
    /// until some are answered or declined (xrdma_decline(3)).
    XRDMA_EVENT_SLOW_ANSWERS = 9,
    /// A peer's channel could not be opened, or this end cannot accept any for a while: `error`, `text`.
    XRDMA_EVENT_ACCEPT_FAILED = 10,
}

/// An event. Fields that its kind does not use are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct xrdma_event {
    /// The kind of the event.
    pub kind: xrdma_event_kind,
    /// Zero, or a negative number of errno(3).
    pub error: c_int,
    /// The channel that the event is about.
    pub channel: *mut xrdma_channel,
    /// The pointer that xrdma_set_user_data(3) set for the channel.
    pub user_data: *mut c_void,
    /// The message.
    pub msg: *mut xrdma_msg,
    /// The number of the message, request or call.
    pub number: u64,
    /// The duration, ns.
    pub nanos: u64,
    /// The reason as text, valid until the next xrdma_polling(3).
    pub text: *const c_char,
}

/// The times of a traced call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct xrdma_trace {
    /// The request's transit time, ns: T2 - T1 - Toff.
    pub request_ns: u64,
    /// The time at the peer, ns: T3 - T2.
    pub peer_ns: u64,
    /// The response's transit time, ns: T4 - T3 + Toff.
    pub response_ns: u64,
    /// The offset of the peer's clock, ns: Toff, positive if it is ahead.
    pub offset_ns: i64,
}

/// The transport of a channel's frames.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum xrdma_carrier {
    /// The channel's queue pair.
    XRDMA_CARRIER_RDMA = 0,
    /// A TCP connection, because RDMA broke.
    XRDMA_CARRIER_TCP = 1,
}

/// The state and counters of a channel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct xrdma_channel_state {
    /// Number of messages sent.
    pub sent: u64,
    /// Bytes of the bodies of messages sent.
    pub sent_bytes: u64,
    /// Number of messages received.
    pub received: u64,
    /// Bytes of the bodies of messages received.
    pub received_bytes: u64,
    /// Number of messages sent or received that were too long for one frame.
    pub large: u64,
    /// Number of ACK frames sent.
    pub acks: u64,
    /// Number of NOP frames sent because the window stayed full.
    pub nops: u64,
    /// Number of probes sent to a silent peer.
    pub probes: u64,
    /// Number of changes between RDMA and TCP.
    pub switches: u64,
    /// Number of frames retransmitted after a change between RDMA and TCP.
    pub frames_retransmitted: u64,
    /// Number of receive requests posted late because memory was short.
    pub starved: u64,
    /// Bytes of registered memory that the channel holds for receiving.
    pub receive_bytes: u64,
    /// The offset of the peer's clock, ns, positive if it is ahead; 0 if no call was traced in the last 100 s.
    pub clock_offset_ns: i64,
    /// Number of frames in flight.
    pub in_flight: u32,
    /// Maximum number of frames in flight.
    pub depth: u32,
    /// Number of messages that wait for the window.
    pub backlog: u32,
    /// Number of large messages being read.
    pub fetching: u32,
    /// Number of requests that wait for their response.
    pub asked: u32,
    /// The transport of its frames.
    pub carrier: xrdma_carrier,
}

/// The state and counters of a context.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct xrdma_context_state {
    /// Bytes of registered memory.
    pub memory_bytes: u64,
    /// Bytes of registered memory in use.
    pub memory_used_bytes: u64,
    /// Number of channels now.
    pub channels: u64,
    /// Number of channels opened.
    pub channels_begun: u64,
    /// Number of channels ended.
    pub channels_closed: u64,
    /// Number of queue pairs in the cache.
    pub qps_cached: u64,
    /// Number of queue pairs created.
    pub qps_created: u64,
    /// Number of queue pairs reused from the cache.
    pub qps_reused: u64,
    /// Number of polls later than `polling_warn`.
    pub slow_polls: u64,
    /// Number of calls slower than `slow_threshold`.
    pub slow_calls: u64,
}
