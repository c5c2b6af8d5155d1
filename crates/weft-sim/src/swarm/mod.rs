//! The swarm: for each seed a small random world with its own mix of faults, observed by every check of
//! [`crate::check`].
//!
//! A case has three phases. First, faults occur and only safety is required: no byte is placed twice, delivered out of
//! order, or missing from the accounts. Then the network is repaired, and every message on an open channel must
//! complete. Finally, in an idle network, a few more messages must pass without retransmission. As in swarm testing
//! (Groce et al. 2012), each case leaves some faults out and gives the others widely different rates.
//! `docs/design/swarm.md` explains the weights and the mistakes that the swarm is known to detect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use weft_transport::{CloseReason, Endpoint, EndpointConfig, Secret, TransportConfig};
use weft_units::{Duration, Seed};

use crate::batch::for_each_index;
use crate::check::Checks;
use crate::fabric::Loss;
use crate::fault::{Kind as FaultKind, Plan, Scheduler};
use crate::host::Host;
use crate::nic::RECEIVE_PORT;
use crate::scenario::SourcePorts;
use crate::stack::Stack;
use crate::switch;
use crate::time::SimSpan;
use crate::traffic::{Channel, ChannelState};
use crate::world::{BuildError, Network, Session, World};

mod broken_link;
mod case;
mod draw;
mod faults;
mod last_words;
mod ports;
mod random_traffic;
mod rdma;
mod reach;
mod seal;
mod watchdog;

pub use case::Case;
pub use rdma::{RdmaSummary, run_rdma_swarm};
use reach::Reach;
pub use seal::Sealing;

/// Simulated time in which a repaired network must finish. The longest timeouts of any case are milliseconds.
const TIME_LIMIT: SimSpan = SimSpan::from_picos(20_000_000_000_000);

/// Simulated time for which a case runs on after its repair if a receiver accepted forged data: no message needs to
/// complete.
const TIME_LIMIT_FORGED: SimSpan = SimSpan::from_picos(50_000_000_000);

/// Simulated time in a repaired network by which every sender has detected that a peer restarted: longer than any
/// retransmission timeout, shorter than the default peer timeout.
const AFTERMATH: SimSpan = SimSpan::from_picos(1_000_000_000_000);

/// A duration longer than any case.
const LONG: Duration = Duration::from_secs(60);

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The seed of the case.
    pub seed: u64,
    /// The violations, each with the name of its check; empty for a case that passed.
    pub violations: Vec<String>,
    /// Packets that went through the case's network.
    pub packets: u64,
    /// Of those, packets lost.
    pub lost: u64,
    /// Messages that were delivered and acknowledged.
    pub messages: usize,
    /// Packets that an attacker, or flipped bits, made or changed in a way that no checksum detects.
    pub forged: u64,
    #[serde(skip)]
    reach: Reach,
}

/// The result of a range of seeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The first seed.
    pub first: u64,
    /// Number of seeds that were run.
    pub seeds: usize,
    /// Packets of all cases.
    pub packets: u64,
    /// Packets lost in all cases.
    pub lost: u64,
    /// Messages delivered and acknowledged in all cases.
    pub messages: usize,
    /// Packets of all cases that an attacker, or flipped bits, made or changed in a way that no checksum detects.
    pub forged: u64,
    /// The cases that failed.
    pub failures: Vec<Verdict>,
}

