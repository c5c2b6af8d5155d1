//! Every packet sent is delivered, lost for a reason, or in flight; so are duplicates, and packets of switches and of
//! attackers.

use super::Observer;
use crate::world::Network;

/// The balance of the network's counters.
#[derive(Debug, Default)]
pub(super) struct Check;

impl Observer for Check {
    fn violations(&self, network: &Network) -> Vec<String> {
        let counters = network.fabric.counters;
        let entered = counters.injected
            + counters.duplicated
            + counters.control_sent
            + counters.attacker_made;
        let lost: u64 = counters.lost.iter().sum();
        let in_flight = network.fabric.packets.live();
        let left = counters.delivered + counters.control_received + lost + in_flight;
        if entered == left {
            return Vec::new();
        }
        vec![format!(
            "{entered} packets entered the network, {left} are accounted for: {counters:?}, \
             {in_flight} in flight"
        )]
    }

    fn violations_despite_forgery(&self, network: &Network) -> Vec<String> {
        self.violations(network)
    }
}
