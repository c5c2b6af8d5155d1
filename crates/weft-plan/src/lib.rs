//! Plans of collectives on a fabric: the order of servers in a ring, the GPUs and NICs of its path through each
//! server, and the source ports that keep its flows from sharing links. The crate implements Astral's TCCL
//! (sections 2.2, 3.2 and 3.4) as functions from data to data.
//!
//! * A [`Cluster`] is read from a description ([`cluster`]) and, for the inside of servers, from
//!   NCCL's topology XML ([`machine`]).
//! * [`ring`] orders servers by block and keeps rings and trees on their rails.
//! * [`ports`] computes the hashes of the switches and chooses the ports of all flows at once.
//! * [`collective`] writes collectives as schedules, which a transport performs.
//! * [`traffic`] lists the queue pairs of a collective, and [`output`] writes plans in the formats of NCCL,
//!   Open MPI and NICs.
//! * [`stacks`] has the settings by which other programs take ports, and [`tuner`] the algorithms that NCCL's tuners answer.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use weft_plan::cluster::Network;
//! use weft_plan::ports::{SearchLimits, Entropy, Fabric, Flow, loads, plan, switch_hashes};
//! use weft_topo::build::LeafSpine;
//! use weft_topo::hash::HashAlgorithm;
//! use weft_topo::{Failures, NodeId};
//! use weft_units::Seed;
//!
//! // Eight hosts of one leaf send to eight of another over eight spines.
//! let topology = LeafSpine::default().build()?;
//! let network = Network {
//!     hashes: switch_hashes(&topology, HashAlgorithm::Crc32, 8, Seed(1)),
//!     addresses: (0..topology.hosts()).map(|host| 0x0a00_0000 + host).collect(),
//!     weights: BTreeMap::new(),
//!     names: Vec::new(),
//!     topology,
//! };
//! let flow = |host| Flow {
//!     first: network.topology.ports(NodeId(host))[0],
//!     destination: NodeId(host + 16),
//! };
//! let flows: Vec<Flow> = (0..8).map(flow).collect();
//! let fabric = Fabric::new(&network, &Failures::none(), Entropy::default())?;
//! let plan = plan(&fabric, &flows, SearchLimits::default(), Seed(1))?;
//!
//! // With these source ports no two of them share a link.
//! assert_eq!(loads(&fabric, &flows, &plan.ports).alone, 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate uses no time, sockets or processes.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cluster;
pub mod collective;
pub mod machine;
pub mod output;
pub mod ports;
pub mod ring;
pub mod stacks;
#[cfg(test)]
mod testing;
pub mod traffic;
pub mod tuner;

pub use cluster::Cluster;
