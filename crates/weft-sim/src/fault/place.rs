//! The place of a fault: a link by its number, or one that is determined during the run.

use std::cmp::Reverse;

use weft_topo::{LinkId, Topology};

/// A link that a fault is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A link by its number.
    Link(LinkId),
    /// The busiest cable between switches. It is determined once, when the first fault there begins, so that a fault
    /// ends where it began.
    Busiest {
        /// `true` for its second direction.
        back: bool,
    },
}

impl From<LinkId> for Place {
    fn from(link: LinkId) -> Self {
        Self::Link(link)
    }
}

impl Place {
    /// Returns the first direction of the same cable.
    pub(super) fn cable(self) -> Self {
        match self {
            Self::Link(link) => Self::Link(LinkId(link.0 & !1)),
            Self::Busiest { .. } => Self::Busiest { back: false },
        }
    }

    /// Returns the link; `busiest` returns the busiest cable.
    pub(crate) fn link(self, busiest: impl FnOnce() -> LinkId) -> LinkId {
        match self {
            Self::Link(link) => link,
            Self::Busiest { back } => LinkId(busiest().0 & !1 | u32::from(back)),
        }
    }
}

/// Returns the cable between switches that carried the most bytes in both directions together; of equal ones the
/// first.
///
/// # Panics
/// The topology has no such cable; the selector has checked that.
pub(crate) fn busiest(topology: &Topology, carried: impl Fn(LinkId) -> u64) -> LinkId {
    let between_switches = |link: &LinkId| {
        let ends = topology.link(*link);
        !topology.is_host(ends.from) && !topology.is_host(ends.to)
    };
    let cables = topology.link_ids().step_by(2).filter(between_switches);
    let both_ways = |link: &LinkId| Reverse(carried(*link) + carried(LinkId(link.0 | 1)));
    cables.min_by_key(both_ways).expect("a fault on an uplink needs one")
}

#[cfg(test)]
mod tests {
    use weft_topo::build::LeafSpine;

    use super::*;

    #[test]
    fn the_busiest_cable_is_between_switches_counts_both_directions_and_is_the_first_of_equals() {
        let topology = LeafSpine::default().build().unwrap();
        let is_uplink = |link: LinkId| {
            let ends = topology.link(link);
            !topology.is_host(ends.from) && !topology.is_host(ends.to)
        };
        let first = topology.link_ids().find(|&link| is_uplink(link)).unwrap();
        let of = |loads: &[(u32, u64)]| {
            busiest(&topology, |link| {
                let at_host = if is_uplink(link) { 0 } else { 1000 };
                let mine = loads.iter().filter(|(number, _)| first.0 + number == link.0);
                at_host + mine.map(|(_, bytes)| bytes).sum::<u64>()
            })
        };
        assert_eq!(of(&[]), first);
        assert_eq!(of(&[(2, 5), (4, 5)]), LinkId(first.0 + 2));
        assert_eq!(of(&[(2, 5), (4, 3), (5, 3)]), LinkId(first.0 + 4));
    }

    #[test]
    fn a_place_is_a_link_or_a_direction_of_the_busiest_cable() {
        let known = Place::from(LinkId(7));
        assert_eq!(known.link(|| unreachable!("it is known")), LinkId(7));
        assert_eq!(known.cable(), Place::Link(LinkId(6)));
        let directions = [false, true].map(|back| Place::Busiest { back });
        assert_eq!(directions.map(|place| place.link(|| LinkId(4)).0), [4, 5]);
        assert_eq!(directions.map(Place::cable), [directions[0]; 2]);
    }
}
