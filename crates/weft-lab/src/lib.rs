//! Real leaf–spine fabrics on one machine: hosts and Linux ECMP routers in network namespaces,
//! joined by veth pairs, with loss, rate limits and failures that change while traffic runs.
//!
//! A lab of `leaves × hosts` hosts and `spines` spines gives two hosts behind different leaves exactly `spines`
//! disjoint paths, `host → leaf → spine → leaf → host`. The leaves choose among them with the kernel's own multipath
//! hash and a seed that the lab sets. Therefore [`Paths::spine_of`] predicts the spine of each UDP source port, and a
//! simulator with the same hash makes the same choices.
//!
//! ```no_run
//! use weft_lab::{Direction, Impairment, Lab, LabSpec, Probability};
//!
//! let mut lab = Lab::up(&LabSpec { spines: 4, ..LabSpec::named("readme") })?;
//! let socket = lab.enter("h0", || std::net::UdpSocket::bind("0.0.0.0:0"))??;
//! let lossy = Impairment { loss: "1%".parse::<Probability>().unwrap(), ..Impairment::default() };
//! lab.impair("l0-s1", Direction::Both, &lossy)?;
//! # drop(socket);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The paths through a lab follow from its specification alone, without root:
//!
//! ```
//! use weft_lab::{Fabric, Flow, LabSpec};
//!
//! let fabric = Fabric::new(&LabSpec { spines: 4, ..LabSpec::named("readme") })?;
//! let flow = Flow { source: 0, destination: 1, protocol: 17, source_port: 0, destination_port: 4791 };
//! let paths = fabric.paths();
//! for spine in 0..4 {
//!     let ports: Vec<u16> = paths.ports_over(&flow, spine, 49_152).take(8).collect();
//!     assert_eq!(ports.len(), 8);
//!     assert!(ports.iter().all(|&port| paths.spine_of(&Flow { source_port: port, ..flow }) == Some(spine)));
//! }
//! # Ok::<(), weft_lab::LabError>(())
//! ```
//!
//! A lab needs root. It lives outside the process: dropping a lab from [`Lab::up`] removes it, unless [`Lab::detach`]
//! leaves it to later commands, which find it with [`Lab::open`]. The remains of a crashed process are removed by the
//! next [`Lab::up`] or by [`Lab::down_all`].
//!
//! A lab cannot delay packets, or reorder them on one path. For that, put an emulator in user space between the
//! sockets.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a lab runs in real time on a real machine; it sleeps while a link flaps"
)]

mod build;
mod carrier;
mod counters;
mod error;
mod fabric;
mod frr;
mod impair;
mod impairment;
mod lab;
mod namespace;
mod paths;
mod requirements;
mod routes;
mod spec;
mod state;
mod tool;

pub use counters::{LinkCounters, PortCounters};
pub use error::LabError;
pub use fabric::{Fabric, Link, Node, NodeKind, Port};
pub use impairment::{Direction, Impairment};
pub use lab::Lab;
pub use namespace::enter;
pub use paths::{Flow, Paths};
pub use requirements::{Requirement, requirements};
pub use spec::{LabSpec, Routing};
pub use state::LinkState;
pub use weft_units::Probability;
