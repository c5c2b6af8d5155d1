//! The IPv4 header (RFC 791, section 3.1). `parse` checks the header checksum and `emit` computes it, so
//! it is not part of the value.

use core::net::Ipv4Addr;

use crate::bits::{U2, U6, U13};
use crate::checksum::{Checksum, PseudoHeader};
use crate::layout::{Field, Header, split_rows, write_rows};
use crate::{Ecn, ParseError};

mod field {
    use super::Field;

    pub(super) const VERSION: Field = Field::new("Version", 0, 4, "4");
    pub(super) const IHL: Field =
        Field::new("IHL", 4, 4, "length of the header with its options, words of 32 bits");
    pub(super) const DSCP: Field =
        Field::new("DSCP", 8, 6, "forwarding class of the packet (RFC 2474)");
    pub(super) const ECN: Field = Field::new("ECN", 14, 2, "congestion notification (RFC 3168)");
    pub(super) const TOTAL_LENGTH: Field =
        Field::new("Total Length", 16, 16, "length of header and payload, bytes");
    pub(super) const IDENTIFICATION: Field =
        Field::new("Identification", 32, 16, "equal in all fragments of a packet");
    pub(super) const RESERVED: Field = Field::new("Reserved", 48, 1, "sent as zero, not read");
    pub(super) const DF: Field = Field::new("DF", 49, 1, "routers may not fragment the packet");
    pub(super) const MF: Field = Field::new("MF", 50, 1, "more fragments follow");
    pub(super) const FRAGMENT_OFFSET: Field = Field::new(
        "Fragment Offset",
        51,
        13,
        "offset of this fragment in the packet, units of 8 bytes",
    );
    pub(super) const TTL: Field =
        Field::new("TTL", 64, 8, "number of routers that the packet may still pass");
    pub(super) const PROTOCOL: Field =
        Field::new("Protocol", 72, 8, "protocol of the payload: 17 UDP");
    pub(super) const CHECKSUM: Field =
        Field::new("Header Checksum", 80, 16, "checksum of the header with its options");
    pub(super) const SOURCE: Field = Field::new("Source Address", 96, 32, "address of the sender");
    pub(super) const DESTINATION: Field =
        Field::new("Destination Address", 128, 32, "address of the receiver");
}

pub(crate) const SPEC: Header = Header {
    name: "IPv4",
    source: "RFC 791, section 3.1",
    about: "Up to 40 bytes of options follow; they are kept, and rejected if their lengths are invalid.",
    fields: &[
        field::VERSION,
        field::IHL,
        field::DSCP,
        field::ECN,
        field::TOTAL_LENGTH,
        field::IDENTIFICATION,
        field::RESERVED,
        field::DF,
        field::MF,
        field::FRAGMENT_OFFSET,
        field::TTL,
        field::PROTOCOL,
        field::CHECKSUM,
        field::SOURCE,
        field::DESTINATION,
    ],
};

const ROWS: usize = 5;
const VERSION: u8 = 4;

/// The header of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Header {
    /// Forwarding class of the packet (RFC 2474).
    pub dscp: U6,
    /// Congestion notification (RFC 3168).
    pub ecn: Ecn,
    /// Length of the payload in bytes; header and payload are at most 65,535.
    pub payload_len: u16,
    /// A number that is equal in all fragments of a packet.
    pub identification: u16,
    /// `true` if routers may not fragment the packet.
    pub dont_fragment: bool,
    /// `true` if this is a fragment and not the last.
    pub more_fragments: bool,
    /// Offset of this fragment in its packet, in units of 8 bytes.
    pub fragment_offset: U13,
    /// Number of routers that the packet may still pass.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Address of the sender.
    pub source: Ipv4Addr,
    /// Address of the receiver.
    pub destination: Ipv4Addr,
    /// The header's options.
    pub options: Ipv4Options,
}

/// The options of an IPv4 header: up to ten words of 32 bits whose option lengths are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Options {
    /// The options; zero past the end, so that equal options are equal values.
    bytes: [u8; Self::MAX_LEN],
    words: u8,
}

impl Ipv4Header {
    /// Length of the header without options in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Length of the header with the longest options in bytes.
    pub const MAX_LEN: usize = Self::LEN + Ipv4Options::MAX_LEN;

