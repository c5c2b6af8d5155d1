//! The kernel's choice of the thread that receives a datagram (BIFROST, section 5.2, flow redirect).
//!
//! A packet of the transport names its thread in its connection id, which an encrypted packet has at the same place
//! (its SPI); a datagram without one, a plain frame or a connection request, goes by the kernel's hash of addresses
//! and ports. A sender uses different source ports for different threads, so that GRO and GSO never merge their
//! datagrams.

use weft_transport::ThreadBits;
use weft_udp::sockets::Instruction;
use weft_wire::VxlanHeader;

/// Largest number of threads of a host.
pub(crate) const MAX_THREADS: u8 = 64;

/// The index of a thread and the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadIndex {
    pub(crate) thread: u8,
    pub(crate) threads: u8,
}

impl ThreadIndex {
    /// Returns the group of this host's source ports for packets to thread `peer_thread` of another host. If that is
    /// unknown, the packets are addressed to the thread with this one's index.
    pub(crate) fn group(self, peer_thread: Option<u8>) -> u8 {
        peer_thread.unwrap_or(self.thread) % self.threads
    }
}

/// The parts of linux/filter.h and linux/bpf_common.h that are used here.
mod code {
    /// Loads a byte of the datagram.
    pub(super) const LOAD_BYTE: u16 = 0x30;
    /// Loads four bytes, big-endian.
    pub(super) const LOAD_WORD: u16 = 0x20;
    pub(super) const IF_EQUAL: u16 = 0x15;
    pub(super) const IF_ANY_BIT: u16 = 0x45;
    pub(super) const SHIFT_RIGHT: u16 = 0x74;
    pub(super) const RETURN: u16 = 0x06;
    pub(super) const RETURN_LOADED: u16 = 0x16;
}

/// The flag in VXLAN that a next protocol is given, and the protocol (`weft-wire/src/vxlan.rs`).
const HAS_NEXT: u32 = 0x04;
const WEFT: u32 = 0x7e;

/// The offset of the destination's id in all headers of the transport (BIFROST, figures C2 to C4) and in that of a
/// sealed packet, after VXLAN's header.
const DESTINATION_CID: u32 = 8 + 8;
const _: () = assert!(VxlanHeader::LEN == 8);

/// Returns the program that the kernel runs for each datagram of a host with several threads.
pub(crate) fn program(threads: u8) -> Vec<Instruction> {
    let step = |code, k| Instruction { code, jt: 0, jf: 0, k };
    let branch = |code, k, jt, jf| Instruction { code, jt, jf, k };
    let shift = u32::BITS - ThreadBits::of(threads).get();
    vec![
        step(code::LOAD_BYTE, 0),
        branch(code::IF_ANY_BIT, HAS_NEXT, 0, 6),
        step(code::LOAD_BYTE, 3),
        branch(code::IF_EQUAL, WEFT, 0, 4),
        step(code::LOAD_WORD, DESTINATION_CID),
        // Zero names no connection.
        branch(code::IF_EQUAL, 0, 2, 0),
        step(code::SHIFT_RIGHT, shift),
        step(code::RETURN_LOADED, 0),
        // No thread has this index: the kernel chooses one by its hash.
        step(code::RETURN, u32::MAX),
    ]
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "random bits")]
mod tests {
    use weft_udp::Clock;
    use weft_udp::sockets::{SocketConfig, Sockets};
    use weft_units::{Duration, Rng, Seed};
    use weft_wire::{
        AckHeader, DataHeader, Packet, SealedHeader, SetupHeader, SetupKind, U4, U24, VxlanNext,
    };

    use super::*;

    /// Returns a datagram, and the thread it names.
    fn datagram(rng: &mut Rng, threads: u8) -> (Vec<u8>, Option<u8>) {
        let mut out = vec![0; 200];
        let thread = u8::try_from(rng.below(threads.into())).unwrap();
        let bits = ThreadBits::of(threads).get();
        let cid = u32::from(thread) << (32 - bits) | (rng.next_u64() as u32 >> bits).max(1);
        let kind = rng.below(6);
        let (next, packet, named) = match kind {
            0 => {
                let header = DataHeader { destination_cid: cid, ..Default::default() };
                (VxlanNext::Weft, Packet::data(header, None), Some(thread))
            }
            1 => {
                let header = AckHeader { destination_cid: cid, ..Default::default() };
                (VxlanNext::Weft, Packet::Ack(header), Some(thread))
            }
            kind @ 2..4 => {
                let header = SetupHeader {
                    kind: if kind == 2 { SetupKind::Close } else { SetupKind::Reset },
                    version: U4::truncate(1),
                    cc_type: U4::truncate(0),
                    thread_id: rng.next_u64() as u8,
                    reason: 0,
                    local_cid: rng.next_u64() as u32,
                    destination_cid: if kind == 2 { cid } else { 0 },
                    terms: None,
                };
                (VxlanNext::Weft, Packet::Setup(header), (kind == 2).then_some(thread))
            }
            4 => (VxlanNext::Weft, Packet::default(), Some(thread)),
            _ => (VxlanNext::Frame, Packet::default(), None),
        };
        VxlanHeader { vni: U24::truncate(rng.next_u64() as u32), next }.emit(&mut out);
        let inside = &mut out[VxlanHeader::LEN..];
        if kind == 4 {
            let iv = rng.next_u64() as u32;
            SealedHeader { iv, spi: cid, ..Default::default() }.emit(inside);
        } else if next == VxlanNext::Weft {
            packet.emit(inside);
        }
        (out, named)
    }

    /// Returns the threads whose inboxes have datagrams, with their number.
    fn arrived(threads: &mut [Sockets]) -> Vec<(u8, usize)> {
        let mut found = vec![];
        for (thread, sockets) in (0..).zip(threads) {
            let count = sockets.inbox.receive().unwrap();
            found.extend((count > 0).then_some((thread, count)));
        }
        found
    }

    #[test]
    fn the_kernel_brings_each_datagram_to_the_thread_that_it_names() {
        for threads in [2, 3, 5] {
            let config = SocketConfig::new("127.0.0.1:0".parse().unwrap(), 2);
            let mut group = Sockets::open_group(&config, threads, &program(threads)).unwrap();
            let mut sender = Sockets::open(&config).unwrap();
            let to = group[0].local();
            let mut rng = Seed(u64::from(threads)).rng();
            for _ in 0..300 {
                let (bytes, named) = datagram(&mut rng, threads);
                let path = u16::try_from(rng.below(2)).unwrap();
                sender.outbox.push(&to, path, 200, |out| out.copy_from_slice(&bytes));
                sender.outbox.flush();
                let deadline = Clock.now() + Duration::from_secs(5);
                let got = loop {
                    let got = arrived(&mut group);
                    if !got.is_empty() {
                        break got;
                    }
                    assert!(Clock.now() < deadline, "it did not arrive");
                };
                assert_eq!(got.len(), 1);
                assert_eq!(named.unwrap_or(got[0].0), got[0].0, "{threads} threads: {bytes:?}");
            }
        }
    }
}
