//! The offer that each end of a channel sends to the other before the channel exists: 64 bytes in each
//! direction, over TCP or any other means (X-RDMA, section IV.D, step 1).

use core::net::Ipv6Addr;

use crate::ParseError;
use crate::bits::U24;
use crate::layout::{Field, Header, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const MAGIC: Field = Field::new("Magic", 0, 32, "\"WEFT\"");
    pub(super) const VERSION: Field =
        Field::new("Version", 32, 8, "version of frames and offer: 1");
    pub(super) const SHARED: Field = Field::new(
        "S",
        40,
        1,
        "the sender's channels share a receive queue, which may be empty: the peer retries after an RNR NAK",
    );
    pub(super) const RESERVED_FLAGS: Field =
        Field::new("Reserved", 41, 23, "sent as zero, not read");
    pub(super) const ATTEMPT: Field = Field::new(
        "Attempt",
        64,
        8,
        "after RDMA broke: the number of the attempt to return to it, which the answer repeats; otherwise 0",
    );
    pub(super) const QP: Field = Field::new("QP", 72, 24, "the sender's queue pair");
    pub(super) const RESERVED_PSN: Field = Field::new("Reserved", 96, 8, "sent as zero, not read");
    pub(super) const PSN: Field = Field::new("PSN", 104, 24, "the first PSN that the sender uses");
    pub(super) const GID_HIGH: Field = Field::new(
        "GID, high half",
        128,
        64,
        "the address of the sender's port, as an IPv6 address",
    );
    pub(super) const GID_LOW: Field =
        Field::new("GID, low half", 192, 64, "the low half of that address");
    pub(super) const DEPTH: Field =
        Field::new("Depth", 256, 16, "number of unacknowledged frames that the sender accepts");
    pub(super) const ACK_FRAMES: Field = Field::new(
        "ACK Frames",
        272,
        16,
        "number of ACK frames that the sender accepts in addition",
    );
    pub(super) const SMALL: Field =
        Field::new("Small", 288, 32, "longest body that the sender accepts in a frame, bytes");
    pub(super) const LONGEST: Field =
        Field::new("Longest", 320, 32, "longest message that the sender accepts, bytes");
    pub(super) const RESERVED: Field = Field::new("Reserved", 352, 32, "sent as zero, not read");
    pub(super) const TOKEN: Field = Field::new(
        "Token",
        384,
        64,
        "unguessable name of the channel at its sender: a peer that presents it may move the channel to TCP",
    );
    pub(super) const RESERVED_END: Field =
        Field::new("Reserved", 448, 64, "sent as zero, not read");
}

pub(crate) const SPEC: Header = Header {
    name: "Channel offer",
    source: "Weft's own, in place of RDMA_CM in X-RDMA (section IV.D)",
    about: "The client sends its offer first and the server answers with its own; both are untrusted.",
    fields: &[
        field::MAGIC,
        field::VERSION,
        field::SHARED,
        field::RESERVED_FLAGS,
        field::ATTEMPT,
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

/// The parameters that one end of a channel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelOffer {
    /// The sender's queue pair.
    pub qp: U24,
    /// The first PSN that the sender uses.
    pub psn: U24,
    /// Address of the sender's port.
    pub gid: Ipv6Addr,
    /// Number of unacknowledged frames that the sender accepts.
    pub depth: u16,
    /// Number of ACK frames that the sender accepts in addition.
    pub ack_frames: u16,
    /// Longest body that the sender accepts in a frame, in bytes.
    pub small: u32,
    /// Longest message that the sender accepts, in bytes.
    pub longest: u32,
    /// The channel's name at its sender; a secret of the two ends.
    pub token: u64,
    /// The number of the attempt to return to RDMA, which the answer repeats; 0 in the offers that begin a channel.
    pub attempt: u8,
    /// `true` if the sender's channels share a receive queue, which may be empty.
    pub shared: bool,
}

impl ChannelOffer {
    /// Length in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Parses an offer; bytes after it are ignored.
    ///
    /// # Errors
    /// Returns `Truncated` below [`Self::LEN`] bytes, `WrongMagic` for another protocol,
    /// `UnknownVersion` for another version.
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
            attempt: field::ATTEMPT.read_u8(&rows),
            shared: field::SHARED.read(&rows) == 1,
        })
    }

    /// Returns the offer as bytes.
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
        field::ATTEMPT.write(&mut rows, self.attempt);
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
                attempt: word[3],
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
    fn another_protocol_or_version_is_refused_with_its_number() {
        let magic = u32::from_be_bytes(*b"GET ");
        let mut bytes = [b' '; ChannelOffer::LEN];
        bytes[..4].copy_from_slice(b"GET ");
        assert_eq!(ChannelOffer::parse(&bytes), Err(ParseError::WrongMagic { got: magic }));
        bytes[..5].copy_from_slice(b"WEFT\x02");
        let error = ChannelOffer::parse(&bytes).unwrap_err();
        assert_eq!(error, ParseError::UnknownVersion { got: 2, known: 1 });
    }
}
