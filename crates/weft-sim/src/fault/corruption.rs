//! Flips bits of packets on chosen links. The packet is written out as the agent would write it,
//! with its UDP header and checksum; the flipped bytes are checked and parsed as a receiver would.
//! What the checksum catches is dropped by the receiving host; what it misses reaches the engine.

use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{Duration, Rng};
use weft_wire::Packet;

use super::{Action, Change, FaultError, LinkSelector, Plan, Scheduler, Window, probability};
use crate::nic::{RECEIVE_PORT, five_tuple};
use crate::packet::{Integrity, Parcel};

/// Bits of packets are flipped for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// On which links, in both directions.
    pub links: LinkSelector,
    /// Share of packets that are damaged, 0 to 1.
    pub probability: f64,
    /// Whether UDP checksums are in use. Without them flipped headers reach the engines.
    #[serde(default = "in_use")]
    pub checksum: bool,
    /// When it begins.
    #[serde(default)]
    pub at: Duration,
    /// How long it lasts; without it, to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

fn in_use() -> bool {
    true
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        let (chance, checksum) = (probability(self.probability)?, self.checksum);
        for link in plan.directions(&self.links)? {
            let change = Change::Corruption { chance, checksum };
            plan.during(
                Window { at: self.at, duration: self.duration },
                Action::Impair { link, change },
            );
        }
        Ok(())
    }
}

/// Length of a UDP header (RFC 768).
const UDP_HEADER: usize = 8;

/// Flips a bit of the datagram, rarely up to four, and looks at the result as its receiver will. A
/// single flip never escapes the checksum; two that cancel in its sum do.
pub(super) fn damage(parcel: &mut Parcel, destination: NodeId, checksum: bool, rng: &mut Rng) {
    let mut datagram = emit(parcel);
    if checksum {
        let sum = udp_checksum(parcel, destination, &datagram);
        datagram[6..UDP_HEADER].copy_from_slice(&sum.to_be_bytes());
    }
    let headers = UDP_HEADER + parcel.packet.len();
    let more = if rng.chance(1, 16) { rng.index(4) } else { 0 };
    for _ in 0..=more {
        // Half of the flips hit the headers, which are a small part of the bytes.
        let bytes = if rng.chance(1, 2) { headers } else { datagram.len() };
        datagram[rng.index(bytes)] ^= 1 << rng.index(8);
    }
    receive(parcel, destination, &datagram);
}

/// The datagram: UDP header with no checksum, transport headers, payload of zeros.
fn emit(parcel: &Parcel) -> Vec<u8> {
    let length = UDP_HEADER + parcel.packet.len() + usize::from(parcel.payload_len);
    let mut datagram = vec![0; length];
    let field = u16::try_from(length).expect("packets are at most 9000 bytes and headers");
    datagram[..2].copy_from_slice(&parcel.source_port.to_be_bytes());
    datagram[2..4].copy_from_slice(&RECEIVE_PORT.to_be_bytes());
    datagram[4..6].copy_from_slice(&field.to_be_bytes());
    parcel.packet.emit(&mut datagram[UDP_HEADER..]);
    datagram
}

/// The receiver's view of a damaged datagram, written back into `parcel`.
fn receive(parcel: &mut Parcel, destination: NodeId, datagram: &[u8]) {
    let field = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
    let misled = field(2) != RECEIVE_PORT || usize::from(field(4)) != datagram.len();
    // An all-zero checksum means that the sender made none (RFC 768).
    let sums = field(6) == 0 || udp_checksum(parcel, destination, datagram) == 0xffff;
    parcel.integrity = match Packet::parse(&datagram[UDP_HEADER..]) {
        _ if misled || !sums => Integrity::BadChecksum,
        Err(_) => Integrity::Malformed,
        Ok((packet, payload)) => {
            parcel.packet = packet;
            parcel.payload_len = u16::try_from(payload.len()).expect("no longer than it was");
            parcel.source_port = field(0);
            Integrity::Sound
        }
    };
}

/// The Internet checksum of pseudo-header and datagram (RFC 768, RFC 1071), as it is transmitted:
/// never zero. Over a datagram that carries its checksum it gives 0xffff.
fn udp_checksum(parcel: &Parcel, destination: NodeId, datagram: &[u8]) -> u16 {
    let tuple = five_tuple(parcel.source, destination, parcel.source_port);
    let halves = |word: u32| u64::from(word >> 16) + u64::from(word & 0xffff);
    let pseudo = halves(tuple.src) + halves(tuple.dst) + u64::from(tuple.protocol);
    let length = datagram.len() as u64;
    let words = datagram
        .chunks(2)
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum = pseudo + length + words.sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let complement = !u16::try_from(sum).expect("folded to 16 bits");
    if complement == 0 { 0xffff } else { complement }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;
    use weft_wire::{DataHeader, MessageHeader};

    use super::*;

    fn parcel() -> Parcel {
        let message = MessageHeader { opcode: 1, id: 2, offset: 3, length: 4096 };
        let header = DataHeader { psn: 77, destination_cid: 5, ..DataHeader::default() };
        Parcel {
            source: NodeId(1),
            source_port: 0xc123,
            payload_len: 301,
            integrity: Integrity::Sound,
            packet: Packet::data(header, Some(message)),
        }
    }

    #[test]
    fn an_undamaged_datagram_is_received_as_it_was() {
        let mut received = parcel();
        let mut datagram = emit(&received);
        let sum = udp_checksum(&received, NodeId(2), &datagram);
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        receive(&mut received, NodeId(2), &datagram);
        assert_eq!(received.integrity, Integrity::Sound);
        assert_eq!(received.packet, parcel().packet);
        assert_eq!(received.payload_len, 301);
    }

    #[test]
    fn the_checksum_catches_every_single_flip() {
        let mut datagram = emit(&parcel());
        let sum = udp_checksum(&parcel(), NodeId(2), &datagram);
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        for bit in 0..datagram.len() * 8 {
            let mut damaged = datagram.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut received = parcel();
            receive(&mut received, NodeId(2), &damaged);
            assert_eq!(received.integrity, Integrity::BadChecksum, "bit {bit}");
        }
    }

    #[test]
    fn without_a_checksum_flipped_headers_reach_the_engine() {
        let mut rng = Seed(5).rng();
        let mut changed = 0;
        for _ in 0..200 {
            let mut received = parcel();
            damage(&mut received, NodeId(2), false, &mut rng);
            changed += u32::from(
                received.integrity == Integrity::Sound && received.packet != parcel().packet,
            );
        }
        assert!(changed > 20, "{changed} of 200 changed");
    }
}
