//! Tests of vhost-user ports with a hand-written driver. Split rings; `tests/packed` runs what does not depend on the format over packed
//! ones.

#[path = "../common/mod.rs"]
mod common;

mod custody;
mod hostile;
mod kit;
mod lifecycle;
mod migration;
mod offload;
mod order;
mod queues;
mod swarm;
mod transfer;

use kit::{Tenant, frame, millis, sent_part, tenant};

/// The feature of the rings' format.
const FORMAT: u64 = 0;
