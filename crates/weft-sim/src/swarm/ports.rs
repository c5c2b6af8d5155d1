//! Draws of ports that hold queues, in one case of three, and of pauses in half of those.

use weft_topo::Topology;
use weft_units::{ByteCount, Rng};

use super::draw::pick;
use crate::fault::{FaultConfig, Kind as FaultKind};
use crate::port::{Kind, MarkAt};
use crate::queue;
use crate::world::WorldConfig;

/// Draws the kind of ports, and their configuration.
pub(super) fn draw(
    rng: &mut Rng,
    topology: &Topology,
    faults: &[FaultConfig],
    world: &mut WorldConfig,
) {
    let holds_queues = rng.chance(1, 3);
    let pauses = rng.chance(1, 2);
    let pool = pick(rng, &[1_000, 30_000, 300_000, 64_000_000]);
    let alpha = pick(rng, &[0.0625, 0.5, 2.0]);
    let mark_at = pick(rng, MarkAt::ALL);
    if !holds_queues {
        // Only ports that hold queues can let cut packets go ahead.
        if world.fabric.queue.kind == queue::Kind::Trim {
            world.fabric.queue.kind = queue::Kind::Ecn;
        }
        return;
    }
    let sending = world.sending();
    let fabric = &mut world.fabric;
    fabric.port.kind = Kind::Priority;
    fabric.port.mark_at = mark_at;
    fabric.port.reserved = ByteCount(pick(rng, &[0, u64::from(sending.largest)]));
    // Routes around a failure may go up again after they went down. Then each of a cycle of switches can wait for the
    // next one: a deadlock.
    let routes_stay = world.reroute_after.is_none() || !faults.iter().any(breaks_routes);
    let fabric = &mut world.fabric;
    if pauses && routes_stay {
        fabric.pfc.enabled = true;
        fabric.pfc.alpha = alpha;
        fabric.queue.limit = ByteCount::mib(64);
        fabric.buffer.size = ByteCount(pool);
    }
    let (pfc, port) = (&fabric.pfc, &fabric.port);
    let set_aside = |switch| pfc.set_aside(topology, port, sending, switch);
    let max = topology.switch_ids().map(set_aside).max().unwrap_or(0);
    fabric.buffer.size.0 += max;
}

/// Returns `true` if the fault may take links down.
fn breaks_routes(fault: &FaultConfig) -> bool {
    !matches!(
        fault.kind(),
        FaultKind::Loss
            | FaultKind::Corruption
            | FaultKind::Duplication
            | FaultKind::Reordering
            | FaultKind::Restart
            | FaultKind::Attack
    )
}

/// Returns `true` if the packets that arrive after a pause was requested may overflow the headroom.
pub(super) fn may_overflow(fault: &FaultConfig) -> bool {
    breaks_routes(fault)
        || matches!(
            fault.kind(),
            FaultKind::Duplication | FaultKind::Reordering | FaultKind::Attack
        )
}
