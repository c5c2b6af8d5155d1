//! Which of a host's threads a datagram is for (BIFROST, section 5.2, flow redirect), as the kernel decides it.
//!
//! A packet of the transport says so by the id of its connection, an encrypted one by its SPI, which names
//! the sender's thread and the receiver's; what names none, a plain frame or a request for a connection, goes
//! by the kernel's hash of addresses and ports. A sender keeps what is for different threads on different
//! source ports, so that whoever gathers or cuts datagrams (GRO, GSO) never mixes them.

use weft_agent::udp::Instruction;
use weft_transport::ThreadBits;
use weft_wire::{SealHeader, U24, VxlanHeader};

/// Threads of a host at most.
pub(crate) const MOST_THREADS: u8 = 64;

/// A thread and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) thread: u8,
    pub(crate) threads: u8,
}

impl Seat {
    /// Which of this host's groups of source ports packets for a thread of another host take. Who does not
    /// know the other's thread speaks to that of its own number.
    pub(crate) fn group(self, theirs: Option<u8>) -> u8 {
        theirs.unwrap_or(self.thread) % self.threads
    }

    /// Who sends to whom: the sender in an SPI. Each has a key of its own, so that threads share neither
    /// counters nor windows.
    pub(crate) fn sender(self, theirs: u8) -> U24 {
        U24::truncate(u32::from(self.thread) << 8 | u32::from(theirs))
    }

    /// The other host's thread that sent under an SPI, if it sent to this one. What is for another is refused:
    /// a packet that came twice would meet a window there that has not seen it.
    pub(crate) fn opens(self, spi: u32) -> Option<u8> {
        let [_, _, theirs, ours] = spi.to_be_bytes();
        (ours % self.threads == self.thread && theirs < MOST_THREADS).then_some(theirs)
    }
}

/// The parts of linux/filter.h and linux/bpf_common.h that are used here.
mod code {
    /// A byte at a place of the datagram.
    pub(super) const LOAD_BYTE: u16 = 0x30;
    /// Four of them, big-endian.
    pub(super) const LOAD_WORD: u16 = 0x20;
    pub(super) const IF_EQUAL: u16 = 0x15;
    pub(super) const IF_ANY_BIT: u16 = 0x45;
    pub(super) const SHIFT_RIGHT: u16 = 0x74;
    pub(super) const MODULO: u16 = 0x94;
    pub(super) const RETURN: u16 = 0x06;
    pub(super) const RETURN_LOADED: u16 = 0x16;
}

/// VXLAN's flag that a next protocol is there, and the protocols (`weft-wire/src/vxlan.rs`).
const HAS_NEXT: u32 = 0x04;
const WEFT: u32 = 0x7e;
const SEALED: u32 = 0x7f;

/// Where the destination's id is in all headers of the transport (BIFROST, figures C2 to C4), and where an SPI
/// ends; behind VXLAN's header.
const DESTINATION_CID: u32 = 8 + 8;
const SPI_END: u32 = 8 + 7;
const _: () = assert!(SealHeader::LEN == 16 && VxlanHeader::LEN == 8);

/// What the kernel runs for each datagram of a host with several threads.
pub(crate) fn program(threads: u8) -> Vec<Instruction> {
    let step = |code, k| Instruction { code, jt: 0, jf: 0, k };
    let branch = |code, k, jt, jf| Instruction { code, jt, jf, k };
    let shift = u32::BITS - ThreadBits::of(threads).get();
    vec![
        step(code::LOAD_BYTE, 0),
        branch(code::IF_ANY_BIT, HAS_NEXT, 0, 10),
        step(code::LOAD_BYTE, 3),
        branch(code::IF_EQUAL, SEALED, 5, 0),
        branch(code::IF_EQUAL, WEFT, 0, 7),
        step(code::LOAD_WORD, DESTINATION_CID),
        // Zero names no connection.
        branch(code::IF_EQUAL, 0, 5, 0),
        step(code::SHIFT_RIGHT, shift),
        step(code::RETURN_LOADED, 0),
        step(code::LOAD_BYTE, SPI_END),
        step(code::MODULO, threads.into()),
        step(code::RETURN_LOADED, 0),
        // Nobody's number: the kernel takes one by its hash.
        step(code::RETURN, u32::MAX),
    ]
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "random bits")]
mod tests {
    use weft_agent::Clock;
    use weft_agent::udp::{SocketConfig, Sockets};
    use weft_units::{Duration, Rng, Seed};
    use weft_wire::{AckHeader, Cipher, DataHeader, Packet, SetupHeader, SetupKind, U4, VxlanNext};

    use super::*;

    /// A datagram, and the thread it names.
    fn datagram(rng: &mut Rng, threads: u8) -> (Vec<u8>, Option<u8>) {
        let mut out = vec![0; 200];
        let thread = u8::try_from(rng.below(threads.into())).unwrap();
        let bits = ThreadBits::of(threads).get();
        let cid = u32::from(thread) << (32 - bits) | (rng.next_u64() as u32 >> bits).max(1);
        let (next, packet, named) = match rng.below(6) {
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
            4 => (VxlanNext::Sealed, Packet::default(), Some(thread)),
            _ => (VxlanNext::Frame, Packet::default(), None),
        };
        VxlanHeader { vni: U24::truncate(rng.next_u64() as u32), next }.emit(&mut out);
        match next {
            VxlanNext::Weft => {
                packet.emit(&mut out[VxlanHeader::LEN..]);
            }
            VxlanNext::Sealed => {
                // From a host of any number of threads to one that it knows.
                let seat = Seat { thread: rng.next_u64() as u8 % MOST_THREADS, threads: 1 };
                let spi = 3 << 24 | seat.sender(thread).get();
                let next = VxlanNext::Weft;
                SealHeader { next, cipher: Cipher::Aes128Gcm, spi, iv: rng.next_u64() }
                    .emit(&mut out[VxlanHeader::LEN..]);
                let seat = Seat { thread, threads };
                assert_eq!(seat.opens(spi), Some((spi >> 8) as u8));
            }
            VxlanNext::Frame => {}
        }
        (out, named)
    }

    /// Whose inbox has something, and how many datagrams.
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
                let give_up = Clock.now() + Duration::from_secs(5);
                let got = loop {
                    let got = arrived(&mut group);
                    if !got.is_empty() {
                        break got;
                    }
                    assert!(Clock.now() < give_up, "it did not arrive");
                };
                assert_eq!(got.len(), 1);
                assert_eq!(named.unwrap_or(got[0].0), got[0].0, "{threads} threads: {bytes:?}");
            }
        }
    }

    #[test]
    fn no_two_threads_send_under_one_key_and_each_opens_its_own() {
        let mut all = std::collections::BTreeSet::new();
        for thread in 0..MOST_THREADS {
            let from = Seat { thread, threads: MOST_THREADS };
            for theirs in 0..MOST_THREADS {
                let sender = from.sender(theirs).get();
                assert!(all.insert(sender), "{thread} to {theirs}");
                for threads in [1, 2, 3, MOST_THREADS] {
                    let opening: Vec<u8> = (0..threads)
                        .filter(|&to| Seat { thread: to, threads }.opens(sender) == Some(thread))
                        .collect();
                    assert_eq!(opening, [theirs % threads]);
                }
            }
        }
    }

    #[test]
    fn threads_that_no_host_has_are_not_opened() {
        let seat = Seat { thread: 0, threads: 1 };
        assert_eq!(seat.opens(u32::from(MOST_THREADS) << 8), None);
        assert_eq!(seat.opens(u32::from(MOST_THREADS - 1) << 8), Some(MOST_THREADS - 1));
    }
}
