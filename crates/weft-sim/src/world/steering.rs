//! The shipped route controller (`weft-route`) with the simulated switches: once a window it gets their ports' counters
//! and their samples, and the routes that it orders become the fabric's.
//!
//! The controller owns no clock and no socket, so this module alone connects it to the world. Switches reply at once,
//! and the controller reads back the tables that they have installed. It predicts paths from these tables and the
//! switches' hashes, as it does from a router's; only samples show the paths of packets.

use std::net::IpAddr;

use weft_plan::ports::switch_hashes;
use weft_route::installed::{Router, Target};
use weft_route::simulate::{Switches, install, tables};
use weft_route::{
    Action, Controller, Event, Fabric as Tables, Flow, InstalledError, LinkId as TableLink,
    PortReport, Sample, Stats,
};
use weft_topo::{NodeId, Routes, Topology};
use weft_units::Instant;

use super::Network;
use super::global_events::Item;
use crate::fabric::{Fabric, PacketSample, Steered};
use crate::nic;
use crate::report::ControllerWindow;
use crate::scenario::{ControllerMode, ControllerSection};
use crate::switch::ForwardingConfig;
use crate::time::SimTime;

/// The controller with its view of the network.
#[derive(Debug)]
pub struct Steering {
    config: ControllerSection,
    controller: Controller,
    /// The tables that switches have installed.
    switches: Switches,
    /// The controller's name of each link of the topology.
    names: Vec<TableLink>,
    /// Marks of each link of the topology at the end of the last window.
    marks_before: Vec<u64>,
    windows: Vec<ControllerWindow>,
    events: Vec<Event>,
}

