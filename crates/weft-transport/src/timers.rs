//! The timers of a connection.

use weft_units::Instant;

/// A timer of a connection. Equal deadlines fire in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The time at which the oldest unacknowledged packet may be lost.
    Loss,
    /// The time at which the silence after a flight is long enough for a tail loss probe.
    Tail,
    /// The time at which a placed packet has waited long enough for its ACK.
    DelayedAck,
    /// The time at which the congestion control permits the next packet.
    Pacing,
    /// The deadline of the congestion control.
    Congestion,
    /// The time at which a path that is down or idle is probed.
    PathProbe,
    /// The time at which the request or the probe of a liveness check is retransmitted, or set-up is given up.
    Handshake,
    /// The time at which a silence is long enough to send a keepalive, to release memory, or to close.
    Idle,
}

impl Timer {
    pub(crate) const ALL: [Self; 8] = [
        Self::Loss,
        Self::Tail,
        Self::DelayedAck,
        Self::Pacing,
        Self::Congestion,
        Self::PathProbe,
        Self::Handshake,
        Self::Idle,
    ];
}

/// One deadline for each [`Timer`]; `FAR_FUTURE` if it is not armed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    deadlines: [Instant; Timer::ALL.len()],
    /// The earliest of the deadlines: read for every packet, changed for few.
    next: Instant,
}

impl Timers {
    pub(crate) const fn new() -> Self {
        Self { deadlines: [Instant::FAR_FUTURE; Timer::ALL.len()], next: Instant::FAR_FUTURE }
    }

    #[inline]
    pub(crate) fn arm(&mut self, timer: Timer, at: Instant) {
        let before = core::mem::replace(&mut self.deadlines[timer as usize], at);
        if at <= self.next {
            self.next = at;
        } else if before == self.next {
            self.next = self.deadlines.iter().copied().fold(Instant::FAR_FUTURE, Instant::min);
        }
    }

    /// Arms `timer` unless it is armed for an earlier time.
    #[inline]
    pub(crate) fn arm_by(&mut self, timer: Timer, at: Instant) {
        let deadline = &mut self.deadlines[timer as usize];
        *deadline = at.min(*deadline);
        self.next = at.min(self.next);
    }

    #[inline]
    pub(crate) fn disarm(&mut self, timer: Timer) {
        self.arm(timer, Instant::FAR_FUTURE);
    }

    /// Returns the time at which `timer` fires; `FAR_FUTURE` if it is not armed.
    #[inline]
    pub(crate) const fn at(&self, timer: Timer) -> Instant {
        self.deadlines[timer as usize]
    }

    #[inline]
    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.at(timer) != Instant::FAR_FUTURE
    }

    /// Returns the earliest deadline; `FAR_FUTURE` if none is armed.
    #[inline]
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    /// Disarms and returns one timer that is due, in the order of [`Timer::ALL`].
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let due = |timer: &Timer| self.deadlines[*timer as usize] <= now;
        let timer = Timer::ALL.into_iter().find(due)?;
        self.disarm(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn due_timers_come_out_in_the_order_of_the_enum() {
        let mut timers = Timers::new();
        timers.arm(Timer::Idle, Instant::from_nanos(5));
        timers.arm(Timer::Loss, Instant::from_nanos(7));
        timers.arm_by(Timer::Loss, Instant::from_nanos(9));
        assert_eq!(timers.next(), Instant::from_nanos(5));
        assert_eq!(timers.pop_due(Instant::from_nanos(8)), Some(Timer::Loss));
        assert_eq!(timers.pop_due(Instant::from_nanos(8)), Some(Timer::Idle));
        assert_eq!(timers.pop_due(Instant::from_nanos(8)), None);
        assert_eq!(timers.next(), Instant::FAR_FUTURE);
    }

    #[test]
    fn the_next_deadline_is_the_earliest_whatever_was_armed_and_disarmed() {
        let mut rng = Seed(1).rng();
        let mut timers = Timers::new();
        for _ in 0..10_000 {
            let timer = Timer::ALL[rng.index(Timer::ALL.len())];
            let at = Instant::from_nanos(rng.below(20));
            match rng.below(4) {
                0 => timers.arm(timer, at),
                1 => timers.arm_by(timer, at),
                2 => timers.disarm(timer),
                _ => drop(timers.pop_due(at)),
            }
            assert_eq!(Some(timers.next()), timers.deadlines.into_iter().min());
        }
    }
}
