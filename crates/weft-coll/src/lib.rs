//! Collectives that run: a [`Group`] performs `weft_plan`'s schedules for one rank over whatever carries messages to
//! the others ([`Link`]). No clock, no socket, no thread: the owner hands in what arrives, and the time.
//!
//! A call's way through this crate:
//!
//! | step | where |
//! | --- | --- |
//! | what is asked for, and whether it can be | `call.rs` |
//! | which schedule, cut into how many blocks | `algorithm.rs` |
//! | which channel takes which block | `group/assign.rs` |
//! | a block's steps, sends and reductions | `group/block.rs` |
//! | what arrived, whether it is what was expected | `group/arrive.rs` |
//! | message ↔ bytes | `head.rs` |
//! | messages on X-RDMA channels | `lanes.rs` |
//!
//! **A block is a collective of its own**: the same piece of every chunk of the schedule. Blocks know nothing of each
//! other, so that many are under way at a time and each is performed step by step, and one block can take another way
//! than the next: that is how two channels serve one collective (Astral, section 3.3).
//!
//! What it is not: it opens no connection and repeats nothing; loss and dead paths are the transport's matter. Why it is
//! so: `docs/design/collectives.md`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod algorithm;
mod call;
mod error;
mod group;
mod head;
mod lanes;
mod link;
pub mod pattern;
#[cfg(test)]
mod tests;

pub use algorithm::Algorithm;
pub use call::{Call, CallError, Collective, Op};
pub use error::Error;
pub use group::{Channel, Config, Event, Group, Share};
pub use head::{HEAD, Head, HeadError};
pub use lanes::{Heard, Lanes, MessageLink};
pub use link::Link;
pub use weft_plan::collective::DataType;
