//! The structures of `infiniband/verbs.h` in the layout that compiled programs expect, with their C names (rdma-core
//! 44). Parts that programs never access on Weft's device are opaque.
//!
//! `tests/layout.rs` compares the size and offset of every field with the C compiler's.
#![no_std]
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, reason = "the names are those of verbs.h and its manual pages")]
#![allow(missing_debug_implementations, reason = "C pointers and locks have no useful output")]

mod attributes;
mod context;
mod device;
mod objects;
mod work;

pub use attributes::*;
pub use context::*;
pub use device::*;
pub use objects::*;
pub use work::*;

/// A 64-bit value in network byte order.
pub type be64 = u64;
/// A 32-bit value in network byte order.
pub type be32 = u32;
