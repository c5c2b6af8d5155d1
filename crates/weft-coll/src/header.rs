//! The header of each message of a group.

use weft_plan::collective::DataType;

use crate::{Call, Collective, Op};

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 48;

/// The first bytes of a header: a name and a version, which identify messages of other programs.
const MAGIC: [u8; 3] = *b"wc\x02";

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A piece of a chunk, which a step of a schedule sends.
    Data,
    /// The sender's progress only.
    Progress,
    /// The assignment of blocks to a channel.
    Assign,
    /// The sender's failure; the body is the reason.
    Abort,
    /// The sender's oldest call has stopped (a count of 1), or goes on (0).
    Stalled,
}

const KINDS: [Kind; 5] = [Kind::Data, Kind::Progress, Kind::Assign, Kind::Abort, Kind::Stalled];

/// The header of a message. Integers are little-endian.
///
/// | bytes | field |
/// | --- | --- |
/// | 0–2 | `wc` and the version, 2 |
/// | 3 | kind |
/// | 4–6 | collective, data type, reduction: indices in their lists |
/// | 7 | channel |
/// | 8–11 | root |
/// | 12–15 | block of the call, or first block of an assignment |
/// | 16–23 | elements of each rank's buffer |
/// | 24–31 | call number |
/// | 32–39 | blocks of this channel that the sender has finished |
/// | 40–43 | number of assigned blocks; for a report of a stop, 1 or 0 |
/// | 44–47 | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: Kind,
    /// The sender's call.
    pub call: Call,
    /// The call's number.
    pub number: u64,
    /// The block, or the first block of an assignment.
    pub block: u32,
    /// Number of assigned blocks.
    pub count: u32,
    /// The channel of the message, or of the assignment.
    pub channel: u8,
    /// Number of blocks of this channel that the sender has finished.
    pub done: u64,
}

/// An error in the header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The message is shorter than a header.
    #[error("{0} bytes are shorter than a header of {HEADER_LEN}")]
    Short(usize),
    /// The message does not start with the name and version.
    #[error("the message is not from a group, or has another version")]
    Magic,
    /// A field has an undefined value.
    #[error("{what} {got} is unknown")]
    Unknown {
        /// The field.
        what: &'static str,
        /// The value.
        got: u8,
    },
    /// The number of elements exceeds this machine's address space.
    #[error("{0} elements exceed the address space")]
    Large(u64),
}

/// Returns the index of a value in the list of all values.
fn index_of<T: PartialEq>(value: &T, all: &[T]) -> u8 {
    let index = all.iter().position(|one| one == value).expect("a list of all");
    u8::try_from(index).expect("short lists")
}

/// Returns the value at an index of the list of all values.
///
/// # Errors
/// Returns `Unknown` if the list is shorter.
fn value_at<T: Copy>(what: &'static str, got: u8, all: &[T]) -> Result<T, HeaderError> {
    all.get(usize::from(got)).copied().ok_or(HeaderError::Unknown { what, got })
}

impl Header {
    /// Returns the encoded header.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let Call { collective, data_type, op, root, elements } = self.call;
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = index_of(&self.kind, &KINDS);
        bytes[4] = index_of(&collective, Collective::ALL);
        bytes[5] = index_of(&data_type, &DataType::ALL);
        bytes[6] = index_of(&op, &Op::ALL);
        bytes[7] = self.channel;
        bytes[8..12].copy_from_slice(&u32::try_from(root).unwrap_or(u32::MAX).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.block.to_le_bytes());
        bytes[16..24].copy_from_slice(&(elements as u64).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.done.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Parses the header of a message and returns it with the body.
    ///
    /// # Errors
    /// Returns the first fault of the header.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(HeaderError::Short(bytes.len()));
        };
        if header[..3] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let short = |from: usize| {
            u32::from_le_bytes(header[from..from + 4].try_into().expect("four bytes"))
        };
        let long = |from: usize| {
            u64::from_le_bytes(header[from..from + 8].try_into().expect("eight bytes"))
        };
        let elements = long(16);
        let call = Call {
            collective: value_at("collective", header[4], Collective::ALL)?,
            data_type: value_at("data type", header[5], &DataType::ALL)?,
            op: value_at("reduction", header[6], &Op::ALL)?,
            root: usize::try_from(short(8)).map_err(|_| HeaderError::Large(elements))?,
            elements: usize::try_from(elements).map_err(|_| HeaderError::Large(elements))?,
        };
        let header = Self {
            kind: value_at("kind", header[3], &KINDS)?,
            call,
            number: long(24),
            block: short(12),
            count: short(40),
            channel: header[7],
            done: long(32),
        };
        Ok((header, body))
    }
}
