//! Engines that keep the protocol never refuse each other's packets as broken: every refusal of that
//! kind means that the two ends disagree.

use weft_transport::DropReason;

use super::Observer;
use crate::world::Network;

/// Reads the engines' counters.
#[derive(Debug, Default)]
pub(super) struct Check;

/// Reasons that the network alone, or the end of a connection, can cause.
fn is_excused(reason: DropReason) -> bool {
    use DropReason::{
        AckOfUnsent, BadExtent, BadTimestamp, BadToken, Duplicate, Malformed, NotAuthentic,
        OutOfOrder, OutsideWindow, StaleAck, TooManyConnections, UnexpectedSetup,
        UnknownConnection, UnknownVersion, UnprovenReset,
    };
    match reason {
        Duplicate | OutOfOrder | StaleAck | UnknownConnection | UnexpectedSetup => true,
        // A token from before its maker restarted.
        BadToken => true,
        // It answers a packet that was acknowledged, or followed by another probe, meanwhile.
        UnprovenReset => true,
        Malformed | UnknownVersion | OutsideWindow | BadExtent | AckOfUnsent | BadTimestamp
        | NotAuthentic | TooManyConnections => false,
    }
}

impl Observer for Check {
    fn violations(&self, network: &Network) -> Vec<String> {
        let reasons = || DropReason::ALL.iter().copied().filter(|&reason| !is_excused(reason));
        let counts = network.hosts.iter().flat_map(|host| {
            let stats = host.stats();
            reasons().map(move |reason| (host.id(), reason, stats.dropped_for(reason)))
        });
        counts
            .filter(|(_, _, count)| *count > 0)
            .map(|(host, reason, count)| {
                format!("host {} refused {count} packets of its peers: {}", host.0, reason.name())
            })
            .collect()
    }
}
