//! The suspension of paths that may be dead (`path/suspension.rs`): when it begins, and how it ends.

use weft_units::{Duration, Instant};

use super::Shared;
use super::in_flight::SentPacket;
use super::sender::Sender;
use super::tail::shortest_silence;
use crate::path::{PathId, Suspension};

impl Sender {
    /// Returns the time for which a packet of the path may be missing before the path is suspended, and for which a
    /// probe of it may be unanswered: two round trips, without their variation, because a wrong suspicion costs little.
    fn suspicion_delay(&self, path: PathId, shared: &Shared) -> Duration {
        let round_trip = self.round_trip.smoothed().max(self.paths.rtt(path).unwrap_or_default());
        (round_trip * 2).max(shortest_silence(&shared.config))
    }

    /// Suspends the path of a missing packet if the packet is overdue. Returns the time at which it will be, if that is
    /// later.
    pub(super) fn suspend_if_overdue(
        &mut self,
        packet: &SentPacket,
        now: Instant,
        shared: &Shared,
    ) -> Option<Instant> {
        let delay = self.suspicion_delay(packet.path, shared);
        let overdue = self.last_stamp.from_wire(packet.sent_at) + delay;
        if overdue > now {
            return Some(overdue);
        }
        self.suspend_if_silent(packet, now, shared);
        None
    }

    /// Suspends the path of a packet that is missing, unless a packet sent later on it was acknowledged.
    pub(super) fn suspend_if_silent(&mut self, packet: &SentPacket, now: Instant, shared: &Shared) {
        let (path, sent_at) = (packet.path, self.last_stamp.from_wire(packet.sent_at));
        if sent_at <= self.paths.acked_sent_at(path) || !self.paths.can_suspend(path) {
            return;
        }
        let (round_trip, wait) = (self.round_trip.smoothed(), self.suspicion_delay(path, shared));
        self.paths.suspend(path, Suspension::new(sent_at, now, round_trip, wait));
        // The answer to a probe that left before tells nothing.
        self.health.forget(path);
        self.health.watch(path, now, wait);
    }

    /// Returns `true` if a suspended path has turned out to be silent, as the peer answers now on another.
    #[inline]
    pub(super) fn finds_silent_path(&mut self, now: Instant) -> bool {
        self.paths.has_suspended() && self.evaluate_suspensions(now)
    }

    #[cold]
    fn evaluate_suspensions(&mut self, now: Instant) -> bool {
        let mut found = false;
        for suspension in self.paths.suspensions() {
            found |= suspension.evaluate(now, now);
        }
        found
    }

    /// Handles the acknowledgement of a packet that was sent on a suspended path at `sent_at`.
    #[cold]
    pub(super) fn on_suspended_acked(&mut self, path: PathId, sent_at: Instant, now: Instant) {
        if self.paths.suspension(path).is_some_and(|suspension| sent_at > suspension.sent_at) {
            self.health.forget(path);
            self.resume(path, now);
        }
    }

    /// Ends the suspension of a path, if it is suspended, and notifies congestion control of the losses on it.
    pub(super) fn resume(&mut self, path: PathId, now: Instant) {
        for _ in 0..self.paths.resume(path) {
            self.controllers.on_loss(path, now, &mut self.paths);
        }
    }
}
