//! The ACK packet header (BIFROST, appendix C.3, figure C4): 32 bytes and up to eight bitmap words.

use crate::ParseError;
use crate::bits::{U3, U4, U5, U6, U11};
use crate::layout::{Field, Header, Number, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const PACKET_TYPE: Field = Field::new("Pkt Type", 0, 8, "2");
    pub(super) const VERSION: Field = Field::new("Version", 8, 4, "protocol version");
    pub(super) const CC_TYPE: Field =
        Field::new("CC Type", 12, 4, "congestion control in use, by its number in the registry");
    pub(super) const SE: Field = Field::new(
        "se",
        16,
        1,
        "answers a special packet (keepalive, path probe) or a trimmed one, or is about credit",
    );
    pub(super) const PATH_ID: Field =
        Field::new("Path ID", 17, 3, "low three bits of the index of the echoed packet's path");
    pub(super) const HOP_COUNT: Field =
        Field::new("Hop Count", 20, 4, "number of hops of the echoed packet, from its TTL");
    pub(super) const BLOCK: Field = Field::new(
        "ACK Value",
        24,
        5,
        "index of the block of 256 packets from PSN_base on that the bitmap describes",
    );
    pub(super) const ACK_TYPE: Field =
        Field::new("ACK Type", 29, 3, "additional information; see ACK types");
    pub(super) const PSN: Field = Field::new(
        "Packet Sequence Number",
        32,
        32,
        "sequence number of the packet that this ACK echoes",
    );
    pub(super) const DESTINATION_CID: Field =
        Field::new("Destination CID", 64, 32, "the data sender's connection id");
    pub(super) const TIMESTAMP: Field = Field::new(
        "Timestamp Value",
        96,
        32,
        "time at which the ACK left its engine (t3), ns of the receiver's clock mod 2^32",
    );
    pub(super) const TIMESTAMP_ECHO: Field =
        Field::new("Timestamp Echo", 128, 32, "the echoed packet's timestamp (t1), unchanged");
    pub(super) const TIMESTAMP_NIC_RX: Field = Field::new(
        "Timestamp NIC RX",
        160,
        32,
        "time at which the echoed packet reached the receiver (t2), ns of its clock mod 2^32",
    );
    pub(super) const NUM_ACK: Field =
        Field::new("Num_ACK", 192, 11, "packets accepted since the connection began, modulo 2^11");
    pub(super) const NUM_ECE: Field =
        Field::new("Num_ece", 203, 11, "of those, packets with a congestion mark, modulo 2^11");
    pub(super) const BITMAP_LEN: Field =
        Field::new("PSN_bitmap_len", 214, 4, "number of bitmap words that follow, 0 to 8");
    pub(super) const RESERVED: Field = Field::new("Reserved", 218, 6, "sent as zero");
    pub(super) const PSN_BASE: Field =
        Field::new("PSN_base", 224, 32, "every packet before this one has been placed");
}

pub(crate) const SPEC: Header = Header {
    name: "ACK packet",
    source: "BIFROST, appendix C.3, figure C4",
    about: "Acknowledges placed packets. Exactly PSN_bitmap_len words of 32 bits follow: bit 0 of word 0 \
            is packet PSN_base + 256 x ACK Value, each further bit the next packet.",
    fields: &[
        field::PACKET_TYPE,
        field::VERSION,
        field::CC_TYPE,
        field::SE,
        field::PATH_ID,
        field::HOP_COUNT,
        field::BLOCK,
        field::ACK_TYPE,
        field::PSN,
        field::DESTINATION_CID,
        field::TIMESTAMP,
        field::TIMESTAMP_ECHO,
        field::TIMESTAMP_NIC_RX,
        field::NUM_ACK,
        field::NUM_ECE,
        field::BITMAP_LEN,
        field::RESERVED,
        field::PSN_BASE,
    ],
};

