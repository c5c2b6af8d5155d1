//! A frame that leaves: what it is made of, and where its bytes are.

use weft_units::Instant;
use weft_wire::{Call, FrameHeader, FrameKind, Trace};

use super::Carrier;
use crate::memory::Block;
use crate::verbs::Slice;

/// A frame that waits or is under way.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) kind: FrameKind,
    pub(crate) call: Call,
    /// Number of the message, for its owner.
    pub(crate) number: u64,
    /// Bytes of the message's body.
    pub(crate) length: u32,
    /// The header, and the body where it was copied and is short.
    pub(crate) frame: Block,
    /// The body elsewhere: memory that was lent, or a block that a long one was copied to.
    pub(crate) body: Option<Body>,
    /// Stamp the frame with a trace.
    pub(crate) trace: Option<Stamp>,
}

/// A body that is not in its frame.
#[derive(Debug)]
pub(crate) enum Body {
    /// The owner's memory; it is told when it may use it again.
    Lent(Slice),
    /// A copy in the memory cache.
    Copied(Block, u32),
}

/// What a traced frame says besides the time it leaves at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) id: u64,
    pub(crate) received_at: u64,
}

impl Outgoing {
    /// The frame's header, as it leaves now.
    pub(super) fn header(&self, now: Instant, known: u16, carrier: Carrier) -> FrameHeader {
        // There is nothing to READ through on a stream: the body follows.
        let kind = match (self.kind, carrier) {
            (FrameKind::Large, Carrier::Stream) => FrameKind::Small,
            (kind, _) => kind,
        };
        let trace = self.trace.map(|stamp| Trace {
            id: stamp.id,
            sent_at: now.as_nanos(),
            received_at: stamp.received_at,
        });
        FrameHeader { kind, call: self.call, known, length: self.length, trace }
    }

    /// Where the body is, lent or copied.
    pub(crate) fn at(&self) -> Slice {
        match &self.body {
            Some(elsewhere) => elsewhere.slice(),
            None => self.copied_body(),
        }
    }

    /// The body that was copied behind the header.
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
