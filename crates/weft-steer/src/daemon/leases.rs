//! The lease over all routers: a controller steers if no other controller holds any router's lease.
//!
//! Each time that it holds them has an *epoch*. Orders of an earlier epoch are not carried out in a later one: another
//! controller may have steered in between.
//!
//! A controller that leads those of a shared store asks for the leases of its term, which routers grant at once. It waits for
//! a router for a limited time only: whatever happens there, an order of an earlier term is refused from then on.

use std::collections::BTreeMap;

use weft_units::{Duration, Instant};

use crate::lease::Term;
use crate::{Lease, SteerError};

/// The state of every router's lease.
#[derive(Debug)]
pub(super) struct Leases {
    lease: Lease,
    span: Duration,
    /// The epoch of this lease: the time at which it began, or the term. Routers compare names and terms, not times.
    epoch: u64,
    routers: BTreeMap<String, Held>,
    /// The time of the next renewal of all leases.
    next: Instant,
    /// `true` if the leases are those of a term.
    in_term: bool,
    /// The other holder, if there is one.
    pub(super) other: Option<String>,
}

/// The time for which the leader waits for routers' leases before it steers the others.
const ASK_TIMEOUT: Duration = Duration::from_millis(1500);

/// One router's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// This controller holds the lease until this time.
    Until(Instant),
    /// The router does not answer. No controller can steer it, so it does not prevent the others from being steered.
    Silent,
    /// The router was asked for the lease of a term at this time, and has not answered yet.
    Asked(Instant),
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
        let epoch = now.as_nanos();
        Self { lease, span, epoch, routers, next: now, in_term: false, other: None }
    }

    /// Begins a term: all routers are asked for their leases at once.
    pub(super) fn begin(&mut self, term: Term, now: Instant) {
        self.lease.set_term(Some(term));
        (self.epoch, self.next, self.in_term, self.other) = (term.number, now, true, None);
        self.routers.values_mut().for_each(|held| *held = Held::Asked(now));
    }

    /// Extends the present term, or ends it.
    pub(super) fn set_term(&mut self, term: Option<Term>) {
        self.lease.set_term(term);
        if term.is_none() {
            self.in_term = false;
            self.routers.values_mut().for_each(|held| *held = Held::Others);
        }
    }

    /// Replaces the routers. A new one holds up the others until it has granted its lease, so all are asked at once.
    pub(super) fn set_routers(&mut self, names: impl Iterator<Item = String>, now: Instant) {
        let before = std::mem::take(&mut self.routers);
        for name in names {
            let held = before.get(&name).copied().unwrap_or_else(|| {
                self.next = now;
                if self.in_term { Held::Asked(now) } else { Held::Others }
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

    /// Returns the term in which routers are asked for their leases, if there is one.
    pub(super) fn term(&self) -> Option<u64> {
        self.in_term.then_some(self.epoch)
    }

    /// Sets the epoch under which this controller steers, for all orders that are to be carried out, and returns it. Without one,
    /// the next is another: a lease that has run out may have been another controller's in between.
    pub(super) fn set_epoch(&mut self, epoch: Option<u64>, now: Instant) -> Option<u64> {
        if epoch.is_none() && !self.in_term {
            self.epoch = now.as_nanos();
        }
        self.lease.set_epoch(epoch);
        epoch
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
        match error {
            SteerError::Held { holder, .. } => self.other = Some(holder.clone()),
            SteerError::Superseded { .. } | SteerError::NoTerm | SteerError::Outdated => {}
            _ => {
                *held = Held::Silent;
                return vec![];
            }
        }
        *held = Held::Others;
        if !self.in_term {
            self.epoch = now.as_nanos();
        }
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
            Held::Asked(at) => now.since(*at) >= ASK_TIMEOUT,
            Held::Others => false,
        };
        let holds_one = self.routers.values().any(|held| matches!(held, Held::Until(_)));
        let holds = self.in_term || holds_one;
        (holds && self.routers.values().all(is_ours)).then_some(self.epoch)
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
    fn a_lease_that_has_run_out_begins_another_epoch() {
        let at = |seconds| Instant::EPOCH + Duration::from_secs(seconds);
        let lease = Lease::new("a/1/2", std::time::Duration::from_secs(15));
        let names = std::iter::once(String::from("l0"));
        let mut leases = Leases::new(lease, names, Duration::from_secs(15), at(100));
        let epoch = |leases: &mut Leases, seconds| {
            let epoch = leases.epoch(at(seconds));
            leases.set_epoch(epoch, at(seconds))
        };
        leases.granted("l0", at(100));
        let first = epoch(&mut leases, 101);
        leases.granted("l0", at(110));
        assert_eq!((first.is_some(), epoch(&mut leases, 124)), (true, first), "it was renewed");
        assert_eq!(epoch(&mut leases, 125), None);
        leases.granted("l0", at(126));
        let second = epoch(&mut leases, 127);
        assert!(second.is_some() && second != first, "{second:?}");
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

    #[test]
    fn a_leader_waits_for_the_leases_of_its_term_and_not_long_for_a_silent_router() {
        let at = |millis| Instant::EPOCH + Duration::from_millis(millis);
        let second = std::time::Duration::from_secs(15);
        let lease = Lease::new("a/1/2", second).in_terms();
        let names = ["l0", "l1", "l2"].map(String::from);
        let mut leases = Leases::new(lease, names.into_iter(), Duration::from_secs(15), at(0));
        let until = std::time::Instant::now() + second;
        leases.begin(Term { number: 7, until }, at(10_000));
        assert_eq!((leases.due(at(10_000)).len(), leases.epoch(at(10_000))), (3, None));
        leases.granted("l0", at(10_000));
        leases.granted("l1", at(10_000));
        assert_eq!(leases.epoch(at(11_499)), None);
        assert_eq!(leases.epoch(at(11_500)), Some(7));
        // A router that answers at last may have been told to make a move by hand.
        let held = SteerError::Held { holder: "by-hand/3/4".into(), path: "".into() };
        assert_eq!(leases.refused("l2", &held, at(12_000)), ["l0", "l1"]);
        assert_eq!(leases.epoch(at(12_000)), None);
        for router in ["l0", "l1", "l2"] {
            leases.granted(router, at(13_000));
        }
        assert_eq!(leases.epoch(at(13_000)), Some(7), "the term is the same");
        leases.set_term(None);
        assert_eq!(leases.epoch(at(13_000)), None);
    }
}