/// Runs the cases of `count` seeds from `first` on, on up to `workers` threads. `progress` is called with the number
/// of finished cases. After a case that does not end no further ones begin.
pub fn run_swarm(
    first: u64,
    count: usize,
    workers: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Summary {
    run_seeds(first, count, workers, progress, run_case)
}

/// Runs the cases of [`run_swarm`] with hosts that encrypt, most of them under attack.
pub fn run_sealed_swarm(
    first: u64,
    count: usize,
    workers: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Summary {
    run_seeds(first, count, workers, progress, run_sealed_case)
}

fn run_seeds(
    first: u64,
    count: usize,
    workers: usize,
    progress: &(dyn Fn(usize) + Sync),
    run: fn(u64) -> Verdict,
) -> Summary {
    let seed = |index: usize| first.wrapping_add(index as u64);
    let stuck = AtomicBool::new(false);
    let verdicts = for_each_index(count, workers, progress, |index| {
        if stuck.load(Ordering::Relaxed) {
            return None;
        }
        let ended = watchdog::run_in_time(seed(index), run);
        stuck.fetch_or(ended.is_none(), Ordering::Relaxed);
        Some(ended.unwrap_or_else(|| Verdict::broken(seed(index), "watchdog: does not end".into())))
    });
    let mut verdicts: Vec<_> = verdicts.into_iter().flatten().collect();
    let seeds = verdicts.len();
    verdicts.extend(too_little_reached(first, &verdicts));
    Summary {
        first,
        seeds,
        packets: verdicts.iter().map(|verdict| verdict.packets).sum(),
        lost: verdicts.iter().map(|verdict| verdict.lost).sum(),
        messages: verdicts.iter().map(|verdict| verdict.messages).sum(),
        forged: verdicts.iter().map(|verdict| verdict.forged).sum(),
        failures: verdicts.into_iter().filter(|verdict| !verdict.violations.is_empty()).collect(),
    }
}

/// Runs one seed's case. A panic anywhere in it is a violation.
pub fn run_case(seed: u64) -> Verdict {
    run(&Case::draw(Seed(seed)), seed)
}

/// Runs one seed's case with hosts that encrypt.
pub fn run_sealed_case(seed: u64) -> Verdict {
    run(&Case::draw_sealed(Seed(seed)), seed)
}

fn run(case: &Case, seed: u64) -> Verdict {
    match catch_panic(|| play(case, seed)) {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(error)) => Verdict::broken(seed, format!("the case cannot be built: {error}")),
        Err(panic) => Verdict::broken(seed, panic.to_string()),
    }
}

/// The panic of a case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("panic: {}", .message.as_deref().unwrap_or("without a message"))]
struct Panicked {
    message: Option<String>,
}

/// Returns the result of `work`, or the message of its panic.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let message = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
        Panicked { message }
    })
}

impl Verdict {
    /// Returns the verdict of a case that did not end.
    fn broken(seed: u64, violation: String) -> Self {
        let reach = Reach::default();
        let violations = vec![violation];
        Self { seed, violations, packets: 0, lost: 0, messages: 0, forged: 0, reach }
    }
}

/// Returns the events that many cases together failed to reach, as a failure of the first of them.
fn too_little_reached(first: u64, verdicts: &[Verdict]) -> Option<Verdict> {
    let mut reach = Reach::default();
    verdicts.iter().for_each(|verdict| reach += verdict.reach);
    let violations =
        if verdicts.len() < reach::MIN_CASES { Vec::new() } else { reach.missing(verdicts.len()) };
    let verdict = Verdict { violations, ..Verdict::broken(first, String::new()) };
    Some(verdict).filter(|verdict| !verdict.violations.is_empty())
}

/// Builds a case's world and runs it through its three phases.
fn play(case: &Case, seed: u64) -> Result<Verdict, BuildError> {
    let topology = case.topology.build().expect("cases draw shapes that exist");
    let mut plan = Plan::new(&topology, Seed(seed).child("faults", 0));
    if case.sealing.is_some() {
        plan = plan.of_sealed_hosts();
    }
    for fault in &case.faults {
        fault.schedule(&mut plan).expect("cases draw faults that fit");
    }
    let actions = plan.into_actions();
    let mut world = World::new(topology, case.world.clone(), Seed(seed))?;
    prepare(case, seed, &mut world.network.hosts);
    let checks = Checks::holding(case.broken_link.is_some(), case.is_attacked());
    world.network.observer = Some(Box::new(checks));
    world.set_plan(actions);
    world.run_to(case.start_at);
    world.add_workload(Box::new(case.traffic.clone()));
    if !case.hostile && case.broken_link.is_none() {
        world.add_workload(Box::new(case.last_words.clone()));
    }
    world.start();
    world.run_to(case.repair_at);
    world.repair_all();
    world.set_plan(
        case.broken_link
            .map(|link| (world.network.now, broken_link::action(link)))
            .into_iter()
            .collect(),
    );
    let deceived = is_deceived(case, &world);
    let done = world.run(case.repair_at + if deceived { TIME_LIMIT_FORGED } else { TIME_LIMIT });
    if !deceived {
        let restarts = case.has(FaultKind::Restart);
        let aftermath = if restarts { AFTERMATH } else { case.path_return_time() };
        world.run_to(world.network.now + aftermath);
    }
    Ok(evaluate(case, seed, &world, done))
}

/// Returns the time in which a repaired path is detected; see [`Case::path_return_time`].
fn path_return_time(transport: &TransportConfig) -> Duration {
    transport.probe_interval * 52 + Duration::from_millis(5)
}

/// Returns the network of a workload of the swarm.
fn network<'a>(session: &'a Session<'_>) -> &'a Network {
    session.network().expect("the swarm is simulated")
}

