//! A lease that lets one controller act at a time, without trust in the clocks of the others.
//!
//! It has three parts. A [`Register`] is stored where all controllers reach it (a file under a lock, a key of a
//! consistent store), and one controller changes it at a time. A [`Holder`] is a controller's side: it acquires the
//! lease, renews it, and knows until when it may act. A [`Gate`] protects routers and refuses late changes of an
//! earlier holder: every change of holder increments the *epoch*, and every change of a route carries it (fencing
//! tokens; for the times see Gray and Cheriton, *Leases*, 1989).

use alloc::string::String;

use serde::{Deserialize, Serialize};
use weft_units::{Duration, Instant};

/// The lease and its holder, in the register's own time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The holder's name; empty before the first.
    pub holder: String,
    /// Number of times that the lease was acquired anew.
    pub epoch: u64,
    /// The end of the lease, in nanoseconds.
    pub until: u64,
}

/// The register's answer to a request for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The requester holds the lease, under this epoch.
    Granted {
        /// The epoch that its changes carry.
        epoch: u64,
    },
    /// Another controller holds the lease.
    Held {
        /// The holder's name.
        by: String,
        /// The remaining time of its lease.
        remaining: Duration,
    },
}

impl Register {
    /// Grants or renews the lease of `name` for `term`, unless another controller holds it.
    pub fn request(&mut self, name: &str, term: Duration, now: Instant) -> Answer {
        let is_over = now.as_nanos() >= self.until;
        if self.holder != name {
            if !is_over {
                let remaining = Duration::from_nanos(self.until - now.as_nanos());
                return Answer::Held { by: self.holder.clone(), remaining };
            }
            self.holder = String::from(name);
            self.epoch += 1;
        } else if is_over {
            // The lease had expired, though no other controller took it: changes sent meanwhile are refused.
            self.epoch += 1;
        }
        self.until = self.until.max((now + term).as_nanos());
        Answer::Granted { epoch: self.epoch }
    }

    /// Ends the lease before its time, if `name` holds it under `epoch`.
    pub fn release(&mut self, name: &str, epoch: u64) {
        if self.holder == name && self.epoch == epoch {
            self.until = 0;
        }
    }
}

/// One controller's view of the lease, in its own time.
#[derive(Clone, Debug)]
pub struct Holder {
    name: String,
    term: Duration,
    /// The time of the pending request, if there is one.
    requested_at: Option<Instant>,
    /// The epoch, and the time until which it is safe to act.
    held: Option<(u64, Instant)>,
    next: Instant,
}

impl Holder {
    /// Creates a controller's view without a lease. `name` must be unique, and different after each start.
    pub const fn new(name: String, term: Duration) -> Self {
        Self { name, term, requested_at: None, held: None, next: Instant::EPOCH }
    }

    /// Returns the controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the duration of the lease that it requests.
    pub const fn term(&self) -> Duration {
        self.term
    }

    /// Returns the time of the next request to the register.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// Returns the epoch under which the controller may act now; `None` if it may not.
    pub fn epoch(&self, now: Instant) -> Option<u64> {
        self.held.filter(|&(_, until)| now < until).map(|(epoch, _)| epoch)
    }

    /// Records that a request is sent to the register now.
    pub fn on_request_sent(&mut self, now: Instant) {
        // An answer to an earlier request counts from that request, never from a later one.
        self.requested_at = Some(self.requested_at.map_or(now, |before| before.min(now)));
        self.next = now + self.term / 3;
    }

    /// Processes the register's answer. The lease counts from the time of the request, and a tenth of the term is
    /// reserved for clocks that run at different rates.
    pub fn handle_answer(&mut self, answer: &Answer, now: Instant) {
        let Some(requested_at) = self.requested_at.take() else { return };
        match answer {
            Answer::Granted { epoch } => {
                self.held = Some((*epoch, requested_at + (self.term - self.term / 10)));
            }
            Answer::Held { remaining, .. } => {
                self.held = None;
                self.next = now + self.term.min(*remaining);
            }
        }
    }

