//! The structures of `infiniband/verbs.h` in the layout that compiled programs expect, with their C names (rdma-core
//! 44). Parts that programs never access on Weft's device are opaque.
//!
//! `tests/layout.rs` compares the size and offset of every field with the C compiler's.
//!
//! ```
//! use weft_verbs_abi::{ibv_gid, ibv_recv_wr, ibv_sge};
//!
//! let mut buffer = [0_u8; 4096];
//! let mut part = ibv_sge { addr: buffer.as_mut_ptr() as u64, length: 4096, lkey: 7 };
//! let request = ibv_recv_wr { wr_id: 1, next: core::ptr::null_mut(), sg_list: &raw mut part, num_sge: 1 };
//! assert_eq!((size_of_val(&request), core::mem::offset_of!(ibv_recv_wr, sg_list)), (32, 16));
//! // An IPv4 address is a GID that is mapped into IPv6.
//! let gid = ibv_gid { raw: core::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets(), align: [] };
//! assert_eq!(&gid.raw[10..], [0xff, 0xff, 10, 0, 0, 1]);
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, reason = "the names are those of verbs.h and its manual pages")]
#![allow(missing_debug_implementations, reason = "C pointers and locks have no useful output")]

mod attributes;
mod context;
mod device;
mod objects;
mod source_port;
mod work;

pub use attributes::*;
pub use context::*;
pub use device::*;
pub use objects::*;
pub use source_port::*;
pub use work::*;

/// A 64-bit value in network byte order.
pub type be64 = u64;
/// A 32-bit value in network byte order.
pub type be32 = u32;
