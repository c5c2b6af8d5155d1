//! The network as data: topologies, equal-cost routes, and the hashes that choose among the routes.
//!
//! ```
//! use weft_topo::build::LeafSpine;
//! use weft_topo::hash::{FiveTuple, HashAlgorithm, SwitchHash};
//! use weft_topo::{Failures, NodeId, Routes};
//!
//! let topology = LeafSpine::default().build()?;
//! let routes = Routes::compute(&topology, &Failures::none())?;
//!
//! // Host 0 and host 127 are on different leaves: one path through each of eight spines.
//! let (source, destination) = (NodeId(0), NodeId(127));
//! assert_eq!(routes.path_count(&topology, source, destination), 8);
//!
//! // The leaf's hash of the five-tuple selects one of them.
//! let leaf = topology.link(topology.ports(source)[0]).to;
//! let hash = SwitchHash { algorithm: HashAlgorithm::Crc32, seed: 1, rotate: 0 };
//! let packet = FiveTuple {
//!     src: 0x0a00_0000, dst: 0x0a00_007f, src_port: 0xc001, dst_port: 4791, protocol: 17,
//! };
//! let links = routes.next_links(leaf, destination);
//! let spine = topology.link(links[hash.select(&packet, links.len())]).to;
//! assert_eq!(topology.tier(spine), 2);
//!
//! // After that spine fails, the new table avoids it.
//! let mut failures = Failures::none();
//! failures.fail_node(spine);
//! let routes = Routes::compute(&topology, &failures)?;
//! assert_eq!(routes.path_count(&topology, source, destination), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Architecture
//!
//! A [`Topology`] is built once, by a shape of [`build`] or from a file ([`read_ns3`]), and never
//! changes. [`Failures`] holds the cables and nodes that are down; from both, [`Routes`] computes
//! the equal-cost sets of a converged control plane. [`hash`] holds the functions by which a switch
//! chooses within a set. The simulator calls [`Routes::next_links`] and [`hash::FabricHash::choice`]
//! at every hop, so those two are three dependent loads and one modulus; other functions are not
//! optimised. This crate does not depend on packets, queues, time or load. A new shape is a file under
//! `build/` and a row in `build/registry.rs`; a new hash is a function under `hash/` and a row in
//! `hash/registry.rs`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod build;
mod failure;
mod file;
mod graph;
pub mod hash;
mod routes;

pub use failure::Failures;
pub use file::{Ns3Error, UnwritableError, read_ns3, write_ns3};
pub use graph::{Link, LinkId, NodeId, NodeName, Topology, TopologyBuilder, TopologyError};
pub use routes::{Paths, RouteError, Routes, SwitchRoutes};
