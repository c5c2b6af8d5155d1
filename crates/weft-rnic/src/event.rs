//! Events for the owner: notifications of completion channels, and asynchronous events (`enum ibv_event_type`).

use weft_transport::ConnectionId;

use crate::{CompletionQueue, QueuePairNumber, SharedReceiveQueue};

/// An event of the device; events are reported in the order in which they occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Event {
    /// An armed completion queue got a completion.
    Completion {
        /// The completion queue.
        cq: CompletionQueue,
    },
    /// A completion queue overran; further completions to it are lost.
    CqError {
        /// The completion queue.
        cq: CompletionQueue,
    },
    /// A queue pair failed because one of its completions was lost.
    QpFatal {
        /// The queue pair.
        qp: QueuePairNumber,
    },
    /// A peer's request was invalid; the queue pair is in error.
    QpRequestError {
        /// The queue pair.
        qp: QueuePairNumber,
    },
    /// A peer's request lacked the right to its memory; the queue pair is in error.
    QpAccessError {
        /// The queue pair.
        qp: QueuePairNumber,
    },
    /// A queue pair in state RTR received its first request.
    CommunicationEstablished {
        /// The queue pair.
        qp: QueuePairNumber,
    },
    /// A send queue in state SQD has no more requests in flight.
    SendQueueDrained {
        /// The queue pair.
        qp: QueuePairNumber,
    },
    /// A queue pair in error consumes no more requests of its shared receive queue.
    LastWqeReached {
        /// The queue pair.
        qp: QueuePairNumber,
    },
    /// A shared receive queue has fewer requests than its limit.
    SrqLimitReached {
        /// The shared receive queue.
        srq: SharedReceiveQueue,
    },
    /// The payload that the owner holds for a connection will not be placed: the owner drops it.
    #[cfg_attr(feature = "serde", serde(skip))]
    ReleaseHeld {
        /// The connection.
        connection: ConnectionId,
    },
}
