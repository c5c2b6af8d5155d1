//! What silence leads to: memory is given back, the peer is probed, the connection is closed.
//!
//! Memory goes in two steps. Room for packets and messages goes as soon as none is under way, so that
//! a wave of short activity over many connections needs as much of it as those that are active at one
//! moment, not as all of them. What was learnt of the paths stays a while longer, longest where one is
//! dead: a pause between two requests must not send the second down that path.

use alloc::boxed::Box;

use weft_units::{Duration, Instant};

use super::sender::Sender;
use super::{Connection, Shared};
use crate::path::PathId;
use crate::timers::Timer;
use crate::{CloseReason, Event, TransportConfig};

/// How soon after a packet room for packets is given back, if none is under way by then.
pub(super) const REST_AFTER: Duration = Duration::from_millis(10);

/// A connection whose packets were all acknowledged this long ago forgets its paths: windows and round
/// trips older than a retransmission timeout say nothing any more (RFC 5681, section 4.1).
const FORGET_AFTER: Duration = Duration::from_millis(100);

/// Where a path is dead it forgets only then, and where one flaps not before that could have proved itself: a
/// packet on that path costs a timeout.
const FORGET_DEAD_AFTER: Duration = Duration::from_millis(500);

/// Keepalives that a silent peer is sent before it is gone; each may be lost.
const KEEPALIVES: u64 = 8;

/// The idle timer is not armed for sooner than this.
const MIN_IDLE_CHECK: Duration = Duration::from_millis(1);

impl Connection {
    /// The peer owes an answer and was silent for too long.
    pub(super) fn is_peer_gone(&self, now: Instant, config: &TransportConfig) -> bool {
        let owed_since = self.sender.as_deref().filter(|sender| sender.is_waiting());
        owed_since.is_some_and(|sender| {
            now.since(sender.waiting_since.max(self.heard_anything_at)) >= config.peer_timeout
        })
    }

    /// Silence: give memory back, probe the peer, or close.
    pub(super) fn on_idle_timer(&mut self, now: Instant, shared: &mut Shared) {
        let config = &shared.config;
        let quiet = now.since(self.heard_anything_at.max(self.sent_anything_at));
        let unheard = now.since(self.heard_anything_at);
        let keepalive = self.keepalive_after(config);
        if quiet >= config.idle_timeout {
            self.closing = Some(CloseReason::Idle);
        } else if keepalive > Duration::ZERO && unheard >= keepalive + config.peer_timeout {
            self.closing = Some(CloseReason::PeerGone);
        } else {
            self.keepalive_due = keepalive > Duration::ZERO && unheard >= keepalive;
        }
        if let Some(sender) = self.sender.as_deref_mut() {
            sender.share_measurements(now, shared);
        }
        self.rest(shared);
        self.forget(now, shared);
        self.arm_idle(now, &shared.config);
    }

    /// How long nothing is heard before this end asks whether the peer is there; zero for ever. The end that was asked
    /// for the connection waits an eighth longer: of two that have nothing to say one asks, which tells both.
    fn keepalive_after(&self, config: &TransportConfig) -> Duration {
        let interval = config.keepalive_interval;
        if self.initiator { interval } else { interval + interval / 8 }
    }

    /// Gives back the room for packets and messages where none is under way.
    fn rest(&mut self, shared: &mut Shared) {
        self.receiver.release_if_idle(&mut shared.recv_pool);
        if let Some(sender) = self.sender.as_deref_mut().filter(|sender| sender.is_done()) {
            sender.release(&mut shared.send_pool);
            sender.outbox.release();
        }
    }

    /// Gives back the sending half, but for where it resumes, once what it knows is out of date.
    fn forget(&mut self, now: Instant, shared: &mut Shared) {
        let is_old = |sender: &mut Box<Sender>| sender.is_done() && now >= sender.forget_at();
        if let Some(mut sender) = self.sender.take_if(is_old) {
            let found_down =
                |&path: &PathId| !sender.paths.state(path).up && sender.health.is_watched(path);
            for path in sender.paths.ids().filter(found_down) {
                shared.stats.paths_up += 1;
                shared.events.push_back(Event::PathUp { connection: self.id, path });
            }
            self.cursor = sender.cursor();
            sender.release(&mut shared.send_pool);
            shared.peer_paths.note_rest(sender.peer, self.id);
            for timer in
                [Timer::Loss, Timer::Tail, Timer::PathProbe, Timer::Congestion, Timer::Pacing]
            {
                self.timers.disarm(timer);
            }
        }
    }

    /// Arms the idle timer for the next thing silence leads to.
    pub(super) fn arm_idle(&mut self, now: Instant, config: &TransportConfig) {
        let release = match self.sender.as_deref() {
            _ if self.holds_packets() => REST_AFTER,
            Some(sender) => sender.forget_at().since(now),
            None => Duration::MAX,
        };
        let unheard = now.since(self.heard_anything_at);
        let keepalive = match self.keepalive_after(config) {
            Duration::ZERO => Duration::MAX,
            interval if unheard >= interval => config.peer_timeout / KEEPALIVES,
            interval => interval - unheard,
        };
        let quiet_since = self.heard_anything_at.max(self.sent_anything_at);
        let idle = (quiet_since + config.idle_timeout).since(now);
        let wait = release.min(keepalive).min(idle).max(MIN_IDLE_CHECK);
        self.timers.arm(Timer::Idle, now + wait);
    }

    /// Whether it holds room for packets, of either direction.
    pub(crate) fn holds_packets(&self) -> bool {
        !self.receiver.received.is_empty()
            || self.sender.as_deref().is_some_and(Sender::holds_packets)
    }
}

impl Sender {
    /// Whether it holds room for packets, or messages that will take some.
    pub(super) fn holds_packets(&self) -> bool {
        !self.sent.is_empty() || !self.outbox.is_empty()
    }

    /// When what it knows of the paths is out of date, if nothing is sent until then.
    fn forget_at(&self) -> Instant {
        let all_up = self.paths.up_count() == self.paths.count();
        let after = match all_up {
            true => FORGET_AFTER,
            false => FORGET_DEAD_AFTER + self.probation.longest_wait(),
        };
        self.waiting_since + after
    }
}
