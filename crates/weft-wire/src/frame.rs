//! The headers of the messaging layer's frames, which precede a message's body in every SEND, or on the TCP
//! stream that replaces RDMA (X-RDMA, sections IV and V).

use crate::ParseError;
use crate::layout::{Field, Header, Number, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const KIND: Field = Field::new("Kind", 0, 8, "kind of the frame; see Frame kinds");
    pub(super) const REQUEST: Field = Field::new("Q", 8, 1, "a response is expected");
    pub(super) const RESPONSE: Field =
        Field::new("S", 9, 1, "the message is the response to the request with this id");
    pub(super) const TRACED: Field = Field::new("T", 10, 1, "a trace extension follows");
    pub(super) const RESERVED: Field = Field::new("Reserved", 11, 5, "sent as zero, not read");
    pub(super) const KNOWN: Field = Field::new(
        "Known",
        16,
        16,
        "the sender knows that its own frames before this number are acknowledged",
    );
    pub(super) const LENGTH: Field =
        Field::new("Length", 32, 32, "length of the message's body, bytes");
    pub(super) const ID: Field = Field::new(
        "Id",
        64,
        64,
        "id of the request, or of the request that is answered; chosen by the requester",
    );
}

mod trace {
    use super::Field;

    pub(super) const ID: Field =
        Field::new("Trace Id", 0, 64, "id of the trace, equal in request and response");
    pub(super) const SENT_AT: Field = Field::new(
        "Sent At",
        64,
        64,
        "time of sending by the sender's clock, ns (T1; T3 in a response)",
    );
    pub(super) const RECEIVED_AT: Field = Field::new(
        "Received At",
        128,
        64,
        "in a response: time of the request's arrival by the responder's clock, ns (T2)",
    );
}

mod remote {
    use super::Field;

    pub(super) const ADDRESS: Field =
        Field::new("Virtual Address", 0, 64, "address of the body in the sender's memory");
    pub(super) const KEY: Field = Field::new("R_Key", 64, 32, "key of that memory");
    pub(super) const RESERVED: Field = Field::new("Reserved", 96, 32, "sent as zero, not read");
}

mod word {
    use super::Field;

    pub(super) const SEQ: Field = Field::new(
        "Seq",
        0,
        16,
        "sequence number of this frame; in an ACK frame, of the next frame",
    );
    pub(super) const ACK: Field =
        Field::new("Ack", 16, 16, "every frame of the peer before this number has been processed");
}

pub(crate) const SPEC: Header = Header {
    name: "Message frame",
    source: "X-RDMA, sections IV.C and VI.A; the layout is Weft's own",
    about: "Begins every SEND between two channels, and follows the sequence word on TCP.",
    fields: &[
        field::KIND,
        field::REQUEST,
        field::RESPONSE,
        field::TRACED,
        field::RESERVED,
        field::KNOWN,
        field::LENGTH,
        field::ID,
    ],
};

pub(crate) const TRACE_SPEC: Header = Header {
    name: "Trace extension",
    source: "X-RDMA, section VI.A",
    about: "Follows a message frame whose T bit is set.",
    fields: &[trace::ID, trace::SENT_AT, trace::RECEIVED_AT],
};

pub(crate) const REMOTE_SPEC: Header = Header {
    name: "Remote body",
    source: "X-RDMA, section IV.C",
    about: "Replaces the body in a frame of kind large; the receiver fetches the body with an RDMA READ.",
    fields: &[remote::ADDRESS, remote::KEY, remote::RESERVED],
};

pub(crate) const SEQUENCE_SPEC: Header = Header {
    name: "Sequence word",
    source: "X-RDMA, section V.B and algorithm 1",
    about: "The immediate data of every SEND between two channels.",
    fields: &[word::SEQ, word::ACK],
};

const ROWS: usize = 4;
const TRACE_ROWS: usize = 6;
const REMOTE_ROWS: usize = 4;

macro_rules! kinds {
    ($($kind:ident = $value:literal, $name:literal, $meaning:literal;)+) => {
        /// The kind of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameKind { $(#[doc = $meaning] $kind = $value),+ }

        impl FrameKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            const fn from_number(number: u8) -> Option<Self> {
                match number { $($value => Some(Self::$kind),)+ _ => None }
            }

            /// Returns the kind's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }
        }

        /// All kinds of frames, for the reference page.
        pub(crate) const FRAME_KINDS: &[Number] =
            &[$(Number { value: $value, name: $name, meaning: $meaning }),+];
    };
}

