//! An outgoing frame: its fields and the location of its bytes.

use weft_units::Instant;
use weft_wire::{CallRole, FrameHeader, FrameKind, TraceExtension};

use super::Carrier;
use crate::memory::Block;
use crate::verbs::Slice;

/// A frame that waits or is in flight.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) kind: FrameKind,
    pub(crate) call: CallRole,
    /// The message's number, for its owner.
    pub(crate) number: u64,
    /// The length of the message's body in bytes.
    pub(crate) length: u32,
    /// The header, followed by the body if it was copied and is short.
    pub(crate) frame: Block,
    /// A body elsewhere: lent memory, or a block with a copy of a long one.
    pub(crate) body: Option<Body>,
    /// The trace to stamp on the frame.
    pub(crate) trace: Option<Stamp>,
}

/// A body outside its frame.
#[derive(Debug)]
pub(crate) enum Body {
    /// The owner's memory; `Delivered` returns it.
    Lent(Slice),
    /// A copy in the memory cache, and its length in bytes.
    Copied(Block, u32),
}

/// The fields of a trace besides the time of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The number of the traced request.
    pub(crate) id: u64,
    /// The arrival time of the request (T2) in ns; 0 in a request.
    pub(crate) received_at: u64,
}

impl Outgoing {
    /// Returns the frame's header for sending now.
    #[inline(always)]
    pub(super) fn header(&self, now: Instant, known: u16, carrier: Carrier) -> FrameHeader {
        // A stream has no READ: the body follows the header.
        let kind = match (self.kind, carrier) {
            (FrameKind::Large, Carrier::Stream) => FrameKind::Small,
            (kind, _) => kind,
        };
        let trace = self.trace.map(|stamp| TraceExtension {
            id: stamp.id,
            sent_at: now.as_nanos(),
            received_at: stamp.received_at,
        });
        FrameHeader { kind, call: self.call, known, length: self.length, trace }
    }

    /// Returns `true` if it is a message, not a control frame.
    pub(crate) const fn is_message(&self) -> bool {
        matches!(self.kind, FrameKind::Small | FrameKind::Large)
    }

    /// Returns the bytes of its SEND, roughly: the peer READs the body of a large message.
    #[inline]
    pub(crate) fn sent_len(&self) -> u64 {
        let body = if self.kind == FrameKind::Small { self.length } else { 0 };
        u64::try_from(FrameHeader::LEN).expect("a header") + u64::from(body)
    }

    /// Returns the location of the body, lent or copied.
    #[inline]
    pub(crate) fn body_slice(&self) -> Slice {
        match &self.body {
            Some(elsewhere) => elsewhere.slice(),
            None => self.copied_body(),
        }
    }

    /// Returns the location of a body that was copied behind the header.
    #[inline]
    fn copied_body(&self) -> Slice {
        let header = if self.trace.is_some() { FrameHeader::MAX_LEN } else { FrameHeader::LEN };
        let skip = u64::try_from(header).expect("a header");
        let room = self.frame.slice();
        Slice { address: room.address + skip, len: self.length, ..room }
    }
}

impl Body {
    pub(crate) const fn slice(&self) -> Slice {
        match self {
            Self::Lent(slice) => *slice,
            Self::Copied(block, len) => Slice { len: *len, ..block.slice() },
        }
    }
}
