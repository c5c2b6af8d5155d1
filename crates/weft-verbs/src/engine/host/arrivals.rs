//! Reception: from neighbours through shared memory, from other hosts through sockets.

use weft_rnic::ReceivedPacket;
use weft_udp::SocketSet as _;
use weft_units::Instant;

use super::Host;
use crate::engine::memory::ProcessMemory;
use crate::engine::same_host::BUDGET;

impl Host {
    /// Handles packets and link changes of neighbours, and with `accepts_peers` also new connections. Returns their
    /// number.
    pub(super) fn take_from_neighbours(&mut self, now: Instant, accepts_peers: bool) -> usize {
        if accepts_peers {
            self.neighbours.service(now);
        }
        let changes = self.apply_link_changes();
        if self.neighbours.have_records() {
            return changes + self.take_packets(now, BUDGET);
        }
        changes
    }

    /// Handles packets of neighbours, at most `max` of each. Returns their number.
    pub(super) fn take_packets(&mut self, now: Instant, max: usize) -> usize {
        let mut taken = 0;
        let Self { device, neighbours, held, faults, .. } = self;
        neighbours.take_leases(|id, lease, reach| device.borrow(lease, id, reach));
        for index in 0..neighbours.len() {
            taken += neighbours.receive(index, max, |arrived| {
                let record = arrived.record;
                let (payload, local) = (record.payload, record.to);
                let mut memory = ProcessMemory { payload, held, faults, local };
                let received = ReceivedPacket {
                    packet: &record.packet,
                    rdma: record.rdma.as_ref(),
                    payload_len: record.payload_len,
                    acknowledged: record.acknowledged,
                };
                device.handle_link_packet(now, arrived.link, arrived.from, received, &mut memory);
            });
        }
        taken
    }

    /// Handles packets that arrived at the active addresses, and with `quiet_ones` at all others too. Returns the
    /// number of datagrams.
    pub(super) fn take_from_network(&mut self, quiet_ones: bool) -> usize {
        let mut received = 0;
        self.is_quiet = true;
        for index in 0..self.driver.sockets.addresses() {
            if quiet_ones || self.driver.sockets.is_active(index) {
                received += self.take_arrivals(index);
            }
            self.is_quiet &= !self.driver.sockets.is_active(index);
        }
        received
    }

    fn take_arrivals(&mut self, index: usize) -> usize {
        // A fault in memory is handled first.
        if !self.faults.is_empty() {
            return 0;
        }
        let local = self.driver.sockets.ip(index);
        let (driver, mut node) = self.parts(local);
        driver.receive(index, &mut node)
    }
}
