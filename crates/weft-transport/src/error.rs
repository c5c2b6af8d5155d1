//! Errors of commands. A command that fails leaves the engine's state unchanged.

/// The reason a connection cannot be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The endpoint is at its connection limit.
    #[error("{limit} connections are open, which is this endpoint's limit")]
    TooManyConnections {
        /// Maximum number of connections.
        limit: u32,
    },
}

/// The reason a message cannot be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id names no connection here, or no longer does.
    #[error("no such connection")]
    UnknownConnection,
    /// The connection is not established; wait for `Connected`.
    #[error("the connection is not set up yet")]
    NotConnected,
    /// The connection is closing.
    #[error("the connection is closing")]
    Closing,
    /// The connection's message queue is full; submit again after an `Acked` event.
    #[error("{limit} messages are waiting, which is the limit")]
    QueueFull {
        /// Maximum number of queued messages.
        limit: u32,
    },
}

/// The reason a packet cannot be reported as placed, declined or policed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacedError {
    /// The id names no connection here, or no longer does.
    #[error("no such connection")]
    UnknownConnection,
    /// No packet with this number is waiting to be placed.
    #[error("packet {psn} does not wait to be placed")]
    NotWaiting {
        /// The packet's sequence number.
        psn: u32,
    },
}