/// All ACK types with a defined meaning.
pub(crate) const ACK_TYPES: &[Number] = &[
    Number { value: 0, name: "plain", meaning: "no additional information" },
    Number {
        value: 1,
        name: "duplicate",
        meaning: "the echoed packet was already placed: its retransmission was spurious",
    },
    Number {
        value: 2,
        name: "nack",
        meaning: "the echoed packet is too far ahead of PSN_base: requests the missing packets",
    },
    Number {
        value: 3,
        name: "trimmed",
        meaning: "with se: a switch cut the echoed packet to its headers: requests its retransmission",
    },
    Number {
        value: 4,
        name: "trimmed-last-hop",
        meaning: "the same, at the port of the switch that leads to the receiver",
    },
    Number {
        value: 5,
        name: "credit",
        meaning: "with se: PSN is the credit granted since the connection began, in 256 bytes, modulo 2^32",
    },
    Number {
        value: 6,
        name: "credit-request",
        meaning: "with se: PSN is the credit wanted since the connection began, likewise; the sender of data sends it",
    },
];

const ROWS: usize = 8;

/// Number of packets that one bitmap can describe.
pub const BITMAP_PACKETS: u32 = 256;

/// The set of received packets among 256 consecutive ones. The first packet is the most significant
/// bit of the first word, as in the paper's notation `ACK(3|0100)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Bitmap {
    /// Zero from `len` on, so that equal bitmaps are equal values.
    words: [u32; Self::MAX_WORDS],
    len: u8,
}

impl Bitmap {
    /// Maximum number of words in an ACK.
    pub const MAX_WORDS: usize = 8;

    /// Returns a bitmap of the given words.
    ///
    /// # Panics
    /// Panics if there are more than eight.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "more than eight words panic")]
    pub fn from_words(words: &[u32]) -> Self {
        let mut bitmap = Self { words: [0; Self::MAX_WORDS], len: words.len() as u8 };
        bitmap.words[..words.len()].copy_from_slice(words);
        bitmap
    }

    /// Returns the words that the packet carries, at most eight.
    #[inline]
    pub fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.len)]
    }

    /// Sets the bit of packet `index`, extending the bitmap to its word.
    ///
    /// # Panics
    /// Panics if `index` is not below [`BITMAP_PACKETS`].
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a word index is below eight")]
    pub fn set(&mut self, index: u32) {
        assert!(index < BITMAP_PACKETS, "a bitmap describes {BITMAP_PACKETS} packets");
        let word = (index / 32) as usize;
        self.words[word] |= 0x8000_0000 >> (index % 32);
        self.len = self.len.max(word as u8 + 1);
    }

    /// Returns `true` if the bit of packet `index` is set; `false` past the end.
    #[inline]
    pub fn contains(&self, index: u32) -> bool {
        let word = self.words.get((index / 32) as usize).copied().unwrap_or(0);
        word & (0x8000_0000 >> (index % 32)) != 0
    }

    /// Returns the highest index whose bit is set.
    #[inline]
    pub fn last(&self) -> Option<u32> {
        let word = self.words().iter().rposition(|&word| word != 0)?;
        let start = u32::try_from(word).expect("at most eight words") * 32;
        Some(start + 31 - self.words[word].trailing_zeros())
    }

    /// Returns the indices whose bits are set, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words().iter().zip((0u32..).step_by(32)).flat_map(|(&word, start)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let index = rest.leading_zeros();
                rest &= !(0x8000_0000u32.checked_shr(index).unwrap_or(0));
                (index < 32).then_some(start + index)
            })
        })
    }

    /// Returns the bitmap in `bytes`, at most eight words.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most eight words")]
    fn read(bytes: &[u8]) -> Self {
        let chunks = bytes.as_chunks::<4>().0;
        let mut words = [0; Self::MAX_WORDS];
        for (word, chunk) in words.iter_mut().zip(chunks) {
            *word = u32::from_be_bytes(*chunk);
        }
        Self { words, len: chunks.len() as u8 }
    }

    /// Writes the words to `out`, which has their length.
    #[inline]
    fn write(&self, out: &mut [u8]) {
        for (chunk, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(&self.words) {
            *chunk = word.to_be_bytes();
        }
    }
}

