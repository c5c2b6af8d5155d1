//! The connection establishment packet header (BIFROST, appendix C.2, figure C3): 12 bytes, and the
//! extension with the terms that the two ends negotiate.

use crate::ParseError;
use crate::bits::U4;
use crate::layout::{Field, Header, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const PACKET_TYPE: Field = Field::new("Pkt Type", 0, 8, "3 to 8");
    pub(super) const VERSION: Field = Field::new(
        "Version",
        8,
        4,
        "highest version that the sender supports; in an accept, the chosen version",
    );
    pub(super) const CC_TYPE: Field = Field::new(
        "CC Type",
        12,
        4,
        "congestion control of the sender, by its number in the registry",
    );
    pub(super) const THREAD_ID: Field = Field::new(
        "Thread ID",
        16,
        8,
        "the sender's thread, which should receive the peer's packets",
    );
    pub(super) const REASON: Field = Field::new(
        "Reserved",
        24,
        8,
        "the reason of a reject or a close; in a request and an accept, log2 of the number of connections that are about to send to the sender; in a reset, the field that Destination CID echoes: 1 a data packet's PSN, 2 an ACK's PSN_base, 3 a probe's timestamp, 4 an accept's First PSN, 5 a sealed packet's IV; zero otherwise",
    );
    pub(super) const LOCAL_CID: Field =
        Field::new("Local CID", 32, 32, "the sender's connection id");
    pub(super) const DESTINATION_CID: Field = Field::new(
        "Destination CID",
        64,
        32,
        "the receiver's connection id; zero while unknown; in a reset, the echoed field of the packet that it answers",
    );

    pub(super) const CAPABILITIES: Field = Field::new(
        "Capabilities",
        0,
        32,
        "the sender's capabilities, one bit for each; both ends use the intersection",
    );
    pub(super) const FIRST_PSN: Field =
        Field::new("First PSN", 32, 32, "sequence number of the sender's first packet");
    pub(super) const MTU: Field =
        Field::new("MTU", 64, 16, "largest payload that the sender accepts in one packet, bytes");
    pub(super) const WINDOW: Field = Field::new(
        "Window",
        80,
        16,
        "number of packets that the sender accepts out of order, from the first missing one",
    );
    pub(super) const PATHS: Field =
        Field::new("Paths", 96, 16, "number of paths over which the sender sprays");
    pub(super) const RECEIVE_PORT: Field =
        Field::new("Receive Port", 112, 16, "UDP port on which the sender receives");
    pub(super) const SERVICE: Field = Field::new(
        "Service",
        128,
        32,
        "purpose of the connection, as a number of the application; for connected queue pairs the responder, for datagrams 2^31",
    );
    pub(super) const SERVICE_HIGH: Field = Field::new(
        "Service, high part",
        160,
        24,
        "the high 24 bits of that number; for connected queue pairs the requester",
    );
    pub(super) const MIN_VERSION: Field =
        Field::new("Min Version", 184, 8, "lowest version that the sender supports");
    pub(super) const TOKEN: Field =
        Field::new("Token", 192, 64, "proof of address: zero at first, then the challenge's token");
}

pub(crate) const SPEC: Header = Header {
    name: "Connection set-up packet",
    source: "BIFROST, appendix C.2, figure C3",
    about: "Opens, refuses and ends connections. The byte that the paper reserves carries a reason, \
            or the load in a request and an accept. \
            In request, challenge and accept the terms below follow; bytes after them are reserved \
            for later versions and not read.",
    fields: &[
        field::PACKET_TYPE,
        field::VERSION,
        field::CC_TYPE,
        field::THREAD_ID,
        field::REASON,
        field::LOCAL_CID,
        field::DESTINATION_CID,
    ],
};

pub(crate) const TERMS_SPEC: Header = Header {
    name: "Terms",
    source: "Weft's own, not in the paper",
    about: "Follows the set-up header of a request, a challenge and an accept.",
    fields: &[
        field::CAPABILITIES,
        field::FIRST_PSN,
        field::MTU,
        field::WINDOW,
        field::PATHS,
        field::RECEIVE_PORT,
        field::SERVICE,
        field::SERVICE_HIGH,
        field::MIN_VERSION,
        field::TOKEN,
    ],
};

