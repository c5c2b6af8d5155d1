//! Ports for programs that cannot set one for each flow: their settings are ports that several flows share.
//!
//! A program has a few settings, such as a list of ports in a variable. Each flow sends from the port of one of them,
//! plus a fixed offset. The search gives each setting in turn the port with which its flows load the links least, the
//! settings of most flows first; then it moves settings off the busiest links. Equations cannot replace it: one port
//! would have to solve those of many pairs of addresses.

use alloc::vec;
use alloc::vec::Vec;

use weft_topo::LinkId;
use weft_units::{Rng, Seed};

use super::fabric::Packet;
use super::plan::{SearchLimits, check};
use super::search::Budget;
use super::{Bound, Fabric, Flow, PlanError, bound};

/// The origin of a flow's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSource {
    /// The index of the setting.
    pub setting: usize,
    /// The flow's port is the setting's plus this.
    pub offset: u16,
}

/// The ports of all settings.
#[derive(Clone, Debug)]
pub struct SharedPlan {
    /// The port of each setting.
    pub settings: Vec<u16>,
    /// The source port of each flow.
    pub ports: Vec<u16>,
    /// The lower bound of the busiest link's load, for ports that are not shared.
    pub bound: Bound,
}

/// Plans the ports of settings so that the busiest link between switches carries as few flows as possible. Flow `i`
/// has its port from `sources[i]`. A setting takes `span` consecutive ports of the range. Equal arguments give equal
/// ports. Flows of one pair of hosts have different ports where their settings differ and the range has enough.
///
/// # Errors
/// Returns `Span` if a setting's ports do not fit into the range; `NoSuch`, `NoRoute` or `TooLong` for the first flow
/// that cannot be sent.
///
/// # Panics
/// If the numbers of flows and sources differ, or an offset is not below `span`.
pub fn plan_shared(
    fabric: &Fabric<'_>,
    flows: &[Flow],
    sources: &[PortSource],
    span: u16,
    limits: SearchLimits,
    seed: Seed,
) -> Result<SharedPlan, PlanError> {
    let ports = fabric.entropy().count();
    if u32::from(span) > ports {
        return Err(PlanError::Span { span, ports });
    }
    assert_eq!(flows.len(), sources.len(), "a source for each flow");
    assert!(sources.iter().all(|source| source.offset < span), "offsets are within the span");
    check(fabric, flows)?;
    let bound = bound(fabric, flows);
    let count = sources.iter().map(|source| source.setting + 1).max().unwrap_or(0);
    let mut of_setting: Vec<Vec<usize>> = vec![Vec::new(); count];
    (0..).zip(sources).for_each(|(flow, source)| of_setting[source.setting].push(flow));
    let mut search = Search {
        fabric,
        flows,
        sources,
        of_setting,
        span,
        limit: bound.flows,
        loads: vec![0; fabric.topology().links() as usize],
        settings: vec![None; count],
        touched: Vec::new(),
        rng: seed.child("shared ports", 0).rng(),
        budget: Budget { left: limits.total },
    };
    search.run(limits);
    let first = fabric.entropy().first;
    let settings: Vec<u16> = search.settings.iter().map(|port| port.unwrap_or(first)).collect();
    let port = |source: &PortSource| settings[source.setting] + source.offset;
    let ports = sources.iter().map(port).collect();
    Ok(SharedPlan { settings, ports, bound })
}

/// The load of the busiest link of a setting's flows, and the sum over all their links of the load before each.
type Cost = (u32, u64);

struct Search<'a> {
    fabric: &'a Fabric<'a>,
    flows: &'a [Flow],
    sources: &'a [PortSource],
    /// The flows of each setting.
    of_setting: Vec<Vec<usize>>,
    span: u16,
    /// Number of flows of the busiest link at which the search ends.
    limit: u32,
    /// Number of flows on each link, of those whose settings have ports.
    loads: Vec<u32>,
    settings: Vec<Option<u16>>,
    /// The links of the flows that were placed last.
    touched: Vec<LinkId>,
    rng: Rng,
    budget: Budget,
}

