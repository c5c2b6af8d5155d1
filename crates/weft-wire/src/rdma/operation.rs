//! RDMA operations as values. Only this module assigns meanings to the header fields that an operation uses.

use super::{AtomicOperands, RdmaHeader, RdmaOpcode, RdmaService};
use crate::bits::U24;

/// Memory of the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaRemote {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Key of the region or window.
    pub rkey: u32,
}

/// The header fields of a SEND besides its payload (IBTA volume 1, chapter 9: `ImmDt`, `IETH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendExtension {
    /// No field.
    None,
    /// Immediate data for the completion.
    Immediate(u32),
    /// An R_Key that the responder invalidates.
    Invalidate(u32),
}

/// An atomic operation on eight bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AtomicOperation {
    /// Adds to the value.
    FetchAdd {
        /// The summand.
        add: u64,
    },
    /// Stores a value if the memory has the expected one.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The value to store.
        swap: u64,
    },
}

/// An atomic operation without its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AtomicKind {
    /// Compare-and-swap.
    CompareSwap,
    /// Fetch-and-add.
    FetchAdd,
}

/// The operation of a message, with the header fields that its opcode uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaOperation {
    /// SEND on a connection.
    Send {
        /// Number of the receive request that it consumes, counted from the first.
        receive: u64,
        /// The header fields besides the payload.
        extension: SendExtension,
    },
    /// SEND of a datagram.
    Datagram {
        /// The sender's queue pair.
        source_qp: U24,
        /// `Q_Key`, which must be the receiver's.
        qkey: u32,
        /// Immediate data for the completion.
        immediate: Option<u32>,
    },
    /// RDMA WRITE.
    Write {
        /// The destination of the payload.
        remote: RdmaRemote,
        /// Immediate data for a completion.
        immediate: Option<u32>,
    },
    /// RDMA READ request.
    Read {
        /// The memory to read.
        remote: RdmaRemote,
        /// Bytes to read.
        length: u32,
    },
    /// Atomic request.
    Atomic {
        /// The eight bytes.
        remote: RdmaRemote,
        /// The operation on them.
        operation: AtomicOperation,
    },
    /// Response to a READ; its payload is the memory.
    ReadResponse,
    /// Response to an atomic.
    AtomicAcknowledge {
        /// The value that the memory had before.
        value: u64,
    },
    /// Acknowledgement without data.
    Acknowledge {
        /// Syndrome of the acknowledgement (`AETH`).
        syndrome: u8,
    },
}

/// The error of an atomic request without operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingOperands;

impl AtomicOperation {
    /// Returns the kind of the operation.
    pub const fn kind(self) -> AtomicKind {
        match self {
            Self::FetchAdd { .. } => AtomicKind::FetchAdd,
            Self::CompareSwap { .. } => AtomicKind::CompareSwap,
        }
    }

    /// Returns the operation's opcode.
    #[inline]
    pub const fn opcode(self) -> RdmaOpcode {
        match self {
            Self::FetchAdd { .. } => RdmaOpcode::RcFetchAdd,
            Self::CompareSwap { .. } => RdmaOpcode::RcCompareSwap,
        }
    }

    /// Returns the value that the memory has after the operation, from the one before.
    #[inline]
    pub const fn apply(self, before: u64) -> u64 {
        match self {
            Self::FetchAdd { add } => before.wrapping_add(add),
            Self::CompareSwap { compare, swap } => {
                if before == compare {
                    swap
                } else {
                    before
                }
            }
        }
    }

    const fn operands(self) -> AtomicOperands {
        match self {
            Self::FetchAdd { add } => AtomicOperands { swap_or_add: add, compare: 0 },
            Self::CompareSwap { compare, swap } => AtomicOperands { swap_or_add: swap, compare },
        }
    }
}

