//! The clients whose rings each turn reads. A daemon has thousands of attached processes of which few are at work, so one that has
//! posted nothing for some time is not read until it rings: its flag in the shared page asks for a signal. One whose device
//! has sent all that it may is not read until it may send again.

use std::collections::{BTreeMap, BTreeSet};

use weft_units::{Duration, Instant};

use super::ClientId;

/// The time without work after which a client must ring: several times what a program takes from one request to the next.
const AWAKE: Duration = Duration::from_millis(1);

/// The clients that the next turn reads, and those that wait for their device's limit.
#[derive(Debug, Default)]
pub(super) struct Active {
    /// The time of each client's last work.
    read: BTreeMap<ClientId, Instant>,
    /// The time at which each waiting client is read again, and the same by time.
    waits: BTreeMap<ClientId, Instant>,
    by_time: BTreeSet<(Instant, ClientId)>,
}

impl Active {
    /// Returns the clients to read.
    pub(super) fn read(&self) -> impl Iterator<Item = ClientId> {
        self.read.keys().copied()
    }

    /// Reads a client from now on, unless it waits.
    pub(super) fn wake(&mut self, id: ClientId, now: Instant) {
        if !self.waits.contains_key(&id) {
            self.read.insert(id, now);
        }
    }

    /// Leaves a client unread until `due`. Returns `true` if it did not wait before.
    pub(super) fn wait(&mut self, id: ClientId, due: Instant) -> bool {
        self.read.remove(&id);
        let before = self.waits.insert(id, due);
        if let Some(before) = before {
            self.by_time.remove(&(before, id));
        }
        self.by_time.insert((due, id));
        before.is_none()
    }

    /// Returns a client whose wait is over, and reads it again.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<ClientId> {
        let &(due, id) = self.by_time.first()?;
        if due > now {
            return None;
        }
        self.by_time.pop_first();
        self.waits.remove(&id);
        self.read.insert(id, now);
        Some(id)
    }

    /// Returns the time at which the next wait is over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first().map(|&(due, _)| due)
    }

    /// Returns the clients that have had no work for long.
    pub(super) fn idle(&self, now: Instant) -> Vec<ClientId> {
        let idle = self.read.iter().filter(|&(_, &worked)| now.since(worked) >= AWAKE);
        idle.map(|(&id, _)| id).collect()
    }

    /// Leaves a client unread until it rings.
    pub(super) fn rest(&mut self, id: ClientId) {
        self.read.remove(&id);
    }

    pub(super) fn remove(&mut self, id: ClientId) {
        self.read.remove(&id);
        if let Some(due) = self.waits.remove(&id) {
            self.by_time.remove(&(due, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn a_client_is_read_while_it_works_and_again_when_it_rings() {
        let mut active = Active::default();
        let (a, b) = (ClientId(1), ClientId(2));
        active.wake(a, at(10));
        active.wake(b, at(10));
        active.wake(b, at(11));
        assert_eq!(active.idle(at(11)), [a]);
        active.rest(a);
        assert!(active.read().eq([b]));
        active.wake(a, at(12));
        assert!(active.read().eq([a, b]));
        active.remove(a);
        assert!(active.read().eq([b]));
    }

    #[test]
    fn a_client_that_waits_is_read_when_its_time_has_come() {
        let mut active = Active::default();
        let (a, b) = (ClientId(1), ClientId(2));
        active.wake(a, at(10));
        assert!(active.wait(a, at(20)) && active.wait(b, at(15)));
        assert!(!active.wait(a, at(30)), "it waits already");
        active.wake(a, at(12));
        assert_eq!((active.read().count(), active.next_due()), (0, Some(at(15))));
        assert_eq!((active.pop_due(at(20)), active.pop_due(at(20))), (Some(b), None));
        active.remove(a);
        assert_eq!((active.pop_due(at(40)), active.next_due()), (None, None));
        assert!(active.read().eq([b]));
    }
}