/// Configures the engines differently from the world's defaults.
fn prepare(case: &Case, seed: u64, hosts: &mut [Host]) {
    for host in hosts {
        if case.odd != case.world.transport && host.id().0 % 2 == 1 {
            let engine = Seed(seed).child("odd engine", host.id().0.into());
            let config = EndpointConfig {
                transport: case.odd.clone(),
                receive_port: RECEIVE_PORT,
                thread_id: 1,
                accept: true,
                max_connections: 1 << 12,
            };
            let endpoint = Endpoint::new(config, engine, Secret::from_seed(engine))
                .expect("cases draw what is in range");
            let shares = case.world.source_ports == SourcePorts::Shared;
            let endpoint = if shares { endpoint.with_shared_ports(1) } else { endpoint };
            let seals = case.sealing.is_some();
            host.endpoint = if seals { endpoint.with_ended() } else { endpoint };
        }
        if let Some(sealing) = case.sealing.as_ref().filter(|_| host.id().0 % 2 == 1) {
            let entropy = Seed(seed).child("odd seals", host.id().0.into());
            host.stack = Some(Box::new(Stack::sealed(&sealing.odd, entropy)));
        }
        if let Some(psn) = case.first_psn {
            host.endpoint.set_first_psn(psn);
        }
    }
}

fn evaluate(case: &Case, seed: u64, world: &World, done: bool) -> Verdict {
    let network = &world.network;
    let deceived = is_deceived(case, world);
    let mut violations = match &network.observer {
        Some(checks) if deceived => checks.violations_despite_forgery(network),
        Some(checks) => checks.violations(network),
        None => Vec::new(),
    };
    if !deceived {
        violations.extend(unexpected_closures(case, world));
        let reports = case.last_words.violations().into_iter();
        violations.extend(reports.map(|report| format!("last-words: {report}")));
        if !done {
            violations.push(format!("liveness: not everything finished: {}", unfinished(world)));
        }
    }
    violations.extend(lost_despite_pauses(case, world));
    let counters = network.fabric.counters;
    Verdict {
        seed,
        violations,
        packets: counters.injected + counters.duplicated,
        lost: counters.lost.iter().sum(),
        messages: network.traffic.finished.len(),
        forged: counters.forged + counters.attacker_made,
        reach: Reach::of(world),
    }
}

/// Returns `true` if a receiver accepted forged data. Then only the world's own accounts must balance. Hosts that
/// require encryption accept none.
fn is_deceived(case: &Case, world: &World) -> bool {
    case.hostile || (!case.requires_encryption() && world.network.fabric.counters.forged > 0)
}

/// Returns the connections that ended although no end closed them and no host restarted. No peer times out: the faults
/// are shorter than any peer timeout. An attacker that changes packets of set-up can only prevent the connection;
/// repeated forged resets are accepted while no packet of the peer arrives.
fn unexpected_closures(case: &Case, world: &World) -> Vec<String> {
    let forged = world.network.fabric.counters.forged > 0;
    let allowed = |channel: &Channel| match channel.closed_because {
        Some(CloseReason::Local | CloseReason::Peer) => case.closes(),
        Some(CloseReason::Idle) => case.has_idle_timeouts(),
        None => case.has(FaultKind::Restart),
        Some(CloseReason::Reset) if channel.was_open => {
            case.is_attacked() && case.may_lose_all_packets()
        }
        Some(_) => (forged || case.is_attacked()) && !channel.was_open,
    };
    let closed = world.network.traffic.channels();
    let closed = closed.filter(|(_, channel)| channel.state == ChannelState::Closed);
    closed
        .filter(|(_, channel)| !allowed(channel))
        .map(|(id, channel)| format!("closed-unasked: {id:?}: {:?}", channel.closed_because))
        .collect()
}

/// Returns the violation if packets were dropped for lack of room in a lossless network. Packets that ConWeave's last
/// switch holds are on no account until it releases them all at once, as in the public model: no pause arrives in time.
fn lost_despite_pauses(case: &Case, world: &World) -> Option<String> {
    let fabric = &world.network.fabric;
    let is_charged = case.world.fabric.forwarding.kind != switch::Kind::ConWeave;
    let holds = fabric.is_lossless() && is_charged && !case.faults.iter().any(ports::may_overflow);
    let refused = fabric.counters.lost[Loss::QueueFull as usize];
    (holds && refused > 0).then(|| format!("lossless: no room for {refused} packets"))
}

/// Returns the channels with unfinished messages as text.
fn unfinished(world: &World) -> String {
    let open = world.network.traffic.channels();
    let open = open.filter(|(_, channel)| channel.unfinished() > 0);
    let text = open.map(|(id, channel)| {
        let [a, b] = channel.hosts;
        let (count, state) = (channel.unfinished(), channel.state);
        format!("{id:?} (hosts {} and {}, {state:?}) has {count} messages left", a.0, b.0)
    });
    text.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
