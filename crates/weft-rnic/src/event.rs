//! What the owner is told: completion channels and asynchronous events (`enum ibv_event_type`).

use weft_transport::ConnectionId;

use crate::{CompletionQueue, QueuePairNumber, SharedReceiveQueue};

/// What happened, in the order it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Event {
    /// A completion queue got what it was armed for.
    Completion {
        /// Which.
        cq: CompletionQueue,
    },
    /// A completion queue overran; what completes there is lost.
    CqError {
        /// Which.
        cq: CompletionQueue,
    },
    /// A queue pair broke for a reason that no work request can tell.
    QpFatal {
        /// Which.
        qp: QueuePairNumber,
    },
    /// A peer's request made no sense; the queue pair is in error.
    QpRequestError {
        /// Which.
        qp: QueuePairNumber,
    },
    /// A peer asked for what it may not have; the queue pair is in error.
    QpAccessError {
        /// Which.
        qp: QueuePairNumber,
    },
    /// A queue pair that was only ready to receive heard from its peer.
    CommunicationEstablished {
        /// Which.
        qp: QueuePairNumber,
    },
    /// A send queue that is being drained has drained.
    SendQueueDrained {
        /// Which.
        qp: QueuePairNumber,
    },
    /// A queue pair in error takes no more from its shared receive queue.
    LastWqeReached {
        /// Which.
        qp: QueuePairNumber,
    },
    /// A shared receive queue holds fewer requests than its limit.
    SrqLimitReached {
        /// Which.
        srq: SharedReceiveQueue,
    },
    /// Payload that is held for this connection will not be placed: forget it.
    #[cfg_attr(feature = "serde", serde(skip))]
    ReleaseHeld {
        /// Which.
        connection: ConnectionId,
    },
}
