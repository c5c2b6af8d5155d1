//! The program that the kernel runs for each packet of the interface. It redirects the UDP datagrams of one address and
//! port to the AF_XDP socket of their queue, and passes everything else on to the kernel's stack: other ports and
//! addresses, fragments, packets with IPv4 options or IPv6 extension headers, and queues without a socket.
//!
//! It is assembled here: a compiler, an object file and a loader would serve fewer than 30 instructions.

use std::net::{IpAddr, SocketAddr};

use weft_wire::{EtherType, EthernetHeader, Ipv4Header, Ipv6Header, UdpHeader};

use crate::sys::Instruction;

/// Registers (`Documentation/bpf/standardization/instruction-set.rst`): results, arguments, and one that calls keep.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R5: u8 = 5;
const R6: u8 = 6;

/// Operations: class, source of the operand, and operation or size.
const LOAD_U8: u8 = 0x71;
const LOAD_U16: u8 = 0x69;
const LOAD_U32: u8 = 0x61;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const AND_IMMEDIATE: u8 = 0x57;
const JUMP_IF_GREATER: u8 = 0x2d;
/// Compares the lower 32 bits.
const JUMP_UNLESS_EQUAL: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The source register of a load of 64 bits whose value is a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;
/// The function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// The verdict that passes a packet on to the kernel's stack.
const PASS: i32 = 2;

/// Offsets in the program's argument, `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

/// Bits of IPv4's fragment field that only fragments have: more fragments, and the offset.
const FRAGMENT: u16 = 0x3fff;
/// The first byte of an IPv4 header without options.
const VERSION_4_WITHOUT_OPTIONS: i32 = 0x45;

/// An instruction whose jump leads to the end, which passes the packet on.
struct Step {
    instruction: Instruction,
    passes_on: bool,
}

/// Returns the program for datagrams to `local`; `map` is the descriptor of the map from queue to socket.
pub(crate) fn steer(local: SocketAddr, map: i32) -> Vec<Instruction> {
    let mut steps = Vec::new();
    match local.ip() {
        IpAddr::V4(address) => {
            begin(&mut steps, EtherType::IPV4, Ipv4Header::LEN);
            expect(&mut steps, LOAD_U8, 0, VERSION_4_WITHOUT_OPTIONS);
            steps.push(ip_field(LOAD_U16, 6));
            steps.push(step(AND_IMMEDIATE, R5, 0, 0, i32::from(FRAGMENT.to_be())));
            steps.push(unless_equal(0));
            expect(&mut steps, LOAD_U8, 9, UdpHeader::PROTOCOL.into());
            expect(&mut steps, LOAD_U32, 16, word(address.octets()));
            expect(&mut steps, LOAD_U16, Ipv4Header::LEN + 2, i32::from(local.port().to_be()));
        }
        IpAddr::V6(address) => {
            begin(&mut steps, EtherType::IPV6, Ipv6Header::LEN);
            expect(&mut steps, LOAD_U8, 6, UdpHeader::PROTOCOL.into());
            let octets = address.octets();
            for (offset, &octets) in (24..).step_by(4).zip(octets.as_chunks().0) {
                expect(&mut steps, LOAD_U32, offset, word(octets));
            }
            expect(&mut steps, LOAD_U16, Ipv6Header::LEN + 2, i32::from(local.port().to_be()));
        }
    }
    finish(&mut steps, map);
    let end = steps.len() - 2;
    let resolve = |(at, step): (usize, Step)| Instruction {
        offset: if step.passes_on { distance(at + 1, end) } else { step.instruction.offset },
        ..step.instruction
    };
    steps.into_iter().enumerate().map(resolve).collect()
}