impl Steering {
    /// Returns a controller of this fabric, whose switches sample packets from now on.
    ///
    /// # Errors
    /// The network cannot be written as routers' tables.
    pub(super) fn new(
        config: ControllerSection,
        fabric: &mut Fabric,
        forwarding: &ForwardingConfig,
    ) -> Result<Self, InstalledError> {
        let tables = tables_of(fabric, forwarding)?;
        let mut controller = Controller::new(config.engine(), tables.clone());
        // Without a lease a controller only observes.
        let lease = (config.mode == ControllerMode::Steer).then_some(1);
        controller.set_lease(lease, Instant::EPOCH);
        fabric.sample(config.sample);
        Ok(Self {
            names: names(&fabric.topology, &tables),
            marks_before: vec![0; fabric.topology.links() as usize],
            switches: Switches::new(tables),
            config,
            controller,
            windows: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Returns the windows so far.
    pub fn windows(&self) -> &[ControllerWindow] {
        &self.windows
    }

    /// Returns event counts of the controller since the start, by kind.
    pub fn stats(&self) -> &Stats {
        self.controller.stats()
    }

    /// Returns the controller's events, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Ends a window: passes the ports' counters and the switches' samples to the controller.
    fn report(&mut self, fabric: &Fabric, samples: Vec<PacketSample>, now: SimTime) {
        let at = now.engine_clock();
        // Samples belong to the window that is over.
        let inside = Instant::from_nanos(at.as_nanos().saturating_sub(1));
        for PacketSample { input, output, flow, size } in samples {
            self.controller.handle_sample(Sample {
                at: inside,
                link: self.names[output.index()],
                input: Some(self.names[input.index()]),
                flow: Flow::V4(flow),
                bytes: size.into(),
                packets: 1,
                rate: self.config.sample,
            });
        }
        let mut window = ControllerWindow::default();
        for link in fabric.topology.link_ids() {
            if fabric.topology.is_host(fabric.topology.link(link).from) {
                continue;
            }
            let (bytes, marks) = (fabric.link(link).bytes, u64::from(fabric.tally(link).marked));
            let new = marks - std::mem::replace(&mut self.marks_before[link.index()], marks);
            window.marks += new;
            window.congested += u64::from(new > self.config.marks);
            let link = self.names[link.index()];
            self.controller.handle_report(PortReport { link, at, bytes, marks });
        }
        if now > SimTime::EPOCH {
            self.windows.push(window);
        }
    }

    /// Lets the controller decide. Returns the switches' routes for single hosts, where they have changed.
    fn steer(&mut self, topology: &Topology, now: SimTime) -> Option<Steered> {
        let (now, before) = (now.engine_clock(), *self.controller.stats());
        self.controller.handle_timeout(now);
        let is_changed = self.apply_orders(now);
        let after = self.controller.stats();
        if let Some(window) = self.windows.last_mut() {
            window.alarms = after.alarms - before.alarms;
            window.moves = after.moves - before.moves;
        }
        self.events.extend(std::iter::from_fn(|| self.controller.poll_event()));
        is_changed.then(|| steered(topology, &self.switches.fabric))
    }

    /// Applies the controller's orders to the switches; returns `true` if their routes have changed.
    fn apply_orders(&mut self, now: Instant) -> bool {
        let mut is_changed = false;
        while let Some(action) = self.controller.poll_action() {
            match &action {
                Action::Read { router } => self.read_back(router, now),
                Action::Apply { id, .. } | Action::Withdraw { id, .. } => {
                    let reply = self.switches.apply(&action);
                    is_changed |= reply.is_ok();
                    self.controller.handle_answer(*id, reply, now);
                }
            }
        }
        is_changed
    }

    /// Lets the controller read the tables of one router.
    fn read_back(&mut self, router: &str, now: Instant) {
        let tables = &self.switches.fabric;
        let number = tables.find(router).expect("the controller names its own routers");
        let router = tables.router(number).clone();
        self.controller.handle_tables(router, now).expect("the switches have accepted them");
    }

    /// Reads the tables again after the control plane has converged on other routes; those for single hosts stay.
    fn rerouted(&mut self, fabric: &Fabric, forwarding: &ForwardingConfig, now: SimTime) {
        let Ok(fresh) = tables_of(fabric, forwarding) else { return };
        for number in fresh.router_ids() {
            let (old, mut new) =
                (self.switches.fabric.router(number), fresh.router(number).clone());
            keep_steered(old, &mut new);
            if *old != new {
                let name = new.name.clone();
                self.switches.fabric.replace(new).expect("its ports are those it had");
                self.read_back(&name, now.engine_clock());
            }
        }
    }
}

/// Returns the tables that routing installs in the switches now.
fn tables_of(fabric: &Fabric, forwarding: &ForwardingConfig) -> Result<Tables, InstalledError> {
    let topology = &fabric.topology;
    let ForwardingConfig { hash, rotate_by_tier, .. } = *forwarding;
    let hashes = switch_hashes(topology, hash, rotate_by_tier, fabric.seed());
    let address = |host| nic::five_tuple(host, host, 0).src;
    let addresses: Vec<u32> = topology.host_ids().map(address).collect();
    // Not the fabric's own, which have the controller's routes among them.
    let routes = Routes::compute(topology, fabric.failures()).expect("the fabric has them");
    Tables::new(tables::installed(topology, fabric.failures(), &routes, &hashes, &addresses))
}

/// Returns the controller's name of each link of the topology. Both number a switch's ports in the same order.
fn names(topology: &Topology, tables: &Tables) -> Vec<TableLink> {
    let mut names = vec![TableLink::default(); topology.links() as usize];
    for (router, switch) in tables.router_ids().zip(topology.switch_ids()) {
        for (&link, name) in topology.ports(switch).iter().zip(tables.links_of(router)) {
            names[link.index()] = name;
            if let Some(back) = tables.reverse(name) {
                names[link.reverse().index()] = back;
            }
        }
    }
    names
}

/// Returns the installed routes for single hosts, in the fabric's form.
fn steered(topology: &Topology, tables: &Tables) -> Steered {
    let mut all = Steered::new();
    for (router, switch) in tables.router_ids().zip(topology.switch_ids()) {
        let installed = tables.router(router);
        for route in installed.routes.iter().filter(|route| route.steered) {
            let Target::Group(name) = &route.via else { continue };
            let (Some(group), Some(host)) = (
                installed.groups.iter().find(|group| group.name == *name),
                host_at(route.to.first(), topology),
            ) else {
                continue;
            };
            let place = |port: &String| installed.ports.iter().position(|it| it.name == *port);
            let links = group.members.iter().filter_map(|member| place(&member.port));
            let links: Vec<_> = links.map(|place| topology.ports(switch)[place]).collect();
            if !links.is_empty() {
                all.insert((switch, host), links);
            }
        }
    }
    all
}

fn host_at(address: IpAddr, topology: &Topology) -> Option<NodeId> {
    nic::host_at((address, nic::RECEIVE_PORT).into(), topology.hosts())
}

/// Copies the steered routes of a router's old tables to its new ones.
fn keep_steered(old: &Router, new: &mut Router) {
    for route in old.routes.iter().filter(|route| route.steered) {
        let Target::Group(name) = &route.via else { continue };
        if let Some(group) = old.groups.iter().find(|group| group.name == *name) {
            install(new, route.to, group.members.clone());
        }
    }
}

impl Network {
    /// Ends a window of the controller.
    pub(super) fn report_to_controller(&mut self) {
        let Some(steering) = &mut self.steering else { return };
        let samples = self.fabric.take_samples();
        steering.report(&self.fabric, samples, self.now);
        let config = &steering.config;
        let (window, reaction) = (config.window, config.reaction());
        self.global_events.add(self.now + window.into(), Item::Report);
        self.global_events.add(self.now + reaction.into(), Item::Steer);
    }

    /// Lets the controller decide, and applies its orders to the switches.
    pub(super) fn steer(&mut self) {
        let Some(steering) = &mut self.steering else { return };
        if let Some(routes) = steering.steer(&self.fabric.topology, self.now) {
            let result = self.fabric.steer(routes);
            self.has_routes(result);
        }
    }

    /// Lets the controller read the switches' tables again after routing has converged.
    pub(super) fn notify_controller_of_routes(&mut self) {
        if let Some(steering) = &mut self.steering {
            steering.rerouted(&self.fabric, &self.config.fabric.forwarding, self.now);
        }
    }
}
