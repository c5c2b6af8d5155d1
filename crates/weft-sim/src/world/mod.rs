//! The simulated world: hosts that run the engine, the fabric between them, and time.
//!
//! [`World::run`] goes through time in spans too short for one node to affect another, and in each
//! lets one node after another handle what happens to it; see [`event_queue`](crate::EventQueue).
//! What concerns several nodes is on the agenda and ends a span. Everything a host does follows from
//! two calls the agent makes too: a packet arrived, or a deadline passed; after either, the engine
//! is asked for packets as long as a port has room.

use std::collections::VecDeque;

use weft_plan::ports::PlanError;
use weft_topo::{LinkId, NodeId, Topology};
use weft_transport::Event as EngineEvent;
use weft_units::{Duration, Seed};

use crate::capture::Capture;
use crate::check::Observer;
use crate::event::Events;
use crate::fabric::{Fabric, FabricConfig};
use crate::fault::Action;
use crate::host::Host;
use crate::measure::{PortWatch, QueueWatch};
use crate::scenario::{MeasureConfig, SourcePorts};
use crate::time::{SimSpan, SimTime};
use crate::traffic::{Contradiction, Notice, Traffic};
use crate::workload::Workload;

mod agenda;
mod config;
mod distinct;
mod faults;
mod hear;
mod messages;
mod overlay;
mod packets;
mod planned;
mod sealed;
mod session;
mod stack;
mod steering;

use agenda::{Agenda, Item};
pub use config::{BuildError, WorldConfig, base_round_trip};
use config::{NEARBY_HOSTS, new_host, side_of};
pub use session::{Session, Stage};
pub use steering::Steering;

/// Everything but the workloads, which act on it.
#[derive(Debug)]
pub struct Network {
    /// The time: of the node that is being served, if one is, else of all.
    pub now: SimTime,
    /// Links and switches.
    pub fabric: Fabric,
    /// Hosts, by number.
    pub hosts: Vec<Host>,
    /// Channels and messages.
    pub traffic: Traffic,
    /// What the engines did that contradicts what was sent.
    pub contradictions: Vec<Contradiction>,
    /// Who watches placements.
    pub observer: Option<Box<dyn Observer>>,
    /// What every engine said, in order, where somebody wants to know.
    pub record: Option<Vec<(NodeId, EngineEvent)>>,
    /// The packets of hosts, where somebody wants to see them.
    pub capture: Option<Capture>,
    /// Events handled.
    pub events_handled: u64,
    events: Events,
    config: WorldConfig,
    agenda: Agenda,
    /// The route controller, where there is one.
    steering: Option<Box<Steering>>,
    notices: VecDeque<(u32, Notice)>,
    /// The host that is being served. The others are up to [`Self::apart`] ahead or behind.
    here: Option<NodeId>,
    apart: SimSpan,
    /// See [`Fabric::only_forwards`].
    only_forwards: bool,
    /// Workloads are being started and their connections' ports are yet to be planned: nothing leaves.
    holds_back: bool,
}

/// The simulated world.
#[derive(Debug)]
pub struct World {
    /// Everything but the workloads.
    pub network: Network,
    workloads: Vec<Box<dyn Workload>>,
    plan: VecDeque<(SimTime, Action)>,
    /// The cable that the plan means by the busiest, once it has been asked for.
    busiest: Option<LinkId>,
    /// When this run ended: the workloads were done, or its time was up.
    ended_at: Option<SimTime>,
    /// Whether this run ends when the workloads are done.
    until_done: bool,
    /// When this run ends at the latest.
    limit: SimTime,
    queues: Option<(SimSpan, QueueWatch)>,
    ports: Option<PortWatch>,
}

