//! The queue of cut packets at a port: ahead of whole ones, up to a share of the link.
//!
//! A deficit counts what cut packets have sent beyond their share; each whole packet pays some of it back. So a flood of
//! headers cannot keep payload from the link (Ultra Ethernet 1.0.3, section 3.6.17).

use super::{Queue, Waiting};

/// Maximum number of bytes that cut packets may send in a row because they sent none before.
const MAX_BURST: i64 = 9_216;

/// The queue of cut packets.
#[derive(Debug)]
pub struct Trimmed {
    queue: Queue,
    share_percent: i64,
    /// Bytes beyond the share, in units of 1/100; negative if there is room for more.
    ahead: i64,
}

impl Trimmed {
    /// Returns an empty queue of packets that may take `share_percent` of the link.
    pub fn new(share_percent: u8) -> Self {
        Self { queue: Queue::default(), share_percent: share_percent.into(), ahead: 0 }
    }

    /// Returns the bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.queue.bytes
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.queue.push(waiting);
    }

    /// Removes and returns the next packet, unless whole packets wait and it is not the turn of cut ones.
    pub(super) fn pop(&mut self, data_waits: bool) -> Option<Waiting> {
        if data_waits && self.ahead > 0 {
            return None;
        }
        let waiting = self.queue.pop()?;
        if data_waits {
            self.ahead += i64::from(waiting.hop.size()) * (100 - self.share_percent);
        }
        Some(waiting)
    }

    /// Counts a whole packet that is sent.
    pub(super) fn note_data(&mut self, size: u16) {
        let burst = MAX_BURST * (100 - self.share_percent);
        self.ahead = (self.ahead - i64::from(size) * self.share_percent).max(-burst);
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::NodeId;

    use crate::packet::{Class, Hop, PacketRef};
    use crate::port::{Port, Trimmed, Waiting};
    use crate::time::{SimSpan, SimTime};

    fn waiting(hop: Hop) -> Waiting {
        Waiting { hop, jitter: SimSpan::ZERO }
    }

    fn packet(size: u16) -> Hop {
        Hop::new(PacketRef::default(), NodeId(0), NodeId(1), 0, size)
    }

    /// Returns the bytes that leave of cut and of whole packets while both wait.
    fn sent(share_percent: u8, packets: usize) -> (u64, u64) {
        let mut port = Port::new(NodeId(2), false);
        port.trimmed = Some(Box::new(Trimmed::new(share_percent)));
        let (mut cut, mut whole) = (0, 0);
        for _ in 0..packets {
            port.push(waiting(packet(4_096).trimmed(64)));
            port.push(waiting(packet(4_096)));
        }
        for _ in 0..packets {
            let hop = port.pop(SimTime::EPOCH).unwrap().hop;
            match hop.class() {
                Class::Trimmed => cut += u64::from(hop.size()),
                _ => whole += u64::from(hop.size()),
            }
        }
        (cut, whole)
    }

    #[test]
    fn cut_packets_take_their_share_of_the_link_while_whole_ones_wait() {
        for (share, expected) in [(50, 1.0), (25, 1.0 / 3.0)] {
            let (cut, whole) = sent(share, 10_000);
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let ratio = cut as f64 / whole as f64;
            assert!((ratio / expected - 1.0).abs() < 0.02, "{cut} of {whole} with {share} %");
        }
        assert_eq!(sent(100, 1_000), (64_000, 0), "strict priority");
    }

    #[test]
    fn cut_packets_go_ahead_and_leave_when_nothing_else_waits() {
        let mut port = Port::new(NodeId(2), false);
        port.trimmed = Some(Box::new(Trimmed::new(1)));
        port.push(waiting(packet(4_096)));
        for size in [64, 65, 66] {
            port.push(waiting(packet(4_096).trimmed(size)));
        }
        assert_eq!((port.queued_bytes(), port.waiting(Class::Trimmed)), (4_291, 195));
        assert_eq!(port.next_departure(), Some(SimTime::EPOCH));
        let order = std::iter::from_fn(|| port.pop(SimTime::EPOCH));
        assert_eq!(order.map(|w| w.hop.size()).collect::<Vec<_>>(), [64, 4_096, 65, 66]);
        assert!(port.is_empty());
    }
}
