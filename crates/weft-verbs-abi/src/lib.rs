//! The structures of `infiniband/verbs.h` as programs were compiled against them, field by field, under
//! their C names (rdma-core 44). What programs never touch on our device is left opaque.
//!
//! `tests/layout.rs` has the C compiler say size and offset of every field and compares.
#![no_std]
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, reason = "the names of verbs.h, so that its manual pages apply")]
#![allow(missing_debug_implementations, reason = "pointers and locks of C say nothing")]

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

/// 64 bits in network byte order.
pub type be64 = u64;
/// 32 bits in network byte order.
pub type be32 = u32;