kinds! {
    Small = 1, "small", "a message whose body follows";
    Large = 2, "large", "a message whose body the receiver reads from the sender's memory";
    Ack = 3, "ACK", "carries only the sequence word; uses no sequence number";
    Nop = 4, "NOP", "requests an immediate ACK";
    Switch = 5, "switch", "the last frame on this carrier (RDMA or TCP): the next comes on the other";
    Close = 6, "close", "the last frame of the channel";
    Offer = 7, "offer", "on TCP after RDMA broke: a channel offer follows, of a new queue pair";
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameHeader {
    /// The frame's kind.
    pub kind: FrameKind,
    /// The message's role in a call.
    pub call: CallRole,
    /// The sender knows that its own frames before this number are acknowledged.
    pub known: u16,
    /// Length of the message's body in bytes.
    pub length: u32,
    /// The trace extension, if the message is traced.
    pub trace: Option<TraceExtension>,
}

/// The role of a message in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CallRole {
    /// The message is not part of a call.
    #[default]
    OneWay,
    /// The message is a request with this id.
    Request(u64),
    /// The message is the response to the request with this id.
    Response(u64),
}

impl CallRole {
    /// Returns the id of a request; `None` for other messages.
    pub const fn request(self) -> Option<u64> {
        match self {
            Self::Request(id) => Some(id),
            Self::OneWay | Self::Response(_) => None,
        }
    }
}

/// The trace extension of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TraceExtension {
    /// Id of the trace, equal in request and response.
    pub id: u64,
    /// Time of sending, in nanoseconds by the sender's clock.
    pub sent_at: u64,
    /// In a response: time of the request's arrival, in nanoseconds by the responder's clock.
    pub received_at: u64,
}

/// The location of a large message's body in the sender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RemoteBody {
    /// Virtual address of the first byte, in the sender's memory region.
    pub address: u64,
    /// Remote key of the region.
    pub rkey: u32,
}

/// The immediate data of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SequenceWord {
    /// Sequence number of the frame; in an ACK frame, of the next frame.
    pub seq: u16,
    /// Every frame of the peer before this number has been processed.
    pub ack: u16,
}

impl FrameHeader {
    /// Length of the header without trace extension in bytes.
    pub const LEN: usize = 4 * ROWS;
    /// Length of the longest header in bytes.
    pub const MAX_LEN: usize = Self::LEN + 4 * TRACE_ROWS;

    /// Splits a frame into header and rest. A frame that is marked as both request and response is a response.
    ///
    /// # Errors
    /// Returns `Truncated` below the header's length, `UnknownFrameKind` for an undefined kind.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let number = field::KIND.read_u8(&rows);
        let kind =
            FrameKind::from_number(number).ok_or(ParseError::UnknownFrameKind { got: number })?;
        let (trace, rest) = if field::TRACED.flag(&rows) {
            let (trace, rest) =
                TraceExtension::parse(rest).map_err(|error| error.after(Self::LEN))?;
            (Some(trace), rest)
        } else {
            (None, rest)
        };
        let id = field::ID.read_u64(&rows);
        let call = match (field::REQUEST.flag(&rows), field::RESPONSE.flag(&rows)) {
            (_, true) => CallRole::Response(id),
            (true, false) => CallRole::Request(id),
            (false, false) => CallRole::OneWay,
        };
        let known = field::KNOWN.read_u16(&rows);
        let length = field::LENGTH.read(&rows);
        Ok((Self { kind, call, known, length, trace }, rest))
    }

    /// Writes the header over the start of `out` and returns its length in bytes.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut rows = [0; ROWS];
        field::KIND.write(&mut rows, self.kind as u8);
        field::REQUEST.write(&mut rows, matches!(self.call, CallRole::Request(_)));
        field::RESPONSE.write(&mut rows, matches!(self.call, CallRole::Response(_)));
        field::TRACED.write(&mut rows, self.trace.is_some());
        field::KNOWN.write(&mut rows, self.known);
        field::LENGTH.write(&mut rows, self.length);
        if let CallRole::Request(id) | CallRole::Response(id) = self.call {
            field::ID.write_u64(&mut rows, id);
        }
        let rest = write_rows(out, &rows);
        if let Some(trace) = &self.trace {
            trace.emit(rest);
        }
        self.len()
    }

    /// Returns the header's length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        if self.trace.is_some() { Self::MAX_LEN } else { Self::LEN }
    }
}

