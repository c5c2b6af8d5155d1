//! Packets: the fields that every hop reads are in the event, and the rest is in a pool.
//!
//! A switch needs a packet's destination, hash and size; they are the [`Hop`], 24 bytes inside the event, so that
//! forwarding reads no other memory for the packet. The headers are the [`PacketSlot`], written when the packet is
//! injected and read when it is delivered.

use weft_topo::{LinkId, NodeId};
use weft_transport::TrimmedAt;
use weft_wire::Packet;

mod common;
mod pages;
mod pool;
mod short_ack;

pub use pool::PacketPool;

/// The two ECN bits, as far as the simulator uses them (RFC 3168). The transport's packets are all ECN-capable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// No congestion experienced yet.
    #[default]
    Capable,
    /// A switch marked it.
    CongestionExperienced,
}

/// The class of a packet at a port that holds queues; `Control` is sent before `Data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// ACKs, set-up, replies: few and small, never paused.
    Control,
    /// Headers whose payload a switch cut off: they have a queue of their own.
    Trimmed,
    /// Payload, and probes, which must wait as payload does.
    Data,
}

/// A packet on a link: the fields that the switch at the far end needs.
///
/// Three words that are taken apart by shifts. As a struct of small fields it has the same size, but
/// the compiler stores the fields one by one and loads them in words, which the processor cannot
/// forward; those stalls took a quarter of the simulator's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Packet id (low half) and link.
    packet_and_link: u64,
    /// Node (low half) and destination.
    node_and_destination: u64,
    /// Hash (32 bits), size (16), switches passed (4), epoch (4), tag (8).
    state: u64,
}

// Positions of the fields of `state`, in bits.
const SIZE: u32 = 32;
const SWITCHES: u32 = 48;
const EPOCH: u32 = 52;
const TAG: u32 = 56;
/// Maximum number of switches passed: the wire's hop count has four bits.
const MAX_SWITCHES: u64 = 15;
// Bits of the tag.
const EXPERIENCED: u64 = 1;
const CONTROL: u64 = 2;
const TRIMMED: u64 = 4;

/// Modulus of a link's epoch.
pub const EPOCHS: u8 = 16;