impl RdmaOperation {
    /// Returns the operation of a message with this opcode and header.
    ///
    /// # Errors
    /// The operation is an atomic, and the header has no operands.
    #[inline]
    pub fn decode(opcode: RdmaOpcode, header: &RdmaHeader) -> Result<Self, MissingOperands> {
        let RdmaHeader { address, key, immediate: word, operands, .. } = *header;
        let remote = RdmaRemote { address, rkey: key };
        let send = |extension| Self::Send { receive: address, extension };
        let write = |immediate| Self::Write { remote, immediate };
        let datagram =
            |immediate| Self::Datagram { source_qp: low_24_bits(address), qkey: key, immediate };
        Ok(match opcode {
            RdmaOpcode::RcSend | RdmaOpcode::UcSend => send(SendExtension::None),
            RdmaOpcode::RcSendWithImmediate | RdmaOpcode::UcSendWithImmediate => {
                send(SendExtension::Immediate(word))
            }
            RdmaOpcode::RcSendWithInvalidate => send(SendExtension::Invalidate(word)),
            RdmaOpcode::UdSend => datagram(None),
            RdmaOpcode::UdSendWithImmediate => datagram(Some(word)),
            RdmaOpcode::RcWrite | RdmaOpcode::UcWrite => write(None),
            RdmaOpcode::RcWriteWithImmediate | RdmaOpcode::UcWriteWithImmediate => {
                write(Some(word))
            }
            RdmaOpcode::RcReadRequest => Self::Read { remote, length: word },
            RdmaOpcode::RcFetchAdd => {
                let add = operands.ok_or(MissingOperands)?.swap_or_add;
                Self::Atomic { remote, operation: AtomicOperation::FetchAdd { add } }
            }
            RdmaOpcode::RcCompareSwap => {
                let AtomicOperands { swap_or_add: swap, compare } =
                    operands.ok_or(MissingOperands)?;
                Self::Atomic { remote, operation: AtomicOperation::CompareSwap { compare, swap } }
            }
            RdmaOpcode::RcReadResponse => Self::ReadResponse,
            RdmaOpcode::RcAtomicAcknowledge => Self::AtomicAcknowledge { value: address },
            RdmaOpcode::RcAcknowledge => Self::Acknowledge { syndrome: word.to_be_bytes()[0] },
        })
    }

    /// Returns the operation's opcode in a service; `None` where the service does not have it.
    #[inline]
    pub const fn opcode(&self, service: RdmaService) -> Option<RdmaOpcode> {
        use RdmaService::{Rc, Uc, Ud};
        use SendExtension::{Immediate, Invalidate, None as Plain};
        match self {
            Self::Send { extension, .. } => match (extension, service) {
                (Plain, Rc) => Some(RdmaOpcode::RcSend),
                (Plain, Uc) => Some(RdmaOpcode::UcSend),
                (Immediate(_), Rc) => Some(RdmaOpcode::RcSendWithImmediate),
                (Immediate(_), Uc) => Some(RdmaOpcode::UcSendWithImmediate),
                (Invalidate(_), Rc) => Some(RdmaOpcode::RcSendWithInvalidate),
                (Invalidate(_), Uc) | (Plain | Immediate(_) | Invalidate(_), Ud) => None,
            },
            Self::Datagram { immediate, .. } => match (immediate, service) {
                (None, Ud) => Some(RdmaOpcode::UdSend),
                (Some(_), Ud) => Some(RdmaOpcode::UdSendWithImmediate),
                (None | Some(_), Rc | Uc) => None,
            },
            Self::Write { immediate, .. } => match (immediate, service) {
                (None, Rc) => Some(RdmaOpcode::RcWrite),
                (None, Uc) => Some(RdmaOpcode::UcWrite),
                (Some(_), Rc) => Some(RdmaOpcode::RcWriteWithImmediate),
                (Some(_), Uc) => Some(RdmaOpcode::UcWriteWithImmediate),
                (None | Some(_), Ud) => None,
            },
            Self::Read { .. } => only_rc(service, RdmaOpcode::RcReadRequest),
            Self::Atomic { operation, .. } => only_rc(service, operation.opcode()),
            Self::ReadResponse => only_rc(service, RdmaOpcode::RcReadResponse),
            Self::AtomicAcknowledge { .. } => only_rc(service, RdmaOpcode::RcAtomicAcknowledge),
            Self::Acknowledge { .. } => only_rc(service, RdmaOpcode::RcAcknowledge),
        }
    }

