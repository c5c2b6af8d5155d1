//! The time for which the memory of each user's processes has stalled the device. One page that never comes ends its
//! process; a user whose processes stall the device again and again is excluded for some time.

use std::collections::BTreeMap;

use weft_units::{Duration, Instant};

use crate::engine::blocking::Stall;

/// The maximum number of checks, ten a second, that find the device asleep for one user, before all of the user's
/// processes are ended.
const MAX_CHECKS: u32 = 12;

/// The time in which one check is forgiven: no user stalls the device for more than a tenth of the time.
const FORGIVEN_AFTER: Duration = Duration::from_secs(1);

/// The maximum number of threads that one user's processes may block at a time, with the same consequence.
pub(super) const MAX_THREADS: usize = 4;

/// The stalls of every user whose processes have caused some.
#[derive(Debug, Default)]
pub(super) struct Stalls(BTreeMap<u32, UserStalls>);

#[derive(Debug)]
struct UserStalls {
    checks: u32,
    /// The time at which checks were last forgiven.
    forgiven_at: Instant,
    /// The calls that have not returned.
    given_up: Vec<Stall>,
}

impl UserStalls {
    fn forgive(&mut self, now: Instant) {
        let due = now.since(self.forgiven_at).as_nanos() / FORGIVEN_AFTER.as_nanos();
        self.forgiven_at += FORGIVEN_AFTER * due;
        self.checks = self.checks.saturating_sub(u32::try_from(due).unwrap_or(u32::MAX));
        self.given_up.retain(Stall::keeps_a_thread);
    }
}

impl Stalls {
    /// Records that a user's process has stalled the device. Checks do not count if `is_exempt`: a user may stall a
    /// device of the user's own.
    pub(super) fn note(&mut self, now: Instant, user: u32, stall: Stall, is_exempt: bool) {
        let new = || UserStalls { checks: 0, forgiven_at: now, given_up: Vec::new() };
        let of_user = self.0.entry(user).or_insert_with(new);
        of_user.forgive(now);
        if !is_exempt {
            of_user.checks = of_user.checks.saturating_add(stall.checks);
        }
        if stall.is_given_up() {
            of_user.given_up.push(stall);
        }
    }

    /// Returns `true` if a user's processes have stalled the device for too long to be served now.
    pub(super) fn exclude(&mut self, now: Instant, user: u32) -> bool {
        let Some(of_user) = self.0.get_mut(&user) else { return false };
        of_user.forgive(now);
        let (checks, threads) = (of_user.checks, of_user.given_up.len());
        if checks == 0 && threads == 0 {
            self.0.remove(&user);
        }
        checks >= MAX_CHECKS || threads >= MAX_THREADS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_stalls_the_device_for_more_than_a_tenth_of_the_time_is_excluded() {
        let (mut stalls, mut now) = (Stalls::default(), Instant::EPOCH);
        for _ in 0..100 {
            now += Duration::from_secs(2);
            stalls.note(now, 7, Stall::of(2), false);
            stalls.note(now, 8, Stall::of(4), false);
            stalls.note(now, 0, Stall::of(20), true);
            assert!(!stalls.exclude(now, 7) && !stalls.exclude(now, 0));
        }
        assert!(stalls.exclude(now, 8));
        now += Duration::from_secs(300);
        assert!(!stalls.exclude(now, 8), "that is long ago");
        assert!(!stalls.exclude(now, 7) && !stalls.exclude(now, 0));
        assert!(stalls.0.is_empty());
    }
}
