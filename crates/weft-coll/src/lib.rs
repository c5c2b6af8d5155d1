//! Execution of collectives: a [`Group`] performs `weft_plan`'s schedules for one rank, over any transport of
//! messages ([`Link`]). It has no clock, socket or thread: its owner passes in messages and the time.
//!
//! The path of a call through this crate:
//!
//! | step | where |
//! | --- | --- |
//! | call | `call.rs` |
//! | validation of calls | `check.rs` |
//! | choice of the schedule and number of blocks | `algorithm.rs` |
//! | assignment of blocks to channels | `group/assign.rs` |
//! | a block's steps, sends and reductions | `group/block.rs` |
//! | arrival and validation of messages | `group/arrive.rs` |
//! | ranks that wait, and the one that they wait for | `group/stall.rs` |
//! | message ↔ bytes | `header.rs` |
//! | messages on X-RDMA channels | `lanes.rs` |
//!
//! **A block is a collective of its own**: the same piece of every chunk of the schedule. Blocks are
//! independent, so that many are in flight at a time, and each block may use a different channel: that is how
//! two channels serve one collective (Astral, section 3.3).
//!
//! The crate opens no connection and retransmits nothing; the transport handles loss and dead paths. The
//! reasons for this design are in `docs/design/collectives.md`.
//!
//! An all-reduce of two ranks, over queues in memory:
//!
//! ```
//! # use std::collections::VecDeque;
//! # use weft_coll::Link;
//! use weft_coll::{Call, Channel, Collective, Config, DataType, Group, Op};
//! use weft_units::Instant;
//! # /// The messages that a rank has sent to the other.
//! # #[derive(Default)]
//! # struct Queue(VecDeque<Vec<u8>>);
//! # impl Link for Queue {
//! #     type Message = Vec<u8>;
//! #     fn send(&mut self, _: usize, _: Channel, _: u64, header: &[u8], body: &[u8]) -> Result<bool, weft_coll::LinkError> {
//! #         self.0.push_back([header, body].concat());
//! #         Ok(true)
//! #     }
//! #     fn bytes<'a>(&'a self, message: &'a Vec<u8>) -> &'a [u8] {
//! #         message
//! #     }
//! #     fn release(&mut self, _: Vec<u8>) {}
//! # }
//!
//! // `Queue` is a `Link` whose `send` appends the message's header and body to a `VecDeque`.
//! let config = Config::of(2, Some(Channel::Network));
//! let mut ranks = [0, 1].map(|rank| (Group::new(rank, config.clone()), Queue::default()));
//! let (collective, data_type) = (Collective::AllReduce, DataType::U8);
//! let call = Call { collective, data_type, op: Op::Sum, root: 0, elements: 4 };
//! ranks[0].0.submit(call, vec![1; 4])?;
//! ranks[1].0.submit(call, vec![11; 4])?;
//! while !ranks.iter().all(|(group, link)| group.is_idle() && link.0.is_empty()) {
//!     for rank in [0, 1] {
//!         while let Some(message) = ranks[1 - rank].1.0.pop_front() {
//!             let (group, link) = &mut ranks[rank];
//!             group.handle_message(1 - rank, message, link);
//!         }
//!         let (group, link) = &mut ranks[rank];
//!         group.advance(Instant::EPOCH, link);
//!     }
//! }
//! for (group, _) in &mut ranks {
//!     let event = group.poll_event().expect("the call has completed");
//!     assert_eq!((event.result, event.buffer), (Ok(()), vec![12; 4]));
//! }
//! # Ok::<(), weft_coll::CallError>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod algorithm;
mod call;
mod check;
mod error;
mod group;
mod header;
mod lanes;
mod link;
pub mod pattern;
#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, AlgorithmError};
pub use call::{Call, Op};
pub use error::{CallError, Error};
pub use group::{Channel, Config, Event, Group, Share};
pub use header::{HEADER_LEN, Header, HeaderError};
pub use lanes::{GroupEvent, Lanes, MessageLink};
pub use link::{Link, LinkError};
pub use weft_plan::collective::{Collective, DataType, Layout};
