//! The plan: colours for all flows, ports that realise them, and repair of what is left.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::LinkId;
use weft_units::{Rng, Seed};

use super::fabric::{Affine, LONGEST};
use super::search::{Budget, Found, exact, first_fit};
use super::targets::{Target, targets};
use super::{Bound, Fabric, Flow, PlanError, Solver, bound};

/// How hard a plan looks for ports where equations do not give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Ports that are tried for a flow, at most.
    pub tries: u32,
    /// Ports that are tried for all flows together, about.
    pub total: u64,
    /// Rounds in which flows on links beyond the bound are moved.
    pub rounds: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { tries: 256, total: 1 << 22, rounds: 8 }
    }
}

/// How flows got their ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct How {
    /// No switch on their way has a choice.
    pub without_choice: usize,
    /// By solving equations.
    pub solved: usize,
    /// By trying ports until one led where it should.
    pub found: usize,
    /// By trying ports for the least busy links.
    pub fitted: usize,
}

/// Flows of one pair that are kept from having one port by looking at each other.
const NEIGHBOURS: usize = 64;

/// Ports for all flows.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By flow.
    pub ports: Vec<u16>,
    /// The least that the busiest link could carry.
    pub bound: Bound,
    /// How they were chosen.
    pub how: How,
}

/// Plans ports so that the busiest link between switches carries as few flows as can be had. The
/// same arguments give the same ports. Flows of a pair of hosts that follow each other have
/// different ports.
///
/// # Errors
/// `NoSuch`, `NoRoute` or `TooLong` with the first flow that cannot be sent.
pub fn plan(
    fabric: &Fabric<'_>,
    flows: &[Flow],
    effort: Effort,
    seed: Seed,
) -> Result<Plan, PlanError> {
    let longest = check(fabric, flows)?;
    let bound = bound(fabric, flows);
    let mut planner = Planner {
        fabric,
        flows,
        effort,
        rng: seed.child("ports", 0).rng(),
        loads: vec![0; fabric.topology().links() as usize],
        ports: vec![fabric.entropy().first; flows.len()],
        paths: Paths::new(flows.len(), longest - 1),
        how: How::default(),
        budget: Budget { left: effort.total },
        solvers: Solvers::default(),
    };
    let targets = targets(fabric, flows);
    let left = planner.realise(targets.as_deref());
    planner.fit(&left, bound.flows);
    planner.repair(bound.flows);
    Ok(Plan { ports: planner.ports, bound, how: planner.how })
}

/// Ports as a library draws them that does not plan.
pub fn random_ports(fabric: &Fabric<'_>, flows: usize, seed: Seed) -> Vec<u16> {
    let mut rng = seed.child("random ports", 0).rng();
    (0..flows).map(|_| fabric.entropy().port(rng.next_u32())).collect()
}

