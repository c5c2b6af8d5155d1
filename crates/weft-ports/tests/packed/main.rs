//! The tests of vhost-user ports that do not depend on the format of rings, over packed ones (virtio 1.2, 2.8), and those of
//! that format.

#[path = "../common/mod.rs"]
mod common;
#[path = "../vhost/custody.rs"]
mod custody;
mod hostile;
#[path = "../vhost/kit.rs"]
mod kit;
mod lifecycle;
#[path = "../vhost/migration.rs"]
mod migration;
#[path = "../vhost/offload.rs"]
mod offload;
#[path = "../vhost/order.rs"]
mod order;
#[path = "../vhost/queues.rs"]
mod queues;
#[path = "../vhost/swarm.rs"]
mod swarm;
#[path = "../vhost/transfer.rs"]
mod transfer;

use common::front_end::bit;
use kit::{Tenant, frame, millis, sent_part, tenant};

/// The feature of the rings' format.
const FORMAT: u64 = bit::PACKED;
