//! The planner: it colours all flows, finds ports for the colours, and repairs the rest.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::LinkId;
use weft_units::{Rng, Seed};

use super::fabric::{Affine, MAX_PATH_LINKS};
use super::search::{Bounds, Budget, Draws, Found, exact, first_fit};
use super::targets::{Target, targets};
use super::{Bound, Fabric, Flow, PlanError, Solver, bound};

/// Limits of the search for ports where equations have no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// Maximum number of ports tried for one flow.
    pub tries: u32,
    /// Approximate number of ports tried for all flows together.
    pub total: u64,
    /// Number of rounds in which flows on links above the bound are moved.
    pub rounds: u32,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { tries: 256, total: 1 << 22, rounds: 8 }
    }
}

/// Numbers of flows by the method that found their ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PortSources {
    /// Flows for which no switch on the path has a choice.
    pub without_choice: usize,
    /// Flows whose port solves their equations.
    pub solved: usize,
    /// Flows whose port was found by trying ports until one led over the assigned links.
    pub found: usize,
    /// Flows whose port was found by trying ports for the least loaded links.
    pub fitted: usize,
}

/// Maximum number of flows of its pair, before it and after it, with which a flow must not share a port.
const MAX_NEIGHBOURS: usize = 64;

/// The ports of all flows.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The source port of each flow.
    pub ports: Vec<u16>,
    /// The lower bound of the busiest link's load.
    pub bound: Bound,
    /// Numbers of flows by the method that found their ports.
    pub how: PortSources,
}

/// Plans ports so that the busiest link between switches carries as few flows as possible. Equal arguments give
/// equal ports. Consecutive flows of one pair of hosts have different ports.
///
/// # Errors
/// Returns `NoSuch`, `NoRoute` or `TooLong` for the first flow that cannot be sent.
pub fn plan(
    fabric: &Fabric<'_>,
    flows: &[Flow],
    limits: SearchLimits,
    seed: Seed,
) -> Result<Plan, PlanError> {
    let longest = check(fabric, flows)?;
    let bound = bound(fabric, flows);
    let mut planner = Planner {
        fabric,
        flows,
        limits,
        rng: seed.child("ports", 0).rng(),
        loads: vec![0; fabric.topology().links() as usize],
        ports: vec![fabric.entropy().first; flows.len()],
        paths: Paths::new(flows.len(), longest - 1),
        how: PortSources::default(),
        budget: Budget { left: limits.total },
        solvers: Solvers::default(),
    };
    let targets = targets(fabric, flows);
    let unrealised = planner.realise(targets.as_deref());
    planner.fit(&unrealised, bound.flows);
    planner.repair(bound.flows);
    Ok(Plan { ports: planner.ports, bound, how: planner.how })
}

/// Returns random ports, as a library without a planner draws them.
pub fn random_ports(fabric: &Fabric<'_>, flows: usize, seed: Seed) -> Vec<u16> {
    let mut rng = seed.child("random ports", 0).rng();
    (0..flows).map(|_| fabric.entropy().port(rng.next_u32())).collect()
}

/// Checks all flows and returns the largest number of links of a path after its host's own.
pub(super) fn check(fabric: &Fabric<'_>, flows: &[Flow]) -> Result<usize, PlanError> {
    let topology = fabric.topology();
    let mut longest = 1;
    // A pair's queue pairs are adjacent and have equally long paths.
    let mut last = None;
    for (number, &flow) in flows.iter().enumerate() {
        let no_such = |what, number_of| PlanError::NoSuch { flow: number, what, number: number_of };
        if flow.first.0 >= topology.links() || !topology.is_host(topology.link(flow.first).from) {
            return Err(no_such("host link", flow.first.0));
        }
        if !topology.is_host(flow.destination) {
            return Err(no_such("host", flow.destination.0));
        }
        let from = || topology.name(topology.link(flow.first).from);
        let to = || topology.name(flow.destination);
        if last == Some(flow) {
            continue;
        }
        last = Some(flow);
        match fabric.hops(flow) {
            Some(hops) if hops > MAX_PATH_LINKS => {
                return Err(PlanError::TooLong { flow: number, from: from(), to: to(), hops });
            }
            Some(hops) => longest = longest.max(hops),
            None => {
                let (from, to) = (from(), to());
                return Err(PlanError::NoRoute { flow: number, from, link: flow.first.0, to });
            }
        }
    }
    Ok(longest)
}

/// The links between switches that each flow takes with its port.
struct Paths {
    /// Number of entries for each flow.
    longest: usize,
    links: Vec<LinkId>,
}

/// The entry after a path's last link.
const END: LinkId = LinkId(u32::MAX);

