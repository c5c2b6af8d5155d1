//! Tests with independent tenants: DPDK's virtio-user, and Linux in QEMU.
#![expect(clippy::disallowed_methods, reason = "real programs live in real time")]

#[path = "../common/mod.rs"]
mod common;

mod dpdk;
mod machine;
mod qemu;
mod queues;

use std::net::IpAddr;

use common::namespace::Namespace;
use weft_ports::{TapConfig, TapPort};

/// Opens the peer of these programs: a TAP interface in its own namespace.
fn tap(space: &Namespace, address: &str) -> TapPort {
    TapPort::open(&TapConfig {
        namespace: Some(space.0.parse().unwrap()),
        mac: Some([2, 0, 0, 0, 0x77, 1]),
        addresses: vec![(address.parse::<IpAddr>().unwrap(), 24)],
        ..TapConfig::named("eth0")
    })
    .unwrap()
}