    /// Returns a header with the operation's fields. The caller sets queue pair, PSN and solicited event.
    #[inline]
    pub fn header(&self) -> RdmaHeader {
        let header = RdmaHeader::default();
        let at_remote = |RdmaRemote { address, rkey }| RdmaHeader { address, key: rkey, ..header };
        match *self {
            Self::Send { receive: address, extension } => {
                let immediate = match extension {
                    SendExtension::None => 0,
                    SendExtension::Immediate(word) | SendExtension::Invalidate(word) => word,
                };
                RdmaHeader { address, immediate, ..header }
            }
            Self::Datagram { source_qp, qkey: key, immediate } => {
                let (address, immediate) = (source_qp.get().into(), immediate.unwrap_or(0));
                RdmaHeader { address, key, immediate, ..header }
            }
            Self::Write { remote, immediate } => {
                RdmaHeader { immediate: immediate.unwrap_or(0), ..at_remote(remote) }
            }
            Self::Read { remote, length } => RdmaHeader { immediate: length, ..at_remote(remote) },
            Self::Atomic { remote, operation } => {
                RdmaHeader { operands: Some(operation.operands()), ..at_remote(remote) }
            }
            Self::ReadResponse => header,
            Self::AtomicAcknowledge { value: address } => RdmaHeader { address, ..header },
            Self::Acknowledge { syndrome } => {
                RdmaHeader { immediate: u32::from(syndrome) << 24, ..header }
            }
        }
    }
}

/// Returns the opcode if the service is RC, which alone has it.
const fn only_rc(service: RdmaService, opcode: RdmaOpcode) -> Option<RdmaOpcode> {
    match service {
        RdmaService::Rc => Some(opcode),
        RdmaService::Uc | RdmaService::Ud => None,
    }
}

/// Returns the number of a queue pair in the low 24 bits of a field of 64 bits.
const fn low_24_bits(field: u64) -> U24 {
    let bytes = field.to_be_bytes();
    U24::truncate(u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a header in which every field has a different value.
    fn sample() -> RdmaHeader {
        RdmaHeader {
            address: 0x12_3456,
            key: 7,
            immediate: 9 << 24,
            operands: Some(AtomicOperands { swap_or_add: 3, compare: 4 }),
            ..RdmaHeader::default()
        }
    }

    #[test]
    fn every_opcode_comes_back_with_the_fields_that_it_uses() {
        for &opcode in RdmaOpcode::ALL {
            let operation = RdmaOperation::decode(opcode, &sample()).unwrap();
            assert_eq!(operation.opcode(opcode.service()), Some(opcode));
            assert_eq!(RdmaOperation::decode(opcode, &operation.header()), Ok(operation));
        }
    }

    #[test]
    fn only_atomics_need_operands() {
        let header = RdmaHeader { operands: None, ..sample() };
        for &opcode in RdmaOpcode::ALL {
            let atomic = matches!(
                RdmaOperation::decode(opcode, &sample()),
                Ok(RdmaOperation::Atomic { .. })
            );
            assert_eq!(RdmaOperation::decode(opcode, &header).is_err(), atomic, "{opcode:?}");
        }
    }

    #[test]
    fn a_swap_needs_the_expected_value_and_a_sum_wraps() {
        let swap = AtomicOperation::CompareSwap { compare: 1, swap: 2 };
        assert_eq!((swap.apply(1), swap.apply(3)), (2, 3));
        assert_eq!(AtomicOperation::FetchAdd { add: 2 }.apply(u64::MAX), 1);
    }
}
