//! gNMI's messages and its client, compiled from `proto/` (openconfig/gnmi 0.14.1).
#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

/// Package `gnmi`.
pub(crate) mod gnmi {
    tonic::include_proto!("gnmi");
}

/// Package `gnmi_ext`, which `gnmi` imports.
pub(crate) mod gnmi_ext {
    tonic::include_proto!("gnmi_ext");
}
