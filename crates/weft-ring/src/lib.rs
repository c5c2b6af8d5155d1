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

pub use memory::{Mapped, Memory, Word};