const ROWS: usize = 3;
const TERMS_ROWS: usize = 8;

/// The kind of a connection-management packet. The discriminants are the packet types on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SetupKind {
    /// Requests a connection; retransmitted with the token from a challenge.
    Request = 3,
    /// Carries the token that the next request must return to prove its address. The acceptor keeps no state.
    Challenge = 4,
    /// Accepts the connection.
    Accept = 5,
    /// The connection is refused, for `reason`.
    Reject = 6,
    /// The connection ends, for `reason`.
    Close = 7,
    /// The sender has no such connection: `local_cid` is the unknown id.
    Reset = 8,
}

/// The header of a connection-management packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetupHeader {
    /// The kind of packet.
    pub kind: SetupKind,
    /// The highest version that the sender supports; in an accept, the chosen version.
    pub version: U4,
    /// Congestion control of the sender, by its number in the registry.
    pub cc_type: U4,
    /// The sender's thread, which should receive the peer's packets (BIFROST 5.2, flow redirect).
    pub thread_id: u8,
    /// The reason of a reject or a close. In a request and an accept, 2^`reason` connections are about to send to
    /// the sender, and the receiver sizes its initial window for them. In a reset, the field that `destination_cid`
    /// echoes. Zero otherwise.
    pub reason: u8,
    /// The sender's connection id.
    pub local_cid: u32,
    /// The receiver's connection id; zero while unknown. In a reset, the echoed field of the packet that it answers.
    pub destination_cid: u32,
    /// The terms, which request, challenge and accept carry.
    pub terms: Option<SetupParameters>,
}

/// The parameters that the ends of a connection exchange at set-up: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SetupParameters {
    /// The sender's capabilities, one bit for each; both ends use the intersection.
    pub capabilities: u32,
    /// Sequence number of the sender's first packet.
    pub first_psn: u32,
    /// Largest payload that the sender accepts in one packet, in bytes.
    pub mtu: u16,
    /// Number of packets that the sender accepts out of order, from the first missing one.
    pub window: u16,
    /// Number of paths over which the sender sprays.
    pub paths: u16,
    /// UDP port on which the sender receives.
    pub receive_port: u16,
    /// Purpose of the connection, as a number of the application below 2^56.
    pub service: u64,
    /// The lowest version that the sender supports.
    pub min_version: u8,
    /// Proof of address: zero at first, then the challenge's token.
    pub token: u64,
}

impl SetupKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Request, Self::Challenge, Self::Accept, Self::Reject, Self::Close, Self::Reset];

    /// Returns the packet type on the wire.
    #[inline]
    pub const fn packet_type(self) -> u8 {
        self as u8
    }

    /// Returns `true` if packets of this kind carry [`SetupParameters`].
    #[inline]
    pub const fn carries_terms(self) -> bool {
        matches!(self, Self::Request | Self::Challenge | Self::Accept)
    }

    /// Returns the kind of this packet type; `None` if it is not connection management.
    #[inline]
    pub const fn from_packet_type(packet_type: u8) -> Option<Self> {
        Some(match packet_type {
            3 => Self::Request,
            4 => Self::Challenge,
            5 => Self::Accept,
            6 => Self::Reject,
            7 => Self::Close,
            8 => Self::Reset,
            _ => return None,
        })
    }
}

