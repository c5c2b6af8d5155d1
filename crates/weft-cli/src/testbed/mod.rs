//! Scenarios on real packets: the workloads of the simulator, the same flows, over agents in a lab's
//! namespaces.
//!
//! One thread drives every host, so that a host's response never waits for the scheduler to run another host.
//! The testbed itself does two things that the kernel cannot do: cables' latency at the receiving agent, and a port's
//! back pressure at the sending one. The kernel does the rest, which is the experiment's subject: ECMP by its own
//! hash, queues, rates, ECN marks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::{panic, thread};

use anyhow::{Context, Result, bail};
use weft_perf::AgentGroup;
use weft_sim::measure::{PortReport, ReorderingWatch};
use weft_sim::workload::Workload;
use weft_sim::world::Session;
use weft_sim::{Outcome, Report, Scenario, SimSpan, SimTime};
use weft_topo::{NodeId, Topology};
use weft_transport::{ConnectionId, Event, Payload, Placement};
use weft_udp::{Application, Endpoint};
use weft_units::{Duration, Instant, Seed};

mod network;
mod queues;
mod stage;

pub(crate) use network::{Network, shape_of};
use queues::QueueSamples;
use stage::Wire;

/// The value of every byte of a message.
const FILL: u8 = 0x5a;

/// A host's end of the transport.
#[derive(Debug)]
struct Host {
    id: NodeId,
    events: Vec<(Instant, Event)>,
    received: u64,
    corrupt: u64,
    /// The order in which packets arrived, if it is measured.
    reordering: Option<ReorderingWatch>,
}

impl Host {
    fn new(id: NodeId, scenario: &Scenario) -> Self {
        let reordering = scenario.measure.reordering.then(ReorderingWatch::default);
        Self { id, events: Vec::new(), received: 0, corrupt: 0, reordering }
    }
}

impl Application for Host {
    fn read(&mut self, _: ConnectionId, _: Payload, out: &mut [u8]) {
        out.fill(FILL);
    }

    fn place(&mut self, _: Instant, placement: &Placement, bytes: &[u8]) {
        if let Some(reordering) = &mut self.reordering {
            reordering.on_place(self.id, placement);
        }
        self.received += bytes.len() as u64;
        self.corrupt += u64::from(bytes.iter().any(|&byte| byte != FILL));
    }

    fn on_event(&mut self, _: &mut Endpoint, now: Instant, event: Event) {
        self.events.push((now, event));
    }
}

/// The standstill after which a run is repeated, because its results mean nothing: the machine was busy with
/// something else, or suspended.
const STANDSTILL: Duration = Duration::from_secs(1);
/// Maximum number of attempts of a run.
const MAX_ATTEMPTS: u32 = 4;

/// Runs `scenario` over `network`, until its workloads are done, its limit, or `stop`. Also returns the longest time
/// that the machine delayed the hosts.
///
/// # Errors
/// Returns an error if sockets cannot be opened, counters cannot be read, the scenario has a workload that does not
/// fit, it was stopped, the transport violated its contract, or the machine stood still in each of 4 attempts.
pub(crate) fn run(
    network: &Network,
    scenario: &Scenario,
    seed: Seed,
    stop: &AtomicBool,
) -> Result<(Report, Duration)> {
    for _ in 0..MAX_ATTEMPTS {
        let (report, pause) = run_once(network, scenario, seed, stop)?;
        if pause < STANDSTILL {
            return Ok((report, pause));
        }
    }
    bail!("the machine stood still for more than {STANDSTILL} in each of {MAX_ATTEMPTS} attempts")
}

