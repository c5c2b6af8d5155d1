//! Verdicts and events for the owner.

use crate::ConnectionId;
use crate::path::PathId;

/// The action required of the owner for a packet it passed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The owner writes the payload to its place, then calls [`Endpoint::placed`](crate::Endpoint::placed).
    Place(Placement),
    /// No action; the packet carried no payload.
    Done,
    /// No action; the packet was refused and counted.
    Dropped(DropReason),
}

/// The place of one packet's payload. Packets come in any order; each is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The connection it arrived on.
    pub connection: ConnectionId,
    /// The packet's sequence number, for [`Endpoint::placed`](crate::Endpoint::placed).
    pub psn: u32,
    /// The sender's operation code.
    pub opcode: u8,
    /// Further data of the sender's owner about the message.
    pub tag: u16,
    /// The message's number within the connection, counting from zero and wrapping.
    pub message: u32,
    /// The payload's offset in the message, bytes. `offset + len <= length` always holds.
    pub offset: u32,
    /// The payload's length, bytes.
    pub len: u16,
    /// The whole message's length, bytes.
    pub length: u32,
}

/// An event; events are returned in the order in which they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection requested with `connect` is established.
    Connected {
        /// The connection.
        connection: ConnectionId,
    },
    /// A connection requested by a peer is established.
    Accepted {
        /// The connection.
        connection: ConnectionId,
        /// The service the peer requested, below 2^56.
        service: u64,
    },
    /// Every packet of a submitted message has been placed by the peer's owner and acknowledged.
    Acked {
        /// The connection.
        connection: ConnectionId,
        /// The token the message was submitted with.
        token: u64,
    },
    /// A message has been placed completely, and so have all messages before it.
    Delivered {
        /// The connection.
        connection: ConnectionId,
        /// The message's number, counting from zero and wrapping.
        message: u32,
        /// The sender's operation code.
        opcode: u8,
        /// The message's length, bytes.
        length: u32,
    },
    /// A path stopped carrying packets; it is avoided and probed until [`Event::PathUp`] or [`Event::Closed`].
    PathDown {
        /// The connection.
        connection: ConnectionId,
        /// The path.
        path: PathId,
    },
    /// A path that was down may be used again: it answered a probe, or the idle connection has released its paths.
    PathUp {
        /// The connection.
        connection: ConnectionId,
        /// The path.
        path: PathId,
    },
    /// The connection has ended; its id is invalid from here on.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// The reason.
        reason: CloseReason,
    },
}

/// The reason a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it.
    Local,
    /// The peer closed it.
    Peer,
    /// Neither side sent anything for the idle timeout.
    Idle,
    /// The peer stopped answering.
    PeerGone,
    /// The peer does not know the connection: it restarted, or closed it first.
    Reset,
    /// The connection's link went down, and with it the process at the other end.
    LinkDown,
    /// The peer never answered the request.
    ConnectTimeout,
    /// The peer's packets do not form messages.
    ProtocolViolation,
    /// The peer refused: the ends have no common version.
    NoCommonVersion,
    /// The peer refused: it accepts no connections, or no more.
    Refused,
    /// One end requires encryption, and the other cannot encrypt.
    NotEncrypted,
    /// The ends have different pre-shared keys, or one does not accept the identity of the other.
    NotAuthentic,
}

weft_units::registry! {
    /// The reason a packet was refused. Every refusal is counted in [`Stats`](crate::Stats).
    pub enum DropReason: "drop reason" {
        /// The bytes are not a packet of this protocol.
        Malformed => "malformed";
        /// The packet's version is unsupported, or is not the one agreed on.
        UnknownVersion => "unknown_version";
        /// No connection has this id, or it belongs to another address.
        UnknownConnection => "unknown_connection";
        /// The token does not prove the sender's address.
        BadToken => "bad_token";
        /// The packet was placed already, or is waiting to be placed.
        Duplicate => "duplicate";
        /// The packet is beyond the reordering window that this end agreed to.
        OutsideWindow => "outside_window";
        /// The packet is not the next one, under go-back-N.
        OutOfOrder => "out_of_order";
        /// The offset and length do not fit the message, the message changed its length, or is further ahead than the
        /// packet.
        BadExtent => "bad_extent";
        /// The ACK names packets that were never sent.
        AckOfUnsent => "ack_of_unsent";
        /// The ACK contains nothing that a later ACK has not reported.
        StaleAck => "stale_ack";
        /// The ACK echoes a timestamp that this end never sent.
        BadTimestamp => "bad_timestamp";
        /// A set-up packet that does not fit the connection's state.
        UnexpectedSetup => "unexpected_setup";
        /// A reset that repeats no number of a packet that this end just sent.
        UnprovenReset => "unproven_reset";
        /// A packet of set-up whose key exchange is refused, or that has none where encryption is required.
        NotAuthentic => "not_authentic";
        /// The endpoint is at its connection limit.
        TooManyConnections => "too_many_connections";
    }
}