    /// Splits `bytes` into header and payload; bytes past the packet's length, such as Ethernet's
    /// padding, are ignored.
    ///
    /// # Errors
    /// Returns `Truncated` if bytes of header or payload are missing, `WrongIpVersion` unless it is 4,
    /// `LengthTooSmall` if a length does not cover the header, `BadChecksum` or `MalformedOption`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, _) = split_rows::<ROWS>(bytes)?;
        let version = field::VERSION.read_u8(&rows);
        if version != VERSION {
            return Err(ParseError::WrongIpVersion { expected: VERSION, got: version });
        }
        let header_len = 4 * usize::from(field::IHL.read_u8(&rows));
        if header_len < Self::LEN {
            return Err(ParseError::LengthTooSmall { min: Self::LEN, got: header_len });
        }
        let Some((header, rest)) = bytes.split_at_checked(header_len) else {
            return Err(ParseError::Truncated { needed: header_len, got: bytes.len() });
        };
        let residue = Checksum::new().with(header).finish();
        if residue != 0 {
            return Err(ParseError::BadChecksum { residue });
        }
        let payload_len = payload_len(field::TOTAL_LENGTH.read_u16(&rows), header_len)?;
        let Some(payload) = rest.get(..usize::from(payload_len)) else {
            let needed = header_len + usize::from(payload_len);
            return Err(ParseError::Truncated { needed, got: bytes.len() });
        };
        let header = Self {
            dscp: U6::truncate(field::DSCP.read(&rows)),
            ecn: Ecn::from_number(U2::truncate(field::ECN.read(&rows))),
            payload_len,
            identification: field::IDENTIFICATION.read_u16(&rows),
            dont_fragment: field::DF.flag(&rows),
            more_fragments: field::MF.flag(&rows),
            fragment_offset: U13::truncate(field::FRAGMENT_OFFSET.read(&rows)),
            ttl: field::TTL.read_u8(&rows),
            protocol: field::PROTOCOL.read_u8(&rows),
            source: Ipv4Addr::from_bits(field::SOURCE.read(&rows)),
            destination: Ipv4Addr::from_bits(field::DESTINATION.read(&rows)),
            options: Ipv4Options::read(&header[Self::LEN..])?,
        };
        Ok((header, payload))
    }

    /// Writes the header over the first [`header_len`](Self::header_len) bytes of `out`, with its
    /// checksum.
    ///
    /// # Panics
    /// Panics if `out` is shorter, or if header and payload exceed 65,535 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let words = 5 + self.options.words;
        let total_len = self
            .payload_len
            .checked_add(4 * u16::from(words))
            .expect("header and payload are at most 65,535 bytes");
        let mut rows = [0; ROWS];
        field::VERSION.write(&mut rows, VERSION);
        field::IHL.write(&mut rows, words);
        field::DSCP.write(&mut rows, self.dscp);
        field::ECN.write(&mut rows, self.ecn.number());
        field::TOTAL_LENGTH.write(&mut rows, total_len);
        field::IDENTIFICATION.write(&mut rows, self.identification);
        field::DF.write(&mut rows, self.dont_fragment);
        field::MF.write(&mut rows, self.more_fragments);
        field::FRAGMENT_OFFSET.write(&mut rows, self.fragment_offset);
        field::TTL.write(&mut rows, self.ttl);
        field::PROTOCOL.write(&mut rows, self.protocol);
        field::SOURCE.write(&mut rows, self.source.to_bits());
        field::DESTINATION.write(&mut rows, self.destination.to_bits());
        let out = &mut out[..self.header_len()];
        write_rows(out, &rows).copy_from_slice(self.options.as_bytes());
        let checksum = Checksum::new().with(out).finish();
        out[field::CHECKSUM.bytes()].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Returns the length of the header with its options in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN + self.options.as_bytes().len()
    }

    /// Returns the pseudo header for the checksum of a transport in this packet.
    pub const fn pseudo_header(&self) -> PseudoHeader {
        PseudoHeader::V4 { source: self.source, destination: self.destination }
    }
}

/// Returns the payload length of a packet of `total_len` bytes with a header of `header_len`, at most 60, bytes.
fn payload_len(total_len: u16, header_len: usize) -> Result<u16, ParseError> {
    let Some(payload_len) = usize::from(total_len).checked_sub(header_len) else {
        let got = usize::from(total_len);
        return Err(ParseError::LengthTooSmall { min: header_len, got });
    };
    Ok(u16::try_from(payload_len).expect("less than a total length"))
}

impl Ipv4Options {
    /// Maximum length of the options in bytes.
    pub const MAX_LEN: usize = 40;

    /// The empty options.
    pub const NONE: Self = Self { bytes: [0; Self::MAX_LEN], words: 0 };

    /// Returns the concatenated `options`, each with its type and length (RFC 791, section 3.1), padded
    /// with zeros to whole words; `None` if a length is invalid or they exceed
    /// [`MAX_LEN`](Self::MAX_LEN) bytes.
    pub fn new(options: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX_LEN];
        bytes.get_mut(..options.len())?.copy_from_slice(options);
        Self::read(&bytes[..options.len().next_multiple_of(4)]).ok()
    }

    /// Returns the options as bytes on the wire.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8] {
        self.bytes.split_at(4 * self.words as usize).0
    }

    /// Parses `options`, which are whole words, at most ten.
    #[expect(clippy::cast_possible_truncation, reason = "at most ten words")]
    fn read(options: &[u8]) -> Result<Self, ParseError> {
        let mut offset = 0;
        while let Some(&kind) = options.get(offset) {
            const END: u8 = 0;
            const NO_OPERATION: u8 = 1;
            let rest = options.len() - offset;
            let len = match kind {
                END => rest,
                NO_OPERATION => 1,
                _ => options.get(offset + 1).map_or(0, |&len| usize::from(len)),
            };
            if len > rest || (len < 2 && kind > NO_OPERATION) {
                return Err(ParseError::MalformedOption { offset });
            }
            offset += len;
        }
        let mut bytes = [0; Self::MAX_LEN];
        bytes[..options.len()].copy_from_slice(options);
        Ok(Self { bytes, words: (options.len() / 4) as u8 })
    }
}

impl Default for Ipv4Options {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests;