impl SetupHeader {
    /// Length without terms in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Splits `bytes` into header and rest. Any version is accepted: the endpoint decides which
    /// versions it supports.
    ///
    /// # Errors
    /// Returns `Truncated` if bytes are missing, `UnknownPacketType` unless it is connection
    /// management.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let packet_type = field::PACKET_TYPE.read_u8(&rows);
        let Some(kind) = SetupKind::from_packet_type(packet_type) else {
            return Err(ParseError::UnknownPacketType { got: packet_type });
        };
        let (terms, rest) = if kind.carries_terms() {
            let (terms, rest) =
                SetupParameters::parse(rest).map_err(|error| error.after(Self::LEN))?;
            (Some(terms), rest)
        } else {
            (None, rest)
        };
        let header = Self {
            kind,
            version: U4::truncate(field::VERSION.read(&rows)),
            cc_type: U4::truncate(field::CC_TYPE.read(&rows)),
            thread_id: field::THREAD_ID.read_u8(&rows),
            reason: field::REASON.read_u8(&rows),
            local_cid: field::LOCAL_CID.read(&rows),
            destination_cid: field::DESTINATION_CID.read(&rows),
            terms,
        };
        Ok((header, rest))
    }

    /// Writes the header over the first [`header_len`](Self::header_len) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter, or if the presence of `terms` does not match the kind.
    pub fn emit(&self, out: &mut [u8]) {
        assert_eq!(
            self.terms.is_some(),
            self.kind.carries_terms(),
            "only request, challenge and accept carry terms; this is {:?}",
            self.kind
        );
        let mut rows = [0; ROWS];
        field::PACKET_TYPE.write(&mut rows, self.kind.packet_type());
        field::VERSION.write(&mut rows, self.version);
        field::CC_TYPE.write(&mut rows, self.cc_type);
        field::THREAD_ID.write(&mut rows, self.thread_id);
        field::REASON.write(&mut rows, self.reason);
        field::LOCAL_CID.write(&mut rows, self.local_cid);
        field::DESTINATION_CID.write(&mut rows, self.destination_cid);
        let rest = write_rows(out, &rows);
        if let Some(terms) = &self.terms {
            terms.emit(rest);
        }
    }

    /// Returns the length of header and terms in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        if self.kind.carries_terms() { Self::LEN + SetupParameters::LEN } else { Self::LEN }
    }
}

impl SetupParameters {
    /// Length in bytes.
    pub const LEN: usize = 4 * TERMS_ROWS;

    /// Splits `bytes` into terms and rest.
    ///
    /// # Errors
    /// Returns `Truncated` below [`LEN`](Self::LEN) bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<TERMS_ROWS>(bytes)?;
        let terms = Self {
            capabilities: field::CAPABILITIES.read(&rows),
            first_psn: field::FIRST_PSN.read(&rows),
            mtu: field::MTU.read_u16(&rows),
            window: field::WINDOW.read_u16(&rows),
            paths: field::PATHS.read_u16(&rows),
            receive_port: field::RECEIVE_PORT.read_u16(&rows),
            service: u64::from(field::SERVICE_HIGH.read(&rows)) << 32
                | u64::from(field::SERVICE.read(&rows)),
            min_version: field::MIN_VERSION.read_u8(&rows),
            token: field::TOKEN.read_u64(&rows),
        };
        Ok((terms, rest))
    }

    /// Writes the terms over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter, or if the service is 2^56 or more.
    pub fn emit(&self, out: &mut [u8]) {
        assert!(self.service < 1 << 56, "service {:#x} has more than 56 bits", self.service);
        let mut rows = [0; TERMS_ROWS];
        field::CAPABILITIES.write(&mut rows, self.capabilities);
        field::FIRST_PSN.write(&mut rows, self.first_psn);
        field::MTU.write(&mut rows, self.mtu);
        field::WINDOW.write(&mut rows, self.window);
        field::PATHS.write(&mut rows, self.paths);
        field::RECEIVE_PORT.write(&mut rows, self.receive_port);
        let (service_high, service) = split(self.service);
        field::SERVICE.write(&mut rows, service);
        field::SERVICE_HIGH.write(&mut rows, service_high);
        field::MIN_VERSION.write(&mut rows, self.min_version);
        field::TOKEN.write_u64(&mut rows, self.token);
        write_rows(out, &rows);
    }

    /// Returns the length of the terms in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }
}

/// Returns the high and the low 32 bits of a number.
#[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
pub(crate) const fn split(number: u64) -> (u32, u32) {
    ((number >> 32) as u32, number as u32)
}

#[cfg(test)]
pub(crate) mod tests;
