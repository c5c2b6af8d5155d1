//! Work requests and work completions.

use core::ffi::{c_int, c_uint, c_void};

use super::{be32, ibv_ah, ibv_mr, ibv_mw};

/// A scatter/gather element: a range of local memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// The operation codes of [`ibv_send_wr`].
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub mod wr_opcode {
    pub const RDMA_WRITE: u32 = 0;
    pub const RDMA_WRITE_WITH_IMM: u32 = 1;
    pub const SEND: u32 = 2;
    pub const SEND_WITH_IMM: u32 = 3;
    pub const RDMA_READ: u32 = 4;
    pub const ATOMIC_CMP_AND_SWP: u32 = 5;
    pub const ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub const LOCAL_INV: u32 = 7;
    pub const BIND_MW: u32 = 8;
    pub const SEND_WITH_INV: u32 = 9;
}

/// The flags of [`ibv_send_wr`].
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub mod send_flag {
    pub const FENCE: u32 = 1 << 0;
    pub const SIGNALED: u32 = 1 << 1;
    pub const SOLICITED: u32 = 1 << 2;
    pub const INLINE: u32 = 1 << 3;
    pub const IP_CSUM: u32 = 1 << 4;
}

/// The remote memory of a WRITE or READ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub struct rdma_target {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// The remote memory and the operands of an atomic operation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub struct atomic_target {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// The destination of a datagram.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub struct ud_target {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// The part of a work request that depends on its opcode.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub union wr_target {
    pub rdma: rdma_target,
    pub atomic: atomic_target,
    pub ud: ud_target,
}

/// The memory and access rights that a memory window is bound to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_bind_mw(3)")]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}

/// The operands of a work request that binds a memory window.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub struct bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

/// A work request of a send queue.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "ibv_post_send(3)")]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: c_uint,
    /// The immediate data, or the key to invalidate, which is in host byte order.
    pub imm_data: be32,
    pub wr: wr_target,
    pub qp_type: u32,
    pub bind_mw: bind_mw,
}

/// A work request of a receive queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_post_recv(3)")]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

/// The operands of `ibv_bind_mw`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_bind_mw(3)")]
pub struct ibv_mw_bind {
    pub wr_id: u64,
    pub send_flags: c_uint,
    pub bind_info: ibv_mw_bind_info,
}

/// A range of memory that is copied into a work request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_wr_post(3)")]
pub struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: usize,
}

/// The statuses of work completions.
#[allow(missing_docs, reason = "ibv_poll_cq(3)")]
pub mod wc_status {
    pub const SUCCESS: u32 = 0;
    pub const LOC_LEN_ERR: u32 = 1;
    pub const LOC_QP_OP_ERR: u32 = 2;
    pub const LOC_EEC_OP_ERR: u32 = 3;
    pub const LOC_PROT_ERR: u32 = 4;
    pub const WR_FLUSH_ERR: u32 = 5;
    pub const MW_BIND_ERR: u32 = 6;
    pub const BAD_RESP_ERR: u32 = 7;
    pub const LOC_ACCESS_ERR: u32 = 8;
    pub const REM_INV_REQ_ERR: u32 = 9;
    pub const REM_ACCESS_ERR: u32 = 10;
    pub const REM_OP_ERR: u32 = 11;
    pub const RETRY_EXC_ERR: u32 = 12;
    pub const RNR_RETRY_EXC_ERR: u32 = 13;
    pub const REM_ABORT_ERR: u32 = 16;
    pub const FATAL_ERR: u32 = 19;
    pub const RESP_TIMEOUT_ERR: u32 = 20;
    pub const GENERAL_ERR: u32 = 21;
}

/// The operation codes of work completions.
#[allow(missing_docs, reason = "ibv_poll_cq(3)")]
pub mod wc_opcode {
    pub const SEND: u32 = 0;
    pub const RDMA_WRITE: u32 = 1;
    pub const RDMA_READ: u32 = 2;
    pub const COMP_SWAP: u32 = 3;
    pub const FETCH_ADD: u32 = 4;
    pub const BIND_MW: u32 = 5;
    pub const LOCAL_INV: u32 = 6;
    pub const RECV: u32 = 1 << 7;
    pub const RECV_RDMA_WITH_IMM: u32 = (1 << 7) + 1;
}

/// The flags of work completions.
#[allow(missing_docs, reason = "ibv_poll_cq(3)")]
pub mod wc_flag {
    pub const GRH: u32 = 1 << 0;
    pub const WITH_IMM: u32 = 1 << 1;
    pub const WITH_INV: u32 = 1 << 3;
}

/// A work completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "ibv_poll_cq(3)")]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// The immediate data, or the key that the peer invalidated, which is in host byte order.
    pub imm_data: be32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// The input of `ibv_start_poll`, without options yet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_poll_cq_attr {
    /// The mask of options, which must be zero.
    pub comp_mask: u32,
}
