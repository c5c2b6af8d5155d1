//! The simulated world: hosts that run the engine, the fabric between them, and time.
//!
//! [`World::run`] advances time in spans too short for one node to affect another, and in each span serves one node
//! after another; see [`event_queue`](crate::EventQueue). Global events, which concern several nodes, end a span.
//! Everything a host does follows from two calls that the agent makes too: a packet arrived, or a deadline passed;
//! after either, packets are taken from the engine while a port has room.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use weft_plan::ports::PlanError;
use weft_topo::{LinkId, NodeId, RouteError, Topology};
use weft_transport::Event as EngineEvent;
use weft_units::{Duration, Seed};

use crate::capture::Capture;
use crate::event::Events;
use crate::fabric::{Fabric, FabricConfig};
use crate::fault::Action;
use crate::hooks::Cancel;
use crate::host::{Hosts, new_host};
use crate::measure::{PortWatch, QueueWatch, ReorderingWatch};
use crate::scenario::{MeasureConfig, SourcePorts};
use crate::time::{SimSpan, SimTime};
use crate::traffic::{Contradiction, Notice, Traffic};
use crate::workload::Workload;

mod beginning;
mod config;
mod distinct;
mod engine_events;
mod faults;
mod global_events;
mod messages;
mod observer;
mod overlay;
mod packets;
mod parallel;
mod planned;
mod prefetch;
mod sealed;
mod session;
mod skipping;
mod stack;
mod steering;
mod watcher;

use beginning::Beginning;
pub(crate) use config::largest_frame;
pub use config::{BuildError, WorldConfig, base_round_trip};
use config::{NEARBY_HOSTS, side_of};
use global_events::{GlobalEvents, Item};
pub use observer::Observer;
use prefetch::Lookahead;
pub use session::{Session, Stage};
use skipping::FastForward;
pub use steering::Steering;
pub use watcher::{Progress, Share, Watcher, Window};

/// The network: everything except the workloads, which act on it.
#[derive(Debug)]
pub struct Network {
    /// The current time: that of the node being served, if there is one.
    pub now: SimTime,
    /// Links and switches.
    pub fabric: Fabric,
    /// Hosts, by number.
    pub hosts: Hosts,
    /// Channels and messages.
    pub traffic: Traffic,
    /// Events of engines that contradict the messages sent.
    pub contradictions: Vec<Contradiction>,
    /// The observer of placements, if any.
    pub observer: Option<Box<dyn Observer>>,
    /// The order of packets at their receivers, if it is measured.
    pub reordering: Option<Box<ReorderingWatch>>,
    /// Every engine's events in order, if they are recorded.
    pub record: Option<Vec<(NodeId, EngineEvent)>>,
    /// The packets of hosts, if they are captured.
    pub capture: Option<Capture>,
    /// Events handled.
    pub events_handled: u64,
    events: Events,
    config: WorldConfig,
    global_events: GlobalEvents,
    /// The route controller, if there is one.
    steering: Option<Box<Steering>>,
    /// The error of routes that do not fit the switches' tables, which ends the run.
    route_error: Option<RouteError>,
    /// Fast-forward, if the run is not exact.
    fast_forward: Option<Box<FastForward>>,
    /// Notices for workloads, each with the workload's number.
    notices: VecDeque<(u32, Notice)>,
    /// The host being served. The others are up to [`Self::max_skew`] ahead or behind.
    current_host: Option<NodeId>,
    /// Maximum difference between the times of two nodes.
    max_skew: SimSpan,
    /// See [`Fabric::only_forwards`].
    only_forwards: bool,
    /// `true` while workloads start and their connections' ports are not planned yet: no packet leaves.
    holds_packets: bool,
    beginning: Beginning,
    /// `true` while workloads take note of an event after which they do nothing: its host has gone on.
    takes_note: bool,
    /// `true` while parts of the world run side by side: an engine's event waits, and its host with it.
    defers_engine_events: bool,
    /// The event that waits.
    deferred: Option<EngineEvent>,
    lookahead: Lookahead,
}

