//! The run: windows of time, each with rates, counters, samples and the controller's actions.

mod announced;
mod outcome;
mod replan;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

pub use outcome::{Outcome, WindowRow};
use weft_plan::cluster::Network;
use weft_plan::ports::{self, Entropy, SearchLimits, switch_hashes};
use weft_topo::hash::FiveTuple;
use weft_topo::{Failures, Routes, Topology};
use weft_units::{Duration, Instant, Rng, Seed};

use super::iterations::Training;
use super::jobs::{Jobs, flows};
use super::numbers::{to_f64, whole};
use super::rates::{Routed, max_min};
use super::{Setup, SetupError, Switches, tables};
use crate::controller::{Controller, Event};
use crate::fabric::{Fabric, LinkId, RouterId};
use crate::path::Start;

/// Size of a packet in bytes (the paper's flows have 4 KB packets).
pub(super) const PACKET: f64 = 4096.0;
/// Share of packets that are marked if flows would send twice the link's capacity.
const MAX_MARKED_SHARE: f64 = 0.01;
/// The time from the end of a window to the switches' new tables.
const REACTION: Duration = Duration::from_secs(3);

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimFlow {
    pub(super) tuple: FiveTuple,
    pub(super) first: LinkId,
    pub(super) job: u32,
}

/// A running simulation of a cluster.
#[derive(Debug)]
pub struct Simulation {
    pub(super) setup: Setup,
    pub(super) topology: Topology,
    pub(super) network: Network,
    pub(super) addresses: Vec<u32>,
    pub(super) switches: Switches,
    /// By link of the topology on which hosts send, the link of the fabric.
    pub(super) first_links: BTreeMap<weft_topo::LinkId, LinkId>,
    pub(super) jobs: Jobs,
    pub(super) flows: Vec<SimFlow>,
    pub(super) routed: Routed,
    /// By link, its capacity in bits per second.
    pub(super) capacity: Vec<f64>,
    /// The rate of each flow in bits per second: the pace of its job.
    pub(super) rates: Vec<f64>,
    /// By job, the rate of its slowest flow in bits per second.
    pub(super) paces: Vec<f64>,
    /// By link, its load in bits per second.
    pub(super) load: Vec<f64>,
    /// By link, the packets marked per second.
    pub(super) marking: Vec<f64>,
    /// By link, the bytes sent since the start.
    pub(super) bytes: Vec<f64>,
    /// By link, the packets marked since the start.
    pub(super) marks: Vec<f64>,
    /// The iterations of jobs; none if they always send.
    pub(super) training: Option<Training>,
    /// By link, the packets marked when the present window began.
    pub(super) marks_before: Vec<f64>,
    pub(super) controller: Option<Controller>,
    pub(super) events: Vec<Event>,
    pub(super) rng: Rng,
    pub(super) kills: Rng,
    pub(super) refusals: Rng,
    pub(super) window: u64,
    pub(super) rows: Vec<WindowRow>,
    /// By size, the sum over windows of the mean bus bandwidth in bytes per second.
    pub(super) bandwidth: Vec<f64>,
    pub(super) alarms: u64,
    /// The sums of the durations of all iterations, and of those alone.
    pub(super) iterated: (f64, f64),
}

impl Simulation {
    /// Builds the cluster, its jobs and their flows.
    ///
    /// # Errors
    /// Returns the setting that is out of range, or the network or plan that cannot be built.
    pub fn new(setup: Setup) -> Result<Self, SetupError> {
        setup.check()?;
        let topology = setup.shape().build()?;
        let whole = Routes::compute(&topology, &Failures::none())?;
        let hashes = switch_hashes(&topology, setup.hash, 8, Seed(setup.seed));
        let addresses = tables::addresses(&topology, &whole);
        let failures = failures(&setup, &topology);
        let routes = Routes::compute(&topology, &failures)?;
        let installed = tables::installed(&topology, &failures, &routes, &hashes, &addresses);
        let fabric = Fabric::new(installed)?;
        let first_links = first_links(&topology, &fabric);
        let capacity = fabric.link_ids().map(|link| to_f64(fabric.rate(link).as_bps())).collect();
        let names = Vec::new();
        let network = Network {
            topology: topology.clone(),
            hashes,
            addresses: addresses.clone(),
            weights: BTreeMap::new(),
            names,
        };
        let controller = setup.controller.clone().map(|config| {
            let mut controller = Controller::new(config, fabric.clone());
            controller.set_lease(Some(1), Instant::EPOCH);
            controller
        });
        let links = fabric.links();
        let mut simulation = Self {
            jobs: Jobs::draw(&setup),
            rng: Seed(setup.seed).child("samples", 0).rng(),
            refusals: Seed(setup.seed).child("refusals", 0).rng(),
            kills: Seed(setup.seed).child("kills", 0).rng(),
            bandwidth: vec![0.0; setup.sizes.len()],
            topology,
            network,
            addresses,
            switches: Switches::new(fabric),
            first_links,
            flows: Vec::new(),
            routed: Routed::default(),
            capacity,
            rates: Vec::new(),
            paces: Vec::new(),
            load: vec![0.0; links],
            marking: vec![0.0; links],
            bytes: vec![0.0; links],
            marks: vec![0.0; links],
            training: setup.iterations.map(|it| Training::new(it, setup.seed)),
            marks_before: vec![0.0; links],
            setup,
            controller,
            events: Vec::new(),
            window: 0,
            rows: Vec::new(),
            alarms: 0,
            iterated: (0.0, 0.0),
        };
        simulation.start_jobs()?;
        simulation.report();
        Ok(simulation)
    }

