//! If hosts encrypt, the bytes placed are those that the peer sent on that connection, and no sealed packet is
//! accepted twice, whatever an attacker sends.

use std::collections::BTreeSet;

use weft_topo::NodeId;
use weft_transport::Placement;

use super::Observer;
use crate::world::Network;

/// The packets opened, and the violations.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// Opened packets by host and authentication tag.
    opened: BTreeSet<(NodeId, [u8; 16])>,
    violations: Vec<String>,
}

impl Observer for Check {
    fn on_opened(&mut self, host: NodeId, tag: [u8; 16]) {
        if !self.opened.insert((host, tag)) {
            self.violations.push(format!("host {} took a sealed packet in twice", host.0));
        }
    }

    fn on_payload_read(&mut self, host: NodeId, placement: &Placement, is_genuine: bool) {
        if !is_genuine {
            let text = format!("host {}: {placement:?} is not what its peer sent", host.0);
            self.violations.push(text);
        }
    }

    fn violations(&self, _network: &Network) -> Vec<String> {
        self.violations.clone()
    }
}

#[cfg(test)]
mod tests {
    use weft_transport::ConnectionId;

    use super::*;

    #[test]
    fn a_packet_that_is_opened_twice_and_a_forged_payload_are_violations() {
        let mut check = Check::default();
        check.on_opened(NodeId(1), [7; 16]);
        check.on_opened(NodeId(2), [7; 16]);
        assert_eq!(check.violations, [""; 0]);
        check.on_opened(NodeId(1), [7; 16]);
        assert_eq!(check.violations, ["host 1 took a sealed packet in twice"]);
        let placement = Placement {
            connection: ConnectionId(1),
            psn: 0,
            opcode: 0,
            tag: 0,
            message: 0,
            offset: 0,
            len: 9,
            length: 9,
        };
        check.on_payload_read(NodeId(1), &placement, true);
        assert_eq!(check.violations.len(), 1);
        check.on_payload_read(NodeId(1), &placement, false);
        assert_eq!(check.violations.len(), 2);
    }
}
