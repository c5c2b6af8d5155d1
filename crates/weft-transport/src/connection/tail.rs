//! A sender that waits and hears nothing asks before its retransmission timeout: it sends the last
//! packet again, and the ACK of that tells what became of the rest (tail loss probe; RFC 8985,
//! section 7).
//!
//! Two losses look like that from here: that of the last packets of a flight, which no later one
//! shows to be missing, and that of the ACKs a full window waits for, on ways back that are dead.

use weft_units::{Duration, Instant};

use super::sender::Sender;
use super::{Connection, Shared};
use crate::recovery::Kind;
use crate::timers::Timer;

/// The probes of one silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailProbes {
    /// Sent since anything was heard.
    count: u8,
    /// When the last was sent.
    at: Instant,
}

impl TailProbes {
    pub(crate) const NONE: Self = Self { count: 0, at: Instant::EPOCH };
}

/// Probes of one silence, each after twice the time of the one before. With half of the ways back
/// dead, one flight in sixteen still meets its retransmission timeout.
const MAX_PROBES: u8 = 3;

impl Connection {
    /// The tail timer fired: probes if there was silence, or looks again when there may have been.
    pub(super) fn on_tail_timer(&mut self, now: Instant, shared: &mut Shared) {
        let asks = shared.config.recovery.kind == Kind::PerPath;
        let waiting = self.sender.as_deref_mut().filter(|sender| asks && sender.is_waiting());
        let Some(sender) = waiting else { return };
        let mut due = sender.tail_probe_at(shared);
        if due <= now {
            sender.probe_tail(now, shared);
            due = now + sender.probe_timeout(shared);
        }
        self.timers.arm(Timer::Tail, due);
    }
}

impl Sender {
    /// How long a silence lasts before the first probe: two round trips, or what their variation
    /// makes likely, and as long as the peer may hold an ACK back (RFC 8985, section 7.2; RFC 9002,
    /// section 6.2.1). At least so long that all probes fit before the shortest retransmission
    /// timeout: a host's scheduling is silence too. Until a round trip was measured, that timeout.
    #[inline]
    pub(super) fn probe_timeout(&self, shared: &Shared) -> Duration {
        let config = &shared.config;
        let shortest = config.retransmission.rto_min / (1 << MAX_PROBES);
        let measured = self.round_trip.silence(config.ack_delay);
        measured.map_or(config.retransmission.rto_min, |silence| silence.max(shortest))
    }

    /// When the next probe is due, if nothing is heard or sent until then.
    fn tail_probe_at(&mut self, shared: &Shared) -> Instant {
        if self.waiting_since > self.tail.at {
            self.tail = TailProbes::NONE;
        }
        let quiet_since = self.waiting_since.max(self.last_stamp);
        quiet_since + self.probe_timeout(shared) * (1 << self.tail.count)
    }

    /// Sends the last packet in flight again.
    fn probe_tail(&mut self, now: Instant, shared: &mut Shared) {
        if self.tail.count >= MAX_PROBES {
            return;
        }
        self.tail = TailProbes { count: self.tail.count + 1, at: now };
        let flight = self.next.wrapping_sub(self.base);
        let mut last_first = (1..=flight).map(|back| self.next.wrapping_sub(back));
        let found = last_first.find_map(|psn| {
            let packet = self.packet(psn).filter(|packet| packet.is_in_flight())?;
            Some((psn, *packet))
        });
        if let Some((psn, packet)) = found {
            self.ask(psn, &packet);
            shared.stats.tail_loss_probes += 1;
        }
    }
}
