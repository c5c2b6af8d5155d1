//! Path lookup for many flows at a time. The tables of a large fabric do not fit into the caches, so each hop of a
//! flow waits for memory. Several flows are therefore followed in step: the memory that each of them reads next is
//! prefetched before any of them reads it, and their waits overlap.

use alloc::vec::Vec;

use crate::fabric::{Base, End, Fabric, Forward, LinkId, Packet, RouterId};
use crate::flow::FlowRef;
use crate::path::{Outcome, Path, Start};

/// Number of flows followed in step. Each waits for one or two cache lines; processors overlap ten to twenty misses.
const LANES: usize = 16;

/// A flow that is being followed.
struct Lane<'a, P> {
    packet: &'a P,
    base: Base,
    path: Path,
    /// The link that the flow crosses next.
    link: LinkId,
    /// The router that the flow has reached.
    at: RouterId,
    /// The index of the router's address range that contains the destination.
    range: usize,
}

impl Fabric {
    /// Passes the path of each flow to `each`, in order, from a host's link or from a router on. For many flows this
    /// takes a fraction of the time of one [`Self::path_from`] per flow.
    ///
    /// # Panics
    /// If the fabric has no such link or router.
    pub fn paths<'a, F: Into<FlowRef<'a>>>(
        &self,
        flows: impl IntoIterator<Item = (Start, F)>,
        mut each: impl FnMut(&Path),
    ) {
        let mut flows = flows.into_iter().map(|(start, flow)| (start, flow.into())).peekable();
        while let Some((_, first)) = flows.peek() {
            match first {
                FlowRef::V4(_) => {
                    let run = core::iter::from_fn(|| match flows.peek()? {
                        &(start, FlowRef::V4(tuple)) => flows.next().map(|_| (start, tuple)),
                        (_, FlowRef::V6(_)) => None,
                    });
                    self.follow_all(run, &mut each);
                }
                FlowRef::V6(_) => {
                    let run = core::iter::from_fn(|| match flows.peek()? {
                        &(start, FlowRef::V6(tuple)) => flows.next().map(|_| (start, tuple)),
                        (_, FlowRef::V4(_)) => None,
                    });
                    self.follow_all(run, &mut each);
                }
            }
        }
    }

    fn follow_all<'a, P: Packet + 'a>(
        &self,
        mut flows: impl Iterator<Item = (Start, &'a P)>,
        each: &mut impl FnMut(&Path),
    ) {
        let mut lanes: Vec<Lane<'a, P>> = Vec::with_capacity(LANES);
        let mut live: Vec<usize> = Vec::with_capacity(LANES);
        loop {
            lanes.clear();
            lanes
                .extend(flows.by_ref().take(LANES).map(|(start, packet)| Lane::new(start, packet)));
            if lanes.is_empty() {
                return;
            }
            self.follow_in_step(&mut lanes, &mut live);
            lanes.iter().for_each(|lane| each(&lane.path));
        }
    }

    /// Follows lanes to their ends. `live` is a buffer for the indices of lanes that have not ended.
    fn follow_in_step<P: Packet>(&self, lanes: &mut [Lane<'_, P>], live: &mut Vec<usize>) {
        live.clear();
        live.extend((0..lanes.len()).filter(|&lane| lanes[lane].path.links().len() == 1));
        live.iter().for_each(|&lane| self.prefetch_arrival(lanes[lane].link));
        live.retain(|&lane| self.enter(&mut lanes[lane]));
        live.extend((0..lanes.len()).filter(|&lane| lanes[lane].path.links().is_empty()));
        let family = P::family(self);
        while !live.is_empty() {
            live.iter().for_each(|&lane| family.prefetch_ranges(lanes[lane].at));
            for &lane in live.iter() {
                let lane = &mut lanes[lane];
                lane.range = family.range(lane.at, lane.packet.dst());
                family.prefetch_action(lane.at, lane.range);
            }
            live.retain(|&lane| self.leave(&mut lanes[lane]));
            live.retain(|&lane| self.enter(&mut lanes[lane]));
        }
        for lane in lanes {
            if let Outcome::Astray(host) = lane.path.outcome
                && lane.packet.is_for(self, host)
            {
                lane.path.outcome = Outcome::Delivered(host);
            }
        }
    }

    /// Chooses the link by which a flow leaves its router. Returns `false` if the path ends in the router.
    #[inline]
    fn leave<P: Packet>(&self, lane: &mut Lane<'_, P>) -> bool {
        lane.path.outcome = match lane.packet.forward_in(self, lane.at, lane.range, &mut lane.base)
        {
            Forward::Link(link) if lane.path.push(link) => {
                lane.link = link;
                self.prefetch_arrival(link);
                return true;
            }
            Forward::Link(_) => Outcome::Loop(lane.at),
            Forward::NoRoute => Outcome::NoRoute(lane.at),
            Forward::Unreachable => Outcome::Unreachable(lane.at),
            Forward::Blackhole => Outcome::Blackhole(lane.at),
        };
        false
    }

    /// Crosses a flow's link. Returns `false` if the path ends there. A host is compared with the destination later.
    #[inline]
    fn enter<P: Packet>(&self, lane: &mut Lane<'_, P>) -> bool {
        match self.arrive(lane.link) {
            Some(End::Router(router)) => {
                lane.at = router;
                P::family(self).prefetch_router(router);
                return true;
            }
            Some(End::Host(host)) => {
                lane.path.outcome = Outcome::Astray(host);
                P::family(self).prefetch_address(host);
            }
            _ => {
                let outcome = self.cross(lane.link, lane.packet);
                lane.path.outcome = outcome.expect_err("the link leads to no router");
            }
        }
        false
    }
}

impl<'a, P: Packet> Lane<'a, P> {
    fn new(start: Start, packet: &'a P) -> Self {
        let (mut path, mut link, mut at) = (Path::EMPTY, LinkId(0), RouterId(0));
        match start {
            Start::Link(first) => {
                path.push(first);
                link = first;
            }
            Start::Router(router) => at = router,
        }
        Self { packet, base: Fabric::no_base(), path, link, at, range: 0 }
    }
}
