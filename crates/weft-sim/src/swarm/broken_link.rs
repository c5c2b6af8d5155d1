//! A permanent fault. In some cases one direction of one cable between switches drops everything without being down,
//! and no route avoids it. A connection with other paths must complete nevertheless: a multipath transport recovers
//! before its network is repaired.

use weft_topo::build::TopologyConfig;
use weft_topo::hash::HashAlgorithm;
use weft_topo::{LinkId, Topology};
use weft_transport::path;
use weft_units::{Duration, Rng};

use super::LONG;
use super::draw::pick;
use crate::fault::{Action, Chance, Change};
use crate::switch;
use crate::world::WorldConfig;

/// Number of paths of a case with such a link: each takes the link with a probability of at most one half, so the probability that
/// all do is negligible.
const PATHS: u16 = 32;

/// Minimum number of packets in flight. With a single one every lost ACK costs a timeout, and the rest would exceed
/// the time limit.
const WINDOW: u16 = 16;

/// A peer timeout longer than 30 of the longest retransmission timeouts: no peer times out by chance.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// Draws the link that stays broken, in one of three cases that can have one. The connections must use their paths, so
/// their number and policy are set too.
pub(super) fn draw(
    rng: &mut Rng,
    shape: &TopologyConfig,
    topology: &Topology,
    world: &mut WorldConfig,
) -> Option<LinkId> {
    let TopologyConfig::LeafSpine(shape) = shape else { return None };
    // If switches choose a link for each packet, no path avoids the link.
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
    // For CRCs, XORs and Toeplitz a change of a few bits changes the same few bits of the hash, whatever the others
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
    transport.peer_timeout = PEER_TIMEOUT;
    Some(pick(rng, &links))
}

/// Returns the action that makes the link drop every packet.
pub(super) fn action(link: LinkId) -> Action {
    Action::Impair { link: link.into(), change: Change::Loss(Chance::new(1.0)) }
}
