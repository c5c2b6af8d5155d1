//! The messages of each place of a group in a collective, in order, without the chunks that they carry.

use std::collections::BTreeMap;
use std::ops::Range;

use weft_plan::collective::{Schedule, Step};

/// A step of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Sends a message to another place.
    Send(u16),
    /// Waits for the next message from another place.
    Receive(u16),
    /// Copies inside its buffer.
    Copy,
}

/// The moves of every place of a group.
#[derive(Debug)]
pub(super) struct Moves {
    /// By place, in order.
    steps: Vec<Vec<Move>>,
    /// By place those it sends to, each with the number of messages.
    destinations: Vec<Vec<(usize, u64)>>,
    /// The first step of a ring's rounds, if it is a ring.
    rounds_from: Option<usize>,
}

impl Moves {
    /// Returns the moves of a schedule of fewer than 2^16 ranks.
    pub(super) fn new(schedule: &Schedule) -> Self {
        let of_place = |steps: &Vec<Step>| steps.iter().map(Move::of).collect();
        let steps: Vec<Vec<Move>> = schedule.steps.iter().map(of_place).collect();
        Self {
            destinations: steps.iter().map(|steps| destinations(steps)).collect(),
            rounds_from: rounds_from(&steps),
            steps,
        }
    }

    /// Returns a step of a place; `None` past the last one.
    pub(super) fn get(&self, place: usize, step: usize) -> Option<Move> {
        self.steps[place].get(step).copied()
    }

    /// Returns the places that a place sends to, each with the number of messages.
    pub(super) fn destinations(&self, place: usize) -> &[(usize, u64)] {
        &self.destinations[place]
    }

    /// Returns the steps that are rounds of a ring, a send and a receive each.
    pub(super) fn rounds(&self) -> Option<Range<usize>> {
        let end = self.steps.first()?.len();
        self.rounds_from.map(|start| start..end)
    }

    /// Returns `true` if every place has the steps of the first one, with peers as many places further.
    pub(super) fn is_rotational(&self) -> bool {
        let places = self.steps.len();
        let seen_from = |place: usize, step: &Move| {
            let distance = |peer: u16| (usize::from(peer) + places - place) % places;
            match *step {
                Move::Send(to) => (0, distance(to)),
                Move::Receive(from) => (1, distance(from)),
                Move::Copy => (2, 0),
            }
        };
        let first: Vec<_> = self.steps[0].iter().map(|step| seen_from(0, step)).collect();
        self.steps.iter().enumerate().all(|(place, steps)| {
            steps.iter().map(|step| seen_from(place, step)).eq(first.iter().copied())
        })
    }
}

impl Move {
    fn of(step: &Step) -> Self {
        let place = |rank: usize| u16::try_from(rank).expect("fewer than 2^16 ranks");
        match *step {
            Step::Send { to, .. } => Self::Send(place(to)),
            Step::Receive { from, .. } | Step::Reduce { from, .. } => Self::Receive(place(from)),
            Step::Copy { .. } => Self::Copy,
        }
    }
}

/// Returns the places that one sends to, each with the number of messages.
fn destinations(steps: &[Move]) -> Vec<(usize, u64)> {
    let mut counts = BTreeMap::new();
    for step in steps {
        if let Move::Send(to) = *step {
            *counts.entry(usize::from(to)).or_default() += 1;
        }
    }
    counts.into_iter().collect()
}

/// Returns the first step from which on each step has the peer of the one before the last: a ring's rounds. `None` if
/// there is no round.
fn rounds_from(steps: &[Vec<Move>]) -> Option<usize> {
    let first = |steps: &Vec<Move>| {
        let repeats = |step: usize| steps[step] != Move::Copy && steps[step] == steps[step + 2];
        let rounds = steps.len().checked_sub(2)?;
        (0..rounds).rev().take_while(|&step| repeats(step)).last()
    };
    steps.iter().map(first).try_fold(0, |latest, first| Some(latest.max(first?)))
}

#[cfg(test)]
mod tests {
    use weft_plan::collective::{all_gather_ring, all_reduce_ring, all_to_all, broadcast_chain};

    use super::*;

    fn order(ranks: usize) -> Vec<usize> {
        (0..ranks).collect()
    }

    #[test]
    fn a_ring_has_rounds_and_an_all_to_all_has_none() {
        assert_eq!(Moves::new(&all_gather_ring(&order(6))).rounds(), Some(0..10));
        assert_eq!(Moves::new(&all_to_all(6)).rounds(), None);
    }

    #[test]
    fn a_ring_looks_the_same_from_every_place_and_a_broadcast_does_not() {
        assert!(Moves::new(&all_gather_ring(&order(5))).is_rotational());
        assert!(Moves::new(&all_reduce_ring(&order(5))).is_rotational());
        assert!(!Moves::new(&broadcast_chain(&order(5), 2)).is_rotational());
    }

    #[test]
    fn a_place_of_a_ring_sends_to_the_next_one_and_of_an_all_to_all_to_each() {
        assert_eq!(Moves::new(&all_gather_ring(&order(4))).destinations(3), [(0, 3)]);
        assert_eq!(Moves::new(&all_to_all(3)).destinations(1), [(0, 1), (2, 1)]);
    }
}
