//! What the owner is told, and why channels end.

use weft_rnic::Status;
use weft_units::Duration;
use weft_wire::{Call, ParseError};

use crate::memory::Block;
use crate::verbs::{Refused, Slice};
use crate::window::WindowError;
use crate::{ChannelId, Decomposition};

/// A message that arrived. Its memory is the context's: give it back with
/// [`Context::release`](crate::Context::release).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its memory stays in use until it is released"]
pub struct Message {
    /// Whether it asks, answers, or neither.
    pub call: Call,
    pub(crate) block: Block,
    pub(crate) body: Slice,
}

impl Message {
    /// Where its body lies.
    pub const fn body(&self) -> Slice {
        self.body
    }

    /// Bytes of its body.
    pub const fn len(&self) -> u32 {
        self.body.len
    }

    /// Whether its body is empty.
    pub const fn is_empty(&self) -> bool {
        self.body.len == 0
    }
}

/// What happened, in the order it happened on each channel.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer is there: both ends may send.
    Open {
        /// Which.
        channel: ChannelId,
    },
    /// A message arrived.
    Message {
        /// Where.
        channel: ChannelId,
        /// What.
        message: Message,
    },
    /// The peer's application has the message of this number; memory that was lent to it is free again.
    Delivered {
        /// Where.
        channel: ChannelId,
        /// Which, as [`Context::send`](crate::Context::send) numbered it.
        number: u64,
    },
    /// A traced call was answered.
    Traced {
        /// Where.
        channel: ChannelId,
        /// The request's number.
        id: u64,
        /// Where its time went.
        time: Decomposition,
    },
    /// The channel is gone, with all that was under way on it; lent memory is free again.
    Closed {
        /// Which.
        channel: ChannelId,
        /// Why.
        reason: CloseReason,
    },
    /// Something took longer than it should.
    Slow(Slow),
}

/// What took longer than its threshold (X-RDMA, section VI.A, methods II and III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// The owner did not poll.
    Poll {
        /// For how long.
        gap: Duration,
    },
    /// A call.
    Call {
        /// Where.
        channel: ChannelId,
        /// The request's number.
        id: u64,
        /// How long its answer took.
        took: Duration,
    },
    /// The owner answers fewer requests than come: its peer has to wait.
    Answers {
        /// Where.
        channel: ChannelId,
        /// Requests that wait for an answer.
        waiting: u32,
    },
}

/// Why a channel is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This end closed it, and the peer has everything.
    #[error("closed")]
    Finished,
    /// The peer closed it.
    #[error("closed by the peer")]
    ByPeer,
    /// The owner gave it up.
    #[error("given up")]
    Aborted,
    /// The peer did not answer the close.
    #[error("the peer did not answer the close")]
    CloseTimedOut,
    /// The device gave the peer up.
    #[error("the peer is gone: {0:?}")]
    PeerGone(Status),
    /// The stream that carried the channel broke.
    #[error("the stream that carried the channel broke")]
    StreamBroken,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(ProtocolError),
    /// The device refused a work request.
    #[error("the device refused: {0}")]
    Device(Refused),
}

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// What it sent is no frame.
    #[error("no frame: {0}")]
    Frame(#[from] ParseError),
    /// Its numbers cannot be.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// A frame came without the word that every frame has.
    #[error("a frame without sequence word")]
    NoSequenceWord,
    /// A frame's length is not that of its body.
    #[error("the frame says {stated} bytes and has {got}")]
    Length {
        /// What it says.
        stated: u32,
        /// What it has.
        got: u32,
    },
    /// A message is longer than this end takes.
    #[error("a message of {got} bytes; this end takes {most}")]
    TooLong {
        /// Its length.
        got: u32,
        /// The most this end offered.
        most: u32,
    },
    /// It sent a frame after its close.
    #[error("something came after the close")]
    AfterClose,
    /// The owner read more of a stream than may wait ([`Context::stream_wants_to_read`](crate::Context)).
    #[error("more came on the stream than may wait for its turn")]
    StreamOverrun,
    /// A switch to a stream that is not there.
    #[error("a switch to a stream that was never attached")]
    NoStream,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The channel is gone, or closing.
    #[error("the channel is closed")]
    Closed,
    /// As many wait as may; poll, and try again.
    #[error("{waiting} messages wait for the channel's window already (backlog)")]
    Full {
        /// How many wait.
        waiting: u32,
    },
    /// The peer does not take messages of this length.
    #[error("{got} bytes are more than the {most} that the peer takes in a message")]
    TooLong {
        /// Its length.
        got: u64,
        /// The most the peer takes.
        most: u32,
    },
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] Refused),
    /// There is no request of this number to answer.
    #[error("request {id} is not there to be answered")]
    NoRequest {
        /// The number.
        id: u64,
    },
}
