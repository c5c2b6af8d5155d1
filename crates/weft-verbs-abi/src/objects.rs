//! The objects to which programs hold pointers.

use core::ffi::{c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::{be32, ibv_context, ibv_data_buf, ibv_mw_bind_info, ibv_poll_cq_attr, ibv_sge};

/// A protection domain.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "ibv_alloc_pd(3)")]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

/// A memory region.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "ibv_reg_mr(3)")]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// A memory window.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "ibv_alloc_mw(3)")]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub type_: u32,
}

/// An address handle.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "ibv_create_ah(3)")]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

/// A completion channel: the file descriptor that signals completion events.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "ibv_create_comp_channel(3)")]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// A completion queue.
#[repr(C)]
#[allow(missing_docs, reason = "ibv_create_cq(3)")]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

/// A completion queue whose entries are read field by field. It starts with an [`ibv_cq`], so its pointer converts to
/// one.
#[repr(C)]
#[allow(missing_docs, reason = "ibv_create_cq_ex(3)")]
pub struct ibv_cq_ex {
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: u32,
    pub wr_id: u64,
    pub start_poll: Option<unsafe extern "C" fn(*mut Self, *mut ibv_poll_cq_attr) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(*mut Self) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(*mut Self)>,
    pub read_opcode: Option<unsafe extern "C" fn(*mut Self) -> u32>,
    pub read_vendor_err: Option<unsafe extern "C" fn(*mut Self) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(*mut Self) -> u32>,
    pub read_imm_data: Option<unsafe extern "C" fn(*mut Self) -> be32>,
    pub read_qp_num: Option<unsafe extern "C" fn(*mut Self) -> u32>,
    pub read_src_qp: Option<unsafe extern "C" fn(*mut Self) -> u32>,
    pub read_wc_flags: Option<unsafe extern "C" fn(*mut Self) -> c_uint>,
    pub read_slid: Option<unsafe extern "C" fn(*mut Self) -> u32>,
    pub read_sl: Option<unsafe extern "C" fn(*mut Self) -> u8>,
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(*mut Self) -> u8>,
    pub read_completion_ts: Option<unsafe extern "C" fn(*mut Self) -> u64>,
    pub read_cvlan: Option<unsafe extern "C" fn(*mut Self) -> u16>,
    pub read_flow_tag: Option<unsafe extern "C" fn(*mut Self) -> u32>,
    pub read_tm_info: Option<unsafe extern "C" fn(*mut Self, *mut c_void)>,
    pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut Self) -> u64>,
}

/// A shared receive queue.
#[repr(C)]
#[allow(missing_docs, reason = "ibv_create_srq(3)")]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

/// A queue pair.
#[repr(C)]
#[allow(missing_docs, reason = "ibv_create_qp(3)")]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: u32,
    pub qp_type: u32,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

/// A queue pair whose requests are built field by field. It starts with an [`ibv_qp`], so its pointer converts to one.
#[repr(C)]
#[allow(missing_docs, reason = "ibv_wr_post(3)")]
pub struct ibv_qp_ex {
    pub qp_base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut Self, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut Self, u32, u64, u64)>,
    pub wr_bind_mw:
        Option<unsafe extern "C" fn(*mut Self, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
    pub wr_local_inv: Option<unsafe extern "C" fn(*mut Self, u32)>,
    pub wr_rdma_read: Option<unsafe extern "C" fn(*mut Self, u32, u64)>,
    pub wr_rdma_write: Option<unsafe extern "C" fn(*mut Self, u32, u64)>,
    pub wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut Self, u32, u64, be32)>,
    pub wr_send: Option<unsafe extern "C" fn(*mut Self)>,
    pub wr_send_imm: Option<unsafe extern "C" fn(*mut Self, be32)>,
    pub wr_send_inv: Option<unsafe extern "C" fn(*mut Self, u32)>,
    pub wr_send_tso: Option<unsafe extern "C" fn(*mut Self, *mut c_void, u16, u16)>,
    pub wr_set_ud_addr: Option<unsafe extern "C" fn(*mut Self, *mut ibv_ah, u32, u32)>,
    pub wr_set_xrc_srqn: Option<unsafe extern "C" fn(*mut Self, u32)>,
    pub wr_set_inline_data: Option<unsafe extern "C" fn(*mut Self, *mut c_void, usize)>,
    pub wr_set_inline_data_list:
        Option<unsafe extern "C" fn(*mut Self, usize, *const ibv_data_buf)>,
    pub wr_set_sge: Option<unsafe extern "C" fn(*mut Self, u32, u64, u32)>,
    pub wr_set_sge_list: Option<unsafe extern "C" fn(*mut Self, usize, *const ibv_sge)>,
    pub wr_start: Option<unsafe extern "C" fn(*mut Self)>,
    pub wr_complete: Option<unsafe extern "C" fn(*mut Self) -> c_int>,
    pub wr_abort: Option<unsafe extern "C" fn(*mut Self)>,
    pub wr_atomic_write: Option<unsafe extern "C" fn(*mut Self, u32, u64, *const c_void)>,
}

/// The object of an asynchronous event.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "ibv_get_async_event(3)")]
pub union event_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub srq: *mut ibv_srq,
    pub port_num: c_int,
}

/// An asynchronous event: any event but a completion.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "ibv_get_async_event(3)")]
pub struct ibv_async_event {
    pub element: event_element,
    pub event_type: u32,
}

/// The kinds of asynchronous events.
#[allow(missing_docs, reason = "ibv_get_async_event(3)")]
pub mod event_type {
    pub const CQ_ERR: u32 = 0;
    pub const QP_FATAL: u32 = 1;
    pub const QP_REQ_ERR: u32 = 2;
    pub const QP_ACCESS_ERR: u32 = 3;
    pub const COMM_EST: u32 = 4;
    pub const SQ_DRAINED: u32 = 5;
    pub const DEVICE_FATAL: u32 = 8;
    pub const PORT_ACTIVE: u32 = 9;
    pub const PORT_ERR: u32 = 10;
    pub const SRQ_ERR: u32 = 14;
    pub const SRQ_LIMIT_REACHED: u32 = 15;
    pub const QP_LAST_WQE_REACHED: u32 = 16;
}
