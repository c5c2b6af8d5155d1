//! What the owner is told.

use crate::ConnectionId;
use crate::path::PathId;

/// What the owner must do with a packet it handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Put the payload where it belongs, then call [`Endpoint::placed`](crate::Endpoint::placed).
    Place(Placement),
    /// Nothing; the packet carried no payload.
    Done,
    /// Nothing; the packet was refused and counted.
    Dropped(DropReason),
}

/// Where one packet's payload belongs. Packets come in any order; each is named once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The connection it came on.
    pub connection: ConnectionId,
    /// Names the packet in [`Endpoint::placed`](crate::Endpoint::placed).
    pub psn: u32,
    /// The sender's operation.
    pub opcode: u8,
    /// What else the sender said of the message.
    pub tag: u16,
    /// Message number within the connection, counting from zero and wrapping.
    pub message: u32,
    /// Offset of the payload in the message, bytes. `offset + len <= length` always holds.
    pub offset: u32,
    /// Length of the payload, bytes.
    pub len: u16,
    /// Length of the whole message, bytes.
    pub length: u32,
}

/// What happened, in the order it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection asked for with `connect` is ready.
    Connected {
        /// Which.
        connection: ConnectionId,
    },
    /// A peer's connection is ready.
    Accepted {
        /// Which.
        connection: ConnectionId,
        /// What the peer said it is for.
        service: u32,
    },
    /// Every packet of a submitted message has been placed by the peer's owner.
    Sent {
        /// On which connection.
        connection: ConnectionId,
        /// The token it was submitted with.
        token: u64,
    },
    /// A message has been placed whole, and so has everything before it.
    Delivered {
        /// On which connection.
        connection: ConnectionId,
        /// Message number, counting from zero and wrapping.
        message: u32,
        /// The sender's operation.
        opcode: u8,
        /// Its length, bytes.
        length: u32,
    },
    /// A path stopped carrying packets; it is avoided and probed until [`Event::PathUp`] or [`Event::Closed`].
    PathDown {
        /// Of which connection.
        connection: ConnectionId,
        /// Which path.
        path: PathId,
    },
    /// A path that was down may be used again: it answered a probe, or the connection rests and has forgotten its
    /// paths.
    PathUp {
        /// Of which connection.
        connection: ConnectionId,
        /// Which path.
        path: PathId,
    },
    /// The connection is no more; its id means nothing from here on.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it.
    Local,
    /// The peer closed it.
    Peer,
    /// Neither side had anything to say for the idle time.
    Idle,
    /// The peer stopped answering.
    PeerGone,
    /// The peer does not know the connection: it restarted, or gave up first.
    Reset,
    /// The link it went over is no more, and so is the process at its other end.
    LinkDown,
    /// The peer never answered the request.
    ConnectTimeout,
    /// The peer's packets do not add up to messages.
    ProtocolViolation,
    /// The peer refused: no version in common.
    NoCommonVersion,
    /// The peer refused: it takes no connections, or no more.
    Refused,
    /// One end requires encryption, and the other cannot encrypt.
    NotEncrypted,
    /// The ends have different pre-shared keys, or one does not accept the identity of the other.
    NotAuthentic,
}

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident => $name:literal;)+) => {
        /// Why a packet was refused. Every refusal is counted in [`Stats`](crate::Stats).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason { $($(#[doc = $doc])+ $reason),+ }
        impl DropReason {
            /// Every reason, in the order of the counters.
            pub const ALL: &[Self] = &[$(Self::$reason),+];
            /// The counter's name.
            pub const fn name(self) -> &'static str { match self { $(Self::$reason => $name),+ } }
        }
    };
}

drop_reasons! {
    /// The bytes are no packet of this protocol.
    Malformed => "malformed";
    /// A version this end does not speak, or not the one agreed on.
    UnknownVersion => "unknown_version";
    /// No connection has this id, or it belongs to another address.
    UnknownConnection => "unknown_connection";
    /// The token does not prove the sender's address.
    BadToken => "bad_token";
    /// Placed already, or waiting to be.
    Duplicate => "duplicate";
    /// Past the window this end agreed to keep.
    OutsideWindow => "outside_window";
    /// Not the next packet, under go-back-N.
    OutOfOrder => "out_of_order";
    /// Offset and length do not fit the message, the message changed its length, or is further ahead than the packet.
    BadExtent => "bad_extent";
    /// Acknowledges packets that were never sent.
    AckOfUnsent => "ack_of_unsent";
    /// Says nothing that a later ACK has not said.
    StaleAck => "stale_ack";
    /// Echoes a time that this end never sent.
    BadTimestamp => "bad_timestamp";
    /// Connection management that does not fit the connection's state.
    UnexpectedSetup => "unexpected_setup";
    /// A reset that repeats no number of a packet that this end just sent.
    UnprovenReset => "unproven_reset";
    /// A packet of set-up whose key exchange is refused, or that has none where encryption is required.
    NotAuthentic => "not_authentic";
    /// No room for one more connection.
    TooManyConnections => "too_many_connections";
}
