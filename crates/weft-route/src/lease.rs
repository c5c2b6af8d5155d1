//! One controller at a time, without any of them trusting the other's clock.
//!
//! Three parts. A [`Register`] lies where all controllers reach it (a file under a lock, a key of a
//! consistent store) and is changed by one at a time. A [`Holder`] is a controller's side: it takes the
//! lease, renews it, and knows when it may no longer act. A [`Gate`] stands before routers and
//! refuses what an earlier holder still sends: every change of holder raises the *epoch*, and every
//! change of a route carries it (fencing tokens; Gray and Cheriton, *Leases*, 1989, has the times).

use alloc::string::String;

use serde::{Deserialize, Serialize};
use weft_units::{Duration, Instant};

/// Who has the lease, in the register's own time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The holder's name; empty before the first.
    pub holder: String,
    /// How often the holder has changed.
    pub epoch: u64,
    /// Until when it holds, in nanoseconds.
    pub until: u64,
}

/// The answer to somebody who asked for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// They have it, under this epoch.
    Granted {
        /// The number that their changes carry.
        epoch: u64,
    },
    /// Somebody else has it.
    Held {
        /// Who.
        by: String,
        /// For how long still.
        remaining: Duration,
    },
}

impl Register {
    /// `name` asks for the lease for `term`, or for more of it.
    pub fn ask(&mut self, name: &str, term: Duration, now: Instant) -> Answer {
        let is_over = now.as_nanos() >= self.until;
        if self.holder != name {
            if !is_over {
                let remaining = Duration::from_nanos(self.until - now.as_nanos());
                return Answer::Held { by: self.holder.clone(), remaining };
            }
            self.holder = String::from(name);
            self.epoch += 1;
        } else if is_over {
            // It had lost it, though nobody took it: what it sent meanwhile shall not count.
            self.epoch += 1;
        }
        self.until = self.until.max((now + term).as_nanos());
        Answer::Granted { epoch: self.epoch }
    }

    /// The holder gives the lease back before its time.
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
    /// When the question was sent that has no answer yet.
    asked: Option<Instant>,
    /// Epoch, and until when it is safe to act.
    held: Option<(u64, Instant)>,
    next: Instant,
}

impl Holder {
    /// A controller that does not hold the lease. `name` is its own, different after each start.
    pub const fn new(name: String, term: Duration) -> Self {
        Self { name, term, asked: None, held: None, next: Instant::EPOCH }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// For how long it asks.
    pub const fn term(&self) -> Duration {
        self.term
    }

    /// When the register is to be asked next.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// The epoch under which it may act now, if it may.
    pub fn epoch(&self, now: Instant) -> Option<u64> {
        self.held.filter(|&(_, until)| now < until).map(|(epoch, _)| epoch)
    }

    /// A question goes to the register now.
    pub fn ask(&mut self, now: Instant) {
        // Answers to an earlier question are counted from that question, never from a later one.
        self.asked = Some(self.asked.map_or(now, |before| before.min(now)));
        self.next = now + self.term / 3;
    }

    /// The register's answer. The lease counts from when it was asked for, and a tenth of the term is
    /// left to clocks that run unevenly.
    pub fn answered(&mut self, answer: &Answer, now: Instant) {
        let Some(asked) = self.asked.take() else { return };
        match answer {
            Answer::Granted { epoch } => {
                self.held = Some((*epoch, asked + (self.term - self.term / 10)));
            }
            Answer::Held { remaining, .. } => {
                self.held = None;
                self.next = now + self.term.min(*remaining);
            }
        }
    }

    /// The question could not be asked; it will be again.
    pub const fn failed(&mut self) {
        self.asked = None;
    }
}

/// What stands before a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// The highest epoch that was let through.
    pub epoch: u64,
}

/// A change that came from a controller which has lost the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {got} is over; a controller of epoch {now} has the lease")]
pub struct Stale {
    /// The change's.
    pub got: u64,
    /// The holder's.
    pub now: u64,
}

impl Gate {
    /// Lets a change through unless a later epoch was seen.
    ///
    /// # Errors
    /// `Stale` with both epochs.
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
        assert_eq!(register.ask("a", TERM, at(0)), Answer::Granted { epoch: 1 });
        let remaining = Duration::from_secs(8);
        assert_eq!(register.ask("b", TERM, at(1000)), Answer::Held { by: "a".into(), remaining });
        assert_eq!(register.ask("a", TERM, at(3000)), Answer::Granted { epoch: 1 });
        assert_eq!(register.ask("b", TERM, at(12_000)), Answer::Granted { epoch: 2 });
        register.release("a", 1);
        assert!(matches!(register.ask("a", TERM, at(13_000)), Answer::Held { .. }));
        register.release("b", 2);
        assert_eq!(register.ask("a", TERM, at(13_000)), Answer::Granted { epoch: 3 });
    }

    #[test]
    fn what_an_earlier_holder_sends_late_is_refused() {
        let mut gate = Gate::default();
        assert_eq!((gate.pass(1), gate.pass(2)), (Ok(()), Ok(())));
        assert_eq!(gate.pass(1), Err(Stale { got: 1, now: 2 }));
    }

    /// Controllers with clocks of their own, messages that are late or lost, processes that stand
    /// still: never do two of them believe that they may act at one time.
    #[test]
    fn two_controllers_never_both_act() {
        for seed in 0..200 {
            let mut rng = Seed(seed).child("lease", 0).rng();
            let mut register = Register::default();
            let mut holders = ["a", "b", "c"].map(|name| Holder::new(name.into(), TERM));
            // Each clock starts elsewhere; all run equally fast.
            let offsets = [0, 1, 2].map(|_| rng.below(1_000_000));
            let mut answers: [Option<(u64, Answer)>; 3] = [None, None, None];
            let mut acted = 0;
            for millis in (0..120_000).step_by(100) {
                for (number, holder) in holders.iter_mut().enumerate() {
                    let own = at(millis + offsets[number]);
                    match answers[number].take() {
                        Some((due, answer)) if due <= millis => holder.answered(&answer, own),
                        later @ Some(_) => answers[number] = later,
                        None if own >= holder.next() && !rng.chance(1, 4) => {
                            holder.ask(own);
                            let answer = register.ask(holder.name(), TERM, at(millis));
                            let late = rng.below(4000);
                            if rng.chance(1, 8) {
                                holder.failed();
                            } else {
                                answers[number] = Some((millis + late, answer));
                            }
                        }
                        None => {}
                    }
                    if rng.chance(1, 400) {
                        // It stands still for longer than a term: nothing happens in between.
                        answers[number] = None;
                        holder.failed();
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