/// Appends the checks that the packet has all headers and this type. Afterwards R2 is its start and R6 the argument.
fn begin(steps: &mut Vec<Step>, ethertype: EtherType, ip_len: usize) {
    let headers = EthernetHeader::LEN + ip_len + UdpHeader::LEN;
    steps.extend([
        step(MOVE, R6, R1, 0, 0),
        step(LOAD_U32, R2, R1, DATA, 0),
        step(LOAD_U32, R3, R1, DATA_END, 0),
        step(MOVE, R5, R2, 0, 0),
        step(ADD_IMMEDIATE, R5, 0, 0, small(headers)),
        Step { passes_on: true, ..step(JUMP_IF_GREATER, R5, R3, 0, 0) },
        step(LOAD_U16, R5, R2, 12, 0),
        unless_equal(i32::from(ethertype.0.to_be())),
    ]);
}

/// Appends the redirection to the queue's socket, or to the stack if it has none, and the end that passes packets on.
fn finish(steps: &mut Vec<Step>, map: i32) {
    steps.extend([
        step(LOAD_IMMEDIATE_64, R1, MAP_DESCRIPTOR, 0, map),
        step(0, 0, 0, 0, 0),
        step(LOAD_U32, R2, R6, RX_QUEUE_INDEX, 0),
        step(MOVE_IMMEDIATE, R3, 0, 0, PASS),
        step(CALL, 0, 0, 0, REDIRECT_MAP),
        step(EXIT, 0, 0, 0, 0),
        step(MOVE_IMMEDIATE, R0, 0, 0, PASS),
        step(EXIT, 0, 0, 0, 0),
    ]);
}

/// Appends a check that the field at this offset of the IP header has this value.
fn expect(steps: &mut Vec<Step>, load: u8, offset: usize, value: i32) {
    steps.extend([ip_field(load, offset), unless_equal(value)]);
}

/// Loads a field of the IP header into R5, as it lies in memory.
fn ip_field(load: u8, offset: usize) -> Step {
    step(load, R5, R2, distance(0, EthernetHeader::LEN + offset), 0)
}

/// Passes the packet on unless R5 has this value.
fn unless_equal(value: i32) -> Step {
    Step { passes_on: true, ..step(JUMP_UNLESS_EQUAL, R5, 0, 0, value) }
}

fn step(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Step {
    let registers = destination | source << 4;
    Step { instruction: Instruction { code, registers, offset, immediate }, passes_on: false }
}

/// Returns four bytes of an address as a load of 32 bits finds them.
fn word(octets: [u8; 4]) -> i32 {
    i32::from_ne_bytes(octets)
}

fn distance(from: usize, to: usize) -> i16 {
    i16::try_from(to - from).expect("a short program, and headers of less than 100 bytes")
}

fn small(number: usize) -> i32 {
    i32::try_from(number).expect("the length of headers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_that_fails_leads_to_the_end_that_passes_on() {
        for (local, len) in [("192.0.2.1:4791", 27), ("[2001:db8::1]:4791", 28)] {
            let program = steer(local.parse().unwrap(), 7);
            assert_eq!(program.len(), len, "{local}");
            let end = program.len() - 2;
            let jumps = program
                .iter()
                .enumerate()
                .filter(|(_, step)| step.code == JUMP_UNLESS_EQUAL || step.code == JUMP_IF_GREATER);
            for (at, jump) in jumps {
                assert_eq!(at + 1 + usize::try_from(jump.offset).unwrap(), end, "{local} {at}");
            }
            assert_eq!(program[end].immediate, PASS);
        }
    }

    #[test]
    fn address_and_port_are_compared_as_they_lie_in_the_packet() {
        let program = steer("192.0.2.1:4791".parse().unwrap(), 7);
        let compared = |load: u8, offset| {
            let at = program.iter().position(|it| it.code == load && it.offset == offset).unwrap();
            program[at + 1].immediate
        };
        assert_eq!(compared(LOAD_U32, 30).to_ne_bytes(), [192, 0, 2, 1]);
        assert_eq!(compared(LOAD_U16, 36), i32::from(4791_u16.to_be()));
        assert_eq!(compared(LOAD_U8, 23), 17);
    }
}
