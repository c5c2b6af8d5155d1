//! Emulation of longer cables: each arriving packet is handled after a delay. It replaces netem on kernels without it
//! (`weft-lab`'s front page).

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_transport::Arrival;
use weft_units::{Duration, Instant};

/// Datagrams that are delayed.
#[derive(Debug, Default)]
pub(crate) struct DelayLine {
    /// The delay of each source address.
    delays: BTreeMap<IpAddr, Duration>,
    /// Delayed datagrams by due time, then by order of arrival.
    in_flight: BTreeMap<(Instant, u64), (Arrival, Vec<u8>)>,
    /// Number of datagrams added so far.
    count: u64,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
}

impl DelayLine {
    pub(crate) fn new(delays: BTreeMap<IpAddr, Duration>) -> Self {
        Self { delays, ..Self::default() }
    }

    /// Returns `true` if an address has a delay.
    #[inline]
    pub(crate) fn has_delays(&self) -> bool {
        !self.delays.is_empty()
    }

    /// Adds a datagram from the socket.
    pub(crate) fn put(&mut self, arrival: &Arrival, datagram: &[u8]) {
        let delay = self.delays.get(&arrival.from.ip()).copied().unwrap_or(Duration::ZERO);
        let due = arrival.received_at + delay;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(datagram);
        self.count += 1;
        let arrival = Arrival { received_at: due, ..*arrival };
        self.in_flight.insert((due, self.count), (arrival, bytes));
    }

    /// Returns the due time of the next datagram, if any.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|(&(due, _), _)| due)
    }

    /// Takes the next datagram, if it is due by now.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(Arrival, Vec<u8>)> {
        let first = self.in_flight.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Returns a buffer for reuse.
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        self.spare.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_delayed_by_host_and_taken_in_order_of_their_due_time() {
        let [near, far]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let micros = Duration::from_micros;
        let mut line = DelayLine::new([(near, micros(2)), (far, micros(5))].into());
        let start = Instant::EPOCH;
        let arrival = |from: IpAddr, at| Arrival {
            from: (from, 1).into(),
            received_at: start + micros(at),
            congestion_experienced: false,
            hops: 3,
        };
        line.put(&arrival(far, 0), b"far");
        line.put(&arrival(near, 1), b"near");
        line.put(&arrival(near, 3), b"near again");
        assert_eq!(line.next_due(), Some(start + micros(3)));
        assert!(line.take(start + micros(2)).is_none());
        let order: Vec<_> = std::iter::from_fn(|| line.take(start + micros(9))).collect();
        let bytes: Vec<&[u8]> = order.iter().map(|(_, bytes)| &bytes[..]).collect();
        assert_eq!(bytes, [&b"near"[..], b"far", b"near again"]);
        assert_eq!(order[1].0.received_at, start + micros(5));
        assert_eq!(line.next_due(), None);
    }
}
