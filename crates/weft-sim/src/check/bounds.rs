//! Payloads are placed inside their messages. An owner writes at the given offset, so this must hold for any packet
//! that reaches an engine.

use weft_topo::NodeId;
use weft_transport::Placement;

use super::Observer;
use crate::world::Network;

/// The check of each placement alone.
#[derive(Debug, Default)]
pub(super) struct Check {
    violations: Vec<String>,
}

impl Observer for Check {
    fn on_place(&mut self, host: NodeId, placement: &Placement) {
        let end = u64::from(placement.offset) + u64::from(placement.len);
        if end > placement.length.into() {
            self.violations.push(format!("host {}: {placement:?} leaves its message", host.0));
        }
    }

    fn violations(&self, _network: &Network) -> Vec<String> {
        self.violations.clone()
    }

    fn violations_despite_forgery(&self, network: &Network) -> Vec<String> {
        self.violations(network)
    }
}

#[cfg(test)]
mod tests {
    use weft_transport::ConnectionId;

    use super::*;

    #[test]
    fn a_payload_may_end_where_its_message_ends_and_no_later() {
        let connection = ConnectionId(1);
        for (offset, len, fits) in
            [(0, 100, true), (40, 60, true), (41, 60, false), (u32::MAX, 1, false)]
        {
            let mut check = Check::default();
            let placement = Placement {
                connection,
                psn: 0,
                opcode: 0,
                tag: 0,
                message: 0,
                offset,
                len,
                length: 100,
            };
            check.on_place(NodeId(0), &placement);
            assert_eq!(check.violations.is_empty(), fits, "{offset}+{len}");
        }
    }
}
