//! Events for the owner, received messages, and errors.

use weft_rnic::Status;
use weft_units::Duration;
use weft_wire::{CallRole, ParseError};

use crate::memory::Block;
use crate::verbs::{DeviceError, Slice};
use crate::window::WindowError;
use crate::{ChannelId, Decomposition};

/// A received message. Its memory belongs to the context; return it with [`Context::release`](crate::Context::release).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its memory stays in use until it is released"]
pub struct Message {
    /// The message's role: request, response, or neither.
    pub call: CallRole,
    pub(crate) block: Block,
    /// The body's place in the block, and its length, in bytes.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Message {
    /// Returns the location of its body.
    pub const fn body(&self) -> Slice {
        let block = self.block.slice();
        Slice { address: block.address + self.at as u64, len: self.len, ..block }
    }

    /// Returns the length of its body in bytes.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns `true` if its body is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// An event, in order for each channel.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer is ready: both ends may send.
    Open {
        /// The channel.
        channel: ChannelId,
    },
    /// A message arrived.
    Message {
        /// The channel.
        channel: ChannelId,
        /// The message.
        message: Message,
    },
    /// The peer's application has received a message with lent memory, which is free again. Copied messages have no
    /// such event.
    Delivered {
        /// The channel.
        channel: ChannelId,
        /// The message's number, which [`Context::send`](crate::Context::send) returned.
        number: u64,
    },
    /// A traced call was answered.
    Traced {
        /// The channel.
        channel: ChannelId,
        /// The request's number.
        id: u64,
        /// The components of its duration.
        time: Decomposition,
    },
    /// The channel ended with everything in flight on it; lent memory is free again.
    Closed {
        /// The channel.
        channel: ChannelId,
        /// The reason.
        reason: CloseReason,
    },
    /// An operation exceeded its threshold.
    Slow(Slow),
}

/// An operation that exceeded its threshold (X-RDMA, section VI.A, methods II and III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// The owner polled too late.
    Poll {
        /// The time between polls.
        gap: Duration,
    },
    /// A call took too long.
    Call {
        /// The channel.
        channel: ChannelId,
        /// The request's number.
        id: u64,
        /// The time until its response.
        took: Duration,
    },
    /// The owner answers fewer requests than arrive: its peer must wait.
    Answers {
        /// The channel.
        channel: ChannelId,
        /// Number of requests that wait for a response.
        waiting: u32,
    },
}

/// The reason why a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This end closed it, and the peer has received everything.
    #[error("closed")]
    Finished,
    /// The peer closed it.
    #[error("closed by the peer")]
    ByPeer,
    /// The owner aborted it.
    #[error("given up")]
    Aborted,
    /// The peer did not answer the close.
    #[error("the peer did not answer the close")]
    CloseTimedOut,
    /// The device detected that the peer is unreachable.
    #[error("the peer is gone: {0:?}")]
    PeerUnreachable(Status),
    /// The stream that carried the channel broke.
    #[error("the stream that carried the channel broke")]
    StreamBroken,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(ProtocolError),
    /// The device refused a work request.
    #[error("the device refused: {0}")]
    Device(DeviceError),
}

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// It sent bytes that are not a valid frame.
    #[error("no frame: {0}")]
    Frame(#[from] ParseError),
    /// Its sequence or acknowledgement numbers are invalid.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// A frame has no sequence word.
    #[error("a frame without sequence word")]
    NoSequenceWord,
    /// A frame's length differs from the length of its body.
    #[error("the frame says {stated} bytes and has {got}")]
    Length {
        /// The length in the header.
        stated: u32,
        /// The actual length.
        got: u32,
    },
    /// A message exceeds the limit of this end.
    #[error("a message of {got} bytes; this end takes {max}")]
    TooLong {
        /// Its length in bytes.
        got: u32,
        /// This end's limit in bytes.
        max: u32,
    },
    /// It sent a frame after its close.
    #[error("something came after the close")]
    AfterClose,
    /// The owner passed in more of a stream than may be queued ([`Context::stream_wants_to_read`](crate::Context)).
    #[error("more came on the stream than may wait for its turn")]
    StreamOverrun,
    /// It offers a new queue pair on one that works.
    #[error("an offer of a queue pair in place of one that is not broken")]
    NotBroken,
    /// It returned to RDMA without the retransmission of a large message whose READs were cancelled.
    #[error("a way back to RDMA before a large message was retransmitted")]
    NotRetransmitted,
    /// It switched to a stream that is not attached.
    #[error("a switch to a stream that was never attached")]
    NoStream,
}

/// An error that refuses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The channel has ended or is closing.
    #[error("the channel is closed")]
    Closed,
    /// The backlog is full; poll and try again.
    #[error("{waiting} messages wait for the channel's window already (backlog)")]
    Full {
        /// Number of waiting messages.
        waiting: u32,
    },
    /// The message exceeds the peer's limit.
    #[error("{got} bytes are more than the {max} that the peer takes in a message")]
    TooLong {
        /// Its length in bytes.
        got: u64,
        /// The peer's limit in bytes.
        max: u32,
    },
    /// The memory cache is exhausted.
    #[error(transparent)]
    Memory(#[from] DeviceError),
    /// No request with this number waits for a response.
    #[error("request {id} is not there to be answered")]
    NoRequest {
        /// The number.
        id: u64,
    },
}
