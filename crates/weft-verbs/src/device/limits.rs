//! The limits that the device enforces. libfabric finds a limit by requesting more and more objects until it is
//! refused.

#![allow(missing_docs, reason = "each is the field of ibv_device_attr of its name")]

pub const QP: i32 = 4_096;
pub const QP_WR: i32 = 16_384;
pub const SGE: i32 = 32;
pub const CQ: i32 = 8_192;
pub const CQE: i32 = 1 << 22;
pub const MR: i32 = 1 << 20;
pub const PD: i32 = 4_096;
pub const RD_ATOM: i32 = 16;
pub const MW: i32 = 1 << 16;
pub const AH: i32 = 1 << 16;
pub const SRQ: i32 = 4_096;
pub const SRQ_WR: i32 = 16_384;
/// Maximum size of inline data in a work request, bytes.
pub const INLINE: u32 = 1_024;
/// Maximum size of a message, bytes (IBTA, section 9.4.6.5).
pub const MESSAGE: u32 = 1 << 31;
