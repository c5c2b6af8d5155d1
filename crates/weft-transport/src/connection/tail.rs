//! Tail loss probes: a waiting sender that gets no ACK retransmits its last packet before the retransmission timeout,
//! and the ACK for it reveals the state of the others (RFC 8985, section 7).
//!
//! Two losses look the same to the sender: that of the last packets of a flight, which no later one shows to be
//! missing, and that of the ACKs for which a full window waits, on dead reverse paths.

use weft_units::{Duration, Instant};

use super::sender::{Sender, TailProbes};
use super::{Connection, Shared};
use crate::TransportConfig;
use crate::recovery::Kind;
use crate::timers::Timer;

/// Maximum number of probes in one silence, each after twice the time of the one before. With half of the reverse paths
/// dead, one flight in sixteen still meets its retransmission timeout.
const MAX_PROBES: u8 = 3;

/// Returns the shortest silence that is worth a probe: scheduling delays of a host are silence too.
pub(super) fn shortest_silence(config: &TransportConfig) -> Duration {
    config.retransmission.rto_min / (1 << MAX_PROBES)
}

impl Connection {
    /// Handles the tail timer: sends a probe after a silence, or arms the timer again.
    pub(super) fn on_tail_timer(&mut self, now: Instant, shared: &mut Shared) {
        let probes_tail = shared.config.recovery.kind == Kind::PerPath;
        let waiting =
            self.sender.as_deref_mut().filter(|sender| probes_tail && sender.is_waiting());
        let Some(sender) = waiting else { return };
        let mut due = sender.tail_probe_at(shared);
        if due <= now {
            sender.probe_tail(now, shared);
            due = now + sender.probe_timeout(shared);
        }
        let next = sender.health.next();
        self.timers.arm(Timer::Tail, due);
        if let Some(at) = next {
            self.timers.arm_by(Timer::PathProbe, at);
        }
    }
}

impl Sender {
    /// Returns the silence before the first probe: two round trips, or more if their variation requires it, and the
    /// time for which the peer may hold an ACK back (RFC 8985, section 7.2; RFC 9002, section 6.2.1). It is at
    /// least an eighth of the shortest retransmission timeout, since scheduling delays of a host are silence too; all
    /// probes then still fit before that timeout. Until a round trip was measured, it is that timeout.
    #[inline]
    pub(super) fn probe_timeout(&self, shared: &Shared) -> Duration {
        let config = &shared.config;
        let rto_min = config.retransmission.rto_min;
        let shortest = shortest_silence(config);
        // A host that is sometimes paused has a variation of milliseconds, and would detect a dead path no sooner.
        let max_variation = if config.recovery.suspends() { rto_min / 4 } else { Duration::MAX };
        let measured = self.round_trip.silence(config.ack_delay, max_variation);
        measured.map_or(rto_min, |silence| silence.max(shortest))
    }

    /// Returns the time at which the next probe is due, if nothing is received or sent until then.
    fn tail_probe_at(&mut self, shared: &Shared) -> Instant {
        if self.waiting_since > self.tail.at {
            self.tail = TailProbes::NONE;
        }
        // Packets sent meanwhile would put the probe off for as long as a stream stays on a dead path.
        let last = if shared.config.recovery.suspends() { self.tail.at } else { self.last_stamp };
        let silent_since = self.waiting_since.max(last);
        silent_since + self.probe_timeout(shared) * (1 << self.tail.count)
    }

    /// Retransmits the last packet in flight.
    fn probe_tail(&mut self, now: Instant, shared: &mut Shared) {
        if self.tail.count >= MAX_PROBES {
            return;
        }
        self.tail = TailProbes { count: self.tail.count + 1, at: now };
        let unacked = self.next.wrapping_sub(self.base);
        let mut newest_first = (1..=unacked).map(|back| self.next.wrapping_sub(back));
        let found = newest_first.find_map(|psn| {
            let packet = self.packet(psn).filter(|packet| packet.is_in_flight())?;
            Some((psn, *packet))
        });
        if let Some((psn, packet)) = found {
            // Later probes of a silence take other paths, and the peer may be paused.
            if shared.config.recovery.suspends() && self.tail.count == 1 {
                self.suspend_if_silent(&packet, now, shared);
            }
            self.queue_probe(psn, &packet);
            shared.stats.tail_loss_probes += 1;
        }
    }
}