impl World {
    /// A world at rest.
    ///
    /// # Errors
    /// Its parts do not fit together.
    pub fn new(topology: Topology, config: WorldConfig, seed: Seed) -> Result<Self, BuildError> {
        let hosts = topology.host_ids().map(|id| new_host(&topology, id, &config, seed));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let side_of = side_of(&topology);
        let fabric = FabricConfig { sending: config.sending(), ..config.fabric.clone() };
        fabric.pfc.check(&topology, &fabric.port, fabric.buffer.size, fabric.sending)?;
        let mut fabric = Fabric::new(topology, &fabric, seed.child("fabric", 0))?;
        let controller = config.controller.clone();
        let steering =
            controller.map(|it| Steering::new(it, &mut fabric, &config.fabric.forwarding));
        let steering = steering.transpose()?.map(Box::new);
        let mut agenda = Agenda::default();
        if steering.is_some() {
            agenda.add(SimTime::EPOCH, Item::Report);
        }
        let lookahead = fabric.lookahead();
        let apart = if side_of.contains(&1) { lookahead + lookahead } else { lookahead };
        let network = Network {
            now: SimTime::EPOCH,
            traffic: Traffic::default(),
            contradictions: Vec::new(),
            observer: None,
            record: None,
            capture: None,
            events_handled: 0,
            events: Events::new(lookahead, side_of),
            agenda,
            steering,
            notices: VecDeque::new(),
            here: None,
            apart,
            only_forwards: fabric.only_forwards(),
            holds_back: false,
            fabric,
            hosts,
            config,
        };
        Ok(Self {
            network,
            workloads: Vec::new(),
            plan: VecDeque::new(),
            busiest: None,
            ended_at: None,
            until_done: false,
            limit: SimTime::EPOCH,
            queues: None,
            ports: None,
        })
    }

    /// Adds a workload; it starts with the run.
    pub fn add_workload(&mut self, workload: Box<dyn Workload>) {
        self.workloads.push(workload);
    }

    /// The workloads, in the order they were added.
    pub fn workloads(&self) -> &[Box<dyn Workload>] {
        &self.workloads
    }

    /// Looks at queues and ports during the run.
    pub fn watch(&mut self, config: &MeasureConfig) {
        let start = SimTime::EPOCH + config.from.into();
        self.network.agenda.add(start, Item::Sample);
        if config.sample_every > Duration::ZERO {
            let watch = QueueWatch::new(&self.network.fabric.topology);
            self.queues = Some((config.sample_every.into(), watch));
        }
    }

    /// What was seen of the queues.
    pub fn queue_watch(&self) -> Option<&QueueWatch> {
        self.queues.as_ref().map(|(_, watch)| watch)
    }

    /// What was seen of the leaves' uplinks.
    pub fn port_watch(&self) -> Option<&PortWatch> {
        self.ports.as_ref()
    }

    /// The route controller, where there is one.
    pub fn steering(&self) -> Option<&Steering> {
        self.network.steering.as_deref()
    }

    fn sample(&mut self) {
        let (fabric, now) = (&self.network.fabric, self.network.now);
        self.ports.get_or_insert_with(|| PortWatch::new(fabric, now));
        if let Some((interval, watch)) = &mut self.queues {
            watch.sample(fabric, now);
            self.network.agenda.add(now + *interval, Item::Sample);
        }
    }

    /// Starts the workloads.
    pub fn start(&mut self) {
        self.network.holds_back = self.network.config.source_ports == SourcePorts::Planned;
        for index in 0..self.workloads.len() {
            let number = u32::try_from(index).expect("a handful of workloads");
            self.workloads[index].start(&mut Session::new(&mut self.network, number));
        }
        self.give_notices();
        self.network.holds_back = false;
    }

    /// Plans the source ports of all connections that there are, where the configuration says so:
    /// between [`Self::start`] and [`Self::run`].
    ///
    /// # Errors
    /// A connection that no route leads, or a network too large to plan.
    pub fn plan_source_ports(&mut self) -> Result<(), PlanError> {
        match self.network.config.source_ports {
            SourcePorts::Random | SourcePorts::Shared | SourcePorts::Distinct => Ok(()),
            SourcePorts::Planned => self.network.plan_source_ports(),
        }
    }

    /// Runs until every workload is done, nothing is left to happen, or `limit`. Gives whether the
    /// workloads are done.
    pub fn run(&mut self, limit: SimTime) -> bool {
        self.go(limit, true);
        self.is_done()
    }

