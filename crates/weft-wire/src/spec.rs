//! The tables of all headers and of all numbers with names, which the tests and the generator of
//! `docs/reference/wire.md` read.

pub use crate::layout::{Field, Header, Number};

/// All headers of this crate, outermost last.
pub const HEADERS: &[Header] = &[
    crate::data::SPEC,
    crate::message::SPEC,
    crate::rdma::SPEC,
    crate::rdma::OPERANDS_SPEC,
    crate::offer::SPEC,
    crate::frame::SEQUENCE_SPEC,
    crate::frame::SPEC,
    crate::frame::TRACE_SPEC,
    crate::frame::REMOTE_SPEC,
    crate::setup::SPEC,
    crate::setup::TERMS_SPEC,
    crate::exchange::SPEC,
    crate::sealed::SPEC,
    crate::ack::SPEC,
    crate::vxlan::SPEC,
    crate::udp::SPEC,
    crate::ipv4::SPEC,
    crate::ipv6::SPEC,
    crate::eth::SPEC,
    crate::virtio_net::SPEC,
];

/// All lists of numbers with names.
pub const NUMBERS: &[(&str, &[Number])] = &[
    ("Packet types", crate::PACKET_TYPES),
    ("Sealed contents", crate::sealed::CONTENTS),
    ("ACK types", crate::ack::ACK_TYPES),
    ("RDMA operations", crate::rdma::OPCODES),
    ("Frame kinds", crate::frame::FRAME_KINDS),
    ("VXLAN next protocols", crate::vxlan::NEXT_PROTOCOLS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_every_header_belongs_to_exactly_one_field() {
        for header in HEADERS {
            let mut next_bit = 0;
            for field in header.fields {
                assert_eq!(field.first_bit, next_bit, "{}: {}", header.name, field.name);
                next_bit += field.width;
            }
            assert_eq!(next_bit, header.bits());
            assert_eq!(next_bit % 8, 0, "{} ends within a byte", header.name);
        }
    }
}
