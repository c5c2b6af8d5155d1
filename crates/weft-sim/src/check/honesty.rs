//! Engines that keep the protocol never refuse each other's packets as invalid: such a refusal means that the two ends
//! disagree.

use weft_seal::{Mode, SealConfig, Seals};
use weft_topo::NodeId;
use weft_transport::DropReason;

use super::Observer;
use crate::traffic::{ChannelId, Traffic};
use crate::world::Network;

/// The check of the engines' counters, and those of their encryption.
#[derive(Debug, Default)]
pub(super) struct Check {
    restarts: bool,
}

/// The possible causes of refusals in a world whose hosts encrypt.
#[derive(Clone, Copy, Debug)]
struct Excuses {
    /// `true` if packets were forged or changed.
    forgeries: bool,
    /// `true` if a host lost its keys.
    restarts: bool,
}

/// Returns `true` for reasons that the network alone, or the end of a connection, can cause.
fn is_excused(reason: DropReason, excuses: Option<Excuses>) -> bool {
    use DropReason::{
        AckOfUnsent, BadExtent, BadTimestamp, BadToken, Duplicate, Malformed, NotAuthentic,
        OutOfOrder, OutsideWindow, StaleAck, TooManyConnections, UnexpectedSetup,
        UnknownConnection, UnknownVersion, UnprovenReset,
    };
    match reason {
        Duplicate | OutOfOrder | StaleAck | UnknownConnection | UnexpectedSetup => true,
        // A token was made before its maker restarted.
        BadToken => true,
        // A reset replies to a packet that was acknowledged, or followed by another probe, meanwhile.
        UnprovenReset => true,
        // Only packets of set-up: others in the clear do not reach an engine whose owner requires encryption.
        Malformed | UnknownVersion => excuses.is_some_and(|excuses| excuses.forgeries),
        // A host that accepts a connection, restarts and accepts it again has other keys the second time.
        NotAuthentic => excuses.is_some_and(|excuses| excuses.forgeries || excuses.restarts),
        OutsideWindow | BadExtent | AckOfUnsent | BadTimestamp | TooManyConnections => false,
    }
}

/// Returns the encryption's refusals that have no known cause, by name.
fn refused(seals: &Seals, excuses: Excuses) -> impl Iterator<Item = (&'static str, u64)> {
    let counters = seals.counters();
    // A key with a very short lifetime is dropped before late packets arrive.
    let keys_last = seals.config().key_lifetime >= SealConfig::default().key_lifetime;
    let required = seals.config().mode == Mode::Required;
    let refused = [
        ("malformed", counters.malformed, true),
        ("not_authentic", counters.not_authentic, keys_last && !excuses.restarts),
        ("in_clear", counters.in_clear, required),
        ("refused_exchanges", counters.refused_exchanges, !excuses.restarts),
        ("refused_clear", counters.refused_clear, true),
    ];
    let counts = refused.into_iter().filter(move |(_, _, counts)| *counts && !excuses.forgeries);
    counts.map(|(name, count, _)| (name, count))
}

impl Observer for Check {
    fn on_restart(&mut self, _host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {
        self.restarts = true;
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        let counters = network.fabric.counters;
        let forgeries = counters.forged + counters.attacker_made > 0;
        let excuses = Excuses { forgeries, restarts: self.restarts };
        let counts = network.hosts.iter().flat_map(|host| {
            let (stats, seals) = (host.stats(), host.seals());
            let excuses_of_engine = seals.map(|_| excuses);
            let reasons = DropReason::ALL.iter().copied();
            let reasons = reasons.filter(move |&reason| !is_excused(reason, excuses_of_engine));
            let dropped = reasons.map(|reason| (reason.name(), stats.dropped_for(reason)));
            let refused = seals.into_iter().flat_map(move |seals| refused(seals, excuses));
            dropped.chain(refused).map(|(name, count)| (host.id(), name, count))
        });
        counts
            .filter(|(_, _, count)| *count > 0)
            .map(|(host, name, count)| {
                format!("host {} refused {count} packets of its peers: {name}", host.0)
            })
            .collect()
    }
}
