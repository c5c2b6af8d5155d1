//! What two ends of a channel tell each other before they have one: 64 bytes each way, over TCP or by any
//! other means (X-RDMA, section IV.D, step 1).

use core::net::Ipv6Addr;

use crate::ParseError;
use crate::bits::U24;
use crate::spec::{self, Field, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const MAGIC: Field = Field::new("Magic", 0, 32, "\"WEFT\"");
    pub(super) const VERSION: Field = Field::new("Version", 32, 8, "of frames and offer: 1");
    pub(super) const SHARED: Field = Field::new(
        "S",
        40,
        1,
        "its channels share a receive queue: it may not be ready, and is to be asked again",
    );
    pub(super) const RESERVED_FLAGS: Field =
        Field::new("Reserved", 41, 23, "sent as zero, not read");
    pub(super) const RESERVED_QP: Field = Field::new("Reserved", 64, 8, "sent as zero, not read");
    pub(super) const QP: Field = Field::new("QP", 72, 24, "the sender's queue pair");
    pub(super) const RESERVED_PSN: Field = Field::new("Reserved", 96, 8, "sent as zero, not read");
    pub(super) const PSN: Field = Field::new("PSN", 104, 24, "the first it will send");
    pub(super) const GID_HIGH: Field = Field::new(
        "GID, high half",
        128,
        64,
        "the address of the sender's port, as an IPv6 address",
    );
    pub(super) const GID_LOW: Field = Field::new("GID, low half", 192, 64, "its other half");
    pub(super) const DEPTH: Field =
        Field::new("Depth", 256, 16, "frames it takes before it has acknowledged any");
    pub(super) const ACK_FRAMES: Field =
        Field::new("ACK Frames", 272, 16, "ACK frames it takes besides");
    pub(super) const SMALL: Field =
        Field::new("Small", 288, 32, "bytes of the longest body it takes in a frame");
    pub(super) const LONGEST: Field =
        Field::new("Longest", 320, 32, "bytes of the longest message it takes");
    pub(super) const RESERVED: Field = Field::new("Reserved", 352, 32, "sent as zero, not read");
    pub(super) const TOKEN: Field = Field::new(
        "Token",
        384,
        64,
        "names the channel at its sender, which nobody can guess: whoever shows it may take the channel to TCP",
    );
    pub(super) const RESERVED_END: Field =
        Field::new("Reserved", 448, 64, "sent as zero, not read");
}

pub(crate) const SPEC: spec::Header = spec::Header {
    name: "Channel offer",
    source: "Weft's own, for what X-RDMA leaves to RDMA_CM (section IV.D)",
    about: "The client's comes first, the server answers with its own; neither is trusted.",
    fields: &[
        field::MAGIC,
        field::VERSION,
        field::SHARED,
        field::RESERVED_FLAGS,
        field::RESERVED_QP,
        field::QP,
        field::RESERVED_PSN,
        field::PSN,
        field::GID_HIGH,
        field::GID_LOW,
        field::DEPTH,
        field::ACK_FRAMES,
        field::SMALL,
        field::LONGEST,
        field::RESERVED,
        field::TOKEN,
        field::RESERVED_END,
    ],
};

const ROWS: usize = 16;
const MAGIC: u32 = u32::from_be_bytes(*b"WEFT");
const VERSION: u8 = 1;

/// One end of a channel, as it describes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelOffer {
    /// Its queue pair.
    pub qp: U24,
    /// The first PSN it will send.
    pub psn: U24,
    /// The address of its port.
    pub gid: Ipv6Addr,
    /// Frames it takes before it has acknowledged any.
    pub depth: u16,
    /// ACK frames it takes besides.
    pub ack_frames: u16,
    /// Bytes of the longest body it takes in a frame.
    pub small: u32,
    /// Bytes of the longest message it takes.
    pub longest: u32,
    /// Names the channel there; a secret of both ends.
    pub token: u64,
    /// Its channels share a receive queue: it may not be ready.
    pub shared: bool,
}

