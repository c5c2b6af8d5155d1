//! Messages are delivered whole and in order, and reported as acknowledged only after delivery.
//! [`Traffic`](crate::traffic::Traffic) has the orders and records the contradictions.

use super::Observer;
use crate::world::Network;

/// The check of the recorded contradictions.
#[derive(Debug, Default)]
pub(super) struct Check;

impl Observer for Check {
    fn violations(&self, network: &Network) -> Vec<String> {
        network.contradictions.iter().map(ToString::to_string).collect()
    }
}
