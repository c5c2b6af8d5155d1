//! A port of a known rate: the agent passes to the kernel only as many packets as the port can send, so that the
//! queue is in the engine, as with a NIC that requests packets when it has room.

use weft_units::{BitRate, ByteCount, Duration, Instant};

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 14 + 20 + 8;

/// The rate and queue of a host's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The rate of the link.
    pub rate: BitRate,
    /// The queue's capacity, full packets.
    pub packets: u16,
}

/// A port and the time at which its queue is empty.
#[derive(Debug)]
pub(crate) struct Port {
    rate: BitRate,
    /// Transmission time of a full packet.
    full: Duration,
    /// Transmission time of a full queue.
    queue_time: Duration,
    /// The time at which its queue is empty.
    free_at: Instant,
    /// The time at which it has room, if the last request found none.
    room_at: Option<Instant>,
}

impl Port {
    pub(crate) fn new(config: PortConfig, mtu: u16) -> Self {
        let full = config.rate.serialization_delay(ByteCount(u64::from(mtu) + 64 + HEADERS));
        let queue_time = full * u64::from(config.packets.max(1));
        Self { rate: config.rate, full, queue_time, free_at: Instant::EPOCH, room_at: None }
    }

    /// Returns the number of full packets that it has room for.
    pub(crate) fn room(&mut self, now: Instant) -> usize {
        self.free_at = self.free_at.max(now);
        let left =
            (now + self.queue_time).since(self.free_at).as_nanos() / self.full.as_nanos().max(1);
        self.room_at = (left == 0).then(|| self.free_at + self.full - self.queue_time);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Accounts for a datagram of `datagram` bytes that enters the queue.
    pub(crate) fn take(&mut self, datagram: u16) {
        self.free_at += self.rate.serialization_delay(ByteCount(u64::from(datagram) + HEADERS));
    }

    /// Returns the time at which the queue has room, if [`room`](Self::room) found none.
    pub(crate) fn room_at(&self) -> Option<Instant> {
        self.room_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_room_for_some_packets_and_again_when_one_has_left() {
        let rate = BitRate::bps(80_000_000).unwrap();
        // 894 + 64 + 42 bytes are 100 us.
        let mut port = Port::new(PortConfig { rate, packets: 4 }, 894);
        let start = Instant::EPOCH + Duration::from_millis(1);
        assert_eq!((port.room(start), port.room_at()), (4, None));
        (0..4).for_each(|_| port.take(958));
        assert_eq!(port.room(start), 0);
        assert_eq!(port.room_at(), Some(start + Duration::from_micros(100)));
        assert_eq!(port.room(start + Duration::from_micros(250)), 2);
        // Unused capacity does not accumulate.
        assert_eq!(port.room(start + Duration::from_secs(1)), 4);
    }
}
