//! Lock-free protocols in memory that threads or processes share. Callers map the memory, define the messages and wake
//! sleepers.
//!
//! * [`records`]: a ring of records that are written and read in place, between two processes of one host.
//! * [`messages`]: a ring of messages that are copied, between a process and its device's daemon.
//! * [`leases`]: a table of memory that one process lends another and revokes.
//! * [`sequence`]: a sequence lock: one writer replaces words, and readers copy all of them or none.
//! * [`signal`]: a flag by which a sleeper requests a wake-up.
//!
//! Each protocol is generic over [`Memory`]. Programs use [`Mapped`]: machine words at an address. Tests use loom's
//! memory, so that the model checker explores the threads' interleavings and every value that the memory model lets a
//! load return, on the same code (`docs/design/proofs.md`).
//!
//! ```
//! use core::ptr::NonNull;
//! use weft_ring::Mapped;
//! use weft_ring::messages::{Consumer, Lane, Producer};
//!
//! // In production two processes map the memory.
//! let mut words = [0_u64; 256];
//! let start = NonNull::from(&mut words).cast();
//! // SAFETY: the words are aligned and outlive the last use of `memory`.
//! let memory = unsafe { Mapped::new(start, size_of_val(&words)) };
//! let lane = Lane { head: 0, tail: 64, start: 128, len: 1024 };
//!
//! let (mut producer, mut consumer) = (Producer::new(lane), Consumer::new(lane));
//! assert!(producer.push(&memory, b"post")?);
//! let mut message = Vec::new();
//! assert!(consumer.pop(&memory, &mut message)?);
//! assert_eq!(message, b"post");
//! assert!(!consumer.has_any(&memory));
//! # Ok::<(), weft_ring::messages::Corrupt>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

pub mod leases;
mod memory;
pub mod messages;
pub mod records;
pub mod sequence;
pub mod signal;

#[cfg(test)]
mod models;
#[cfg(test)]
mod rewritten;

pub use memory::{Mapped, Memory, Word};
