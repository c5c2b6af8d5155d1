//! The lease over all routers: a controller steers if no other controller holds any router's lease.

use std::collections::BTreeMap;

use weft_units::{Duration, Instant};

use crate::{Lease, SteerError};

/// The state of every router's lease.
#[derive(Debug)]
pub(super) struct Leases {
    lease: Lease,
    span: Duration,
    /// The epoch of this lease: the time at which it began. Routers compare names, not epochs.
    epoch: u64,
    routers: BTreeMap<String, Held>,
    /// The time of the next renewal of all leases.
    next: Instant,
    /// The other holder, if there is one.
    pub(super) other: Option<String>,
}

/// One router's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// This controller holds the lease until this time.
    Until(Instant),
    /// The router does not answer. No controller can steer it, so it does not prevent the others from being steered.
    Silent,
    /// Another controller holds it, or the router has not answered yet.
    Others,
}

impl Leases {
    pub(super) fn new(
        lease: Lease,
        routers: impl Iterator<Item = String>,
        span: Duration,
        now: Instant,
    ) -> Self {
        let routers = routers.map(|name| (name, Held::Others)).collect();
        Self { lease, span, epoch: now.as_nanos(), routers, next: now, other: None }
    }

    /// Replaces the routers. A new one holds up the others until it has granted its lease, so all are asked at once.
    pub(super) fn set_routers(&mut self, names: impl Iterator<Item = String>, now: Instant) {
        let before = std::mem::take(&mut self.routers);
        for name in names {
            let held = before.get(&name).copied().unwrap_or_else(|| {
                self.next = now;
                Held::Others
            });
            self.routers.insert(name, held);
        }
        self.other = self.other.take().filter(|_| self.is_others());
    }

    /// Returns the lease that each router is asked for.
    pub(super) const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the name of this controller.
    pub(super) fn holder(&self) -> &str {
        self.lease.holder()
    }

    /// Returns the routers whose lease is due for renewal: all, at intervals of a third of the span.
    pub(super) fn due(&mut self, now: Instant) -> Vec<String> {
        if now < self.next {
            return vec![];
        }
        self.next = now + self.span / 3;
        self.routers.keys().cloned().collect()
    }

    /// Records that a router granted the lease, which counts from the time of the request.
    pub(super) fn granted(&mut self, router: &str, requested_at: Instant) {
        let Some(held) = self.routers.get_mut(router) else { return };
        *held = Held::Until(requested_at + self.span);
        self.other = self.other.take().filter(|_| self.is_others());
    }

    /// Records that a router refused the lease. Returns the routers whose lease must be released: if two controllers
    /// held half of the routers each, neither could continue.
    pub(super) fn refused(
        &mut self,
        router: &str,
        error: &SteerError,
        now: Instant,
    ) -> Vec<String> {
        let Some(held) = self.routers.get_mut(router) else { return vec![] };
        let SteerError::Held { holder, .. } = error else {
            *held = Held::Silent;
            return vec![];
        };
        *held = Held::Others;
        self.other = Some(holder.clone());
        self.epoch = now.as_nanos();
        let ours = self.routers.iter_mut().filter(|(_, held)| matches!(held, Held::Until(_)));
        ours.map(|(name, held)| {
            *held = Held::Others;
            name.clone()
        })
        .collect()
    }

    fn is_others(&self) -> bool {
        self.routers.values().any(|held| *held == Held::Others)
    }

    /// Returns the epoch, if this controller holds the lease of all routers that answer.
    pub(super) fn epoch(&self, now: Instant) -> Option<u64> {
        let is_ours = |held: &Held| match held {
            Held::Until(until) => now < *until,
            Held::Silent => true,
            Held::Others => false,
        };
        let holds_one = self.routers.values().any(|held| matches!(held, Held::Until(_)));
        (holds_one && self.routers.values().all(is_ours)).then_some(self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_is_held_if_every_router_that_answers_grants_it_and_is_released_otherwise() {
        let at = |seconds| Instant::EPOCH + Duration::from_secs(seconds);
        let span = Duration::from_secs(15);
        let lease = Lease::new("a/1/2", std::time::Duration::from_secs(15));
        let names = ["l0", "l1", "l2"].map(String::from);
        let mut leases = Leases::new(lease, names.into_iter(), span, at(100));
        assert_eq!(leases.due(at(100)).len(), 3);
        leases.granted("l0", at(100));
        let gone =
            SteerError::Command { router: "l1".into(), command: "".into(), stderr: "".into() };
        assert!(leases.refused("l1", &gone, at(101)).is_empty());
        assert_eq!(leases.epoch(at(101)), None);
        leases.granted("l2", at(100));
        assert!(leases.epoch(at(102)).is_some());
        // Without a renewal it ends when the routers' leases expire.
        assert_eq!(leases.epoch(at(115)), None);
        assert_eq!((leases.due(at(104)).len(), leases.due(at(105)).len()), (0, 3));
        let held = SteerError::Held { holder: "b/3/4".into(), path: "".into() };
        assert_eq!(leases.refused("l2", &held, at(106)), ["l0"]);
        assert_eq!((leases.epoch(at(106)), leases.other.as_deref()), (None, Some("b/3/4")));
    }

    #[test]
    fn a_new_router_is_asked_at_once_and_one_that_has_left_holds_up_nobody() {
        let at = |seconds| Instant::EPOCH + Duration::from_secs(seconds);
        let lease = Lease::new("a/1/2", std::time::Duration::from_secs(15));
        let names = |names: &'static [&str]| names.iter().map(|&name| String::from(name));
        let mut leases = Leases::new(lease, names(&["l0"]), Duration::from_secs(15), at(100));
        assert_eq!(leases.due(at(100)), ["l0"]);
        leases.granted("l0", at(100));
        leases.set_routers(names(&["l0", "l1"]), at(101));
        assert_eq!(leases.epoch(at(101)), None);
        assert_eq!(leases.due(at(101)), ["l0", "l1"]);
        let held = SteerError::Held { holder: "b/3/4".into(), path: "".into() };
        assert_eq!(leases.refused("l1", &held, at(102)), ["l0"]);
        leases.granted("l0", at(106));
        assert_eq!((leases.epoch(at(106)), leases.other.as_deref()), (None, Some("b/3/4")));
        leases.set_routers(names(&["l0"]), at(107));
        assert_eq!((leases.epoch(at(107)).is_some(), leases.other.as_deref()), (true, None));
    }
}
