//! Why a command was refused; the engine's state is as before.

/// Why a connection cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The endpoint holds as many as it may.
    #[error("{limit} connections are open, which is this endpoint's limit")]
    TooManyConnections {
        /// The limit.
        limit: u32,
    },
}

/// Why a message cannot be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id means nothing here (any more).
    #[error("no such connection")]
    UnknownConnection,
    /// The peer has not answered yet; wait for `Connected`.
    #[error("the connection is not set up yet")]
    NotConnected,
    /// The connection is closing.
    #[error("the connection is closing")]
    Closing,
    /// As many messages wait as may; submit again after a `Sent` event.
    #[error("{limit} messages are waiting, which is the limit")]
    QueueFull {
        /// The limit.
        limit: u32,
    },
}

/// Why a packet cannot be reported placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacedError {
    /// The id means nothing here (any more).
    #[error("no such connection")]
    UnknownConnection,
    /// No packet with this number waits to be placed.
    #[error("packet {psn} does not wait to be placed")]
    NotWaiting {
        /// The packet's sequence number.
        psn: u32,
    },
}
