//! The pacing of packets at the rate that congestion control sets.
//!
//! A packet occupies the port for its length on the wire divided by the rate, and the next leaves after it. The rate
//! may change meanwhile, so the start of that time is stored and not its end. Fractions of a nanosecond are carried
//! over: at 100 Gb/s rounding each packet up would cost one per cent.
//!
//! A sender that is late does not catch up, as in a NIC that serves other connections meanwhile. Only packets that the
//! owner's late timer delayed, as an operating system's timers do, leave at once.
//!
//! Without a rate a packet costs one comparison; the rest is marked cold.

use weft_units::{BitRate, Duration, Instant};

use crate::path::PathId;

/// Maximum lateness of a timer for which delayed packets leave at once; more of them would fill a queue. A process that
/// shares its processor waits about as long for it.
const MAX_LATENESS: Duration = Duration::from_millis(1);

const PICOS: u64 = 1_000;

/// The pacer; it stores the packet that occupies the port.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// The bytes around a payload: a rate includes them.
    overhead: u16,
    /// The time at which the packet began to occupy the port.
    began: Instant,
    /// The fraction of a nanosecond to add to `began`, picoseconds.
    fraction: u64,
    /// The packet's length on the wire, bytes; zero before the first packet.
    bytes: u32,
    path: PathId,
    /// The lateness of the timer that released the next packet.
    late: Duration,
}

impl Pacer {
    /// Creates a pacer for packets with this many bytes around their payload.
    pub(crate) fn new(overhead: u16) -> Self {
        Self { overhead, ..Self::default() }
    }

    /// Returns `true` if no packet was paced yet.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the path of the latest packet.
    pub(crate) fn path(&self) -> PathId {
        self.path
    }

    /// Returns the time at which the next packet may leave at this rate.
    pub(crate) fn due(&self, rate: BitRate) -> Instant {
        let (at, fraction) = self.end(rate);
        at + Duration::from_nanos(u64::from(fraction > 0))
    }

    /// Returns the end of the latest packet, and the picoseconds to add to it.
    fn end(&self, rate: BitRate) -> (Instant, u64) {
        let bit_picos = u64::from(self.bytes) * 8 * 1_000_000_000_000;
        let picos = self.fraction + bit_picos / rate.as_bps();
        (self.began + Duration::from_nanos(picos / PICOS), picos % PICOS)
    }

    /// Records that the timer armed for [`Self::due`] fired.
    pub(crate) fn note_timer(&mut self, now: Instant, rate: BitRate) {
        self.late = now.since(self.due(rate)).min(MAX_LATENESS);
    }

    /// Records that a packet with this payload leaves on `path`.
    #[cold]
    pub(crate) fn note_sent(&mut self, now: Instant, payload: u32, path: PathId, rate: BitRate) {
        let (at, fraction) = self.end(rate);
        // A lateness below one nanosecond is only the rounding of `due`.
        let in_time = at + Duration::from_nanos(u64::from(fraction > 0)) + self.late >= now;
        (self.began, self.fraction) = if in_time { (at, fraction) } else { (now, 0) };
        if self.began >= now {
            self.late = Duration::ZERO;
        }
        self.bytes = payload + u32::from(self.overhead);
        self.path = path;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(0);
    const OVERHEAD: u16 = 78;
    /// A payload whose packet has 1000 bytes with [`OVERHEAD`].
    const PAYLOAD: u32 = 1000 - OVERHEAD as u32;

    fn gbps(rate: u64) -> BitRate {
        BitRate::gbps(rate).expect("not zero")
    }

    /// Sends packets as soon as permitted; returns the time for `packets` of them.
    fn paced(rate: BitRate, packets: u32) -> Duration {
        let begin = Instant::from_nanos(1_000);
        let mut pacer = Pacer::new(OVERHEAD);
        let mut now = begin;
        for _ in 0..packets {
            pacer.note_sent(now, PAYLOAD, PATH, rate);
            now = pacer.due(rate);
        }
        now.since(begin)
    }

    #[test]
    fn a_thousand_packets_take_a_thousand_times_as_long_as_one() {
        assert_eq!(paced(gbps(100), 1), Duration::from_nanos(80));
        assert_eq!(paced(gbps(100), 1_000), Duration::from_nanos(80_000));
        // 85.106 ns; rounded up they would be 86.
        assert_eq!(paced(gbps(94), 1), Duration::from_nanos(86));
        assert_eq!(paced(gbps(94), 1_000), Duration::from_nanos(85_106));
    }

    #[test]
    fn a_new_rate_counts_for_the_packet_under_way() {
        let mut pacer = Pacer::new(OVERHEAD);
        let now = Instant::from_nanos(1_000);
        pacer.note_sent(now, PAYLOAD, PATH, gbps(1));
        assert_eq!(pacer.due(gbps(1)), now + Duration::from_nanos(8_000));
        assert_eq!(pacer.due(gbps(10)), now + Duration::from_nanos(800));
        assert_eq!(pacer.due(gbps(100)), now + Duration::from_nanos(80));
    }

    #[test]
    fn a_sender_that_waited_for_others_does_not_catch_up() {
        let mut pacer = Pacer::new(OVERHEAD);
        let now = Instant::from_nanos(1_000);
        pacer.note_sent(now, PAYLOAD, PATH, gbps(1));
        let late = now + Duration::from_micros(50);
        pacer.note_sent(late, PAYLOAD, PATH, gbps(1));
        assert_eq!(pacer.due(gbps(1)), late + Duration::from_micros(8));
    }

    #[test]
    fn packets_delayed_by_a_late_timer_leave_at_once_and_no_others() {
        let mut pacer = Pacer::new(OVERHEAD);
        let begin = Instant::from_nanos(1_000);
        pacer.note_sent(begin, PAYLOAD, PATH, gbps(1));
        // The packet is due after 8 us; the timer fires after 50.
        let now = begin + Duration::from_micros(50);
        pacer.note_timer(now, gbps(1));
        let mut sent = 0;
        while pacer.due(gbps(1)) <= now {
            pacer.note_sent(now, PAYLOAD, PATH, gbps(1));
            sent += 1;
        }
        assert_eq!((sent, pacer.due(gbps(1))), (6, begin + Duration::from_micros(56)));

        let now = begin + Duration::from_millis(10);
        pacer.note_timer(now, gbps(1));
        pacer.note_sent(now, PAYLOAD, PATH, gbps(1));
        assert_eq!(pacer.due(gbps(1)), now + Duration::from_micros(8), "later than MAX_LATENESS");
    }
}
