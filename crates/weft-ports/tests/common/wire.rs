//! A network between two ports with the transport's behaviour: frames are split into packets, packets are lost,
//! retransmitted and reordered, and frames are completed in order.

use std::collections::{BTreeMap, VecDeque};

use weft_ports::{HEADER_LEN, Port, PortError, Sent};
use weft_units::{Instant, Rng, Seed};
use weft_vpc::{Reading, Slot, Staging, Token, Turn};

/// Bytes of a packet.
const PACKET: u32 = 1_400;

/// Maximum number of frames in flight.
const WINDOW: usize = 256;

/// The impairments of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Impairments {
    /// Number of packets lost per thousand.
    pub(crate) loss: u64,
    /// Maximum number of packets that a packet may overtake.
    pub(crate) reordering: usize,
}

/// One direction between two ports.
pub(crate) struct Wire {
    impairments: Impairments,
    rng: Rng,
    /// Frames by the order in which they were taken.
    frames: BTreeMap<u64, Crossing>,
    next: u64,
    /// Packets in flight: frame, offset, first transmission or retransmission.
    packets: VecDeque<(u64, u32, Reading)>,
    /// The length of the largest frame so far, bytes.
    pub(crate) largest: u32,
    /// Number of frames that reached the other port.
    pub(crate) delivered: u64,
    /// The errors of both ports.
    pub(crate) reports: Vec<String>,
}

struct Crossing {
    token: Token,
    len: u32,
    slot: Option<Slot>,
    missing: u32,
}

impl Wire {
    pub(crate) fn new(impairments: Impairments, seed: u64) -> Self {
        Self {
            impairments,
            rng: Seed(seed).child("wire", 0).rng(),
            frames: BTreeMap::new(),
            next: 0,
            packets: VecDeque::new(),
            largest: 0,
            delivered: 0,
            reports: vec![],
        }
    }

    /// Carries frames and packets from one port to the other. Returns `true` if any moved.
    pub(crate) fn turn(&mut self, from: &mut dyn Port, to: &mut dyn Port, now: Instant) -> bool {
        let taken = self.take(from, now);
        let mut moved = taken;
        for _ in 0..self.packets.len() {
            moved |= self.carry_one(from, to);
        }
        self.deliver(from, to);
        moved
    }

    fn take(&mut self, from: &mut dyn Port, now: Instant) -> bool {
        let mut taken = false;
        while self.frames.len() < WINDOW {
            let sent = match from.take(now) {
                Ok(Some(sent)) => sent,
                Ok(None) => break,
                Err(error) => {
                    self.report(error);
                    break;
                }
            };
            let pieces = sent.len.div_ceil(PACKET);
            self.largest = self.largest.max(sent.len);
            self.packets.extend((0..pieces).map(|at| (self.next, at * PACKET, Reading::First)));
            let Sent { token, len } = sent;
            self.frames.insert(self.next, Crossing { token, len, slot: None, missing: pieces });
            self.next += 1;
            taken = true;
        }
        taken
    }

    fn carry_one(&mut self, from: &mut dyn Port, to: &mut dyn Port) -> bool {
        let ahead = self.rng.index(self.impairments.reordering.max(1)).min(self.packets.len() - 1);
        let (frame, offset, reading) = self.packets.remove(ahead).unwrap();
        let is_next = self.frames.first_key_value().is_some_and(|(&first, _)| first == frame);
        let turn = if is_next { Turn::Next } else { Turn::OutOfOrder };
        let crossing = self.frames.get_mut(&frame).unwrap();
        let mut piece = vec![0; PACKET.min(crossing.len - offset) as usize];
        if let Err(error) = from.read(crossing.token, offset, &mut piece, reading) {
            self.reports.push(error.to_string());
        }
        if self.rng.chance(self.impairments.loss, 1_000) {
            self.packets.push_back((frame, offset, Reading::Retransmission));
            return true;
        }
        let head = if offset == 0 { &piece[HEADER_LEN as usize..] } else { &[] };
        let claim = || to.claim(crossing.len, turn, Staging::InPlace, head);
        let Some(slot) = crossing.slot.or_else(claim) else {
            self.packets.push_back((frame, offset, Reading::Retransmission));
            return false;
        };
        crossing.slot = Some(slot);
        crossing.missing -= 1;
        if let Err(error) = to.place(slot, offset, &piece) {
            self.report(error);
        }
        true
    }

    fn deliver(&mut self, from: &mut dyn Port, to: &mut dyn Port) {
        while let Some(first) = self.frames.first_entry().filter(|entry| entry.get().missing == 0) {
            let crossing = first.remove();
            to.complete(crossing.slot.unwrap());
            from.release(crossing.token);
            self.delivered += 1;
        }
        for result in [to.flush(), from.flush()] {
            if let Err(error) = result {
                self.report(error);
            }
        }
    }

    fn report(&mut self, error: PortError) {
        self.reports.push(error.to_string());
    }
}
