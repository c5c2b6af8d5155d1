//! Bit flips in packets on chosen links. The packet is written as the agent would write it, with its UDP header and
//! checksum; the flipped bytes are checked and parsed as a receiver would. The receiving host drops packets that fail
//! the checksum; the others reach the engine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{Duration, Rng};
use weft_wire::checksum::PseudoHeader;
use weft_wire::{Packet, UdpHeader};

use super::{Action, Change, FaultError, LinkSelector, Plan, Scheduler, Window, probability};
use crate::nic::{RECEIVE_PORT, five_tuple};
use crate::packet::{Integrity, PacketSlot};

/// Bits of packets are flipped for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The links, in both directions.
    pub links: LinkSelector,
    /// Share of packets that are damaged, 0 to 1.
    pub probability: f64,
    /// `true` if UDP checksums are in use. Without them flipped headers reach the engines.
    #[serde(default = "in_use")]
    pub checksum: bool,
    /// Start of the fault.
    #[serde(default)]
    pub at: Duration,
    /// Duration of the fault; by default, to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

fn in_use() -> bool {
    true
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        let (chance, checksum) = (probability(self.probability)?, self.checksum);
        for link in plan.directions(&self.links, self.at)? {
            let change = Change::Corruption { chance, checksum };
            plan.during(
                Window { at: self.at, duration: self.duration },
                Action::Impair { link, change },
            );
        }
        Ok(())
    }
}

/// Flips a bit of the datagram, rarely up to four, and parses the result as its receiver will. The checksum detects
/// every single flip, but not two that cancel in its sum.
pub(super) fn damage(slot: &mut PacketSlot, destination: NodeId, checksum: bool, rng: &mut Rng) {
    let mut datagram = emit(slot, destination, checksum);
    let headers = UdpHeader::LEN + slot.packet.len();
    flip(&mut datagram, headers, rng);
    receive(slot, destination, &datagram);
}

/// Flips bits of a packet that is encoded already. Its receiver parses the result.
pub(super) fn damage_datagram(
    slot: &mut PacketSlot,
    bytes: &mut Vec<u8>,
    destination: NodeId,
    checksum: bool,
    rng: &mut Rng,
) {
    let mut datagram = [&[0; UdpHeader::LEN], &bytes[..]].concat();
    emit_udp(slot, destination, checksum, &mut datagram);
    let headers = datagram.len().min(UdpHeader::LEN + CLEAR_LEN);
    flip(&mut datagram, headers, rng);
    slot.integrity = match udp_payload(slot, destination, &datagram) {
        None => Integrity::BadChecksum,
        Some((header, payload)) => {
            slot.source_port = header.source_port;
            bytes.clear();
            bytes.extend_from_slice(payload);
            Integrity::Sound
        }
    };
}

/// Approximate length of the headers of a datagram, sealed or of set-up, bytes.
const CLEAR_LEN: usize = 28;

fn flip(datagram: &mut [u8], headers: usize, rng: &mut Rng) {
    let more = if rng.chance(1, 16) { rng.index(4) } else { 0 };
    for _ in 0..=more {
        // Half of the flips hit the headers, which are a small part of the bytes.
        let bytes = if rng.chance(1, 2) { headers } else { datagram.len() };
        datagram[rng.index(bytes)] ^= 1 << rng.index(8);
    }
}

/// Returns the datagram: UDP header, transport headers, payload of zeros.
fn emit(slot: &PacketSlot, destination: NodeId, checksum: bool) -> Vec<u8> {
    let payload_len = slot.packet.len() + usize::from(slot.payload_len);
    let mut datagram = vec![0; UdpHeader::LEN + payload_len];
    slot.packet.emit(&mut datagram[UdpHeader::LEN..]);
    emit_udp(slot, destination, checksum, &mut datagram);
    datagram
}

/// Writes the UDP header of a datagram.
fn emit_udp(slot: &PacketSlot, destination: NodeId, checksum: bool, datagram: &mut [u8]) {
    let (head, payload) = datagram.split_at_mut(UdpHeader::LEN);
    let header = UdpHeader {
        source_port: slot.source_port,
        destination_port: RECEIVE_PORT,
        payload_len: u16::try_from(payload.len()).expect("packets are at most 9000 bytes"),
        checksum: 0,
    };
    let pseudo = pseudo_header(slot, destination);
    let header = if checksum { header.with_checksum(pseudo, payload) } else { header };
    header.emit(head);
}