/// The header of an ACK packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AckHeader {
    /// Protocol version.
    pub version: U4,
    /// The congestion control in use, by its number in the registry.
    pub cc_type: U4,
    /// `se`: `true` if the ACK acknowledges nothing: it answers a special packet (keepalive, path probe) or a trimmed one,
    /// or is about credit.
    pub special: bool,
    /// Low three bits of the index of the echoed packet's path.
    pub path_id: U3,
    /// Number of hops of the echoed packet, from its TTL.
    pub hop_count: U4,
    /// Index of the block of 256 packets from `psn_base` on that the bitmap describes. The paper uses
    /// only zero; other values make windows of more than 256 packets possible.
    pub block: U5,
    /// Additional information; see `docs/reference/wire.md`.
    pub ack_type: AckType,
    /// Sequence number of the packet that this ACK echoes.
    pub psn: u32,
    /// The data sender's connection id.
    pub destination_cid: u32,
    /// Time at which the ACK left its engine (t3), in nanoseconds of the receiver's clock modulo 2^32.
    pub timestamp: u32,
    /// The echoed packet's timestamp (t1), unchanged.
    pub timestamp_echo: u32,
    /// Time at which the echoed packet reached the receiver (t2), in nanoseconds of its clock modulo 2^32.
    pub timestamp_nic_rx: u32,
    /// Number of packets accepted since the connection began, modulo 2^11.
    pub num_ack: U11,
    /// Number of accepted packets with a congestion mark, modulo 2^11.
    pub num_ece: U11,
    /// The reserved bits, sent as zero.
    pub reserved: U6,
    /// Every packet before this sequence number has been placed.
    pub psn_base: u32,
    /// The placed packets from `psn_base + 256 * block` on.
    pub bitmap: Bitmap,
}

/// The additional information in an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum AckType {
    /// No additional information.
    #[default]
    Plain,
    /// The echoed packet was already placed: its retransmission was spurious.
    Duplicate,
    /// The echoed packet is too far ahead of `psn_base`: requests the missing packets.
    Nack,
    /// With `special`: a switch cut the echoed packet to its headers, which alone arrived: requests its retransmission (Ultra Ethernet
    /// 1.0.3, section 4.1: TRIMMED).
    Trimmed,
    /// The same, where the last switch cut it, so that other paths are no better (TRIMMED_LASTHOP).
    TrimmedLastHop,
    /// With `special`: `psn` is the credit granted since the connection began, in units of 256 bytes modulo 2^32 (Ultra
    /// Ethernet 1.0.3, section 3.6.14).
    Credit,
    /// With `special`: `psn` is the credit that the sender of data wants since the connection began, likewise.
    CreditRequest,
    /// A number without a meaning in this version; treated as plain.
    Other(U3),
}

impl AckHeader {
    /// Length without bitmap in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Length with the longest bitmap in bytes.
    pub const MAX_LEN: usize = Self::LEN + 4 * Bitmap::MAX_WORDS;

    /// The packet type on the wire.
    pub const PACKET_TYPE: u8 = 2;

