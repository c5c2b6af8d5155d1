//! The transport's configuration on an Ethernet, which agents and settings start from.

use weft_transport::{RecoveryConfig, TransportConfig, congestion, path};
use weft_units::Duration;

/// The congestion control of real packets if the settings select none.
const ETHERNET_CONGESTION: congestion::Kind = congestion::Kind::Weft;

/// Number of paths in use at a time if there are more: four paths between two hosts are common, and 16 ports miss one of
/// them in 4 of 100 draws. With fewer, a path that loses packets cannot be replaced by another; groups in turn detect its
/// losses sooner (`docs/design/congestion.md`).
const MANY_PATHS: u16 = 16;

/// Returns the configuration that [`AgentConfig::ethernet`](crate::AgentConfig::ethernet) describes.
pub(crate) fn ethernet(paths: u16) -> TransportConfig {
    let bifrost = TransportConfig::bifrost();
    let (policy, top_k) = if paths > MANY_PATHS {
        (path::Kind::ShortestQueue, MANY_PATHS)
    } else {
        (bifrost.policy, bifrost.top_k)
    };
    TransportConfig {
        paths,
        policy,
        top_k,
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
        recovery: RecoveryConfig { suspend_silent: true, ..bifrost.recovery },
        ..bifrost
    }
}
