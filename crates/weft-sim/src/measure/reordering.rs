//! Reordering as receivers meet it: by how many packets one arrives ahead of the first missing one (RFC 4737 counts from
//! the other end), and how many bytes a receiver that delivers in order would have to hold for that.
//!
//! Weft's receivers place payload at once and hold 16 bytes a packet; other receivers buffer the payload itself.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_topo::NodeId;
use weft_transport::{ConnectionId, Placement};

use super::Distribution;
use super::counts::Counts;

/// The arrivals at all receivers, by connection.
#[derive(Debug, Default)]
pub struct ReorderingWatch {
    connections: BTreeMap<(NodeId, ConnectionId), Arrivals>,
    distances: Counts,
    sum_of_distances: u64,
}

/// The reordering of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReorderingReport {
    /// Packets that arrived before one with a lower number.
    pub packets: u64,
    /// The number of packets by which they were ahead of the first missing one: the mean.
    pub mean_distance: f64,
    /// The 99th percentile, at most a sixteenth too high.
    pub p99_distance: u64,
    /// The largest distance, likewise.
    pub max_distance: u64,
    /// Payload that waited for earlier packets, bytes: the most at a time, of each connection that received anything.
    pub held_bytes: Distribution,
}

/// The arrivals of one connection.
#[derive(Debug, Default)]
struct Arrivals {
    /// The first missing packet; `None` until the connection's first packet arrived, since numbers begin at random. Until
    /// then no distance is known.
    missing: Option<u32>,
    /// The packets after it that arrived, and their payload in bytes.
    held: BTreeMap<u32, u16>,
    held_bytes: u64,
    max_held_bytes: u64,
}

impl ReorderingWatch {
    /// Records a payload that `host` was asked to place.
    pub fn on_place(&mut self, host: NodeId, placement: &Placement) {
        let arrivals = self.connections.entry((host, placement.connection)).or_default();
        if (placement.message, placement.offset) == (0, 0) {
            arrivals.missing.get_or_insert(placement.psn);
        }
        arrivals.hold(placement.psn, placement.len);
        match arrivals.missing {
            Some(missing) if missing == placement.psn => arrivals.release(),
            Some(missing) => {
                let distance = placement.psn.wrapping_sub(missing).into();
                self.distances.add(distance);
                self.sum_of_distances += distance;
            }
            None => {}
        }
        arrivals.max_held_bytes = arrivals.max_held_bytes.max(arrivals.held_bytes);
    }

    /// Adds what another watch recorded of other hosts.
    pub fn add_hosts(&mut self, others: Self) {
        self.connections.extend(others.connections);
        self.distances.add_all(&others.distances);
        self.sum_of_distances += others.sum_of_distances;
    }

    /// Returns what was recorded.
    #[expect(clippy::cast_precision_loss, reason = "bytes and packets of a run")]
    pub fn report(&self) -> ReorderingReport {
        let packets = self.distances.total();
        let held = self.connections.values().map(|arrivals| arrivals.max_held_bytes as f64);
        ReorderingReport {
            packets,
            mean_distance: self.sum_of_distances as f64 / packets.max(1) as f64,
            p99_distance: self.distances.percentile(99, packets),
            max_distance: self.distances.percentile(100, packets),
            held_bytes: Distribution::of(&mut held.collect::<Vec<_>>()),
        }
    }
}

impl Arrivals {
    fn hold(&mut self, psn: u32, len: u16) {
        if self.held.insert(psn, len).is_none() {
            self.held_bytes += u64::from(len);
        }
    }

    /// Releases the packets up to the next missing one. Those that remain are held.
    fn release(&mut self) {
        while let Some((next, len)) = self.missing.and_then(|psn| self.held.remove_entry(&psn)) {
            self.missing = Some(next.wrapping_add(1));
            self.held_bytes -= u64::from(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the report of packets of 1000 bytes that arrive in this order, numbered from the first one sent.
    fn report(order: &[u32]) -> ReorderingReport {
        const FIRST: u32 = u32::MAX - 1;
        let mut watch = ReorderingWatch::default();
        for &number in order {
            let placement = Placement {
                connection: ConnectionId(7),
                psn: FIRST.wrapping_add(number),
                opcode: 0,
                tag: 0,
                message: number / 4,
                offset: number % 4 * 1000,
                len: 1000,
                length: 4000,
            };
            watch.on_place(NodeId(1), &placement);
        }
        watch.report()
    }

    #[test]
    fn packets_in_order_have_no_distance_and_nothing_is_held() {
        let got = report(&[0, 1, 2, 3, 4, 5]);
        assert_eq!((got.packets, got.max_distance, got.held_bytes.max), (0, 0, 0.0));
        assert_eq!(got.held_bytes.count, 1);
    }

    #[test]
    fn a_packet_is_as_far_ahead_as_the_first_missing_one_is_behind() {
        let got = report(&[0, 2, 5, 1, 4, 3, 6]);
        // 2 and 5 wait for 1; then 4 and 5 wait for 3.
        assert_eq!(got.packets, 3);
        assert_eq!((got.mean_distance, got.max_distance), ((1.0 + 4.0 + 1.0) / 3.0, 4));
        assert_eq!(got.held_bytes.max, 2000.0);
    }

    #[test]
    fn the_first_packet_of_a_connection_may_be_late() {
        let got = report(&[1, 2, 0, 3, 5]);
        assert_eq!((got.packets, got.max_distance, got.held_bytes.max), (1, 1, 2000.0));
    }
}
