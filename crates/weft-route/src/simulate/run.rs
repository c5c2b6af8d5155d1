//! The run: windows of time, each with rates, counters, samples, and what the controller does.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;
use weft_plan::cluster::Network;
use weft_plan::ports::{self, Effort, Entropy, switch_hashes};
use weft_topo::hash::FiveTuple;
use weft_topo::{Failures, Routes, Topology};
use weft_units::{ByteCount, Duration, Instant, Rng, Seed};

use super::jobs::{Job, Jobs, bus_bandwidth, flows, seconds, to_f64};
use super::rates::{Routed, max_min};
use super::{Setup, SetupError, Switches, tables};
use crate::controller::{Action, Controller, Event, Stats};
use crate::fabric::{End, Fabric, LinkId, RouterId};
use crate::flow::Flow;
use crate::path::Start;
use crate::suspects::Sample;
use crate::telemetry::PortReport;

/// Bytes of a packet (the paper's flows have 4 KB packets).
const PACKET: f64 = 4096.0;
/// Marked packets where flows would send twice what a link carries.
const MOST_MARKED: f64 = 0.01;
/// One packet in so many is sampled (SONiC's usual rate).
const SAMPLED: u32 = 40_000;
/// From a window's end to the switches' new tables.
const REACTION: Duration = Duration::from_secs(3);

/// One flow.
#[derive(Clone, Copy, Debug)]
struct SimFlow {
    tuple: FiveTuple,
    first: LinkId,
    job: u32,
}

/// What one window showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowRow {
    /// Packets marked, on all links.
    pub marks: u64,
    /// Ports above the alarm's threshold.
    pub congested: u64,
    /// Moves that were decided at its end.
    pub moves: u64,
    /// The load of the busiest link between switches, in percent of what it carries.
    pub busiest_percent: u64,
    /// Mean pace of all jobs, bits a second of their slowest flow.
    pub pace: f64,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Flows at the end.
    pub flows: usize,
    /// Routers of the fabric.
    pub routers: usize,
    /// Each window.
    pub windows: Vec<WindowRow>,
    /// Seconds that ports were above the alarm's threshold, all together.
    pub congested_seconds: u64,
    /// Alarms of medium level or above that lasted, counted once a minute.
    pub alarms: u64,
    /// Mean bus bandwidth of a GPU over jobs and time, by size, bytes a second.
    pub bandwidth: Vec<(u64, f64)>,
    /// What the controller did; nothing without one.
    pub stats: Stats,
}

/// A cluster that runs.
#[derive(Debug)]
pub struct Simulation {
    setup: Setup,
    topology: Topology,
    network: Network,
    addresses: Vec<u32>,
    switches: Switches,
    /// By the topology's link, the fabric's, for links that hosts send on.
    first_links: BTreeMap<weft_topo::LinkId, LinkId>,
    jobs: Jobs,
    flows: Vec<SimFlow>,
    routed: Routed,
    capacity: Vec<f64>,
    /// Bits a second of each flow: its job's pace.
    rates: Vec<f64>,
    paces: Vec<f64>,
    load: Vec<f64>,
    marking: Vec<f64>,
    bytes: Vec<f64>,
    marks: Vec<f64>,
    controller: Option<Controller>,
    events: Vec<Event>,
    rng: Rng,
    kills: Rng,
    refusals: Rng,
    window: u64,
    rows: Vec<WindowRow>,
    bandwidth: Vec<f64>,
    alarms: u64,
}

