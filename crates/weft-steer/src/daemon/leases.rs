//! The lease over all routers: a controller steers when no router is another's.

use std::collections::BTreeMap;

use weft_units::{Duration, Instant};

use crate::{Lease, SteerError};

/// What is known of every router's lease.
#[derive(Debug)]
pub(super) struct Leases {
    lease: Lease,
    span: Duration,
    /// The number of this holding: when it began. Routers compare names, not numbers.
    epoch: u64,
    routers: BTreeMap<String, Held>,
    /// When all are asked again.
    next: Instant,
    /// Who else steers, if somebody does.
    pub(super) other: Option<String>,
}

/// One router's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// It is ours until then.
    Until(Instant),
    /// It does not answer. Nobody can steer it, which keeps nobody from steering others.
    Silent,
    /// It is another's, or has not answered yet.
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

    /// Who we are.
    pub(super) fn holder(&self) -> &str {
        self.lease.holder()
    }

    /// Routers that are to be asked now. A third of the span after the last time, all are.
    pub(super) fn due(&mut self, now: Instant) -> Vec<String> {
        if now < self.next {
            return vec![];
        }
        self.next = now + self.span / 3;
        self.routers.keys().cloned().collect()
    }

    /// A router's lease is ours. It counts from when it was asked for, at the earliest.
    pub(super) fn granted(&mut self, router: &str, asked: Instant) {
        let Some(held) = self.routers.get_mut(router) else { return };
        *held = Held::Until(asked + self.span);
        self.other = self.other.take().filter(|_| self.is_others());
    }

    /// A router did not grant it. Gives the routers whose lease is to be given back: of two controllers
    /// that hold half each, neither could go on.
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

    /// The number of this holding, while all routers that answer are ours.
    pub(super) fn epoch(&self, now: Instant) -> Option<u64> {
        let is_ours = |held: &Held| match held {
            Held::Until(until) => now < *until,
            Held::Silent => true,
            Held::Others => false,
        };
        let any = self.routers.values().any(|held| matches!(held, Held::Until(_)));
        (any && self.routers.values().all(is_ours)).then_some(self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_steers_when_all_that_answer_are_ours_and_gives_back_what_it_has_otherwise() {
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
        // Not renewed, it ends when the routers' own lease does.
        assert_eq!(leases.epoch(at(115)), None);
        assert_eq!((leases.due(at(104)).len(), leases.due(at(105)).len()), (0, 3));
        let held = SteerError::Held { holder: "b/3/4".into(), path: "".into() };
        assert_eq!(leases.refused("l2", &held, at(106)), ["l0"]);
        assert_eq!((leases.epoch(at(106)), leases.other.as_deref()), (None, Some("b/3/4")));
    }
}
