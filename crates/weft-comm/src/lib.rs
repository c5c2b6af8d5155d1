//! Collectives on hosts: ranks find each other, open channels over RDMA and, where they are on one server, shared
//! memory, and perform collectives over them ([`weft_coll`]).
//!
//! | subject | file |
//! | --- | --- |
//! | the exchange of the ranks' addresses | `rendezvous.rs` |
//! | connections that have not yet identified their rank | `callers.rs` |
//! | the line by which they do | `line.rs` |
//! | numbers that only the job's ranks know | `secret.rs` |
//! | channels between all of them | `communicator/meet.rs` |
//! | the ranks that share memory: servers | `communicator/servers.rs` |
//! | their memory | `shared/` |
//! | both as a group's link | `link.rs` |
//! | order and source ports from a route controller | `controller/`, `communicator/plan.rs` |
//! | a rank, polled by its owner | `communicator.rs` |
//! | a rank on its own thread | `worker.rs` |
//!
//! The device is the one that `libibverbs.so.1` finds: hardware, or Weft's own under `weft run`.
//!
//! Ranks exchange their addresses at rank 0's address. [`Communicator::join`] does this first:
//!
//! ```
//! use std::net::TcpListener;
//! use std::thread;
//! use weft_comm::{Member, rendezvous};
//! use weft_units::Duration;
//!
//! let at = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
//! let member = |rank| Member {
//!     rank,
//!     ranks: 2,
//!     port: 7000 + rank as u16,
//!     address: None,
//!     agreement: "ring".into(),
//!     token: None,
//!     hello_timeout: Duration::from_secs(2),
//! };
//! let other = member(1);
//! let other = thread::spawn(move || rendezvous(at, &other, Duration::from_secs(20)));
//! let addresses = rendezvous(at, &member(0), Duration::from_secs(20))?;
//! assert_eq!(addresses[1].to_string(), "127.0.0.1:7001");
//! assert_eq!(other.join().unwrap()?, addresses);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod callers;
mod communicator;
mod controller;
mod error;
#[cfg(any(test, fuzzing))]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod line;
mod link;
mod options;
mod rendezvous;
mod secret;
mod shared;
mod wait;
mod worker;

/// The functions that the fuzz targets of `fuzz/` call; production builds do not contain them.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::rendezvous::properties::rendezvous_line;
}

pub use communicator::Communicator;
pub use controller::{CONTROLLER_TOKEN_VARIABLE, ControllerAddress, ControllerAddressError};
pub use error::{AnswerError, CommError, ControllerError, SharedError};
pub use options::{Channels, Options, TOKEN_VARIABLE, Traffic};
pub use rendezvous::{Member, rendezvous};
pub use worker::{Buffer, Pending, PendingError, Worker};

pub use weft_coll::{
    Algorithm, Call, CallError, Collective, DataType, Error, Event, Layout, Op, Share,
};
pub use weft_guard::Token;