impl Simulation {
    /// Builds the cluster, its jobs and their flows.
    ///
    /// # Errors
    /// What of the setup cannot be.
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
            setup,
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
            controller,
            events: Vec::new(),
            window: 0,
            rows: Vec::new(),
            alarms: 0,
        };
        simulation.start_jobs()?;
        simulation.report();
        Ok(simulation)
    }

    /// The controller, where there is one.
    pub const fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref()
    }

    /// Puts another controller in its place, as a restart does.
    pub fn replace_controller(&mut self, controller: Controller) {
        self.controller = Some(controller);
    }

    /// The switches as they are.
    pub const fn switches(&self) -> &Switches {
        &self.switches
    }

    /// What the controller said since it was last asked.
    pub fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Runs all windows.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn run(mut self) -> Result<Outcome, SetupError> {
        while self.window < self.setup.windows {
            self.step()?;
        }
        Ok(self.outcome())
    }

    /// Runs one window.
    ///
    /// # Errors
    /// That ports of new jobs cannot be planned.
    pub fn step(&mut self) -> Result<(), SetupError> {
        let every = self.setup.change_every;
        if every > 0 && self.window > 0 && self.window.is_multiple_of(every) {
            self.jobs.change(&self.setup);
            self.start_jobs()?;
        }
        let length = self.window_length().as_secs_f64();
        // What the controller ordered at the end of the window before takes effect a moment later.
        let early = REACTION.as_secs_f64().min(length);
        self.pass(early);
        let moves = self.steer();
        self.pass(length - early);
        self.window += 1;
        self.sample();
        self.report();
        self.note(moves);
        Ok(())
    }

    fn window_length(&self) -> Duration {
        let config = self.setup.controller.as_ref();
        config.map_or(Duration::from_secs(10), |config| config.alarm.window)
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.window_length().as_nanos().saturating_mul(self.window + 1))
    }

    /// Gives every running job its flows and ports.
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
        let planned = ports::plan(&whole, &planned, Effort::default(), seed)?.ports;
        let random = ports::random_ports(&whole, random, seed);
        let (mut planned, mut random) = (planned.into_iter(), random.into_iter());
        self.flows.clear();
        for ((number, job), flows) in (0..).zip(&self.jobs.running).zip(of_job) {
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
        self.settle();
        Ok(())
    }

    /// Follows every flow through the tables as they are, and computes rates, loads and marks.
    fn settle(&mut self) {
        let fabric = &self.switches.fabric;
        self.routed = Routed::default();
        for flow in &self.flows {
            let path = fabric.path_from(Start::Link(flow.first), &flow.tuple);
            self.routed.push(if path.arrives() { path.links() } else { &[] });
        }
        let fair = max_min(&self.routed, &self.capacity);
        self.paces = vec![f64::INFINITY; self.jobs.running.len()];
        for (flow, &rate) in self.flows.iter().zip(&fair) {
            let pace = &mut self.paces[flow.job as usize];
            *pace = pace.min(rate);
        }
        self.rates = self.flows.iter().map(|flow| self.paces[flow.job as usize]).collect();
        self.load_links();
    }

    fn load_links(&mut self) {
        let mut on = vec![0u32; self.capacity.len()];
        for flow in 0..self.routed.len() {
            if let Some(first) = self.routed.of(flow).first() {
                on[first.index()] += 1;
            }
        }
        let mut offered = vec![0.0; self.capacity.len()];
        self.load.fill(0.0);
        for flow in 0..self.routed.len() {
            let Some(&first) = self.routed.of(flow).first() else { continue };
            let share = |link: LinkId| self.capacity[link.index()] / f64::from(on[link.index()]);
            // What the flow would send if only its sender's cable held it back.
            let wish = share(first);
            for link in self.routed.of(flow) {
                offered[link.index()] += wish;
                self.load[link.index()] += self.rates[flow];
            }
        }
        for (link, marking) in self.marking.iter_mut().enumerate() {
            let excess = offered[link] / self.capacity[link] - 1.0;
            let packets = self.load[link] / 8.0 / PACKET;
            // Sums of shares are not exact; a thousandth is no congestion.
            *marking = if excess > 1e-3 { packets * MOST_MARKED * excess.min(1.0) } else { 0.0 };
        }
    }

    fn pass(&mut self, seconds: f64) {
        for link in 0..self.load.len() {
            self.bytes[link] += self.load[link] / 8.0 * seconds;
            self.marks[link] += self.marking[link] * seconds;
        }
    }

    /// Ports report what they counted until now.
    fn report(&mut self) {
        let at = self.now();
        let Some(controller) = &mut self.controller else { return };
        let fabric = &self.switches.fabric;
        for link in fabric.link_ids() {
            if let End::Router(_) = fabric.from(link) {
                let (bytes, marks) =
                    (whole(self.bytes[link.index()]), whole(self.marks[link.index()]));
                controller.handle_report(PortReport { link, at, bytes, marks });
            }
        }
    }

    /// Packets of alarmed routers are sampled, and of those that have moves.
    fn sample(&mut self) {
        let at = Instant::from_nanos(self.now().as_nanos() - 1);
        let seconds = self.window_length().as_secs_f64();
        let Some(controller) = &mut self.controller else { return };
        let fabric = &self.switches.fabric;
        let alarmed = controller.alarms().keys().filter_map(|&link| match fabric.from(link) {
            End::Router(router) => Some(router),
            _ => None,
        });
        let moved = controller.moves().filter_map(|it| fabric.find(&it.router));
        let mut routers: BTreeSet<RouterId> = alarmed.chain(moved).collect();
        if routers.is_empty() {
            return;
        }
        // And at the leaves of those who send through an alarmed port.
        for number in 0..self.flows.len() {
            let links = self.routed.of(number);
            if let (Some(&[first, ..]), true) =
                (links.get(..1), links.iter().any(|link| controller.alarms().contains_key(link)))
                && let End::Router(leaf) = fabric.to(first)
            {
                routers.insert(leaf);
            }
        }
        let mut is_sampled = vec![false; fabric.router_ids().count()];
        routers.iter().for_each(|router| is_sampled[router.index()] = true);
        for (number, flow) in self.flows.iter().enumerate() {
            for pair in self.routed.of(number).windows(2) {
                let End::Router(router) = fabric.from(pair[1]) else { continue };
                if !is_sampled[router.index()] {
                    continue;
                }
                let mean = self.rates[number] * seconds / 8.0 / PACKET / f64::from(SAMPLED);
                let packets = poisson(mean, &mut self.rng);
                if packets > 0 {
                    controller.handle_sample(Sample {
                        at,
                        link: pair[1],
                        input: Some(pair[0]),
                        flow: Flow(flow.tuple),
                        bytes: packets.saturating_mul(4096),
                        packets,
                        rate: SAMPLED,
                    });
                }
            }
        }
    }

    /// Lets the controller act on the window before; how many moves it decided.
    fn steer(&mut self) -> u64 {
        let mut now = self.now() + Duration::from_secs(2);
        let Some(controller) = &mut self.controller else { return 0 };
        let before = controller.stats().moves;
        controller.handle_timeout(now);
        let mut is_changed = false;
        while let Some(action) = controller.poll_action() {
            if self.kills.chance(self.setup.killed_percent.into(), 100) {
                // What it wanted done is lost with it.
                self.events.extend(core::iter::from_fn(|| controller.poll_event()));
                let (config, state) = (self.setup.controller.clone(), controller.state());
                let fabric = self.switches.fabric.clone();
                *controller = Controller::restore(config.unwrap_or_default(), fabric, state)
                    .expect("a controller takes up its own state");
                controller.set_lease(Some(1), now);
                continue;
            }
            now += Duration::from_millis(1);
            let refuses = self.refusals.chance(self.setup.refused_percent.into(), 100);
            match &action {
                Action::Read { router } => {
                    let number = self.switches.fabric.find(router).expect("it asks for its own");
                    let tables = self.switches.fabric.router(number).clone();
                    controller.handle_tables(tables, now).expect("the switches accepted them");
                }
                Action::Apply { id, .. } if refuses => {
                    controller.handle_answer(*id, Err(String::from("table full")), now);
                }
                Action::Apply { id, .. } | Action::Withdraw { id, .. } => {
                    let answer = self.switches.apply(&action);
                    is_changed |= answer.is_ok();
                    controller.handle_answer(*id, answer, now);
                }
            }
        }
        self.events.extend(core::iter::from_fn(|| controller.poll_event()));
        let moves = controller.stats().moves - before;
        if is_changed {
            self.settle();
        }
        moves
    }

    /// Writes down what the window was like.
    fn note(&mut self, moves: u64) {
        let length = self.window_length().as_secs_f64();
        let threshold = self.setup.controller.as_ref().map_or(500, |config| config.alarm.marks);
        let above = |marking: &&f64| whole(**marking * length) > threshold;
        let congested = self.marking.iter().filter(above).count() as u64;
        let minute = (60.0 / length).max(1.0);
        // A port above the threshold for three windows has a medium alarm, told once a minute.
        self.alarms += if self.window.is_multiple_of(whole(minute).max(1)) { congested } else { 0 };
        let fabric = &self.switches.fabric;
        let between = |link: &LinkId| {
            matches!((fabric.from(*link), fabric.to(*link)), (End::Router(_), End::Router(_)))
        };
        let full =
            |link: LinkId| whole(100.0 * self.load[link.index()] / self.capacity[link.index()]);
        let busiest_percent = fabric.link_ids().filter(between).map(full).max().unwrap_or(0);
        let jobs = to_f64(self.paces.len() as u64);
        self.rows.push(WindowRow {
            marks: whole(self.marking.iter().sum::<f64>() * length),
            congested,
            moves,
            busiest_percent,
            pace: self.paces.iter().sum::<f64>() / jobs,
        });
        let mut flows_of_job = vec![0usize; self.paces.len()];
        self.flows.iter().for_each(|flow| flows_of_job[flow.job as usize] += 1);
        for (size, sum) in self.setup.sizes.iter().zip(&mut self.bandwidth) {
            let of_job = |(number, job): (usize, &Job)| {
                bandwidth_of(&self.setup, job, flows_of_job[number], self.paces[number], *size)
            };
            *sum += self.jobs.running.iter().enumerate().map(of_job).sum::<f64>() / jobs;
        }
    }

    /// What the run came to so far.
    pub fn outcome(&self) -> Outcome {
        let seconds = whole(self.window_length().as_secs_f64()).max(1);
        let windows = to_f64(self.rows.len().max(1) as u64);
        let sizes = self.setup.sizes.iter().map(|size| size.0);
        Outcome {
            flows: self.flows.len(),
            routers: self.switches.fabric.router_ids().count(),
            congested_seconds: self.rows.iter().map(|row| row.congested * seconds).sum(),
            alarms: self.alarms,
            bandwidth: sizes.zip(self.bandwidth.iter().map(|sum| sum / windows)).collect(),
            stats: self.controller.as_ref().map(|it| *it.stats()).unwrap_or_default(),
            windows: self.rows.clone(),
        }
    }
}

fn bandwidth_of(setup: &Setup, job: &Job, flows: usize, pace: f64, size: ByteCount) -> f64 {
    let servers = job.servers.len();
    let connections = match setup.collective {
        super::Collective::AllReduce => servers * 8,
        super::Collective::AllToAll => servers * (servers - 1) * 8,
    };
    let time = seconds(setup.collective, servers, flows / connections, pace, size);
    bus_bandwidth(setup.collective, servers, size, time)
}

/// Cables between switches that have failed.
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

/// A draw with this mean; near the mean by the square root of it.
fn poisson(mean: f64, rng: &mut Rng) -> u32 {
    // Twelve uniform draws less six are nearly normal; small means are rounded at random.
    let normal = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
    let drawn = if mean > 16.0 { mean + libm::sqrt(mean) * normal } else { mean };
    u32::try_from(whole(drawn + rng.unit())).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
const fn whole(value: f64) -> u64 {
    value as u64
}