    /// Returns the controller, if there is one.
    pub const fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref()
    }

    /// Replaces the controller, as a restart does.
    pub fn replace_controller(&mut self, controller: Controller) {
        self.controller = Some(controller);
    }

    /// Returns the switches in their present state.
    pub const fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Returns the controller's events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Runs all windows.
    ///
    /// # Errors
    /// Returns the errors of [`Self::step`].
    pub fn run(mut self) -> Result<Outcome, SetupError> {
        while self.window < self.setup.windows {
            self.step()?;
        }
        Ok(self.outcome())
    }

    /// Runs one window.
    ///
    /// # Errors
    /// Returns [`SetupError::Plan`] if the ports of new jobs cannot be planned.
    pub fn step(&mut self) -> Result<(), SetupError> {
        let every = self.setup.change_every;
        if every > 0 && self.window > 0 && self.window.is_multiple_of(every) {
            self.jobs.change(&self.setup);
            self.start_jobs()?;
        }
        let length = self.window_length().as_secs_f64();
        self.marks_before.clone_from(&self.marks);
        // The controller's orders at the end of the previous window take effect after `REACTION`.
        let early = REACTION.as_secs_f64().min(length);
        self.advance(0.0, early);
        let moves = self.steer();
        self.advance(early, length);
        self.window += 1;
        self.sample();
        self.report();
        self.record_window(moves);
        Ok(())
    }

    pub(super) fn window_length(&self) -> Duration {
        let config = self.setup.controller.as_ref();
        config.map_or(Duration::from_secs(10), |config| config.alarm.window)
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.window_length().as_nanos().saturating_mul(self.window + 1))
    }

    /// Assigns flows and ports to every running job.
    fn start_jobs(&mut self) -> Result<(), SetupError> {
        let seed = Seed(self.setup.seed).child("ports", self.window);
        let entropy = Entropy::default();
        let whole = ports::Fabric::new(&self.network, &Failures::none(), entropy)?;
        let of_job: Vec<Vec<ports::Flow>> = self
            .jobs
            .running
            .iter()
            .map(|job| flows(&self.topology, job, self.setup.collective))
            .collect();
        let (mut planned, mut random) = (Vec::new(), 0);
        for (job, flows) in self.jobs.running.iter().zip(&of_job) {
            if job.is_planned {
                planned.extend_from_slice(flows);
            } else {
                random += flows.len();
            }
        }
        let planned = ports::plan(&whole, &planned, SearchLimits::default(), seed)?.ports;
        let random = ports::random_ports(&whole, random, seed);
        let (mut planned, mut random) = (planned.into_iter(), random.into_iter());
        self.flows.clear();
        for ((number, job), flows) in (0..).zip(&self.jobs.running).zip(&of_job) {
            for flow in flows {
                let port = if job.is_planned { planned.next() } else { random.next() };
                let from = self.topology.link(flow.first).from;
                let tuple = FiveTuple {
                    src: self.addresses[from.index()],
                    dst: self.addresses[flow.destination.index()],
                    src_port: port.expect("a port for each flow"),
                    dst_port: entropy.destination_port,
                    protocol: entropy.protocol,
                };
                self.flows.push(SimFlow {
                    tuple,
                    first: self.first_links[&flow.first],
                    job: number,
                });
            }
        }
        if self.setup.replans {
            self.replan()?;
        }
        if self.training.is_some() {
            self.announce_jobs(&of_job);
            let paces = self.paces_alone();
            self.training.as_mut().expect("it is some").start(&paces);
        }
        self.recompute_rates();
        Ok(())
    }

    /// Follows every flow through the present tables and computes rates, loads and marks.
    pub(super) fn recompute_rates(&mut self) {
        let fabric = &self.switches.fabric;
        self.routed = Routed::default();
        let flows = self.flows.iter().map(|flow| (Start::Link(flow.first), &flow.tuple));
        fabric
            .paths(flows, |path| self.routed.push(if path.arrives() { path.links() } else { &[] }));
        self.share_links();
    }

    /// Computes rates, loads and marks for the jobs that send now.
    fn share_links(&mut self) {
        let sending = self.sending();
        let routed = sending.as_ref().unwrap_or(&self.routed);
        let fair = max_min(routed, &self.capacity);
        self.paces = vec![f64::INFINITY; self.jobs.running.len()];
        for (flow, &rate) in self.flows.iter().zip(&fair) {
            let pace = &mut self.paces[flow.job as usize];
            *pace = pace.min(rate);
        }
        self.rates = self.flows.iter().map(|flow| self.paces[flow.job as usize]).collect();
        let routed = sending.unwrap_or_else(|| core::mem::take(&mut self.routed));
        self.load_links(&routed);
        if self.training.is_none() {
            self.routed = routed;
        }
    }

    /// Returns the links of flows whose jobs send now, and none for others; `None` if all jobs always send.
    fn sending(&self) -> Option<Routed> {
        let training = self.training.as_ref()?;
        let sends = |job: &super::jobs::Job| training.sends(job.id);
        let sends: Vec<bool> = self.jobs.running.iter().map(sends).collect();
        let mut sending = Routed::default();
        for (number, flow) in self.flows.iter().enumerate() {
            let is_sent = sends[flow.job as usize];
            sending.push(if is_sent { self.routed.of(number) } else { &[] });
        }
        Some(sending)
    }

    fn load_links(&mut self, routed: &Routed) {
        let mut flow_counts = vec![0u32; self.capacity.len()];
        for flow in 0..routed.len() {
            if let Some(first) = routed.of(flow).first() {
                flow_counts[first.index()] += 1;
            }
        }
        let mut offered = vec![0.0; self.capacity.len()];
        self.load.fill(0.0);
        for flow in 0..routed.len() {
            let Some(&first) = routed.of(flow).first() else { continue };
            let share =
                |link: LinkId| self.capacity[link.index()] / f64::from(flow_counts[link.index()]);
            // The rate at which the flow would send if only its sender's cable limited it.
            let demand = share(first);
            for link in routed.of(flow) {
                offered[link.index()] += demand;
                self.load[link.index()] += self.rates[flow];
            }
        }
        for (link, marking) in self.marking.iter_mut().enumerate() {
            let excess = offered[link] / self.capacity[link] - 1.0;
            let packets = self.load[link] / 8.0 / PACKET;
            // Sums of shares are not exact; an excess of a thousandth is not congestion.
            *marking =
                if excess > 1e-3 { packets * MAX_MARKED_SHARE * excess.min(1.0) } else { 0.0 };
        }
    }

    /// Lets the present window pass from one second to another, with the iterations of jobs.
    fn advance(&mut self, mut from: f64, until: f64) {
        while from < until {
            let left = until - from;
            let now = self.now() + Duration::from_nanos(whole(from * 1e9));
            let paces: BTreeMap<u64, f64> = self
                .jobs
                .running
                .iter()
                .map(|job| job.id)
                .zip(self.paces.iter().copied())
                .collect();
            let pace = |job: u64| paces[&job];
            let Some(training) = &mut self.training else { return self.advance_counters(left) };
            let seconds = training.until_change(pace).min(left);
            let has_changed = training.advance(now, seconds, pace);
            self.advance_counters(seconds);
            if has_changed {
                self.share_links();
            }
            from += seconds;
        }
    }

    fn advance_counters(&mut self, seconds: f64) {
        for link in 0..self.load.len() {
            self.bytes[link] += self.load[link] / 8.0 * seconds;
            self.marks[link] += self.marking[link] * seconds;
        }
    }
}

/// Draws the cables between switches that have failed.
fn failures(setup: &Setup, topology: &Topology) -> Failures {
    let mut rng = Seed(setup.seed).child("failures", 0).rng();
    let mut failures = Failures::none();
    for link in topology.link_ids().step_by(2) {
        let ends = topology.link(link);
        let between = !topology.is_host(ends.from) && !topology.is_host(ends.to);
        if between && rng.chance(setup.failed_per_mille.into(), 1000) {
            failures.fail_link(link);
        }
    }
    failures
}

fn first_links(topology: &Topology, fabric: &Fabric) -> BTreeMap<weft_topo::LinkId, LinkId> {
    let mut links = BTreeMap::new();
    for (number, switch) in (0..).map(RouterId).zip(topology.switch_ids()) {
        for (port, down) in topology.ports(switch).iter().zip(fabric.links_of(number)) {
            if let Some(up) =
                fabric.reverse(down).filter(|_| topology.is_host(topology.link(*port).to))
            {
                links.insert(port.reverse(), up);
            }
        }
    }
    links
}