impl ChannelOffer {
    /// Bytes it takes.
    pub const LEN: usize = 4 * ROWS;

    /// Reads an offer.
    ///
    /// # Errors
    /// `Truncated` below [`Self::LEN`] bytes; `WrongMagic` for what speaks something else,
    /// `UnknownVersion` for what speaks another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (rows, _) = split_rows::<ROWS>(bytes)?;
        let magic = field::MAGIC.read(&rows);
        if magic != MAGIC {
            return Err(ParseError::WrongMagic { got: magic });
        }
        let version = field::VERSION.read_u8(&rows);
        if version != VERSION {
            return Err(ParseError::UnknownVersion { got: version, known: VERSION });
        }
        let gid = [field::GID_HIGH.read_u64(&rows), field::GID_LOW.read_u64(&rows)];
        Ok(Self {
            qp: U24::truncate(field::QP.read(&rows)),
            psn: U24::truncate(field::PSN.read(&rows)),
            gid: Ipv6Addr::from_bits(u128::from(gid[0]) << 64 | u128::from(gid[1])),
            depth: field::DEPTH.read_u16(&rows),
            ack_frames: field::ACK_FRAMES.read_u16(&rows),
            small: field::SMALL.read(&rows),
            longest: field::LONGEST.read(&rows),
            token: field::TOKEN.read_u64(&rows),
            shared: field::SHARED.read(&rows) == 1,
        })
    }

    /// The offer as bytes.
    #[expect(clippy::cast_possible_truncation, reason = "the halves of an address")]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut rows = [0; ROWS];
        field::MAGIC.write(&mut rows, MAGIC);
        field::VERSION.write(&mut rows, VERSION);
        field::QP.write(&mut rows, self.qp);
        field::PSN.write(&mut rows, self.psn);
        field::GID_HIGH.write_u64(&mut rows, (self.gid.to_bits() >> 64) as u64);
        field::GID_LOW.write_u64(&mut rows, self.gid.to_bits() as u64);
        field::DEPTH.write(&mut rows, self.depth);
        field::ACK_FRAMES.write(&mut rows, self.ack_frames);
        field::SMALL.write(&mut rows, self.small);
        field::LONGEST.write(&mut rows, self.longest);
        field::TOKEN.write_u64(&mut rows, self.token);
        field::SHARED.write(&mut rows, u32::from(self.shared));
        let mut bytes = [0; Self::LEN];
        write_rows(&mut bytes, &rows);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn every_offer_comes_back() {
        let mut rng = Seed(1).child("offer", 0).rng();
        for _ in 0..1000 {
            let word = rng.next_u32().to_be_bytes();
            let offer = ChannelOffer {
                qp: U24::truncate(rng.next_u32()),
                psn: U24::truncate(rng.next_u32()),
                gid: Ipv6Addr::from_bits(
                    u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()),
                ),
                depth: u16::from_be_bytes([word[0], word[1]]),
                ack_frames: u16::from_be_bytes([word[2], word[3]]),
                small: rng.next_u32(),
                longest: rng.next_u32(),
                token: rng.next_u64(),
                shared: rng.chance(1, 2),
            };
            let bytes = offer.emit();
            assert_eq!(ChannelOffer::parse(&bytes), Ok(offer));
            let got = rng.next_u32() as usize % bytes.len();
            let truncated = ParseError::Truncated { needed: ChannelOffer::LEN, got };
            assert_eq!(ChannelOffer::parse(&bytes[..got]), Err(truncated));
        }
    }

    #[test]
    fn what_speaks_something_else_is_named() {
        let magic = u32::from_be_bytes(*b"GET ");
        let mut bytes = [b' '; ChannelOffer::LEN];
        bytes[..4].copy_from_slice(b"GET ");
        assert_eq!(ChannelOffer::parse(&bytes), Err(ParseError::WrongMagic { got: magic }));
        bytes[..5].copy_from_slice(b"WEFT\x02");
        let error = ChannelOffer::parse(&bytes).unwrap_err();
        assert_eq!(error, ParseError::UnknownVersion { got: 2, known: 1 });
    }
}