fn run_once(
    network: &Network,
    scenario: &Scenario,
    seed: Seed,
    stop: &AtomicBool,
) -> Result<(Report, Duration)> {
    let topology = scenario.build_topology()?;
    let transport = scenario.transport.resolve(&topology)?;
    let agents = network.agents(scenario, &transport)?;
    let before = network.counters()?;
    let mut run = Run {
        hosts: topology.host_ids().map(|id| Host::new(id, scenario)).collect(),
        wire: Wire::new(AgentGroup::new(agents), scenario.host.handshake),
        workloads: weft_sim::workloads(scenario, &topology, seed)?,
    };
    let limit = SimTime::EPOCH + SimSpan::from(scenario.run.limit);
    let (finished, queues) = sampled(network, scenario, &topology, || run.until_done(limit, stop))?;
    let elapsed = run.wire.elapsed();
    let reordering = run.reordering().map(|watch| watch.report());
    let carried = network.counters()?.since(&before);
    let bytes = carried.bytes(network, &topology);
    let outcome = Outcome {
        topology: &topology,
        mtu: transport.mtu,
        overhead: transport.packet_overhead,
        finished,
        elapsed,
        traffic: &run.wire.traffic,
        workloads: &run.workloads,
        transport: run.wire.stats,
        received: run.hosts.iter().map(|host| host.received).collect(),
        network: carried.network_report(network),
        ports: PortReport::new(&topology, |link| bytes.of(link), elapsed),
        queues: queues.map(|queues| queues.report(&topology, &bytes)).unwrap_or_default(),
        reordering,
    };
    Ok((outcome.report(scenario, seed)?, run.wire.crew.longest_pause()))
}

/// Calls `run`, and samples the queues meanwhile if the scenario requests it, on a thread of its own.
fn sampled<T>(
    network: &Network,
    scenario: &Scenario,
    topology: &Topology,
    run: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<QueueSamples>)> {
    let interval = std::time::Duration::from_nanos(scenario.measure.sample_every.as_nanos());
    if interval.is_zero() {
        return Ok((run()?, None));
    }
    thread::scope(|scope| {
        let (running, stop) = mpsc::channel();
        let samples = scope.spawn(move || QueueSamples::take(network, topology, interval, &stop));
        let result = run();
        drop(running);
        let samples = samples.join().unwrap_or_else(|cause| panic::resume_unwind(cause))?;
        Ok((result?, Some(samples)))
    })
}

/// A run in progress.
struct Run {
    wire: Wire,
    hosts: Vec<Host>,
    workloads: Vec<Box<dyn Workload>>,
}

impl Run {
    /// Runs until the workloads are done, or `limit`. Returns `true` if they are done.
    fn until_done(&mut self, limit: SimTime, stop: &AtomicBool) -> Result<bool> {
        for (workload, number) in self.workloads.iter_mut().zip(0..) {
            workload.start(&mut Session::new(&mut self.wire, number));
        }
        loop {
            self.deliver_notices();
            let done = self.workloads.iter().all(|workload| workload.is_done());
            if done || self.wire.elapsed() >= limit.since(SimTime::EPOCH) {
                self.check()?;
                return Ok(done);
            }
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            self.wire.step(&mut self.hosts, limit);
            for host in 0..self.hosts.len() {
                for (at, event) in std::mem::take(&mut self.hosts[host].events) {
                    self.wire.on_event(host, at, event);
                }
            }
            self.wire.fire_timers();
        }
    }

    fn deliver_notices(&mut self) {
        while let Some((number, notice)) = self.wire.notices.pop_front() {
            let mut session = Session::new(&mut self.wire, number);
            self.workloads[number as usize].on_notice(&notice, &mut session);
        }
    }

    /// Returns the order of packets at all hosts, if it was measured.
    fn reordering(&mut self) -> Option<ReorderingWatch> {
        let watches = self.hosts.iter_mut().filter_map(|host| host.reordering.take());
        watches.reduce(|mut all, one| {
            all.add_hosts(one);
            all
        })
    }

    /// Sums the engines' counters, and checks real packets as simulated ones are checked.
    ///
    /// # Errors
    /// Returns an error if bytes were changed, or if an event of the transport contradicts the messages that were sent.
    fn check(&mut self) -> Result<()> {
        for agent in self.wire.crew.agents() {
            self.wire.stats += agent.endpoint().stats();
        }
        let corrupt: u64 = self.hosts.iter().map(|host| host.corrupt).sum();
        if corrupt > 0 {
            bail!("{corrupt} packets arrived with other bytes than were sent");
        }
        match self.wire.contradictions.first() {
            None => Ok(()),
            Some(first) => Err(*first).context("the transport contradicted what was sent"),
        }
    }
}
