//! Tenants' network interfaces, behind one trait: [`Port`].
//!
//! A frame is an Ethernet frame with a 12-byte `virtio_net_hdr_v1` before it (virtio 1.2, 5.1.6), in both directions
//! and at every kind of port, so that the same bytes go from one tenant's memory to another's. A port never
//! decides where a frame goes, and it never waits.
#![deny(unsafe_code)]

mod error;
mod finish;
mod frame;
mod port;
mod readiness;
mod tap;
mod vhost;

pub use error::PortError;
pub use port::{HEAD_LEN, HEADER_LEN, Holdings, MAX_FRAME, Port, PortCounters, Sent};
pub use tap::{Limits, Namespace, TapConfig, TapPort};
pub use vhost::{
    ChainError, Custody, Descriptors, Purpose, RingError, Role, Segment, VhostConfig, VhostPort,
    walk,
};
