//! The consequences of inactivity: memory is released, the peer is probed, the connection is closed.
//!
//! Memory is released in two steps. Buffers for packets and messages are released as soon as none is in flight, so that
//! short bursts over many connections need memory only for those active at one moment. Path measurements are kept
//! longer, longest where a path is dead: a pause between two requests must not send the second down that path.

use alloc::boxed::Box;

use weft_units::{Duration, Instant};

use super::sender::Sender;
use super::{Connection, Shared};
use crate::path::PathId;
use crate::timers::Timer;
use crate::{CloseReason, Event, TransportConfig};

/// The time after the first buffered packet when packet buffers are released, if no packet is in flight by then.
pub(super) const BUFFER_RELEASE_AFTER: Duration = Duration::from_millis(10);

/// The time after the last acknowledgement when a connection with nothing in flight releases its sender: windows and
/// round trips older than a retransmission timeout are out of date (RFC 5681, section 4.1).
const SENDER_RELEASE_AFTER: Duration = Duration::from_millis(100);

/// The same time where a path is dead; a flapping path's hold is added, so that the path can prove itself first: a
/// packet on a dead path costs a timeout.
const DEAD_PATH_RELEASE_AFTER: Duration = Duration::from_millis(500);

/// Number of keepalives sent to a silent peer within the peer timeout; each may be lost.
const KEEPALIVES_PER_TIMEOUT: u64 = 8;

/// Minimum delay of the idle timer.
const MIN_IDLE_CHECK: Duration = Duration::from_millis(1);

impl Connection {
    /// Returns `true` if the peer owes an answer and was silent for the peer timeout.
    pub(super) fn is_peer_gone(&self, now: Instant) -> bool {
        let owed_since = self.sender.as_deref().filter(|sender| sender.is_waiting());
        owed_since.is_some_and(|sender| {
            now.since(sender.waiting_since.max(self.last_received_at)) >= self.peer_timeout
        })
    }

    /// Handles the idle timer: releases memory, sends a keepalive, or closes.
    pub(super) fn on_idle_timer(&mut self, now: Instant, shared: &mut Shared) {
        let config = &shared.config;
        let idle_for = now.since(self.last_received_at.max(self.last_sent_at));
        let silent_for = now.since(self.last_received_at);
        let keepalive = self.keepalive_after(config);
        if idle_for >= config.idle_timeout {
            self.closing = Some(CloseReason::Idle);
        } else if keepalive > Duration::ZERO && silent_for >= keepalive + self.peer_timeout {
            self.closing = Some(CloseReason::PeerGone);
        } else {
            self.keepalive_due = keepalive > Duration::ZERO && silent_for >= keepalive;
        }
        if let Some(sender) = self.sender.as_deref_mut() {
            sender.share_measurements(now, shared);
        }
        self.release_buffers(shared);
        self.release_sender(now, shared);
        self.arm_idle(now, &shared.config);
    }

    /// Returns the time without a packet from the peer after which this end sends a keepalive; zero never does. The
    /// acceptor waits an eighth longer: of two silent ends one sends keepalives, which informs both.
    fn keepalive_after(&self, config: &TransportConfig) -> Duration {
        let interval = config.keepalive_interval;
        if self.initiator { interval } else { interval + interval / 8 }
    }

    /// Releases the buffers for packets and messages if none is in flight.
    fn release_buffers(&mut self, shared: &mut Shared) {
        self.receiver.release_if_idle(&mut shared.recv_pool);
        if let Some(sender) = self.sender.as_deref_mut().filter(|sender| sender.is_done()) {
            sender.release(&mut shared.send_pool);
            sender.send_queue.release();
        }
    }

    /// Releases the sending half, except for the point where it resumes, once its measurements are out of date.
    fn release_sender(&mut self, now: Instant, shared: &mut Shared) {
        let is_old = |sender: &mut Box<Sender>| sender.is_done() && now >= sender.release_at();
        if let Some(mut sender) = self.sender.take_if(is_old) {
            let found_down =
                |&path: &PathId| sender.paths.is_down(path) && sender.health.is_watched(path);
            for path in sender.paths.ids().filter(found_down) {
                shared.stats.paths_up += 1;
                shared.events.push_back(Event::PathUp { connection: self.id, path });
            }
            self.cursor = sender.cursor();
            sender.release(&mut shared.send_pool);
            shared.peer_paths.remove_prober(sender.peer, self.id);
            for timer in
                [Timer::Loss, Timer::Tail, Timer::PathProbe, Timer::Congestion, Timer::Pacing]
            {
                self.timers.disarm(timer);
            }
            // The receiving half may owe credit.
            self.arm_congestion();
        }
    }

    /// Arms the idle timer for the next action on inactivity.
    pub(super) fn arm_idle(&mut self, now: Instant, config: &TransportConfig) {
        let release = match self.sender.as_deref() {
            _ if self.holds_packets() => BUFFER_RELEASE_AFTER,
            Some(sender) => sender.release_at().since(now),
            None => Duration::MAX,
        };
        let silent_for = now.since(self.last_received_at);
        let keepalive = match self.keepalive_after(config) {
            Duration::ZERO => Duration::MAX,
            interval if silent_for >= interval => config.peer_timeout / KEEPALIVES_PER_TIMEOUT,
            interval => interval - silent_for,
        };
        let idle_since = self.last_received_at.max(self.last_sent_at);
        let idle = (idle_since + config.idle_timeout).since(now);
        let wait = release.min(keepalive).min(idle).max(MIN_IDLE_CHECK);
        self.timers.arm(Timer::Idle, now + wait);
    }

    /// Returns `true` if it holds packet buffers in either direction.
    pub(crate) fn holds_packets(&self) -> bool {
        !self.receiver.received.is_empty()
            || self.sender.as_deref().is_some_and(Sender::holds_packets)
    }
}

impl Sender {
    /// Returns `true` if it holds packet buffers, or messages that will need some.
    pub(super) fn holds_packets(&self) -> bool {
        !self.sent.is_empty() || !self.send_queue.is_empty()
    }

    /// Returns the time at which its path measurements are out of date, if nothing is sent until then.
    fn release_at(&self) -> Instant {
        let all_up = self.paths.up_count() == self.paths.count();
        let after = match all_up {
            true => SENDER_RELEASE_AFTER,
            false => DEAD_PATH_RELEASE_AFTER + self.probation.max_hold(),
        };
        self.waiting_since + after
    }
}
