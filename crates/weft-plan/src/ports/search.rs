//! The search for ports by trial, for hashes that cannot be solved.

use core::cell::Cell;

use weft_topo::LinkId;
use weft_units::Rng;

use super::fabric::{MAX_PATH_LINKS, Packet};
use super::targets::Target;
use super::{Entropy, Fabric, Flow};

/// A path's links between switches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    links: [LinkId; MAX_PATH_LINKS],
    len: usize,
}

impl Path {
    pub(super) fn links(&self) -> &[LinkId] {
        &self.links[..self.len]
    }
}

/// A port and its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) port: u16,
    pub(super) path: Path,
}

impl Entropy {
    /// Returns all ports once, in a different order for each flow.
    pub fn candidates(self, rng: &mut Rng) -> impl Iterator<Item = u16> + use<> {
        // An odd stride visits every residue modulo a power of two.
        let (start, stride) = (rng.next_u32(), rng.next_u32() | 1);
        (0..self.count()).map(move |n| self.port(start.wrapping_add(n.wrapping_mul(stride))))
    }
}

/// Returns the first path whose cost is below `limit`, or else the path of least cost. A cost is the load of
/// the path's busiest link, then the sum of its loads.
pub fn least_busy<P>(paths: impl Iterator<Item = ((u32, u32), P)>, limit: u32) -> Option<P> {
    let mut best: Option<((u32, u32), P)> = None;
    for (cost, path) in paths {
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, path));
        }
        if cost.0 < limit {
            break;
        }
    }
    best.map(|(_, path)| path)
}

/// The remaining budget of the search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Number of ports that may still be tried, for all flows together.
    pub(super) left: u64,
}

impl Budget {
    /// Returns the number of ports that one of `flows` may try: its share of the budget, at least `MIN_TRIES`, at most
    /// `max_tries`.
    pub(super) fn share(self, flows: usize, max_tries: u32) -> u32 {
        const MIN_TRIES: u64 = 8;
        let share = (self.left / (flows as u64).max(1)).max(MIN_TRIES);
        u32::try_from(share).unwrap_or(u32::MAX).min(max_tries)
    }

    pub(super) fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

/// The budget and the random generator that trials of ports consume.
pub(super) struct Draws<'a> {
    pub(super) budget: &'a mut Budget,
    pub(super) rng: &'a mut Rng,
}

/// The bounds of a flow's search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Number of flows of a link below which the search ends.
    pub(super) limit: u32,
    /// Maximum number of ports tried.
    pub(super) tries: u32,
}

/// Returns a port that leads the flow exactly over its target's links, from the first `tries` candidates.
pub(super) fn exact(
    fabric: &Fabric<'_>,
    flow: Flow,
    target: &Target,
    taken: &[u16],
    tries: u32,
    draws: Draws<'_>,
) -> Option<u16> {
    let Draws { budget, rng } = draws;
    let packet = fabric.packet(flow);
    let fits = |&port: &u16| {
        budget.spend();
        let mut matches = !taken.contains(&port);
        fabric.walk(flow, &packet, port, |choice| {
            matches = matches && target.wanted(fabric, &choice) == Some(choice.index);
            matches
        });
        matches
    };
    fabric.entropy().candidates(rng).take(tries as usize).find(fits)
}

/// Returns the first port whose links all carry fewer flows than the limit, or else the port with the least loaded
/// busiest link, and among those the lowest sum of loads.
pub(super) fn first_fit(
    fabric: &Fabric<'_>,
    flow: Flow,
    loads: &[u32],
    taken: &[u16],
    bounds: Bounds,
    draws: Draws<'_>,
) -> Found {
    let (Bounds { limit, tries }, Draws { budget, rng }) = (bounds, draws);
    let packet = fabric.packet(flow);
    // A path is abandoned as soon as one of its links is busier than the busiest link of the best path.
    let lowest = Cell::new(u32::MAX);
    let ports = fabric.entropy().candidates(rng).filter(|port| !taken.contains(port));
    let paths = ports.take(tries as usize).filter_map(|port| {
        budget.spend();
        let path = follow(fabric, flow, &packet, port, |link| loads[link.index()] <= lowest.get())?;
        let link_loads = || path.links().iter().map(|link| loads[link.index()]);
        let cost = (link_loads().max().unwrap_or(0), link_loads().sum());
        lowest.set(lowest.get().min(cost.0));
        Some((cost, Found { port, path }))
    });
    let fallback = || {
        let port = fabric.entropy().first;
        let path = follow(fabric, flow, &packet, port, |_| true);
        Found { port, path: path.unwrap_or(Path { links: [LinkId(0); MAX_PATH_LINKS], len: 0 }) }
    };
    least_busy(paths, limit).unwrap_or_else(fallback)
}

/// Returns the links between switches that the flow takes; `None` as soon as `keep` rejects one.
pub(super) fn follow(
    fabric: &Fabric<'_>,
    flow: Flow,
    packet: &Packet,
    port: u16,
    keep: impl Fn(LinkId) -> bool,
) -> Option<Path> {
    let mut path = Path { links: [LinkId(0); MAX_PATH_LINKS], len: 0 };
    let kept = fabric.follow(flow, packet, port, |link| {
        path.links[path.len] = link;
        path.len += 1;
        keep(link)
    });
    kept.then_some(path)
}