/// The simulated world.
#[derive(Debug)]
pub struct World {
    /// Everything except the workloads.
    pub network: Network,
    workloads: Vec<Box<dyn Workload>>,
    plan: VecDeque<(SimTime, Action)>,
    /// The busiest cable of the plan, once it has been determined.
    busiest: Option<LinkId>,
    /// The end of this run: the workloads were done, or its limit was reached.
    ended_at: Option<SimTime>,
    /// `true` if this run ends when the workloads are done.
    until_done: bool,
    /// The latest end of this run.
    limit: SimTime,
    /// The samples of queues, with their interval.
    queues: Option<(SimSpan, QueueWatch)>,
    /// The measurement of ports, once it has begun.
    ports: Option<PortWatch>,
    /// Maximum number of threads of a run.
    threads: NonZeroUsize,
    /// The owner's wish to end the run.
    cancel: Cancel,
    /// The number of events at which the owner is asked for it; `None` if it was cancelled.
    next_check: Option<u64>,
}

impl World {
    /// Returns a world before its start.
    ///
    /// # Errors
    /// The transport's configuration is out of its range, the topology cannot be routed, or the ports or the controller
    /// do not fit.
    pub fn new(topology: Topology, config: WorldConfig, seed: Seed) -> Result<Self, BuildError> {
        let transport = Arc::new(config.transport.clone());
        // Collecting results would not reserve the memory, and copy all hosts while the list grows.
        let mut hosts = Vec::with_capacity(topology.hosts() as usize);
        for id in topology.host_ids() {
            hosts.push(new_host(&topology, id, &config, &transport, seed)?);
        }
        let side_of = side_of(&topology);
        let fabric = FabricConfig { sending: config.sending(), ..config.fabric.clone() };
        fabric.pfc.check(&topology, &fabric.port, fabric.buffer.size, fabric.sending)?;
        let mut fabric = Fabric::new(topology, &fabric, seed.child("fabric", 0))?;
        if config.transport.congestion.needs_telemetry() {
            config.check_telemetry()?;
            fabric.telemetry = Some(Box::default());
        }
        let controller = config.controller.clone();
        let steering =
            controller.map(|it| Steering::new(it, &mut fabric, &config.fabric.forwarding));
        let steering = steering.transpose()?.map(Box::new);
        let mut global_events = GlobalEvents::default();
        if steering.is_some() {
            global_events.add(SimTime::EPOCH, Item::Report);
        }
        let lookahead = fabric.lookahead();
        let max_skew = if side_of.contains(&1) { lookahead + lookahead } else { lookahead };
        let network = Network {
            now: SimTime::EPOCH,
            traffic: Traffic::default(),
            contradictions: Vec::new(),
            observer: None,
            reordering: None,
            record: None,
            capture: None,
            events_handled: 0,
            events: Events::new(lookahead, side_of),
            global_events,
            steering,
            route_error: None,
            fast_forward: None,
            notices: VecDeque::new(),
            current_host: None,
            max_skew,
            only_forwards: fabric.only_forwards(),
            holds_packets: false,
            beginning: Beginning::default(),
            takes_note: false,
            defers_engine_events: false,
            deferred: None,
            lookahead: Lookahead::default(),
            fabric,
            hosts: Hosts::new(0, hosts),
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
            threads: NonZeroUsize::MIN,
            cancel: Cancel::default(),
            next_check: Some(u64::MAX),
        })
    }

    /// Adds a workload; it starts with the run.
    pub fn add_workload(&mut self, workload: Box<dyn Workload>) {
        self.workloads.push(workload);
    }

    /// Returns the workloads, in the order they were added.
    pub fn workloads(&self) -> &[Box<dyn Workload>] {
        &self.workloads
    }

    /// Measures queues and ports during the run, from `config.from` on, and the order of packets if `config` requests it.
    pub fn watch(&mut self, config: &MeasureConfig) {
        self.network.reordering = config.reordering.then(Box::default);
        let start = SimTime::EPOCH + config.from.into();
        self.network.global_events.add(start, Item::Sample);
        if config.sample_every > Duration::ZERO {
            let watch = QueueWatch::new(&self.network.fabric.topology);
            self.queues = Some((config.sample_every.into(), watch));
        }
    }

    /// Returns the samples of the queues.
    pub fn queue_watch(&self) -> Option<&QueueWatch> {
        self.queues.as_ref().map(|(_, watch)| watch)
    }

    /// Returns the measurement of ports; `None` before it has begun.
    pub fn port_watch(&self) -> Option<&PortWatch> {
        self.ports.as_ref()
    }

    /// Returns the route controller, if there is one.
    pub fn steering(&self) -> Option<&Steering> {
        self.network.steering.as_deref()
    }

    /// Begins the measurement of ports the first time, and samples the queues.
    fn sample(&mut self) {
        let (fabric, now) = (&self.network.fabric, self.network.now);
        self.ports.get_or_insert_with(|| PortWatch::new(fabric, now));
        if let Some((interval, watch)) = &mut self.queues {
            watch.sample(|link| fabric.queued_bytes(link, now), now);
            self.network.global_events.add(now + *interval, Item::Sample);
        }
    }

    /// Starts the workloads.
    pub fn start(&mut self) {
        self.network.begin_start();
        self.note_disturbances();
        for index in 0..self.workloads.len() {
            let number = u32::try_from(index).expect("a handful of workloads");
            self.workloads[index].start(&mut Session::new(&mut self.network, number));
        }
        self.network.end_start();
        if !self.network.notices.is_empty() || !self.may_divide() {
            self.network.submit_put_off();
        }
        self.deliver_notices();
        self.network.holds_packets = false;
    }

    /// Plans the source ports of all connections if the configuration requires it: between [`Self::start`] and
    /// [`Self::run`].
    ///
    /// # Errors
    /// A connection has no route, or the network is too large to plan.
    pub fn plan_source_ports(&mut self) -> Result<(), PlanError> {
        match self.network.config.source_ports {
            SourcePorts::Random | SourcePorts::Shared | SourcePorts::Distinct => Ok(()),
            SourcePorts::Planned => self.network.plan_source_ports(),
        }
    }

    /// Runs until every workload is done, no event is left, or `limit`. Returns `true` if the workloads are done.
    pub fn run(&mut self, limit: SimTime) -> bool {
        self.go(limit, true, &mut ());
        self.is_done()
    }

    /// Like [`Self::run`], watched by `watcher`.
    pub fn run_watched(&mut self, limit: SimTime, watcher: &mut dyn Watcher) -> bool {
        let records = watcher.wants_events();
        self.network.traffic.log = records.then(Vec::new);
        self.network.fabric.log_pauses(records);
        if watcher.wants_windows() {
            self.network.submit_put_off();
        }
        watcher.on_start(self);
        self.go(limit, true, watcher);
        watcher.on_end(&self.network, self.ended_at());
        self.is_done()
    }

    /// Runs to `end`, even if the workloads are done.
    pub fn run_to(&mut self, end: SimTime) {
        self.go(end, false, &mut ());
    }

    /// Runs to `limit`; if `until_done`, only until the workloads are done.
    fn go(&mut self, limit: SimTime, until_done: bool, watcher: &mut dyn Watcher) {
        (self.limit, self.until_done) = (limit, until_done);
        self.network.global_events.add(limit, Item::Stop);
        // Only notices complete a workload, so the check follows notices only.
        self.ended_at = (until_done && self.is_done()).then_some(self.network.now);
        let is_alone = watcher.wants_windows();
        if self.ended_at.is_none() && (is_alone || !self.go_in_parts(watcher)) {
            self.network.submit_put_off();
            self.go_alone(watcher);
        }
    }

    /// Runs on one thread.
    fn go_alone(&mut self, watcher: &mut dyn Watcher) {
        let wants_windows = watcher.wants_windows();
        let is_large = self.network.is_large();
        while self.ended_at.is_none() && !self.is_cancelled() {
            let next = self.network.global_events.next_at().expect("the end is on it");
            if self.network.events.begin(next) {
                while let Some(node) = self.network.events.next_node() {
                    if is_large {
                        self.network.prefetch();
                    }
                    self.serve(node);
                }
                self.network.now = self.network.events.until();
                if wants_windows {
                    self.network.notify_watcher(self.limit, watcher);
                }
                if watcher.wants_progress() {
                    watcher.on_progress(Progress::of(&self.network, self.limit, [].into_iter()));
                }
            } else {
                self.serve_global_events();
            }
        }
    }

    /// Ends the run early when `cancel` does.
    pub fn cancel_when(&mut self, cancel: Cancel) {
        (self.cancel, self.next_check) = (cancel, Some(0));
    }

    /// Returns `true` if the run was cancelled.
    pub fn was_cancelled(&self) -> bool {
        self.next_check.is_none()
    }

    /// Returns `true` if the run is cancelled, and asks for it if it is time.
    #[inline]
    fn is_cancelled(&mut self) -> bool {
        let events = self.network.events_handled;
        if self.next_check.is_some_and(|at| events >= at) {
            self.next_check = self.cancel.next_check(events);
        }
        self.next_check.is_none()
    }

    /// Returns `true` if the run is cancelled, after asking for it.
    fn check_cancel(&mut self) -> bool {
        if self.cancel.is_cancelled() {
            self.next_check = None;
        }
        self.was_cancelled()
    }

    /// Returns the error of routes that do not fit the switches' tables, if that ended the run.
    pub fn route_error(&self) -> Option<RouteError> {
        self.network.route_error
    }

    /// Returns the end of the last run: when the workloads were done, or its limit. Nodes may have advanced a little
    /// further.
    pub fn ended_at(&self) -> SimTime {
        self.ended_at.unwrap_or(self.network.now)
    }

    /// Returns `true` if every workload is done.
    pub fn is_done(&self) -> bool {
        self.workloads.iter().all(|workload| workload.is_done())
    }

    /// Serves a node's events of this span.
    fn serve(&mut self, node: NodeId) {
        if !self.network.fabric.is_host(node) {
            return match self.network.only_forwards {
                true => self.network.serve_switch(node),
                false => self.network.serve_busy_switch(),
            };
        }
        self.network.current_host = Some(node);
        self.serve_host();
    }

    /// Serves the current host's events of this span.
    #[inline]
    fn serve_host(&mut self) {
        while let Some((at, event)) = self.network.events.pop() {
            self.network.now = at;
            self.network.events_handled += 1;
            self.network.handle(event);
            if !self.network.notices.is_empty() {
                self.deliver_notices();
            }
        }
        self.network.current_host = None;
    }

    /// Handles the next global event.
    fn serve_global_events(&mut self) {
        let Some((at, item)) = self.network.global_events.pop() else { return };
        self.network.now = at;
        self.network.events_handled += 1;
        match item {
            Item::Fault => {
                self.network.note_change();
                self.fault();
            }
            Item::Reroute => {
                self.network.note_change();
                self.network.reroute();
            }
            Item::Skip => self.skip(),
            Item::Sample => self.sample(),
            Item::Report => self.network.report_to_controller(),
            Item::Steer => self.network.steer(),
            Item::Wake { workload, token } => {
                self.network.notices.push_back((workload, Notice::Woken { token }));
            }
            // An earlier run may have left its own stop event.
            Item::Stop if at >= self.limit => self.ended_at = Some(at),
            Item::Stop => {}
        }
        if self.network.route_error.is_some() {
            self.ended_at = Some(at);
        }
        self.deliver_notices();
    }

    /// Passes the queued notices to their workloads.
    fn deliver_notices(&mut self) {
        if self.network.notices.is_empty() {
            return;
        }
        while let Some((number, notice)) = self.network.notices.pop_front() {
            let mut session = Session::new(&mut self.network, number);
            self.workloads[number as usize].on_notice(&notice, &mut session);
        }
        if self.until_done && self.is_done() {
            let now = self.network.now;
            self.ended_at = Some(self.ended_at.map_or(now, |ended| ended.max(now)));
        }
    }
}