    /// Splits `bytes` into header and rest. Any version is accepted: the endpoint decides which
    /// versions it supports.
    ///
    /// # Errors
    /// Returns `Truncated` if bytes of header or bitmap are missing, `UnknownPacketType` unless it is
    /// an ACK, `BitmapTooLong` if it announces more than eight words.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let packet_type = field::PACKET_TYPE.read_u8(&rows);
        if packet_type != Self::PACKET_TYPE {
            return Err(ParseError::UnknownPacketType { got: packet_type });
        }
        let words = field::BITMAP_LEN.read_u16(&rows);
        if usize::from(words) > Bitmap::MAX_WORDS {
            return Err(ParseError::BitmapTooLong { words });
        }
        let bitmap_len = 4 * usize::from(words);
        let Some((bitmap, rest)) = rest.split_at_checked(bitmap_len) else {
            return Err(ParseError::Truncated { needed: Self::LEN + bitmap_len, got: bytes.len() });
        };
        let header = Self {
            version: U4::truncate(field::VERSION.read(&rows)),
            cc_type: U4::truncate(field::CC_TYPE.read(&rows)),
            special: field::SE.flag(&rows),
            path_id: U3::truncate(field::PATH_ID.read(&rows)),
            hop_count: U4::truncate(field::HOP_COUNT.read(&rows)),
            block: U5::truncate(field::BLOCK.read(&rows)),
            ack_type: AckType::from_number(U3::truncate(field::ACK_TYPE.read(&rows))),
            psn: field::PSN.read(&rows),
            destination_cid: field::DESTINATION_CID.read(&rows),
            timestamp: field::TIMESTAMP.read(&rows),
            timestamp_echo: field::TIMESTAMP_ECHO.read(&rows),
            timestamp_nic_rx: field::TIMESTAMP_NIC_RX.read(&rows),
            num_ack: U11::truncate(field::NUM_ACK.read(&rows)),
            num_ece: U11::truncate(field::NUM_ECE.read(&rows)),
            reserved: U6::truncate(field::RESERVED.read(&rows)),
            psn_base: field::PSN_BASE.read(&rows),
            bitmap: Bitmap::read(bitmap),
        };
        Ok((header, rest))
    }

    /// Writes the header over the first [`header_len`](Self::header_len) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; ROWS];
        field::PACKET_TYPE.write(&mut rows, Self::PACKET_TYPE);
        field::VERSION.write(&mut rows, self.version);
        field::CC_TYPE.write(&mut rows, self.cc_type);
        field::SE.write(&mut rows, self.special);
        field::PATH_ID.write(&mut rows, self.path_id);
        field::HOP_COUNT.write(&mut rows, self.hop_count);
        field::BLOCK.write(&mut rows, self.block);
        field::ACK_TYPE.write(&mut rows, self.ack_type.number());
        field::PSN.write(&mut rows, self.psn);
        field::DESTINATION_CID.write(&mut rows, self.destination_cid);
        field::TIMESTAMP.write(&mut rows, self.timestamp);
        field::TIMESTAMP_ECHO.write(&mut rows, self.timestamp_echo);
        field::TIMESTAMP_NIC_RX.write(&mut rows, self.timestamp_nic_rx);
        field::NUM_ACK.write(&mut rows, self.num_ack);
        field::NUM_ECE.write(&mut rows, self.num_ece);
        field::BITMAP_LEN.write(&mut rows, self.bitmap.len);
        field::RESERVED.write(&mut rows, self.reserved);
        field::PSN_BASE.write(&mut rows, self.psn_base);
        let rest = write_rows(out, &rows);
        self.bitmap.write(&mut rest[..4 * usize::from(self.bitmap.len)]);
    }

    /// Returns the sequence number of the packet that the bitmap's first bit describes.
    #[inline]
    pub const fn first_of_bitmap(&self) -> u32 {
        self.psn_base.wrapping_add(BITMAP_PACKETS * self.block.get() as u32)
    }

    /// Returns the length of header and bitmap in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN + 4 * self.bitmap.len as usize
    }
}

impl AckType {
    /// Returns the number on the wire.
    #[inline]
    pub const fn number(self) -> U3 {
        match self {
            Self::Plain => U3::truncate(0),
            Self::Duplicate => U3::truncate(1),
            Self::Nack => U3::truncate(2),
            Self::Trimmed => U3::truncate(3),
            Self::TrimmedLastHop => U3::truncate(4),
            Self::Credit => U3::truncate(5),
            Self::CreditRequest => U3::truncate(6),
            Self::Other(number) => number,
        }
    }

    /// Returns the type with this number; [`Other`](Self::Other) only for a number without a meaning.
    #[inline]
    pub const fn from_number(number: U3) -> Self {
        match number.get() {
            0 => Self::Plain,
            1 => Self::Duplicate,
            2 => Self::Nack,
            3 => Self::Trimmed,
            4 => Self::TrimmedLastHop,
            5 => Self::Credit,
            6 => Self::CreditRequest,
            _ => Self::Other(number),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
