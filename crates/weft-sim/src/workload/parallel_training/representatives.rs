//! The ranks that are simulated for all.
//!
//! The ranks of a tensor-parallel group do the same at the same time, each with the ranks of equal place in other groups.
//! Where the groups are inside servers and their first `width` places have links of their own and routes equal to those
//! of the next `width` places, and so on, only the first are simulated. Inside a server a collective looks the same from
//! every place, so that a message to a rank that is not simulated arrives at the one that represents it, as if it came
//! from as many places before that one.

use super::grid::Grid;
use super::rank::Inlet;

/// The ranks that are simulated: the first places of each tensor-parallel group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Representatives {
    grid: Grid,
    /// Number of places of a group that are simulated; divides the group.
    width: u32,
}

impl Representatives {
    /// Returns all ranks.
    pub(super) const fn all(grid: Grid) -> Self {
        Self::first(grid.tensor, grid)
    }

    /// Returns the first places of each tensor-parallel group; `width` divides the group.
    pub(super) const fn first(width: u32, grid: Grid) -> Self {
        Self { grid, width }
    }

    /// Returns the number of equal parts, of which one is simulated.
    pub(super) const fn parts(self) -> u32 {
        self.grid.tensor / self.width
    }

    /// Returns the number of places of each tensor-parallel group that are simulated.
    pub(super) const fn width(self) -> u32 {
        self.width
    }

    /// Returns the degrees of parallelism of the whole job.
    pub(super) const fn grid(self) -> Grid {
        self.grid
    }

    /// Returns the number of ranks that are simulated.
    pub(super) const fn count(self) -> u32 {
        self.grid.stage_size() * self.grid.pipeline / self.parts()
    }

    /// Returns the ranks that are simulated.
    pub(super) fn ranks(self) -> impl Iterator<Item = u32> {
        let (width, tensor) = (self.width, self.grid.tensor);
        (0..self.count()).map(move |index| index / width * tensor + index % width)
    }

    /// Returns the rank that represents the receiver of a message, and the inlet for the message there.
    pub(super) fn receiver(self, from: u32, to: u32, inlet: Inlet) -> (u32, Inlet) {
        let tensor = self.grid.tensor;
        let place = to % tensor;
        let distance = place - place % self.width;
        if from / tensor != to / tensor || distance == 0 {
            return (to, inlet);
        }
        let sender = (from % tensor + tensor - distance) % tensor;
        let from = u16::try_from(sender).expect("checked when it was built");
        (to - distance, Inlet { from, ..inlet })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { tensor: 8, pipeline: 2, data: 2, expert: 1 };

    #[test]
    fn the_first_places_of_each_group_represent_the_others() {
        let first = Representatives::first(2, GRID);
        assert_eq!((first.parts(), first.count()), (4, 8));
        assert_eq!(first.ranks().collect::<Vec<_>>(), [0, 1, 8, 9, 16, 17, 24, 25]);
        assert!(Representatives::all(GRID).ranks().eq(0..32));
    }

    #[test]
    fn a_message_to_another_part_arrives_as_that_part_s_does_here() {
        let first = Representatives::first(2, GRID);
        let inlet = |from| Inlet { lane: 0, groups: 3, from, slice: 1 };
        // Place 1 sends to place 2 what place 7 sends to place 0, and place 2 to place 3 what 0 sends to 1.
        assert_eq!(first.receiver(9, 10, inlet(1)), (8, inlet(7)));
        assert_eq!(first.receiver(8, 9, inlet(0)), (9, inlet(0)));
        assert_eq!(first.receiver(9, 15, inlet(1)), (9, inlet(3)));
        assert_eq!(first.receiver(1, 9, inlet(1)), (9, inlet(1)), "in another group");
    }
}