/// Returns two numbers as one word.
#[inline(always)]
const fn word(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Returns the two numbers of a word.
#[inline(always)]
const fn halves(word: u64) -> (u32, u32) {
    (low(word), low(word >> 32))
}

#[expect(clippy::cast_possible_truncation, reason = "takes a word apart")]
#[inline]
const fn low(word: u64) -> u32 {
    word as u32
}

impl Hop {
    /// Returns a packet that its source is about to send. `hash` is the part of the hash that all switches share, see
    /// [`FabricHash::base`](weft_topo::hash::FabricHash::base); `size` is bytes on the wire, with every header.
    #[inline]
    pub fn new(
        packet: PacketRef,
        source: NodeId,
        destination: NodeId,
        hash: u32,
        size: u16,
    ) -> Self {
        Self {
            packet_and_link: word(packet.0, 0),
            node_and_destination: word(source.0, destination.0),
            state: u64::from(hash) | u64::from(size) << SIZE,
        }
    }

    /// Returns the id of its headers.
    #[inline]
    pub const fn packet(self) -> PacketRef {
        PacketRef(low(self.packet_and_link))
    }

    /// Returns the link that it is on.
    #[inline]
    pub const fn link(self) -> LinkId {
        LinkId(low(self.packet_and_link >> 32))
    }

    /// Returns the node at the end of that link.
    #[inline]
    pub const fn node(self) -> NodeId {
        NodeId(low(self.node_and_destination))
    }

    /// Returns the destination host.
    #[inline]
    pub const fn destination(self) -> NodeId {
        NodeId(low(self.node_and_destination >> 32))
    }

    /// Returns the part of the hash that all switches share.
    #[inline]
    pub const fn hash(self) -> u32 {
        low(self.state)
    }

    /// Returns its bytes on the wire.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes a word apart")]
    pub const fn size(self) -> u16 {
        (self.state >> SIZE) as u16
    }

    /// Returns the number of switches passed, at most 15, the maximum of the wire's hop count.
    #[inline]
    pub const fn switches(self) -> u8 {
        (self.state >> SWITCHES & MAX_SWITCHES) as u8
    }

    /// Returns the epoch of its link when it was sent, modulo [`EPOCHS`]. A link that goes down begins another, so
    /// packets that were on it are recognised when they would arrive. Sixteen flaps during one flight would not be
    /// noticed.
    #[inline]
    pub const fn epoch(self) -> u8 {
        (self.state >> EPOCH & 0xf) as u8
    }

    /// Returns its ECN bits.
    #[inline]
    pub const fn ecn(self) -> Ecn {
        if self.state >> TAG & EXPERIENCED == 0 { Ecn::Capable } else { Ecn::CongestionExperienced }
    }

    /// Returns its class at ports that hold queues.
    #[inline]
    pub const fn class(self) -> Class {
        match self.state >> TAG & (CONTROL | TRIMMED) {
            0 => Class::Data,
            CONTROL => Class::Control,
            _ => Class::Trimmed,
        }
    }

    /// Returns the same packet on `link`, which ends at `node`, in an epoch of that link.
    #[inline]
    #[must_use]
    pub const fn on(self, link: LinkId, node: NodeId, epoch: u8) -> Self {
        Self {
            packet_and_link: word(low(self.packet_and_link), link.0),
            node_and_destination: self.node_and_destination >> 32 << 32 | node.0 as u64,
            state: self.state & !(0xf << EPOCH) | (epoch as u64) << EPOCH,
        }
    }

    /// Returns the same packet with one more switch passed.
    #[inline]
    #[must_use]
    pub const fn past_switch(self) -> Self {
        let more = (self.state >> SWITCHES & MAX_SWITCHES < MAX_SWITCHES) as u64;
        Self { state: self.state + (more << SWITCHES), ..self }
    }

    /// Returns the same packet, marked.
    #[inline]
    #[must_use]
    pub const fn marked(self) -> Self {
        Self { state: self.state | EXPERIENCED << TAG, ..self }
    }

    /// Returns the same packet in the control class.
    #[inline]
    #[must_use]
    pub const fn as_control(self) -> Self {
        Self { state: self.state | CONTROL << TAG, ..self }
    }

    /// Returns the same packet after a switch has cut it to `size` bytes.
    #[must_use]
    pub const fn trimmed(self, size: u16) -> Self {
        let state = self.state & !(0xffff << SIZE) | (size as u64) << SIZE | TRIMMED << TAG;
        Self { state, ..self }
    }

    /// Returns a copy of the packet with its own headers.
    #[must_use]
    pub const fn copied(self, packet: PacketRef) -> Self {
        Self { packet_and_link: self.packet_and_link >> 32 << 32 | packet.0 as u64, ..self }
    }

    /// The largest tag of a hop; larger tags mark other events.
    pub(crate) const LAST_TAG: u64 = EXPERIENCED | CONTROL | TRIMMED;
    /// The position of the tag in the last word, in bits.
    pub(crate) const TAG_BITS: u32 = TAG;

    #[inline]
    pub(crate) const fn to_words(self) -> [u64; 3] {
        [self.packet_and_link, self.node_and_destination, self.state]
    }

    #[inline]
    pub(crate) const fn from_words(
        [packet_and_link, node_and_destination, state]: [u64; 3],
    ) -> Self {
        Self { packet_and_link, node_and_destination, state }
    }
}

/// The id of a [`PacketSlot`] in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketRef(u32);

impl PacketRef {
    /// Returns the index into an array with one entry for each place of the pool.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The condition of a packet's bytes on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// A switch cut it to its headers.
    Trimmed(TrimmedAt),
    /// The bytes are as sent, or were changed in a way that the receiver cannot detect.
    Sound,
    /// The UDP checksum will not match.
    BadChecksum,
    /// The checksum matches or was switched off, but the headers do not parse.
    Malformed,
}

/// A packet's headers as values, and the fields that only its two ends need.
#[derive(Clone, Copy, Debug)]
pub struct PacketSlot {
    /// The host that sent it.
    pub source: NodeId,
    /// The UDP source port it was sent from: its entropy.
    pub source_port: u16,
    /// Bytes of payload.
    pub payload_len: u16,
    /// The condition of its bytes.
    pub integrity: Integrity,
    /// The transport's headers.
    pub packet: Packet,
}

impl Default for PacketSlot {
    fn default() -> Self {
        Self {
            source: NodeId(0),
            source_port: 0,
            payload_len: 0,
            integrity: Integrity::Sound,
            packet: Packet::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop() -> Hop {
        Hop::new(PacketRef(7), NodeId(3), NodeId(u32::MAX), 0x8000_0001, 9216)
    }

    #[test]
    fn each_part_of_a_hop_changes_alone() {
        let sent = hop().on(LinkId(0xffff_fffe), NodeId(12), 9).past_switch().marked();
        assert_eq!(
            (sent.packet(), sent.link(), sent.node()),
            (PacketRef(7), LinkId(0xffff_fffe), NodeId(12))
        );
        assert_eq!(
            (sent.destination(), sent.hash(), sent.size()),
            (NodeId(u32::MAX), 0x8000_0001, 9216)
        );
        assert_eq!((sent.switches(), sent.epoch(), sent.ecn()), (1, 9, Ecn::CongestionExperienced));
        let again = sent.on(LinkId(1), NodeId(2), 0).copied(PacketRef(8));
        assert_eq!(
            (again.packet(), again.link(), again.node()),
            (PacketRef(8), LinkId(1), NodeId(2))
        );
        assert_eq!(
            (again.switches(), again.epoch(), again.ecn()),
            (1, 0, Ecn::CongestionExperienced)
        );
        assert_eq!((again.class(), again.as_control().class()), (Class::Data, Class::Control));
        let unmarked = hop().as_control();
        assert_eq!((unmarked.ecn(), unmarked.marked().class()), (Ecn::Capable, Class::Control));
        assert_eq!(unmarked.marked().ecn(), Ecn::CongestionExperienced);
    }

    #[test]
    fn a_cut_changes_size_and_class_alone() {
        let cut = hop().on(LinkId(5), NodeId(12), 9).marked().trimmed(64);
        assert_eq!(
            (cut.size(), cut.class(), cut.ecn()),
            (64, Class::Trimmed, Ecn::CongestionExperienced)
        );
        assert_eq!((cut.hash(), cut.epoch(), cut.switches()), (0x8000_0001, 9, 0));
        assert!(cut.to_words()[2] >> TAG <= Hop::LAST_TAG);
    }

    #[test]
    fn switches_passed_stop_at_fifteen_and_leave_the_rest_alone() {
        let far = (0..20).fold(hop().on(LinkId(0), NodeId(0), 9), |hop, _| hop.past_switch());
        assert_eq!((far.switches(), far.epoch(), far.ecn()), (15, 9, Ecn::Capable));
    }
}