    /// Records that the request failed; it is repeated at [`Self::next`].
    pub const fn on_request_failed(&mut self) {
        self.requested_at = None;
    }
}

/// The check of epochs in front of a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// The highest epoch that was accepted.
    pub epoch: u64,
}

/// The refusal of a change from a controller that has lost the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {got} is over; a controller with epoch {now} holds the lease")]
pub struct Stale {
    /// The epoch of the change.
    pub got: u64,
    /// The epoch of the holder.
    pub now: u64,
}

impl Gate {
    /// Accepts a change unless a later epoch was seen.
    ///
    /// # Errors
    /// Returns [`Stale`] with both epochs.
    pub const fn pass(&mut self, epoch: u64) -> Result<(), Stale> {
        if epoch < self.epoch {
            return Err(Stale { got: epoch, now: self.epoch });
        }
        self.epoch = epoch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    const TERM: Duration = Duration::from_secs(9);

    fn at(millis: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn a_second_controller_waits_and_takes_over_with_a_higher_epoch() {
        let mut register = Register::default();
        assert_eq!(register.request("a", TERM, at(0)), Answer::Granted { epoch: 1 });
        let remaining = Duration::from_secs(8);
        assert_eq!(
            register.request("b", TERM, at(1000)),
            Answer::Held { by: "a".into(), remaining }
        );
        assert_eq!(register.request("a", TERM, at(3000)), Answer::Granted { epoch: 1 });
        assert_eq!(register.request("b", TERM, at(12_000)), Answer::Granted { epoch: 2 });
        register.release("a", 1);
        assert!(matches!(register.request("a", TERM, at(13_000)), Answer::Held { .. }));
        register.release("b", 2);
        assert_eq!(register.request("a", TERM, at(13_000)), Answer::Granted { epoch: 3 });
    }

    #[test]
    fn late_changes_of_an_earlier_holder_are_refused() {
        let mut gate = Gate::default();
        assert_eq!((gate.pass(1), gate.pass(2)), (Ok(()), Ok(())));
        assert_eq!(gate.pass(1), Err(Stale { got: 1, now: 2 }));
    }

    /// With separate clocks, delayed or lost messages and stopped processes, at most one controller at a time has an
    /// epoch under which it may act.
    #[test]
    fn two_controllers_never_both_act() {
        for seed in 0..200 {
            let mut rng = Seed(seed).child("lease", 0).rng();
            let mut register = Register::default();
            let mut holders = ["a", "b", "c"].map(|name| Holder::new(name.into(), TERM));
            // Each clock has its own offset; all run at the same rate.
            let offsets = [0, 1, 2].map(|_| rng.below(1_000_000));
            let mut answers: [Option<(u64, Answer)>; 3] = [None, None, None];
            let mut acted = 0;
            for millis in (0..120_000).step_by(100) {
                for (number, holder) in holders.iter_mut().enumerate() {
                    let local_time = at(millis + offsets[number]);
                    match answers[number].take() {
                        Some((due, answer)) if due <= millis => {
                            holder.handle_answer(&answer, local_time)
                        }
                        later @ Some(_) => answers[number] = later,
                        None if local_time >= holder.next() && !rng.chance(1, 4) => {
                            holder.on_request_sent(local_time);
                            let answer = register.request(holder.name(), TERM, at(millis));
                            let late = rng.below(4000);
                            if rng.chance(1, 8) {
                                holder.on_request_failed();
                            } else {
                                answers[number] = Some((millis + late, answer));
                            }
                        }
                        None => {}
                    }
                    if rng.chance(1, 400) {
                        // The controller stops for longer than a term: nothing happens in between.
                        answers[number] = None;
                        holder.on_request_failed();
                    }
                }
                let acting: Vec<u64> = (0..3)
                    .filter_map(|number| holders[number].epoch(at(millis + offsets[number])))
                    .collect();
                assert!(acting.len() <= 1, "seed {seed}: epochs {acting:?} at {millis} ms");
                acted += acting.len();
            }
            assert!(acted > 100, "seed {seed}: nobody held the lease for long");
        }
    }
}