impl Search<'_> {
    fn run(&mut self, limits: SearchLimits) {
        let mut order: Vec<usize> = (0..self.settings.len()).collect();
        order.sort_by_key(|&setting| core::cmp::Reverse(self.of_setting[setting].len()));
        // Half of the budget is reserved for moves.
        let share = Budget { left: limits.total / 2 };
        let tries = share.share(self.flows.len(), limits.tries);
        order.iter().for_each(|&setting| self.choose(setting, tries));
        for _ in 0..limits.rounds {
            let busiest = self.loads.iter().copied().max().unwrap_or(0);
            if busiest <= self.limit {
                return;
            }
            let mut has_moved = false;
            for &setting in &order {
                if self.budget.left == 0 {
                    return;
                }
                has_moved |= self.peak(setting) == busiest && self.relocate(setting, limits.tries);
            }
            if !has_moved {
                return;
            }
        }
    }

    /// Gives a setting its first port.
    fn choose(&mut self, setting: usize, tries: u32) {
        let packets = self.packets(setting);
        // Without a port that no neighbour has, the setting shares one.
        let best = self.best(setting, &packets, tries);
        let port = best.map_or_else(|| self.fabric.entropy().first, |(_, port)| port);
        self.place(setting, &packets, port, u32::MAX);
        self.settings[setting] = Some(port);
    }

    /// Moves a setting to another port if that has a lower cost. Returns `true` if it moved.
    fn relocate(&mut self, setting: usize, tries: u32) -> bool {
        let packets = self.packets(setting);
        let port = self.settings[setting].expect("all settings have ports");
        self.remove(setting, &packets, port);
        let cost = self.place(setting, &packets, port, u32::MAX);
        self.withdraw();
        let best = self.best(setting, &packets, tries).filter(|(least, _)| Some(*least) < cost);
        let chosen = best.map_or(port, |(_, chosen)| chosen);
        self.place(setting, &packets, chosen, u32::MAX);
        self.settings[setting] = Some(chosen);
        best.is_some()
    }

    /// Returns the best of up to `tries` ports for a setting whose flows are on no link.
    fn best(&mut self, setting: usize, packets: &[Packet], tries: u32) -> Option<(Cost, u16)> {
        let entropy = self.fabric.entropy();
        let last = entropy.port(entropy.count() - 1);
        let span = self.span;
        let ports = entropy.candidates(&mut self.rng).filter(|port| last - port >= span - 1);
        let mut best: Option<(Cost, u16)> = None;
        for port in ports.take(tries as usize) {
            if self.is_taken(setting, port) {
                continue;
            }
            let lowest = best.map_or(u32::MAX, |((peak, _), _)| peak);
            let cost = self.place(setting, packets, port, lowest);
            self.withdraw();
            if let Some(cost) = cost
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, port));
            }
        }
        best
    }

    fn packets(&self, setting: usize) -> Vec<Packet> {
        let flows = self.of_setting[setting].iter();
        flows.map(|&flow| self.fabric.packet(self.flows[flow])).collect()
    }

    /// Counts a setting's flows on their links with this port, and returns the cost; `None`, as soon as a link carries
    /// more than `most`. [`Self::withdraw`] undoes it.
    fn place(&mut self, setting: usize, packets: &[Packet], port: u16, most: u32) -> Option<Cost> {
        let Self { fabric, flows, sources, of_setting, loads, touched, budget, .. } = self;
        touched.clear();
        let (mut peak, mut sum) = (0, 0);
        for (&flow, packet) in of_setting[setting].iter().zip(packets) {
            budget.spend();
            let port = port + sources[flow].offset;
            let fits = fabric.follow(flows[flow], packet, port, |link| {
                let load = &mut loads[link.index()];
                sum += u64::from(*load);
                *load += 1;
                touched.push(link);
                peak = peak.max(*load);
                *load <= most
            });
            if !fits {
                return None;
            }
        }
        Some((peak, sum))
    }

    /// Undoes the last [`Self::place`].
    fn withdraw(&mut self) {
        self.touched.drain(..).for_each(|link| self.loads[link.index()] -= 1);
    }

    /// Takes a setting's flows off their links.
    fn remove(&mut self, setting: usize, packets: &[Packet], port: u16) {
        let Self { fabric, flows, sources, of_setting, loads, .. } = self;
        for (&flow, packet) in of_setting[setting].iter().zip(packets) {
            fabric.follow(flows[flow], packet, port + sources[flow].offset, |link| {
                loads[link.index()] -= 1;
                true
            });
        }
    }

    /// Returns the load of the busiest link of a setting's flows.
    fn peak(&self, setting: usize) -> u32 {
        let port = self.settings[setting].expect("all settings have ports");
        let mut peak = 0;
        for &flow in &self.of_setting[setting] {
            let packet = self.fabric.packet(self.flows[flow]);
            let port = port + self.sources[flow].offset;
            self.fabric.follow(self.flows[flow], &packet, port, |link| {
                peak = peak.max(self.loads[link.index()]);
                true
            });
        }
        peak
    }

    /// Returns `true` if with this port two flows of one pair of hosts would send from the same port. Flows of a pair
    /// are adjacent.
    fn is_taken(&self, setting: usize, port: u16) -> bool {
        let Some(&flow) = self.of_setting[setting].first() else { return false };
        let same = |&other: &usize| self.flows[other] == self.flows[flow];
        let before = (0..flow).rev().take_while(same);
        let after = (flow + 1..self.flows.len()).take_while(same);
        let mut others = before.chain(after).map(|other| self.sources[other]);
        others.any(|other| {
            other.setting != setting
                && self.settings[other.setting]
                    .is_some_and(|taken| port + self.sources[flow].offset == taken + other.offset)
        })
    }
}
