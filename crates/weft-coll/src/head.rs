//! What stands before the body of each message of a group.

use weft_plan::collective::DataType;

use crate::{Call, Collective, Op};

/// Bytes of a head.
pub const HEAD: usize = 48;

/// First bytes of a head: a name and a version, so that another program's message is known for what it is.
const MAGIC: [u8; 3] = *b"wc\x01";

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A piece of a chunk: what a schedule's step sends.
    Data,
    /// How far its sender is; nothing else.
    Progress,
    /// Which channel takes the next blocks.
    Assign,
    /// Its sender cannot go on; the body says why.
    GiveUp,
}

const KINDS: [Kind; 4] = [Kind::Data, Kind::Progress, Kind::Assign, Kind::GiveUp];

/// The head of a message. Numbers are little-endian.
///
/// | bytes | what |
/// | --- | --- |
/// | 0–2 | `wc` and the version, 1 |
/// | 3 | kind |
/// | 4–6 | collective, data type, reduction: places in their lists |
/// | 7 | channel |
/// | 8–11 | root |
/// | 12–15 | block of the call, or the first of those assigned |
/// | 16–23 | elements of each rank's buffer |
/// | 24–31 | number of the call |
/// | 32–39 | blocks of this channel that the sender is done with |
/// | 40–43 | blocks assigned |
/// | 44–47 | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is for.
    pub kind: Kind,
    /// What its sender asks for in this call.
    pub call: Call,
    /// The call's number.
    pub number: u64,
    /// Which block.
    pub block: u32,
    /// How many, where they are assigned.
    pub count: u32,
    /// Which channel: of the message, or that blocks are assigned to.
    pub channel: u8,
    /// Blocks of that channel that the sender is done with.
    pub done: u64,
}

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// They are too few.
    #[error("{0} bytes are too few for a head of {HEAD}")]
    Short(usize),
    /// They begin otherwise.
    #[error("it is no message of a group, or of another version")]
    Magic,
    /// A number stands for nothing.
    #[error("{what} {got} is unknown")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// The number.
        got: u8,
    },
    /// A number is too large for this machine.
    #[error("{0} elements are more than memory has")]
    Large(u64),
}

fn place<T: PartialEq>(of: &T, all: &[T]) -> u8 {
    let place = all.iter().position(|one| one == of).expect("a list of all");
    u8::try_from(place).expect("short lists")
}

fn at<T: Copy>(what: &'static str, got: u8, all: &[T]) -> Result<T, HeadError> {
    all.get(usize::from(got)).copied().ok_or(HeadError::Unknown { what, got })
}

impl Head {
    /// Its bytes.
    pub fn emit(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let Call { collective, data_type, op, root, elements } = self.call;
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = place(&self.kind, &KINDS);
        bytes[4] = place(&collective, Collective::ALL);
        bytes[5] = place(&data_type, &DataType::ALL);
        bytes[6] = place(&op, &Op::ALL);
        bytes[7] = self.channel;
        bytes[8..12].copy_from_slice(&u32::try_from(root).unwrap_or(u32::MAX).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.block.to_le_bytes());
        bytes[16..24].copy_from_slice(&(elements as u64).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.done.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Reads the head of a message; its body is the rest.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), HeadError> {
        let Some((head, body)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(HeadError::Short(bytes.len()));
        };
        if head[..3] != MAGIC {
            return Err(HeadError::Magic);
        }
        let short =
            |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().expect("four bytes"));
        let long =
            |from: usize| u64::from_le_bytes(head[from..from + 8].try_into().expect("eight bytes"));
        let elements = long(16);
        let call = Call {
            collective: at("collective", head[4], Collective::ALL)?,
            data_type: at("data type", head[5], &DataType::ALL)?,
            op: at("reduction", head[6], &Op::ALL)?,
            root: usize::try_from(short(8)).map_err(|_| HeadError::Large(elements))?,
            elements: usize::try_from(elements).map_err(|_| HeadError::Large(elements))?,
        };
        let head = Self {
            kind: at("kind", head[3], &KINDS)?,
            call,
            number: long(24),
            block: short(12),
            count: short(40),
            channel: head[7],
            done: long(32),
        };
        Ok((head, body))
    }
}
