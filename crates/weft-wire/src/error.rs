//! The errors of the parsers.

use thiserror::Error;

/// An error of a header's parser. Bytes are untrusted: the caller drops the packet and counts the drop by
/// [`reason`](Self::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// There are fewer bytes than the header, or the length it states, needs.
    #[error("truncated: the header needs {needed} bytes, got {got}")]
    Truncated {
        /// Number of bytes needed, from the parser's first byte.
        needed: usize,
        /// Number of bytes given.
        got: usize,
    },
    /// The packet type is not in [`PACKET_TYPES`](crate::PACKET_TYPES), or not a type of this parser.
    #[error("unknown packet type {got}")]
    UnknownPacketType {
        /// The number in the packet.
        got: u8,
    },
    /// The data header announces a next header that this version does not support.
    #[error("unknown header {got} after the data header; known: 0 (frame), 1 (message), 2 (RDMA)")]
    UnknownNext {
        /// The number in the packet.
        got: u8,
    },
    /// The frame of the messaging layer has no known kind.
    #[error("unknown frame kind {got}")]
    UnknownFrameKind {
        /// The number in the frame.
        got: u8,
    },
    /// The bytes are not a channel's offer.
    #[error("not an offer of a channel: it begins with {got:#010x}, expected \"WEFT\"")]
    WrongMagic {
        /// The first four bytes.
        got: u32,
    },
    /// The offer has another version.
    #[error("offer of version {got}; known: {known}")]
    UnknownVersion {
        /// The number in the offer.
        got: u8,
        /// The supported version.
        known: u8,
    },
    /// The ACK announces more bitmap words than an ACK can hold.
    #[error("bitmap of {words} words; an ACK holds at most 8")]
    BitmapTooLong {
        /// The number in the packet.
        words: u16,
    },
    /// The IP header has another version.
    #[error("IP version {got}, expected {expected}")]
    WrongIpVersion {
        /// The parser's version.
        expected: u8,
        /// The number in the packet.
        got: u8,
    },
    /// The length field is smaller than the header that it includes.
    #[error("length field says {got} bytes; the header alone takes {min}")]
    LengthTooSmall {
        /// The minimum length.
        min: usize,
        /// The number in the packet.
        got: usize,
    },
    /// The lengths of the IPv4 options are invalid.
    #[error("malformed IPv4 option at byte {offset} of the options")]
    MalformedOption {
        /// Offset of the invalid option in the options, in bytes.
        offset: usize,
    },
    /// The checksum is wrong.
    #[error("checksum is wrong by {residue:#06x}")]
    BadChecksum {
        /// The complement of the sum; zero if the checksum is right.
        residue: u16,
    },
    /// The VXLAN header has no valid VNI.
    #[error("VXLAN flags {flags:#04x} without the I bit: no network is named")]
    NoVni {
        /// The flags in the packet.
        flags: u8,
    },
    /// The encrypted packet has an unknown cipher.
    #[error("unknown cipher {got}; known: 0 (AES-GCM-128), 1 (AES-GCM-256)")]
    UnknownCipher {
        /// The number in the packet.
        got: u8,
    },
    /// The encrypted packet has an unknown content type.
    #[error("unknown sealed content {got}; known: 0 (packet), 1 (frame)")]
    UnknownContent {
        /// The number in the packet.
        got: u8,
    },
    /// The virtio-net header has an unknown `gso_type`.
    #[error("unknown virtio-net gso_type {got:#04x}")]
    UnknownGsoType {
        /// The number in the header, with its ECN bit.
        got: u8,
    },
    /// The VXLAN header announces an unsupported next protocol.
    #[error("unknown VXLAN next protocol {got:#04x}; known: 0x03 (frame), 0x7e (weft)")]
    UnknownVxlanNext {
        /// The number in the packet.
        got: u8,
    },
}

impl ParseError {
    /// Returns the error with its numbers counted from `offset` bytes before the parser's first byte.
    pub(crate) const fn after(self, offset: usize) -> Self {
        match self {
            Self::Truncated { needed, got } => {
                Self::Truncated { needed: needed + offset, got: got + offset }
            }
            other => other,
        }
    }

    /// Returns a short name for counters: one word for each variant, independent of its numbers.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::UnknownPacketType { .. } => "unknown_packet_type",
            Self::UnknownNext { .. } => "unknown_next",
            Self::UnknownFrameKind { .. } => "unknown_frame_kind",
            Self::WrongMagic { .. } => "wrong_magic",
            Self::UnknownVersion { .. } => "unknown_version",
            Self::BitmapTooLong { .. } => "bitmap_too_long",
            Self::WrongIpVersion { .. } => "wrong_ip_version",
            Self::LengthTooSmall { .. } => "length_too_small",
            Self::MalformedOption { .. } => "malformed_option",
            Self::BadChecksum { .. } => "bad_checksum",
            Self::NoVni { .. } => "no_vni",
            Self::UnknownCipher { .. } => "unknown_cipher",
            Self::UnknownContent { .. } => "unknown_content",
            Self::UnknownGsoType { .. } => "unknown_gso_type",
            Self::UnknownVxlanNext { .. } => "unknown_vxlan_next",
        }
    }
}
