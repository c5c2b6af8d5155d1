//! What does not heal. In some cases one direction of one cable between switches goes on losing
//! everything without knowing it, and no route avoids it. Whoever has paths beside it must finish all
//! the same: a transport that only ever recovers with its network is no multipath transport.

use weft_topo::build::TopologyConfig;
use weft_topo::hash::HashAlgorithm;
use weft_topo::{LinkId, Topology};
use weft_transport::path;
use weft_units::{Duration, Rng};

use super::case::{LONG, pick};
use crate::fault::{Action, Chance, Change};
use crate::switch;
use crate::world::WorldConfig;

/// Paths of a scarred case: each takes the link with a chance of one half at most, and that all of
/// them do will not happen in the lifetime of this project.
const PATHS: u16 = 32;

/// Packets in flight at least. With one alone every ACK that goes lost on the link costs a timeout, and
/// what is left would take longer than anybody waits.
const WINDOW: u16 = 16;

/// Longer than 30 of the longest retransmission timeouts: nobody is given up by bad luck.
const PATIENT: Duration = Duration::from_secs(5);

/// The link that stays broken, in one of three cases that can have one. Whoever shall survive it has
/// to use its paths, so their number and policy are set too.
pub(super) fn draw(
    rng: &mut Rng,
    shape: &TopologyConfig,
    topology: &Topology,
    world: &mut WorldConfig,
) -> Option<LinkId> {
    let TopologyConfig::LeafSpine(shape) = shape else { return None };
    // Where switches choose anew for each packet no path avoids the link.
    let follows_paths = world.fabric.forwarding.kind == switch::Kind::Ecmp;
    let chosen = shape.spines > 1 && follows_paths && rng.chance(1, 3);
    let between_switches = |link: &LinkId| {
        let ends = topology.link(*link);
        !topology.is_host(ends.from) && !topology.is_host(ends.to)
    };
    let links: Vec<_> = topology.link_ids().filter(between_switches).collect();
    if !chosen || links.is_empty() {
        return None;
    }
    // Of CRCs, XORs and Toeplitz a change of a few bits changes the same few bits, whatever the others
    // are: all ports of one connection can take the one link.
    world.fabric.forwarding.hash = HashAlgorithm::Linux;
    let transport = &mut world.transport;
    transport.paths = PATHS;
    if transport.policy == path::Kind::Single {
        transport.policy = path::Kind::RoundRobin;
    }
    transport.send_window = transport.send_window.max(WINDOW);
    transport.reorder_window = transport.reorder_window.max(WINDOW);
    transport.idle_timeout = LONG;
    transport.peer_timeout = PATIENT;
    Some(pick(rng, &links))
}

/// Breaks it.
pub(super) fn action(link: LinkId) -> Action {
    Action::Impair { link: link.into(), change: Change::Loss(Chance::new(1.0)) }
}
