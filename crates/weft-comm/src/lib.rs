//! Collectives on hosts: ranks find each other, open channels over RDMA and, where they share a machine, shared
//! memory, and perform collectives over them ([`weft_coll`]).
//!
//! | subject | file |
//! | --- | --- |
//! | the exchange of the ranks' addresses | `rendezvous.rs` |
//! | connections that have not yet identified their rank | `callers.rs` |
//! | numbers that only the job's ranks know | `secret.rs` |
//! | channels between all of them | `meet.rs` |
//! | memory that ranks of one machine share | `shared/` |
//! | both as a group's link | `link.rs` |
//! | a rank, polled by its owner | `communicator.rs` |
//! | a rank on its own thread | `worker.rs` |
//!
//! The device is the one that `libibverbs.so.1` finds: hardware, or Weft's own under `weft run`.

mod callers;
mod communicator;
mod error;
#[cfg(any(test, fuzzing))]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod link;
mod meet;
mod options;
mod rendezvous;
mod secret;
mod shared;
mod worker;

/// The functions that the fuzz targets of `fuzz/` call; production builds do not contain them.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::rendezvous::properties::rendezvous_line;
}

pub use communicator::Communicator;
pub use error::CommError;
pub use options::{Channels, Options, TOKEN_VARIABLE};
pub use rendezvous::{Member, rendezvous};
pub use worker::{Buffer, Pending, Worker};

pub use weft_coll::{
    Algorithm, Call, CallError, Collective, DataType, Error, Event, Layout, Op, Share,
};
pub use weft_guard::Token;