impl TraceExtension {
    fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<TRACE_ROWS>(bytes)?;
        let trace = Self {
            id: trace::ID.read_u64(&rows),
            sent_at: trace::SENT_AT.read_u64(&rows),
            received_at: trace::RECEIVED_AT.read_u64(&rows),
        };
        Ok((trace, rest))
    }

    fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; TRACE_ROWS];
        trace::ID.write_u64(&mut rows, self.id);
        trace::SENT_AT.write_u64(&mut rows, self.sent_at);
        trace::RECEIVED_AT.write_u64(&mut rows, self.received_at);
        write_rows(out, &rows);
    }
}

impl RemoteBody {
    /// Length in bytes.
    pub const LEN: usize = 4 * REMOTE_ROWS;

    /// Parses the location, which replaces the body in a frame of kind large.
    ///
    /// # Errors
    /// Returns `Truncated` below [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (rows, _) = split_rows::<REMOTE_ROWS>(bytes)?;
        Ok(Self { address: remote::ADDRESS.read_u64(&rows), rkey: remote::KEY.read(&rows) })
    }

    /// Writes the location over the start of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; REMOTE_ROWS];
        remote::ADDRESS.write_u64(&mut rows, self.address);
        remote::KEY.write(&mut rows, self.rkey);
        write_rows(out, &rows);
    }
}

impl SequenceWord {
    /// Returns the sequence word in immediate data.
    pub const fn from_immediate(word: u32) -> Self {
        let rows = [word];
        Self { seq: word::SEQ.read_u16(&rows), ack: word::ACK.read_u16(&rows) }
    }

    /// Returns the sequence word as immediate data.
    pub fn immediate(self) -> u32 {
        let mut rows = [0];
        word::SEQ.write(&mut rows, self.seq);
        word::ACK.write(&mut rows, self.ack);
        rows[0]
    }
}

#[cfg(test)]
mod tests {
    use weft_units::{Rng, Seed};

    use super::*;

    fn sample(rng: &mut Rng) -> FrameHeader {
        let id = rng.next_u64();
        FrameHeader {
            kind: FrameKind::ALL[rng.next_u32() as usize % FrameKind::ALL.len()],
            call: [CallRole::OneWay, CallRole::Request(id), CallRole::Response(id)]
                [rng.next_u32() as usize % 3],
            known: SequenceWord::from_immediate(rng.next_u32()).seq,
            length: rng.next_u32(),
            trace: rng.chance(1, 2).then(|| TraceExtension {
                id: rng.next_u64(),
                sent_at: rng.next_u64(),
                received_at: rng.next_u64(),
            }),
        }
    }

    #[test]
    fn every_header_comes_back_with_the_bytes_after_it() {
        let mut rng = Seed(1).child("frame", 0).rng();
        for _ in 0..10_000 {
            let header = sample(&mut rng);
            let mut bytes = [0x5a; FrameHeader::MAX_LEN + 3];
            let len = header.emit(&mut bytes);
            assert_eq!(FrameHeader::parse(&bytes[..len + 3]), Ok((header, &[0x5a; 3][..])));
            for got in 0..len {
                let error = FrameHeader::parse(&bytes[..got]).unwrap_err();
                assert!(matches!(error, ParseError::Truncated { .. }), "{error}");
            }
        }
    }

    #[test]
    fn every_word_and_every_remote_body_comes_back() {
        let mut rng = Seed(2).child("frame", 0).rng();
        for _ in 0..1000 {
            let word = rng.next_u32();
            assert_eq!(SequenceWord::from_immediate(word).immediate(), word);
            let body = RemoteBody { address: rng.next_u64(), rkey: rng.next_u32() };
            let mut bytes = [0; RemoteBody::LEN];
            body.emit(&mut bytes);
            assert_eq!(RemoteBody::parse(&bytes), Ok(body));
            assert!(RemoteBody::parse(&bytes[1..]).is_err());
        }
        assert_eq!(SequenceWord { seq: 1, ack: 2 }.immediate(), 0x0001_0002);
    }

    #[test]
    fn an_unknown_kind_is_refused_with_its_number() {
        let mut bytes = [0; FrameHeader::LEN];
        bytes[0] = 9;
        assert_eq!(FrameHeader::parse(&bytes), Err(ParseError::UnknownFrameKind { got: 9 }));
    }
}