impl Network {
    /// Returns `true` if the state of hosts must be prefetched, because it exceeds the caches.
    fn is_large(&self) -> bool {
        self.fabric.topology.hosts() as usize > NEARBY_HOSTS
    }

    /// Serves a switch that only forwards.
    fn serve_switch(&mut self, switch: NodeId) {
        let arrivals = self.events.take_turn();
        self.events_handled += arrivals.len() as u64;
        self.fabric.forward_all(switch, &arrivals, &mut self.events);
        self.events.end_turn(arrivals);
    }

    /// Serves a switch that does more than forward.
    #[inline(never)]
    fn serve_busy_switch(&mut self) {
        while let Some((at, event)) = self.events.pop_at_switch() {
            self.events_handled += 1;
            self.fabric.serve(at, event, &mut self.events);
        }
    }

    /// Passes the end of a lookahead window, and the events in it, to the watcher.
    #[inline(never)]
    fn notify_watcher(&mut self, limit: SimTime, watcher: &mut dyn Watcher) {
        let messages = self.traffic.log.as_mut().map(std::mem::take).unwrap_or_default();
        let pauses = self.fabric.take_pauses();
        let (now, messages, pauses) = (self.now, &messages[..], &pauses[..]);
        watcher.on_window(&Window { network: self, now, limit, messages, pauses });
    }

    /// Returns the bytes waiting at each of `links` now.
    pub fn queues(&self, links: &[LinkId]) -> Vec<u64> {
        links.iter().map(|&link| self.fabric.queued_bytes(link, self.now)).collect()
    }
}