    /// Runs to `end`, whatever the workloads wait for.
    pub fn run_to(&mut self, end: SimTime) {
        self.go(end, false);
    }

    fn go(&mut self, limit: SimTime, until_done: bool) {
        (self.limit, self.until_done) = (limit, until_done);
        self.network.agenda.add(limit, Item::Stop);
        // Only notices make a workload done, so only they are followed by that question.
        self.ended_at = (until_done && self.is_done()).then_some(self.network.now);
        let is_large = self.network.hosts.len() > NEARBY_HOSTS;
        while self.ended_at.is_none() {
            let next = self.network.agenda.next_at().expect("the end is on it");
            if self.network.events.begin(next) {
                while let Some(node) = self.network.events.next_node() {
                    if is_large {
                        self.network.look_ahead();
                    }
                    self.serve(node);
                }
                self.network.now = self.network.events.until();
            } else {
                self.attend_to_agenda();
            }
        }
    }

    /// When the last run ended: when the workloads were done, or else at its limit. The nodes may
    /// have gone on a little further.
    pub fn ended_at(&self) -> SimTime {
        self.ended_at.unwrap_or(self.network.now)
    }

    /// Whether every workload has all it waits for.
    pub fn is_done(&self) -> bool {
        self.workloads.iter().all(|workload| workload.is_done())
    }

    /// Lets a node handle what happens to it in this span.
    fn serve(&mut self, node: NodeId) {
        if node.index() >= self.network.hosts.len() {
            return match self.network.only_forwards {
                true => self.network.serve_switch(node),
                false => self.network.serve_busy_switch(),
            };
        }
        self.network.here = Some(node);
        while let Some((at, event)) = self.network.events.pop() {
            self.network.now = at;
            self.network.events_handled += 1;
            self.network.handle(event);
            if !self.network.notices.is_empty() {
                self.give_notices();
            }
        }
        self.network.here = None;
    }

    fn attend_to_agenda(&mut self) {
        let Some((at, item)) = self.network.agenda.pop() else { return };
        self.network.now = at;
        self.network.events_handled += 1;
        match item {
            Item::Fault => self.fault(),
            Item::Reroute => self.network.reroute(),
            Item::Sample => self.sample(),
            Item::Report => self.network.report_to_controller(),
            Item::Steer => self.network.steer(),
            Item::Wake { workload, token } => {
                self.network.notices.push_back((workload, Notice::Woken { token }));
            }
            // An earlier run may have left its own.
            Item::Stop if at >= self.limit => self.ended_at = Some(at),
            Item::Stop => {}
        }
        self.give_notices();
    }

    fn give_notices(&mut self) {
        if self.network.notices.is_empty() {
            return;
        }
        while let Some((number, notice)) = self.network.notices.pop_front() {
            let mut session = Session::new(&mut self.network, number);
            self.workloads[number as usize].notice(&notice, &mut session);
        }
        if self.until_done && self.is_done() {
            let now = self.network.now;
            self.ended_at = Some(self.ended_at.map_or(now, |ended| ended.max(now)));
        }
    }
}

impl Network {
    /// A switch that only forwards has its turn.
    fn serve_switch(&mut self, switch: NodeId) {
        let arrivals = self.events.take_turn();
        self.events_handled += arrivals.len() as u64;
        self.fabric.forward_all(switch, &arrivals, &mut self.events);
        self.events.end_turn(arrivals);
    }

    /// The same for switches that do more than send on what arrives.
    #[inline(never)]
    fn serve_busy_switch(&mut self) {
        while let Some((at, event)) = self.events.pop_at_switch() {
            self.events_handled += 1;
            self.fabric.serve(at, event, &mut self.events);
        }
    }

    /// Bytes waiting at each of `links` now.
    pub fn queues(&self, links: &[LinkId]) -> Vec<u64> {
        links.iter().map(|&link| self.fabric.queued_bytes(link, self.now)).collect()
    }
}
