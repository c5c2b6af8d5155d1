//! The reasons why packets are not opened.

use weft_transport::ConnectionId;
use weft_wire::ParseError;

/// The reason why a packet is not opened. The packet is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The header is invalid.
    #[error(transparent)]
    Header(#[from] ParseError),
    /// The packet is shorter than its tag or its smallest header.
    #[error("{got} bytes after the sealed header; a tag and a packet take more")]
    TooShort {
        /// Length of the packet, bytes.
        got: usize,
    },
    /// The packet belongs to no connection here. A reset notifies the sender.
    #[error("no keys are known for connection {:#010x}", connection.0)]
    UnknownKey {
        /// The connection id in the packet.
        connection: ConnectionId,
        /// Low half of the packet's number.
        iv: u32,
    },
    /// The connection's accept has not arrived; the packet will be retransmitted.
    #[error("connection {:#010x} is not accepted yet", connection.0)]
    Early {
        /// The connection.
        connection: ConnectionId,
    },
    /// The packet was altered, forged, or sealed under another key.
    #[error("connection {:#010x}: the packet is not authentic", connection.0)]
    NotAuthentic {
        /// The connection.
        connection: ConnectionId,
    },
    /// The packet was received before, or is too old for the window.
    #[error("connection {:#010x}: packet {iv} was received before, or is older than 65,536 packets", connection.0)]
    Replayed {
        /// The connection.
        connection: ConnectionId,
        /// The packet's number.
        iv: u64,
    },
    /// The packet is in the clear, on an encrypted connection or where encryption is required.
    #[error("connection {:#010x} is encrypted, the packet is not", connection.0)]
    InClear {
        /// The connection.
        connection: ConnectionId,
    },
}
