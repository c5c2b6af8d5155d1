//! The swarm: seed after seed, a small random world with its own mix of faults, watched by every
//! check of [`crate::check`].
//!
//! Each case has two phases. In the first anything may happen and only safety is asked: nothing is
//! placed twice, delivered out of order, or lost from the accounts. Then the network is made as good
//! as new, and everything that was not closed has to finish. As in swarm testing (Groce et al.
//! 2012), each case leaves some faults out altogether and gives the others widely different rates:
//! a mix of everything hides what a single fault would show.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use weft_transport::CloseReason;
use weft_units::Seed;

use crate::batch::for_each_index;
use crate::check::{Checks, Observer};
use crate::fault::{Kind as FaultKind, Plan, Scheduler};
use crate::time::{SimSpan, SimTime};
use crate::traffic::ChannelState;
use crate::world::{BuildError, World};

mod case;
mod chatter;

pub use case::Case;

/// Simulated time after which a healed network must have finished. The longest timeouts of any case
/// are milliseconds.
const PATIENCE: SimSpan = SimSpan::from_picos(20_000_000_000_000);

/// Where a receiver was told what nobody sent, nothing needs to finish; only nothing may panic.
const PATIENCE_WITH_THE_DECEIVED: SimSpan = SimSpan::from_picos(50_000_000_000);

/// Simulated time by which everybody has noticed that a peer restarted.
const AFTERMATH: SimSpan = SimSpan::from_picos(4_000_000_000_000);

/// What one case showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The case.
    pub seed: u64,
    /// What was violated; empty for a case that passed.
    pub violations: Vec<String>,
    /// Packets that went through the case's network.
    pub packets: u64,
    /// Of those, packets lost.
    pub lost: u64,
    /// Messages that were delivered and acknowledged.
    pub messages: usize,
}

/// What a range of seeds showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: usize,
    /// Packets of all cases.
    pub packets: u64,
    /// Packets lost in all cases.
    pub lost: u64,
    /// Messages delivered and acknowledged in all cases.
    pub messages: usize,
    /// The cases that failed.
    pub failures: Vec<Verdict>,
}

/// Runs the cases of `count` seeds from `first` on, on up to `workers` threads. `progress` hears
/// how many are done.
pub fn run_swarm(
    first: u64,
    count: usize,
    workers: usize,
    progress: impl Fn(usize) + Sync,
) -> Summary {
    let seed = |index: usize| first.wrapping_add(index as u64);
    let verdicts = for_each_index(count, workers, progress, |index| run_case(seed(index)));
    Summary {
        first,
        seeds: count,
        packets: verdicts.iter().map(|verdict| verdict.packets).sum(),
        lost: verdicts.iter().map(|verdict| verdict.lost).sum(),
        messages: verdicts.iter().map(|verdict| verdict.messages).sum(),
        failures: verdicts.into_iter().filter(|verdict| !verdict.violations.is_empty()).collect(),
    }
}

/// Runs one seed's case. A panic anywhere in it is a violation.
pub fn run_case(seed: u64) -> Verdict {
    let case = Case::draw(Seed(seed));
    let failed = |violations| Verdict { seed, violations, packets: 0, lost: 0, messages: 0 };
    match catch_unwind(AssertUnwindSafe(|| play(&case, seed))) {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(error)) => failed(vec![format!("the case cannot be built: {error}")]),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
            failed(vec![format!("panic: {}", text.unwrap_or_else(|| "without a message".into()))])
        }
    }
}

fn play(case: &Case, seed: u64) -> Result<Verdict, BuildError> {
    let topology = case.topology.build().expect("cases draw shapes that exist");
    let mut plan = Plan::new(&topology, Seed(seed).child("faults", 0));
    for fault in &case.faults {
        fault.schedule(&mut plan).expect("cases draw faults that fit");
    }
    let actions = plan.into_actions();
    let mut world = World::new(topology, case.world.clone(), Seed(seed))?;
    world.network.observer = Some(Box::new(Checks::all()));
    world.set_plan(actions);
    world.add_workload(Box::new(case.chatter.clone()));
    world.start();
    world.run_to(case.heal_at);
    world.heal();
    let deceived = is_deceived(case, &world);
    let done =
        world.run(case.heal_at + if deceived { PATIENCE_WITH_THE_DECEIVED } else { PATIENCE });
    if case.has(FaultKind::Restart) && !deceived {
        world.run_to(world.network.now + AFTERMATH);
    }
    Ok(judge(case, seed, &world, done))
}

fn judge(case: &Case, seed: u64, world: &World, done: bool) -> Verdict {
    let network = &world.network;
    let deceived = is_deceived(case, world);
    let mut violations = match &network.observer {
        Some(_) if deceived => Checks::for_hostile_links().violations(network),
        Some(checks) => checks.violations(network),
        None => Vec::new(),
    };
    if !deceived {
        violations.extend(unexpected_closures(case, world));
        if !done {
            violations.push(format!("not everything finished: {}", unfinished(world)));
        }
    }
    let counters = network.fabric.counters;
    Verdict {
        seed,
        violations,
        packets: counters.injected + counters.duplicated,
        lost: counters.lost.iter().sum(),
        messages: network.traffic.finished.len(),
    }
}

/// Whether some receiver was told what nobody sent. Then only the world's own accounts must add up.
fn is_deceived(case: &Case, world: &World) -> bool {
    case.hostile || world.network.fabric.counters.forged > 0
}

/// Connections that ended although nobody closed them and no host restarted.
fn unexpected_closures(case: &Case, world: &World) -> Vec<String> {
    let allowed = |reason: Option<CloseReason>| match reason {
        Some(CloseReason::Local | CloseReason::Peer) => true,
        // A close that was lost on its way is answered by a reset when the other end speaks.
        Some(CloseReason::Reset) => case.closes() || case.has(FaultKind::Restart),
        Some(CloseReason::ConnectTimeout) => case.world.handshake && !case.faults.is_empty(),
        Some(CloseReason::PeerGone) => case.has(FaultKind::Restart),
        None => case.has(FaultKind::Restart),
        Some(_) => false,
    };
    let closed = world.network.traffic.channels();
    let closed = closed.filter(|(_, channel)| channel.state == ChannelState::Closed);
    closed
        .filter(|(_, channel)| !allowed(channel.closed_because))
        .map(|(id, channel)| format!("{id:?} closed unasked: {:?}", channel.closed_because))
        .collect()
}

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

/// The epoch plus this many microseconds.
pub(crate) fn at_micros(micros: u64) -> SimTime {
    SimTime::from_picos(micros * 1_000_000)
}

#[cfg(test)]
mod tests;
