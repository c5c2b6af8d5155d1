//! Protocols without locks in memory that threads or processes share. Who maps the memory, what a message says and how a
//! sleeper is woken is the callers' matter.
//!
//! * [`records`]: a ring of records that are written and read in place, between neighbours of one host.
//! * [`messages`]: a ring of messages that are copied, between a process and its device's daemon.
//! * [`leases`]: a table of what one process lends another, and takes back.
//! * [`sequence`]: words that one writer replaces and readers copy, all or nothing.
//! * [`signal`]: a flag by which a sleeper asks to be woken.
//!
//! Each protocol is written over [`Memory`]. [`Mapped`] is what ships: machine words at an address. The tests supply memory
//! of loom's, so that the model checker tries the threads' interleavings and every value that the memory model lets a load
//! return, on the code that ships (`docs/design/proofs.md`).
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
