//! Real leaf–spine fabrics on one machine: hosts and Linux ECMP routers in network namespaces,
//! joined by veth pairs, with loss, rate limits and failures that change while traffic runs.
//!
//! A lab of `leaves × hosts` hosts and `spines` spines gives two hosts behind different leaves
//! exactly `spines` disjoint paths, `host → leaf → spine → leaf → host`. The leaves choose among
//! them with the kernel's own multipath hash and a seed that the lab sets, so
//! [`Paths::spine_of`] says beforehand which UDP source port takes which spine, and a simulator
//! that uses the same hash takes the same decisions.
//!
//! ```no_run
//! use weft_lab::{Direction, Impairment, Lab, LabSpec, Loss};
//!
//! let mut lab = Lab::up(&LabSpec { spines: 4, ..LabSpec::named("readme") })?;
//! let socket = lab.enter("h0", || std::net::UdpSocket::bind("0.0.0.0:0"))??;
//! let lossy = Impairment { loss: "1%".parse::<Loss>().unwrap(), ..Impairment::default() };
//! lab.impair("l0-s1", Direction::Both, &lossy)?;
//! # drop(socket);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lab needs root. It lives outside the process: [`Lab::up`] takes it down again on drop, unless
//! [`Lab::keep`] hands it over to later commands, which find it with [`Lab::open`]. What a crashed
//! process left behind is removed by the next [`Lab::up`] or by [`Lab::down_all`].
//!
//! What the kernel cannot do here: delay packets or reorder them on one path. For those, put an
//! emulator in user space between the sockets.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a lab runs in real time on a real machine; it sleeps while a link flaps"
)]

mod build;
mod counters;
mod error;
mod fabric;
mod frr;
mod impair;
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
pub use impair::{Direction, Impairment, Loss, ParseLossError};
pub use lab::Lab;
pub use namespace::enter;
pub use paths::{Flow, Paths};
pub use requirements::{Requirement, requirements};
pub use spec::{LabSpec, Routing};
pub use state::LinkState;