impl Paths {
    fn new(flows: usize, longest: usize) -> Self {
        Self { longest, links: vec![END; flows * longest] }
    }

    fn of(&self, flow: usize) -> &[LinkId] {
        let entries = &self.links[flow * self.longest..][..self.longest];
        let len = entries.iter().position(|&link| link == END).unwrap_or(entries.len());
        &entries[..len]
    }

    fn set(&mut self, flow: usize, links: &[LinkId]) {
        let entries = &mut self.links[flow * self.longest..][..self.longest];
        entries[..links.len()].copy_from_slice(links);
        entries[links.len()..].fill(END);
    }
}

struct Planner<'a> {
    fabric: &'a Fabric<'a>,
    flows: &'a [Flow],
    limits: SearchLimits,
    rng: Rng,
    /// Number of flows on each link, of those that have their port.
    loads: Vec<u32>,
    ports: Vec<u16>,
    paths: Paths,
    how: PortSources,
    budget: Budget,
    solvers: Solvers,
}

/// Solvers by the affine choices on a path, which are the same for nearly all flows.
#[derive(Default)]
struct Solvers {
    numbers: BTreeMap<Vec<Affine>, usize>,
    all: Vec<Solver>,
    last: (Vec<Affine>, usize),
}

impl Solvers {
    fn of(&mut self, fabric: &Fabric<'_>, choices: &[Affine]) -> &Solver {
        if self.last.0 != choices || self.all.is_empty() {
            let known = self.numbers.get(choices).copied();
            let number = known.unwrap_or_else(|| {
                self.all.push(solver(fabric, choices));
                self.numbers.insert(choices.to_vec(), self.all.len() - 1);
                self.all.len() - 1
            });
            self.last = (choices.to_vec(), number);
        }
        &self.all[self.last.1]
    }
}

fn solver(fabric: &Fabric<'_>, choices: &[Affine]) -> Solver {
    let mut columns = vec![0u64; fabric.entropy().bits as usize];
    let mut shift = 0;
    for &affine in choices {
        for (column, change) in columns.iter_mut().zip(fabric.columns(affine)) {
            *column |= (change as u64) << shift;
        }
        shift += affine.bits;
    }
    Solver::new(columns)
}

/// The result of realising a flow's target.
enum Outcome {
    NoChoice,
    Solved(u16),
    Found(u16),
    Unrealised,
}

