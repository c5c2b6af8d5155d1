//! The messaging layer's frames: what stands before a message's body in every SEND, or on the TCP stream
//! that takes its place (X-RDMA, sections IV and V).

use crate::ParseError;
use crate::spec::{self, Field, Number, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const KIND: Field = Field::new("Kind", 0, 8, "what the frame is, see frame kinds");
    pub(super) const REQUEST: Field = Field::new("Q", 8, 1, "a response is expected");
    pub(super) const RESPONSE: Field = Field::new("S", 9, 1, "answers the request of this id");
    pub(super) const TRACED: Field = Field::new("T", 10, 1, "a trace extension follows");
    pub(super) const RESERVED: Field = Field::new("Reserved", 11, 5, "sent as zero, not read");
    pub(super) const KNOWN: Field = Field::new(
        "Known",
        16,
        16,
        "up to which of its own sequence numbers the sender knows to be acknowledged",
    );
    pub(super) const LENGTH: Field = Field::new("Length", 32, 32, "bytes of the message's body");
    pub(super) const ID: Field =
        Field::new("Id", 64, 64, "of the request that is made or answered; its sender chose it");
}

mod trace {
    use super::Field;

    pub(super) const ID: Field = Field::new("Trace Id", 0, 64, "the same in request and response");
    pub(super) const SENT_AT: Field =
        Field::new("Sent At", 64, 64, "by the sender's clock, ns (T1, and T3 in a response)");
    pub(super) const RECEIVED_AT: Field = Field::new(
        "Received At",
        128,
        64,
        "in a response: when the request came, by the responder's clock, ns (T2)",
    );
}

mod remote {
    use super::Field;

    pub(super) const ADDRESS: Field =
        Field::new("Virtual Address", 0, 64, "where the body lies at the sender");
    pub(super) const KEY: Field = Field::new("R_Key", 64, 32, "of that memory");
    pub(super) const RESERVED: Field = Field::new("Reserved", 96, 32, "sent as zero, not read");
}

mod word {
    use super::Field;

    pub(super) const SEQ: Field =
        Field::new("Seq", 0, 16, "of this frame; of the next one in an ACK frame");
    pub(super) const ACK: Field =
        Field::new("Ack", 16, 16, "all of the peer's frames before this are done with");
}

pub(crate) const SPEC: spec::Header = spec::Header {
    name: "Message frame",
    source: "X-RDMA, sections IV.C and VI.A; the layout is Weft's own",
    about: "Stands at the start of every SEND between two channels, and after the sequence word on TCP.",
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

pub(crate) const TRACE_SPEC: spec::Header = spec::Header {
    name: "Trace extension",
    source: "X-RDMA, section VI.A",
    about: "Follows a message frame whose T bit is set.",
    fields: &[trace::ID, trace::SENT_AT, trace::RECEIVED_AT],
};

pub(crate) const REMOTE_SPEC: spec::Header = spec::Header {
    name: "Remote body",
    source: "X-RDMA, section IV.C",
    about: "Takes the body's place in a frame of kind large; the receiver READs the body from there.",
    fields: &[remote::ADDRESS, remote::KEY, remote::RESERVED],
};

pub(crate) const SEQUENCE_SPEC: spec::Header = spec::Header {
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
        /// What a frame is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameKind { $(#[doc = $meaning] $kind = $value),+ }

        impl FrameKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            const fn from_number(number: u8) -> Option<Self> {
                match number { $($value => Some(Self::$kind),)+ _ => None }
            }

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }
        }

        /// Every kind of frame, for the reference page.
        pub(crate) const FRAME_KINDS: &[Number] =
            &[$(Number { value: $value, name: $name, meaning: $meaning }),+];
    };
}

kinds! {
    Small = 1, "small", "a message whose body follows";
    Large = 2, "large", "a message whose body is to be read from the sender's memory";
    Ack = 3, "ACK", "the sequence word is all it says; has no sequence number of its own";
    Nop = 4, "NOP", "asks for an ACK at once";
    Switch = 5, "switch", "the last frame of this carrier: the next comes by the other one";
    Close = 6, "close", "nothing comes after it";
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameHeader {
    /// What it is.
    pub kind: FrameKind,
    /// Whether and how it is part of a call.
    pub call: Call,
    /// Up to which of its own sequence numbers the sender knows to be acknowledged.
    pub known: u16,
    /// Bytes of the message's body.
    pub length: u32,
    /// Of a traced message.
    pub trace: Option<Trace>,
}

/// Whether and how a message is part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Call {
    /// It is not.
    #[default]
    OneWay,
    /// It asks, under this number.
    Request(u64),
    /// It answers the request of this number.
    Response(u64),
}

