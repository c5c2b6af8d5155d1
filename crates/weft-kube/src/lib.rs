//! A controller of Kubernetes: it writes a cluster's networks and network policies into the fleet's configuration in etcd.
//!
//! | what | where |
//! | --- | --- |
//! | the names of objects, and their owner | `names.rs` |
//! | what matters of a pod | `pod.rs`, `protocol.rs` |
//! | label selectors; blocks of addresses with exceptions | `selector.rs`, `block.rs` |
//! | the peers of a rule, and their set | `peers.rs` |
//! | a policy as security groups | `policy.rs` |
//! | the custom resource of a network | `network.rs` |
//! | a cluster's wishes as the fleet's objects | `translate.rs` |
//! | the fleet in etcd: differences, ownership, the fence | `fleet.rs` |
//! | the election of a leader | `election.rs` |
//! | objects of the API server | `observe.rs` |
//! | the status of networks, events of policies | `report.rs` |
//! | the loop | `controller.rs` |
//! | health and metrics over HTTP, and who may read them | `page.rs`, `readers.rs` |
//!
//! Translation is a function: it reads no clock and opens no connection.
#![forbid(unsafe_code)]

mod block;
mod controller;
mod election;
mod fleet;
mod names;
mod network;
mod observe;
mod page;
mod peers;
mod pod;
mod policy;
mod protocol;
mod readers;
mod report;
mod selector;
mod translate;
mod world;

pub use controller::Controller;
pub use election::Election;
pub use fleet::{Fleet, FleetError, Term, Written};
pub use names::{Owner, OwnerError};
pub use network::{Verdict, WeftNetwork, WeftNetworkSpec, WeftNetworkStatus, crd_yaml};
pub use page::Health;
pub use pod::{Labels, Pod};
pub use protocol::Protocol;
pub use readers::{Readers, ReadersError};
pub use selector::selects;
pub use translate::{Settings, Translation, translate};
pub use world::World;