/// Parses a damaged datagram as the receiver does, and stores the result in `slot`.
fn receive(slot: &mut PacketSlot, destination: NodeId, datagram: &[u8]) {
    slot.integrity = match udp_payload(slot, destination, datagram) {
        None => Integrity::BadChecksum,
        Some((header, payload)) => match Packet::parse(payload) {
            Err(_) => Integrity::Malformed,
            Ok((packet, payload)) => {
                slot.packet = packet;
                slot.payload_len = u16::try_from(payload.len()).expect("no longer than it was");
                slot.source_port = header.source_port;
                Integrity::Sound
            }
        },
    };
}

/// Returns the payload that the receiving host's UDP accepts; `None` if length, port or checksum are wrong.
fn udp_payload<'a>(
    slot: &PacketSlot,
    destination: NodeId,
    datagram: &'a [u8],
) -> Option<(UdpHeader, &'a [u8])> {
    let (header, payload) = UdpHeader::parse(datagram).ok()?;
    header.verify(pseudo_header(slot, destination), payload).ok()?;
    let is_complete = UdpHeader::LEN + payload.len() == datagram.len();
    (is_complete && header.destination_port == RECEIVE_PORT).then_some((header, payload))
}

fn pseudo_header(slot: &PacketSlot, destination: NodeId) -> PseudoHeader {
    let tuple = five_tuple(slot.source, destination, slot.source_port);
    PseudoHeader::V4 { source: tuple.src.into(), destination: tuple.dst.into() }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;
    use weft_wire::{DataHeader, MessageHeader};

    use super::*;

    fn slot() -> PacketSlot {
        let message = MessageHeader { opcode: 1, tag: 0, id: 2, offset: 3, length: 4096 };
        let header = DataHeader { psn: 77, destination_cid: 5, ..DataHeader::default() };
        PacketSlot {
            source: NodeId(1),
            source_port: 0xc123,
            payload_len: 301,
            integrity: Integrity::Sound,
            packet: Packet::data(header, Some(message)),
        }
    }

    #[test]
    fn an_undamaged_datagram_is_received_as_it_was() {
        let mut received = slot();
        let datagram = emit(&received, NodeId(2), true);
        receive(&mut received, NodeId(2), &datagram);
        assert_eq!(received.integrity, Integrity::Sound);
        assert_eq!(received.packet, slot().packet);
        assert_eq!(received.payload_len, 301);
    }

    #[test]
    fn the_checksum_detects_every_single_flip() {
        let datagram = emit(&slot(), NodeId(2), true);
        for bit in 0..datagram.len() * 8 {
            let mut damaged = datagram.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut received = slot();
            receive(&mut received, NodeId(2), &damaged);
            assert_eq!(received.integrity, Integrity::BadChecksum, "bit {bit}");
        }
    }

    /// A datagram that is encoded already is changed in place, or its receiver's checksum detects the change.
    #[test]
    fn an_encoded_datagram_is_damaged_in_place() {
        let mut rng = Seed(5).rng();
        for checksum in [true, false] {
            let (mut detected, mut changed) = (0, 0);
            for _ in 0..1_000 {
                let (mut received, mut bytes) = (slot(), vec![9; 300]);
                damage_datagram(&mut received, &mut bytes, NodeId(2), checksum, &mut rng);
                detected += usize::from(received.integrity == Integrity::BadChecksum);
                changed += usize::from(bytes != [9; 300]);
            }
            if checksum {
                assert!(detected > 950, "{detected}");
            } else {
                assert!(changed > 700, "{changed}");
            }
        }
    }

    #[test]
    fn without_a_checksum_flipped_headers_reach_the_engine() {
        let mut rng = Seed(5).rng();
        let mut changed = 0;
        for _ in 0..200 {
            let mut received = slot();
            damage(&mut received, NodeId(2), false, &mut rng);
            changed += u32::from(
                received.integrity == Integrity::Sound && received.packet != slot().packet,
            );
        }
        assert!(changed > 20, "{changed} of 200 changed");
    }
}