impl Call {
    /// The number of a request.
    pub const fn request(self) -> Option<u64> {
        match self {
            Self::Request(id) => Some(id),
            Self::OneWay | Self::Response(_) => None,
        }
    }
}

/// What a traced message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Trace {
    /// The same in request and response.
    pub id: u64,
    /// When it was sent, ns by the sender's clock.
    pub sent_at: u64,
    /// In a response: when the request came, ns by the responder's clock.
    pub received_at: u64,
}

/// Where the body of a large message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RemoteBody {
    /// Its first byte, as the sender's region counts.
    pub address: u64,
    /// The region's key.
    pub rkey: u32,
}

/// The immediate data of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SequenceWord {
    /// The frame's number; an ACK frame has that of the next one.
    pub seq: u16,
    /// All of the peer's frames before this one are done with.
    pub ack: u16,
}

impl FrameHeader {
    /// The header's length without trace, bytes.
    pub const LEN: usize = 4 * ROWS;
    /// The longest header, bytes.
    pub const MAX_LEN: usize = Self::LEN + 4 * TRACE_ROWS;

    /// Splits a frame into header and what follows.
    ///
    /// # Errors
    /// `Truncated` below the header's length, `UnknownFrameKind` for a kind that is none.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let number = field::KIND.read_u8(&rows);
        let kind =
            FrameKind::from_number(number).ok_or(ParseError::UnknownFrameKind { got: number })?;
        let (trace, rest) = if field::TRACED.flag(&rows) {
            let (trace, rest) = Trace::parse(rest).map_err(|error| error.after(Self::LEN))?;
            (Some(trace), rest)
        } else {
            (None, rest)
        };
        let id = field::ID.read_u64(&rows);
        let call = match (field::REQUEST.flag(&rows), field::RESPONSE.flag(&rows)) {
            (_, true) => Call::Response(id),
            (true, false) => Call::Request(id),
            (false, false) => Call::OneWay,
        };
        let known = field::KNOWN.read_u16(&rows);
        let length = field::LENGTH.read(&rows);
        Ok((Self { kind, call, known, length, trace }, rest))
    }

    /// Writes the header over the start of `out` and says how many bytes it took.
    ///
    /// # Panics
    /// If `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut rows = [0; ROWS];
        field::KIND.write(&mut rows, self.kind as u8);
        field::REQUEST.write(&mut rows, matches!(self.call, Call::Request(_)));
        field::RESPONSE.write(&mut rows, matches!(self.call, Call::Response(_)));
        field::TRACED.write(&mut rows, self.trace.is_some());
        field::KNOWN.write(&mut rows, self.known);
        field::LENGTH.write(&mut rows, self.length);
        if let Call::Request(id) | Call::Response(id) = self.call {
            field::ID.write_u64(&mut rows, id);
        }
        let rest = write_rows(out, &rows);
        if let Some(trace) = &self.trace {
            trace.emit(rest);
        }
        self.len()
    }

    /// The header's length, bytes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        if self.trace.is_some() { Self::MAX_LEN } else { Self::LEN }
    }
}

impl Trace {
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
    /// Bytes it takes.
    pub const LEN: usize = 4 * REMOTE_ROWS;

    /// Reads it from where a body would be.
    ///
    /// # Errors
    /// `Truncated` below [`Self::LEN`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (rows, _) = split_rows::<REMOTE_ROWS>(bytes)?;
        Ok(Self { address: remote::ADDRESS.read_u64(&rows), rkey: remote::KEY.read(&rows) })
    }

    /// Writes it over the start of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than [`Self::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; REMOTE_ROWS];
        remote::ADDRESS.write_u64(&mut rows, self.address);
        remote::KEY.write(&mut rows, self.rkey);
        write_rows(out, &rows);
    }
}

impl SequenceWord {
    /// What immediate data says.
    pub const fn from_immediate(word: u32) -> Self {
        let rows = [word];
        Self { seq: word::SEQ.read_u16(&rows), ack: word::ACK.read_u16(&rows) }
    }

    /// As immediate data.
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
            call: [Call::OneWay, Call::Request(id), Call::Response(id)]
                [rng.next_u32() as usize % 3],
            known: SequenceWord::from_immediate(rng.next_u32()).seq,
            length: rng.next_u32(),
            trace: rng.chance(1, 2).then(|| Trace {
                id: rng.next_u64(),
                sent_at: rng.next_u64(),
                received_at: rng.next_u64(),
            }),
        }
    }

    #[test]
    fn every_header_comes_back_with_what_follows() {
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
    fn a_kind_that_is_none_is_named() {
        let mut bytes = [0; FrameHeader::LEN];
        bytes[0] = 9;
        assert_eq!(FrameHeader::parse(&bytes), Err(ParseError::UnknownFrameKind { got: 9 }));
    }
}
