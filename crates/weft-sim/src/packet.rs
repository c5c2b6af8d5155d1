//! Packets: the part every hop reads travels in the event, the rest waits in a pool.
//!
//! A switch needs a packet's destination, its hash and its size; they are the [`Hop`], 24 bytes
//! inside the event, so that forwarding touches no memory of its own for the packet. The headers
//! are the [`Parcel`], written when the packet is injected and read when it is delivered.

use weft_topo::{LinkId, NodeId};
use weft_wire::Packet;

/// The two ECN bits, as far as they matter here (RFC 3168). The transport's packets are all
/// ECN-capable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// No congestion experienced yet.
    #[default]
    Capable,
    /// A switch marked it.
    CongestionExperienced,
}

/// A packet on its way over one link: what the switch at the far end needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its headers.
    pub packet: ParcelId,
    /// The link it is on.
    pub link: LinkId,
    /// Where that link ends.
    pub node: NodeId,
    /// The host it is for.
    pub destination: NodeId,
    /// The part of the switches' hash that they all share; see
    /// [`FabricHash::base`](weft_topo::hash::FabricHash::base).
    pub hash: u32,
    /// Bytes on the wire, with every header.
    pub size: u16,
    /// Switches passed so far, and the link's epoch.
    pub progress: Progress,
    /// Whether it was marked.
    pub ecn: Ecn,
}

/// Two numbers of four bits: how many switches the packet passed, which is all the wire's hop count
/// has room for, and in which epoch of its link it was sent. A link that goes down begins another
/// epoch, so packets that were on it are recognised when they would arrive. Sixteen flaps within
/// one flight would be taken for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress(u8);

impl Progress {
    /// Switches passed, at most 15.
    #[inline]
    pub const fn switches(self) -> u8 {
        self.0 & 0xf
    }

    /// The epoch of the link the packet is on, modulo 16.
    #[inline]
    pub const fn epoch(self) -> u8 {
        self.0 >> 4
    }

    /// Both numbers in a byte.
    #[inline]
    pub(crate) const fn to_bits(self) -> u8 {
        self.0
    }

    /// The inverse of [`Self::to_bits`].
    #[inline]
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// One switch further.
    #[inline]
    #[must_use]
    pub const fn past_switch(self) -> Self {
        Self(if self.switches() < 15 { self.0 + 1 } else { self.0 })
    }

    /// Sent in this epoch.
    #[inline]
    #[must_use]
    pub const fn in_epoch(self, epoch: u8) -> Self {
        Self(self.switches() | epoch << 4)
    }
}

/// Names a [`Parcel`] in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParcelId(u32);

impl ParcelId {
    #[inline]
    pub(crate) const fn to_bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// What happened to a packet's bytes on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// They are as sent, or were changed so that nobody can tell.
    Sound,
    /// The UDP checksum will not match.
    BadChecksum,
    /// The checksum matches or was switched off, but the headers do not parse.
    Malformed,
}

/// A packet's headers as values, and what of the world only its ends care for.
#[derive(Clone, Copy, Debug)]
#[repr(C)] // What a data packet needs comes first and shares a cache line.
pub struct Parcel {
    /// The host that sent it.
    pub source: NodeId,
    /// The UDP source port it was sent from: its entropy.
    pub source_port: u16,
    /// Bytes of payload.
    pub payload_len: u16,
    /// Whether its bytes survived.
    pub integrity: Integrity,
    /// The transport's headers.
    pub packet: Packet,
}

/// Every packet in flight.
#[derive(Debug, Default)]
pub struct ParcelPool {
    parcels: Vec<Parcel>,
    free: Vec<ParcelId>,
}

impl ParcelPool {
    /// Keeps `parcel` until it is taken out.
    #[inline]
    pub fn insert(&mut self, parcel: Parcel) -> ParcelId {
        // The place freed last is the one most likely to be in the cache.
        if let Some(id) = self.free.pop() {
            self.parcels[id.0 as usize] = parcel;
            return id;
        }
        let id = u32::try_from(self.parcels.len()).expect("fewer than 2^32 packets in flight");
        self.parcels.push(parcel);
        ParcelId(id)
    }

    /// What `id` names.
    #[inline]
    pub fn get(&self, id: ParcelId) -> &Parcel {
        &self.parcels[id.0 as usize]
    }

    /// What `id` names, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: ParcelId) -> &mut Parcel {
        &mut self.parcels[id.0 as usize]
    }

    /// Forgets `id`: the packet was delivered or dropped.
    #[inline]
    pub fn remove(&mut self, id: ParcelId) {
        self.free.push(id);
    }

    /// Packets in flight.
    pub fn live(&self) -> u64 {
        (self.parcels.len() - self.free.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_stop_at_fifteen_and_leave_the_epoch_alone() {
        let mut progress = Progress::default().in_epoch(9);
        (0..20).for_each(|_| progress = progress.past_switch());
        assert_eq!((progress.switches(), progress.epoch()), (15, 9));
    }
}
