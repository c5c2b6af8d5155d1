//! Lanes for slices that overlap: the slices of one track must nest, so messages that are in progress at the same time
//! get tracks of their own.

use std::collections::BTreeSet;

use super::packets::Track;
use crate::time::SimTime;

/// The lanes of one host.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The end of each lane's last slice, with the lane.
    ends: BTreeSet<(SimTime, Track)>,
}

impl Lanes {
    /// Returns a lane that is free from `start` on, and occupies it until `end`; `add` returns a new lane. Slices may
    /// come in order of their ends.
    pub(super) fn take(
        &mut self,
        start: SimTime,
        end: SimTime,
        add: impl FnOnce() -> Track,
    ) -> Track {
        // The lane that became free last leaves the others to slices that started earlier.
        let free = self.ends.range(..=(start, Track::MAX)).next_back().copied();
        let lane = match free {
            Some(free) => {
                self.ends.remove(&free);
                free.1
            }
            None => add(),
        };
        self.ends.insert((end, lane));
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_overlap_have_lanes_of_their_own_and_others_share() {
        let (mut lanes, mut added) = (Lanes::default(), 0);
        let mut take = |start, end| {
            let [start, end] = [start, end].map(SimTime::from_picos);
            lanes.take(start, end, || {
                added += 1;
                Track::number(added)
            })
        };
        let a = take(0, 10);
        let b = take(5, 11);
        let c = take(10, 12);
        let d = take(11, 20);
        assert_ne!(a, b);
        assert_eq!((c, d), (a, b));
        assert_ne!(take(2, 30), c);
    }
}