impl Planner<'_> {
    /// Finds ports that meet targets and returns the flows for which it found none.
    fn realise(&mut self, targets: Option<&[Target]>) -> Vec<usize> {
        let Some(targets) = targets else { return (0..self.flows.len()).collect() };
        let (mut unrealised, mut choices, mut links) = (Vec::new(), Vec::new(), Vec::new());
        // The flow's number within its pair, which selects among the ports of one path so that each flow has its own.
        let mut run = 0;
        for (number, target) in targets.iter().enumerate() {
            let continues = number > 0 && self.pair(number) == self.pair(number - 1);
            run = if continues { run + 1 } else { 0 };
            choices.clear();
            links.clear();
            let port = match self.realise_one(number, target, run, &mut choices, &mut links) {
                Outcome::NoChoice => {
                    self.how.without_choice += 1;
                    self.fabric.entropy().port(u32::try_from(run).unwrap_or(0))
                }
                Outcome::Solved(port) => {
                    self.how.solved += 1;
                    port
                }
                Outcome::Found(port) => {
                    self.how.found += 1;
                    port
                }
                Outcome::Unrealised => {
                    unrealised.push(number);
                    continue;
                }
            };
            // A solved or found port leads over the target's links.
            self.take(number, port, &links);
        }
        unrealised
    }

    fn realise_one(
        &mut self,
        number: usize,
        target: &Target,
        run: usize,
        choices: &mut Vec<Affine>,
        path: &mut Vec<LinkId>,
    ) -> Outcome {
        let (fabric, flow, topology) = (self.fabric, self.flows[number], self.fabric.topology());
        let packet = fabric.packet(flow);
        let mut at = topology.link(flow.first).to;
        let (mut wanted, mut paths, mut is_affine, mut shift) = (0u64, 1u64, true, 0);
        while at != flow.destination {
            let links = fabric.next_links(at, flow.destination);
            let choice = super::Choice { switch: at, links, index: 0 };
            let Some(place) = target.wanted(fabric, &choice) else { return Outcome::Unrealised };
            if links.len() > 1 {
                paths = paths.saturating_mul(links.len() as u64);
                match fabric.affine(at, links.len()).filter(|affine| shift + affine.bits <= 64) {
                    Some(affine) => {
                        let base = fabric.choose(at, links, &packet, fabric.entropy().first);
                        wanted |= ((place ^ base) as u64) << shift;
                        shift += affine.bits;
                        choices.push(affine);
                    }
                    None => is_affine = false,
                }
            }
            at = topology.link(links[place]).to;
            if !topology.is_host(at) {
                path.push(links[place]);
            }
        }
        if paths == 1 {
            return Outcome::NoChoice;
        }
        if is_affine {
            let solver = self.solvers.of(fabric, choices);
            let silent = solver.silent(u32::try_from(run).unwrap_or(0));
            let port =
                solver.solve(wanted).map(|change| fabric.entropy().first | (change ^ silent));
            return port.map_or(Outcome::Unrealised, Outcome::Solved);
        }
        // A random port leads over the assigned one of `paths` paths; this number of tries fails for three
        // flows in a hundred.
        let tries = self.budget.share(self.flows.len() - number, self.limits.tries);
        if paths * 7 / 2 > u64::from(tries) {
            return Outcome::Unrealised;
        }
        let taken = &self.ports[number - run.min(MAX_NEIGHBOURS)..number];
        let draws = Draws { budget: &mut self.budget, rng: &mut self.rng };
        let found = exact(fabric, flow, target, taken, tries, draws);
        found.map_or(Outcome::Unrealised, Outcome::Found)
    }

    /// Finds ports for the remaining flows one by one, on links that are still below the limit.
    fn fit(&mut self, unrealised: &[usize], limit: u32) {
        for (place, &number) in unrealised.iter().enumerate() {
            // A quarter of the budget is reserved for repairs.
            let tries = self.budget.share((unrealised.len() - place) * 4 / 3, self.limits.tries);
            let found = self.first_fit(number, Bounds { limit, tries });
            self.how.fitted += 1;
            self.take(number, found.port, found.path.links());
        }
    }

    fn first_fit(&mut self, number: usize, bounds: Bounds) -> Found {
        let taken = self.taken(number);
        let draws = Draws { budget: &mut self.budget, rng: &mut self.rng };
        first_fit(self.fabric, self.flows[number], &self.loads, &taken, bounds, draws)
    }

    /// Moves flows off links that carry more than `limit` flows, until a round moves none.
    fn repair(&mut self, limit: u32) {
        for _ in 0..self.limits.rounds {
            if self.loads.iter().all(|&load| load <= limit) {
                return;
            }
            let overloaded: Vec<usize> =
                (0..self.flows.len()).filter(|&number| self.busiest(number) > limit).collect();
            let mut moved = 0;
            for (place, &number) in overloaded.iter().enumerate() {
                if self.budget.left == 0 {
                    return;
                }
                let tries = self.budget.share(overloaded.len() - place, 4 * self.limits.tries);
                moved += usize::from(self.relocate(number, Bounds { limit, tries }));
            }
            if moved == 0 {
                return;
            }
        }
    }

    /// Moves a flow off an overloaded link if some port leads over less loaded ones. Returns `true` if it moved.
    fn relocate(&mut self, number: usize, bounds: Bounds) -> bool {
        let busiest = self.busiest(number);
        if busiest <= bounds.limit {
            return false;
        }
        self.paths.of(number).iter().for_each(|link| self.loads[link.index()] -= 1);
        let found = self.first_fit(number, bounds);
        let new = found.path.links().iter().map(|link| self.loads[link.index()] + 1).max();
        let better = new.unwrap_or(0) < busiest;
        if better {
            self.take(number, found.port, found.path.links());
        } else {
            self.paths.of(number).iter().for_each(|link| self.loads[link.index()] += 1);
        }
        better
    }

    /// Assigns a port to a flow and counts the flow on the port's links.
    fn take(&mut self, number: usize, port: u16, links: &[LinkId]) {
        self.ports[number] = port;
        self.paths.set(number, links);
        links.iter().for_each(|link| self.loads[link.index()] += 1);
    }

    /// Returns the load of the flow's busiest link.
    fn busiest(&self, number: usize) -> u32 {
        let links = self.paths.of(number).iter();
        links.map(|link| self.loads[link.index()]).max().unwrap_or(0)
    }

    /// Returns the ports of adjacent flows of the same pair.
    fn taken(&self, number: usize) -> Vec<u16> {
        let same = |other: &usize| self.pair(*other) == self.pair(number);
        let before = (0..number).rev().take_while(same).take(MAX_NEIGHBOURS);
        let after = (number + 1..self.flows.len()).take_while(same).take(MAX_NEIGHBOURS);
        before.chain(after).map(|other| self.ports[other]).collect()
    }

    fn pair(&self, number: usize) -> (weft_topo::NodeId, weft_topo::NodeId) {
        let flow = self.flows[number];
        (self.fabric.topology().link(flow.first).from, flow.destination)
    }
}