/// How many links after its host's the longest way has.
fn check(fabric: &Fabric<'_>, flows: &[Flow]) -> Result<usize, PlanError> {
    let topology = fabric.topology();
    let mut longest = 1;
    // Queue pairs of a pair follow each other, and have equally long ways.
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
            Some(hops) if hops > LONGEST => {
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

/// The links between switches that flows take with their ports.
struct Paths {
    /// Places for each flow.
    longest: usize,
    links: Vec<LinkId>,
}

/// After a path's last link.
const END: LinkId = LinkId(u32::MAX);

impl Paths {
    fn new(flows: usize, longest: usize) -> Self {
        Self { longest, links: vec![END; flows * longest] }
    }

    fn of(&self, flow: usize) -> &[LinkId] {
        let places = &self.links[flow * self.longest..][..self.longest];
        let len = places.iter().position(|&link| link == END).unwrap_or(places.len());
        &places[..len]
    }

    fn set(&mut self, flow: usize, links: &[LinkId]) {
        let places = &mut self.links[flow * self.longest..][..self.longest];
        places[..links.len()].copy_from_slice(links);
        places[links.len()..].fill(END);
    }
}

struct Planner<'a> {
    fabric: &'a Fabric<'a>,
    flows: &'a [Flow],
    effort: Effort,
    rng: Rng,
    /// Flows by link, of those that have their port.
    loads: Vec<u32>,
    ports: Vec<u16>,
    paths: Paths,
    how: How,
    budget: Budget,
    solvers: Solvers,
}

/// Solvers by the choices on a way. Nearly all flows have the same.
#[derive(Default)]
struct Solvers {
    numbers: BTreeMap<Vec<Affine>, usize>,
    all: Vec<Solver>,
    last: (Vec<Affine>, usize),
}

impl Solvers {
    fn of(&mut self, fabric: &Fabric<'_>, way: &[Affine]) -> &Solver {
        if self.last.0 != way || self.all.is_empty() {
            let known = self.numbers.get(way).copied();
            let number = known.unwrap_or_else(|| {
                self.all.push(solver(fabric, way));
                self.numbers.insert(way.to_vec(), self.all.len() - 1);
                self.all.len() - 1
            });
            self.last = (way.to_vec(), number);
        }
        &self.all[self.last.1]
    }
}

fn solver(fabric: &Fabric<'_>, way: &[Affine]) -> Solver {
    let mut columns = vec![0u64; fabric.entropy().bits as usize];
    let mut shift = 0;
    for &affine in way {
        for (column, change) in columns.iter_mut().zip(fabric.columns(affine)) {
            *column |= (change as u64) << shift;
        }
        shift += affine.bits;
    }
    Solver::new(columns)
}

/// What realising a flow's target came to.
enum Outcome {
    Without,
    Solved(u16),
    Found(u16),
    Left,
}

impl Planner<'_> {
    /// Ports for flows whose targets can be met; gives the others.
    fn realise(&mut self, targets: Option<&[Target]>) -> Vec<usize> {
        let Some(targets) = targets else { return (0..self.flows.len()).collect() };
        let (mut left, mut way, mut links) = (Vec::new(), Vec::new(), Vec::new());
        // Which of the ports that lead to one place the flow takes: another than the flows of its pair
        // before it.
        let mut run = 0;
        for (number, target) in targets.iter().enumerate() {
            let continues = number > 0 && self.pair(number) == self.pair(number - 1);
            run = if continues { run + 1 } else { 0 };
            way.clear();
            links.clear();
            let port = match self.one(number, target, run, &mut way, &mut links) {
                Outcome::Without => {
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
                Outcome::Left => {
                    left.push(number);
                    continue;
                }
            };
            // A port that was solved or found leads along the target.
            self.take(number, port, &links);
        }
        left
    }

    fn one(
        &mut self,
        number: usize,
        target: &Target,
        run: usize,
        way: &mut Vec<Affine>,
        path: &mut Vec<LinkId>,
    ) -> Outcome {
        let (fabric, flow, topology) = (self.fabric, self.flows[number], self.fabric.topology());
        let packet = fabric.packet(flow);
        let mut at = topology.link(flow.first).to;
        let (mut wanted, mut paths, mut is_affine, mut shift) = (0u64, 1u64, true, 0);
        while at != flow.destination {
            let links = fabric.next_links(at, flow.destination);
            let choice = super::Choice { switch: at, links, index: 0 };
            let Some(place) = target.wanted(fabric, &choice) else { return Outcome::Left };
            if links.len() > 1 {
                paths = paths.saturating_mul(links.len() as u64);
                match fabric.affine(at, links.len()).filter(|affine| shift + affine.bits <= 64) {
                    Some(affine) => {
                        let base = fabric.choose(at, links, &packet, fabric.entropy().first);
                        wanted |= ((place ^ base) as u64) << shift;
                        shift += affine.bits;
                        way.push(affine);
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
            return Outcome::Without;
        }
        if is_affine {
            let solver = self.solvers.of(fabric, way);
            let silent = solver.silent(u32::try_from(run).unwrap_or(0));
            let port =
                solver.solve(wanted).map(|change| fabric.entropy().first | (change ^ silent));
            return port.map_or(Outcome::Left, Outcome::Solved);
        }
        // A port leads to one of so many paths; three in a hundred flows need more than this.
        let tries = self.budget.share(self.flows.len() - number, self.effort.tries);
        if paths * 7 / 2 > u64::from(tries) {
            return Outcome::Left;
        }
        let taken = &self.ports[number - run.min(NEIGHBOURS)..number];
        let found = exact(fabric, flow, target, taken, tries, (&mut self.budget, &mut self.rng));
        found.map_or(Outcome::Left, Outcome::Found)
    }

    /// Ports for the others, one after the other where there is still room.
    fn fit(&mut self, left: &[usize], limit: u32) {
        for (place, &number) in left.iter().enumerate() {
            // A quarter is kept for repairs.
            let tries = self.budget.share((left.len() - place) * 4 / 3, self.effort.tries);
            let found = self.first_fit(number, (limit, tries));
            self.how.fitted += 1;
            self.take(number, found.port, found.path.links());
        }
    }

    fn first_fit(&mut self, number: usize, effort: (u32, u32)) -> Found {
        let taken = self.taken(number);
        let means = (&mut self.budget, &mut self.rng);
        first_fit(self.fabric, self.flows[number], &self.loads, &taken, effort, means)
    }

    /// Moves flows off links that carry more than `limit`, for as long as it helps.
    fn repair(&mut self, limit: u32) {
        for _ in 0..self.effort.rounds {
            if self.loads.iter().all(|&load| load <= limit) {
                return;
            }
            let crowd: Vec<usize> =
                (0..self.flows.len()).filter(|&number| self.busiest(number) > limit).collect();
            let mut moved = 0;
            for (place, &number) in crowd.iter().enumerate() {
                if self.budget.left == 0 {
                    return;
                }
                let tries = self.budget.share(crowd.len() - place, 4 * self.effort.tries);
                moved += usize::from(self.relocate(number, (limit, tries)));
            }
            if moved == 0 {
                return;
            }
        }
    }

    /// Takes a flow off a crowded link if some port leads it over better ones.
    fn relocate(&mut self, number: usize, effort: (u32, u32)) -> bool {
        let busiest = self.busiest(number);
        if busiest <= effort.0 {
            return false;
        }
        self.paths.of(number).iter().for_each(|link| self.loads[link.index()] -= 1);
        let found = self.first_fit(number, effort);
        let new = found.path.links().iter().map(|link| self.loads[link.index()] + 1).max();
        let better = new.unwrap_or(0) < busiest;
        if better {
            self.take(number, found.port, found.path.links());
        } else {
            self.paths.of(number).iter().for_each(|link| self.loads[link.index()] += 1);
        }
        better
    }

    /// Gives a flow its port, which leads over these links.
    fn take(&mut self, number: usize, port: u16, links: &[LinkId]) {
        self.ports[number] = port;
        self.paths.set(number, links);
        links.iter().for_each(|link| self.loads[link.index()] += 1);
    }

    /// The load of a flow's busiest link.
    fn busiest(&self, number: usize) -> u32 {
        let links = self.paths.of(number).iter();
        links.map(|link| self.loads[link.index()]).max().unwrap_or(0)
    }

    /// The ports of the other flows of the pair that stand beside it.
    fn taken(&self, number: usize) -> Vec<u16> {
        let same = |other: &usize| self.pair(*other) == self.pair(number);
        let before = (0..number).rev().take_while(same).take(NEIGHBOURS);
        let after = (number + 1..self.flows.len()).take_while(same).take(NEIGHBOURS);
        before.chain(after).map(|other| self.ports[other]).collect()
    }

    fn pair(&self, number: usize) -> (weft_topo::NodeId, weft_topo::NodeId) {
        let flow = self.flows[number];
        (self.fabric.topology().link(flow.first).from, flow.destination)
    }
}
