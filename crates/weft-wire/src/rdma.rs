//! The RDMA extension header: the destination queue pair and memory of a message. It has 24 bytes after the
//! message header, and 16 more with an atomic's operands.

mod opcode;
mod operation;

use crate::ParseError;
use crate::bits::U24;
use crate::layout::{Field, Header, split_rows, write_rows};

pub(crate) use opcode::OPCODES;
pub use opcode::{RdmaOpcode, RdmaService};
pub use operation::{
    AtomicKind, AtomicOperation, MissingOperands, RdmaOperation, RdmaRemote, SendExtension,
};

mod field {
    use super::Field;

    pub(super) const SE: Field =
        Field::new("SE", 0, 1, "solicited event: the completion notifies the receiver");
    pub(super) const ATOMIC: Field = Field::new("A", 1, 1, "the operands of an atomic follow");
    pub(super) const RESERVED: Field = Field::new("Reserved", 2, 6, "sent as zero, not read");
    pub(super) const DESTINATION_QP: Field = Field::new("DestQP", 8, 24, "destination queue pair");
    pub(super) const RESERVED_PSN: Field = Field::new("Reserved", 32, 8, "sent as zero, not read");
    pub(super) const PSN: Field = Field::new(
        "PSN",
        40,
        24,
        "sequence number of the request in its queue pair; a response has its request's number",
    );
    pub(super) const ADDRESS: Field = Field::new(
        "Virtual Address",
        64,
        64,
        "address of the message's first byte; number of the receive request that a SEND consumes; \
         result of an atomic; source of a datagram",
    );
    pub(super) const KEY: Field =
        Field::new("R_Key", 128, 32, "key of the remote memory; Q_Key of a datagram");
    pub(super) const IMMEDIATE: Field = Field::new(
        "Immediate",
        160,
        32,
        "immediate data; R_Key to invalidate; length of a READ, bytes; syndrome of an acknowledgement",
    );
}

mod operand {
    use super::Field;

    pub(super) const SWAP_OR_ADD: Field =
        Field::new("Swap (or Add) Data", 0, 64, "value to store or to add");
    pub(super) const COMPARE: Field = Field::new(
        "Compare Data",
        64,
        64,
        "value that the memory must have for the swap to happen",
    );
}

pub(crate) const SPEC: Header = Header {
    name: "RDMA extension",
    source: "Weft's own, from the fields of IBTA volume 1, chapter 9",
    about: "Follows the message extension when the data header's reserved byte is 2. It is in every \
            packet of a message, so that each can be placed when it arrives. The message's opcode \
            is an RDMA operation.",
    fields: &[
        field::SE,
        field::ATOMIC,
        field::RESERVED,
        field::DESTINATION_QP,
        field::RESERVED_PSN,
        field::PSN,
        field::ADDRESS,
        field::KEY,
        field::IMMEDIATE,
    ],
};

pub(crate) const OPERANDS_SPEC: Header = Header {
    name: "RDMA atomic operands",
    source: "IBTA volume 1, chapter 9 (AtomicETH)",
    about: "Follows the RDMA extension when its A bit is set.",
    fields: &[operand::SWAP_OR_ADD, operand::COMPARE],
};

const ROWS: usize = 6;
const OPERAND_ROWS: usize = 4;

/// The operands of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AtomicOperands {
    /// Value to store or to add.
    pub swap_or_add: u64,
    /// Value that the memory must have for the swap to happen.
    pub compare: u64,
}

/// The header that names the destination queue pair and memory of a message. The meaning of `address`, `key` and
/// `immediate` depends on the message's opcode: [`RdmaOperation::decode`] interprets them, and
/// [`RdmaOperation::header`] sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RdmaHeader {
    /// `true` if the receiver's completion is solicited.
    pub solicited: bool,
    /// The destination queue pair.
    pub destination_qp: U24,
    /// Sequence number of the request in its queue pair.
    pub psn: U24,
    /// Virtual address of the message's first byte, or the operation's other use of the field.
    pub address: u64,
    /// Key of the remote memory, or `Q_Key` of a datagram.
    pub key: u32,
    /// Immediate data, or the operation's other use of the field.
    pub immediate: u32,
    /// The operands of an atomic.
    pub operands: Option<AtomicOperands>,
}

