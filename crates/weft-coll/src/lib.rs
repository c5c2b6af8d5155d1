//! Execution of collectives: a [`Group`] performs `weft_plan`'s schedules for one rank, over any transport of
//! messages ([`Link`]). It has no clock, socket or thread: its owner passes in messages and the time.
//!
//! The path of a call through this crate:
//!
//! | step | where |
//! | --- | --- |
//! | call and its validation | `call.rs` |
//! | choice of the schedule and number of blocks | `algorithm.rs` |
//! | assignment of blocks to channels | `group/assign.rs` |
//! | a block's steps, sends and reductions | `group/block.rs` |
//! | arrival and validation of messages | `group/arrive.rs` |
//! | message ↔ bytes | `head.rs` |
//! | messages on X-RDMA channels | `lanes.rs` |
//!
//! **A block is a collective of its own**: the same piece of every chunk of the schedule. Blocks are
//! independent, so that many are in flight at a time, and each block may use a different channel: that is how
//! two channels serve one collective (Astral, section 3.3).
//!
//! The crate opens no connection and retransmits nothing; the transport handles loss and dead paths. The
//! reasons for this design are in `docs/design/collectives.md`.
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
pub use call::{Call, CallError, Op};
pub use error::Error;
pub use group::{Channel, Config, Event, Group, Share};
pub use head::{HEAD, Head, HeadError};
pub use lanes::{Heard, Lanes, MessageLink};
pub use link::{Link, LinkError};
pub use weft_plan::collective::{Collective, DataType, Layout};
