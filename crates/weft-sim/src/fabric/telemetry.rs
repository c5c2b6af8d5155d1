//! In-band telemetry for congestion controls that need it (HPCC, SIGCOMM 2019): switch ports write the state of their link
//! on each data packet that leaves, the receiving host remembers it until the ACK that echoes the packet, and returns it
//! with that ACK. In a real fabric it is in a header, up to 42 bytes for five hops, which are not counted here.

use std::collections::{BTreeMap, VecDeque};

use weft_topo::NodeId;
use weft_transport::ConnectionId;
use weft_transport::congestion::HopTelemetry;

use crate::packet::PacketRef;

/// Maximum number of packets that a receiver remembers for one connection: twice the most that one ACK may await.
const REMEMBERED: usize = 512;

/// The telemetry of one packet, the first switch first.
type Hops = Vec<HopTelemetry>;

/// The telemetry of packets in flight, and of packets that are not acknowledged yet.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// By the place of the packet in the pool. It is apart from the packets, which stay small.
    in_flight: Vec<Hops>,
    /// By receiving host and its connection: the timestamps of packets with their telemetry, in the order of arrival.
    arrived: BTreeMap<(NodeId, ConnectionId), VecDeque<(u32, Hops)>>,
}

impl Telemetry {
    /// Returns what switches wrote on a packet.
    pub fn of(&self, packet: PacketRef) -> &[HopTelemetry] {
        self.in_flight.get(packet.index()).map_or(&[], Vec::as_slice)
    }

    fn of_mut(&mut self, packet: PacketRef) -> &mut Hops {
        if self.in_flight.len() <= packet.index() {
            self.in_flight.resize(packet.index() + 1, Vec::new());
        }
        &mut self.in_flight[packet.index()]
    }

    /// Removes what was written on the previous packet in this place.
    pub fn clear(&mut self, packet: PacketRef) {
        self.of_mut(packet).clear();
    }

    /// Writes the state of a link on a packet.
    pub fn stamp(&mut self, packet: PacketRef, hop: HopTelemetry) {
        self.of_mut(packet).push(hop);
    }

    /// Copies what is written on a packet to a duplicate.
    pub fn copy(&mut self, original: PacketRef, copy: PacketRef) {
        let hops = self.of(original).to_vec();
        *self.of_mut(copy) = hops;
    }

    /// Remembers the telemetry of a data packet that arrived, by its timestamp.
    pub fn remember(
        &mut self,
        (host, connection): (NodeId, ConnectionId),
        timestamp: u32,
        packet: PacketRef,
    ) {
        let hops = std::mem::take(self.of_mut(packet));
        let arrived = self.arrived.entry((host, connection)).or_default();
        arrived.push_back((timestamp, hops));
        if arrived.len() > REMEMBERED {
            arrived.pop_front();
        }
    }

    /// Writes on an ACK the telemetry of the packet that it echoes; nothing if that is not remembered.
    pub fn echo(
        &mut self,
        (host, connection): (NodeId, ConnectionId),
        timestamp: u32,
        ack: PacketRef,
    ) {
        let arrived = self.arrived.entry((host, connection)).or_default();
        let place = arrived.iter().rposition(|(at, _)| *at == timestamp);
        let hops = place.map(|place| arrived[place].1.clone()).unwrap_or_default();
        // Later ACKs echo this packet or later ones.
        arrived.drain(..place.unwrap_or(0));
        *self.of_mut(ack) = hops;
    }
}

#[cfg(test)]
mod tests {
    use weft_units::{BitRate, Instant};

    use super::*;
    use crate::packet::{PacketPool, PacketSlot};

    fn hop(link: u32) -> HopTelemetry {
        let rate = BitRate::gbps(100).unwrap();
        HopTelemetry { link, queue: 0, sent: 0, at: Instant::EPOCH, rate }
    }

    #[test]
    fn an_ack_returns_what_was_written_on_the_packet_that_it_echoes() {
        let mut pool = PacketPool::default();
        let mut telemetry = Telemetry::default();
        let end = (NodeId(4), ConnectionId(9));
        let packets: Vec<_> = (0..3).map(|_| pool.insert(&PacketSlot::default())).collect();
        for (packet, links) in packets.iter().zip([[1, 2], [3, 4], [5, 6]]) {
            telemetry.clear(*packet);
            links.iter().for_each(|link| telemetry.stamp(*packet, hop(*link)));
        }
        for (packet, timestamp) in packets.iter().zip([100, 200, 300]) {
            telemetry.remember(end, timestamp, *packet);
            assert!(telemetry.of(*packet).is_empty(), "the place is free");
        }
        let ack = pool.insert(&PacketSlot::default());
        for (timestamp, expected) in
            [(200, &[3, 4][..]), (200, &[3, 4]), (100, &[]), (300, &[5, 6])]
        {
            telemetry.echo(end, timestamp, ack);
            let links: Vec<_> = telemetry.of(ack).iter().map(|hop| hop.link).collect();
            assert_eq!(links, expected, "the echo of {timestamp}");
        }
        telemetry.echo((NodeId(4), ConnectionId(8)), 300, ack);
        assert!(telemetry.of(ack).is_empty(), "another connection");
    }
}
