//! Why bytes are not a header.

use thiserror::Error;

/// Why bytes are not the header they were taken for. Bytes come from anybody: the caller drops the
/// packet and counts it by [`reason`](Self::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Fewer bytes than the header, or the length it states, takes.
    #[error("truncated: the header needs {needed} bytes, got {got}")]
    Truncated {
        /// Bytes needed, from the parser's first byte.
        needed: usize,
        /// Bytes there.
        got: usize,
    },
    /// A packet type that is not in [`PACKET_TYPES`](crate::PACKET_TYPES), or not one the parser
    /// was asked for.
    #[error("unknown packet type {got}")]
    UnknownPacketType {
        /// The number in the packet.
        got: u8,
    },
    /// A data header announces something this version does not know.
    #[error("unknown header {got} after the data header; known: 0 (frame), 1 (message), 2 (RDMA)")]
    UnknownNext {
        /// The number in the packet.
        got: u8,
    },
    /// A frame of the messaging layer that is of no known kind.
    #[error("unknown frame kind {got}")]
    UnknownFrameKind {
        /// The number in the frame.
        got: u8,
    },
    /// Something else than a channel's offer.
    #[error("not an offer of a channel: it begins with {got:#010x}, expected \"WEFT\"")]
    WrongMagic {
        /// The first four bytes.
        got: u32,
    },
    /// An offer of another version.
    #[error("offer of version {got}; known: {known}")]
    UnknownVersion {
        /// The number in the offer.
        got: u8,
        /// What is spoken here.
        known: u8,
    },
    /// An ACK announces more bitmap words than an ACK has room for.
    #[error("bitmap of {words} words; an ACK holds at most 8")]
    BitmapTooLong {
        /// The number in the packet.
        words: u16,
    },
    /// An IP header of another version.
    #[error("IP version {got}, expected {expected}")]
    WrongIpVersion {
        /// What the parser is for.
        expected: u8,
        /// The number in the packet.
        got: u8,
    },
    /// A length field smaller than the header it counts.
    #[error("length field says {got} bytes; the header alone takes {least}")]
    LengthTooSmall {
        /// The smallest length that makes sense.
        least: usize,
        /// The number in the packet.
        got: usize,
    },
    /// An IPv4 option that does not end where the options end.
    #[error("malformed IPv4 option at byte {offset} of the options")]
    MalformedOption {
        /// Where the option begins.
        offset: usize,
    },
    /// The header does not add up to its checksum.
    #[error("checksum is wrong by {residue:#06x}")]
    BadChecksum {
        /// The sum over the header, complemented; zero when it is right.
        residue: u16,
    },
    /// A VXLAN header that names no network.
    #[error("VXLAN flags {flags:#04x} without the I bit: no network is named")]
    NoVni {
        /// The flags in the packet.
        flags: u8,
    },
    /// An encrypted packet of a cipher that is not known.
    #[error("unknown cipher {got}; known: 0 (AES-GCM-128), 1 (AES-GCM-256)")]
    UnknownCipher {
        /// The number in the packet.
        got: u8,
    },
    /// An encrypted packet whose content is not known.
    #[error("unknown sealed content {got}; known: 0 (packet), 1 (frame)")]
    UnknownContent {
        /// The number in the packet.
        got: u8,
    },
    /// A virtio-net header with a kind of super-frame that is not known.
    #[error("unknown virtio-net gso_type {got:#04x}")]
    UnknownGsoType {
        /// The number in the header, with its ECN bit.
        got: u8,
    },
    /// A VXLAN header announces something that is not spoken here.
    #[error("unknown VXLAN next protocol {got:#04x}; known: 0x03 (frame), 0x7e (weft)")]
    UnknownVxlanNext {
        /// The number in the packet.
        got: u8,
    },
}

impl ParseError {
    /// The error with its numbers counted from `offset` bytes before the parser's first byte.
    pub(crate) const fn after(self, offset: usize) -> Self {
        match self {
            Self::Truncated { needed, got } => {
                Self::Truncated { needed: needed + offset, got: got + offset }
            }
            other => other,
        }
    }

    /// A short name for counters: one word a variant, whatever its numbers.
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
