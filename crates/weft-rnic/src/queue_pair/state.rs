//! The services and the states of a queue pair (IBTA volume 1, chapters 9 and 10).

use weft_wire::RdmaService;

/// The transport service of a queue pair (IBTA volume 1, chapter 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Service {
    /// RC: all operations, in order, exactly once.
    ReliableConnected,
    /// UC: SEND and WRITE to one peer; a failed message is dropped.
    UnreliableConnected,
    /// UD: SENDs of one packet to any queue pair.
    UnreliableDatagram,
}

impl Service {
    /// Returns the service that opcodes encode.
    #[inline]
    pub(crate) const fn on_the_wire(self) -> RdmaService {
        match self {
            Self::ReliableConnected => RdmaService::Rc,
            Self::UnreliableConnected => RdmaService::Uc,
            Self::UnreliableDatagram => RdmaService::Ud,
        }
    }
}

/// States of a queue pair (IBTA volume 1, chapter 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum State {
    /// The state after creation.
    Reset,
    /// Receive requests may be posted.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Ready to send.
    ReadyToSend,
    /// The queue pair completes the requests in flight, and sends no new ones.
    SendQueueDrained,
    /// The send queue is in error (not RC).
    SendQueueError,
    /// All requests are flushed.
    Error,
}

impl State {
    /// Returns `true` in the states in which messages are sent or received.
    pub const fn works(self) -> bool {
        !matches!(self, Self::Reset | Self::Init | Self::Error)
    }
}
