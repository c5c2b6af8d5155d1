//! A limit on the number of concurrent operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::SimTime;

/// A fixed number of places, with the time at which each is free.
#[derive(Debug)]
pub(super) struct Outstanding(BinaryHeap<Reverse<SimTime>>);

impl Outstanding {
    pub(super) fn new(places: u32) -> Self {
        Self((0..places).map(|_| Reverse(SimTime::EPOCH)).collect())
    }

    /// Starts an operation at `now`, or when a place is free; `ends` returns its end for a start.
    pub(super) fn serve(&mut self, now: SimTime, ends: impl FnOnce(SimTime) -> SimTime) -> SimTime {
        let mut soonest = self.0.peek_mut().expect("there is a place");
        let end = ends(soonest.0.max(now));
        *soonest = Reverse(end);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SimSpan;

    #[test]
    fn the_third_of_two_waits_for_the_one_that_ends_first() {
        let mut two = Outstanding::new(2);
        let mut serve = |now, span| {
            let end = two.serve(SimTime::from_picos(now), |at| at + SimSpan::from_picos(span));
            end.as_picos()
        };
        assert_eq!([serve(0, 100), serve(0, 30), serve(10, 50), serve(200, 5)], [100, 30, 80, 205]);
    }
}