impl RdmaHeader {
    /// Length of the header without operands in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Length of the longest header in bytes.
    pub const MAX_LEN: usize = Self::LEN + 4 * OPERAND_ROWS;

    /// Splits the bytes after a message header into this header and payload.
    ///
    /// # Errors
    /// Returns `Truncated` below the header's length.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let (operands, payload) = if field::ATOMIC.flag(&rows) {
            let (operands, payload) =
                AtomicOperands::parse(rest).map_err(|error| error.after(Self::LEN))?;
            (Some(operands), payload)
        } else {
            (None, rest)
        };
        let header = Self {
            solicited: field::SE.flag(&rows),
            destination_qp: U24::truncate(field::DESTINATION_QP.read(&rows)),
            psn: U24::truncate(field::PSN.read(&rows)),
            address: field::ADDRESS.read_u64(&rows),
            key: field::KEY.read(&rows),
            immediate: field::IMMEDIATE.read(&rows),
            operands,
        };
        Ok((header, payload))
    }

    /// Writes the header over the start of `out` and returns its length in bytes.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut rows = [0; ROWS];
        field::SE.write(&mut rows, self.solicited);
        field::ATOMIC.write(&mut rows, self.operands.is_some());
        field::DESTINATION_QP.write(&mut rows, self.destination_qp);
        field::PSN.write(&mut rows, self.psn);
        field::ADDRESS.write_u64(&mut rows, self.address);
        field::KEY.write(&mut rows, self.key);
        field::IMMEDIATE.write(&mut rows, self.immediate);
        let rest = write_rows(out, &rows);
        if let Some(operands) = &self.operands {
            operands.emit(rest);
        }
        self.header_len()
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        if self.operands.is_some() { Self::MAX_LEN } else { Self::LEN }
    }
}

impl AtomicOperands {
    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<OPERAND_ROWS>(bytes)?;
        let operands = Self {
            swap_or_add: operand::SWAP_OR_ADD.read_u64(&rows),
            compare: operand::COMPARE.read_u64(&rows),
        };
        Ok((operands, rest))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; OPERAND_ROWS];
        operand::SWAP_OR_ADD.write_u64(&mut rows, self.swap_or_add);
        operand::COMPARE.write_u64(&mut rows, self.compare);
        write_rows(out, &rows);
    }
}

#[cfg(test)]
mod tests {
    use weft_units::{Rng, Seed};

    use super::*;

    fn sample(rng: &mut Rng) -> RdmaHeader {
        let operands = AtomicOperands { swap_or_add: rng.next_u64(), compare: rng.next_u64() };
        RdmaHeader {
            solicited: rng.chance(1, 2),
            destination_qp: U24::truncate(rng.next_u32()),
            psn: U24::truncate(rng.next_u32()),
            address: rng.next_u64(),
            key: rng.next_u32(),
            immediate: rng.next_u32(),
            operands: rng.chance(1, 2).then_some(operands),
        }
    }

    #[test]
    fn every_header_comes_back_with_its_payload() {
        let mut rng = Seed(1).child("rdma header", 0).rng();
        for _ in 0..10_000 {
            let header = sample(&mut rng);
            let mut bytes = [0x5a; RdmaHeader::MAX_LEN + 3];
            let len = header.emit(&mut bytes);
            assert_eq!(RdmaHeader::parse(&bytes[..len + 3]), Ok((header, &[0x5a; 3][..])));
        }
    }

    #[test]
    fn every_truncated_header_is_refused_with_its_numbers() {
        for operands in [None, Some(AtomicOperands::default())] {
            let header = RdmaHeader { operands, ..RdmaHeader::default() };
            let mut bytes = [0; RdmaHeader::MAX_LEN];
            let len = header.emit(&mut bytes);
            for got in 0..len {
                let needed = if got < RdmaHeader::LEN { RdmaHeader::LEN } else { len };
                let truncated = ParseError::Truncated { needed, got };
                assert_eq!(RdmaHeader::parse(&bytes[..got]), Err(truncated));
            }
        }
    }

    #[test]
    fn reserved_bits_are_not_read() {
        let mut bytes = [0; RdmaHeader::LEN];
        RdmaHeader::default().emit(&mut bytes);
        bytes[0] = 0x3f;
        bytes[4] = 0xff;
        assert_eq!(RdmaHeader::parse(&bytes), Ok((RdmaHeader::default(), &[][..])));
    }
}
