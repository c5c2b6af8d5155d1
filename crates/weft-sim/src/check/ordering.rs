//! Messages are delivered whole and in order, and reported as sent only once they are delivered.
//! [`Traffic`](crate::traffic::Traffic) knows what was asked for and keeps the contradictions.

use super::Observer;
use crate::world::Network;

/// Reads the contradictions.
#[derive(Debug, Default)]
pub(super) struct Check;

impl Observer for Check {
    fn violations(&self, network: &Network) -> Vec<String> {
        network.contradictions.iter().map(ToString::to_string).collect()
    }
}
