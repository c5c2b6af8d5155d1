//! The transport's configuration on an Ethernet, which agents and settings start from.

use weft_transport::{TransportConfig, congestion, path};
use weft_units::Duration;

/// The congestion control of real packets if the settings select none.
const ETHERNET_CONGESTION: congestion::Kind = congestion::Kind::Weft;

/// Returns the configuration that [`AgentConfig::ethernet`](crate::AgentConfig::ethernet) describes.
pub(crate) fn ethernet(paths: u16) -> TransportConfig {
    let bifrost = TransportConfig::bifrost();
    TransportConfig {
        paths,
        // Four paths between two hosts are common, and 16 ports miss one of them in 4 of 100 draws.
        policy: path::Kind::ShortestQueue,
        top_k: 16,
        congestion: ETHERNET_CONGESTION,
        spray_unit: 44,
        line_rate: weft_units::BitRate::gbps(40).expect("not zero"),
        base_rtt: Duration::from_micros(300),
        first_window: 64 << 10,
        queue_target: Duration::from_millis(2),
        send_window: 2048,
        reorder_window: 4096,
        ack_every: 44,
        keepalive_interval: Duration::ZERO,
        ..bifrost
    }
}
