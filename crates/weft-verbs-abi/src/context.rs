//! An opened device, and the tables of functions that inline code of verbs.h calls through it.

use core::ffi::{c_int, c_uint, c_void};

use libc::pthread_mutex_t;

use super::{
    ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device, ibv_device_attr_ex, ibv_mw, ibv_mw_bind,
    ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_init_attr_ex, ibv_query_device_ex_input, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr_ex, ibv_wc,
};

/// A function that inline code of verbs.h never calls, or that Weft's device lacks: programs get `EOPNOTSUPP`.
pub type Unsupported = *const c_void;

/// The functions that inline code of verbs.h calls. The others exist for programs from before 2006.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "each is the function of that name with `ibv_` before it")]
pub struct ibv_context_ops {
    pub _compat_before_alloc_mw: [Unsupported; 7],
    pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw>,
    pub bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub _compat_create_cq: Unsupported,
    pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub _compat_before_post_srq_recv: [Unsupported; 7],
    pub post_srq_recv: Option<
        unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    >,
    pub _compat_before_post_send: [Unsupported; 4],
    pub post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub _compat_after_post_recv: [Unsupported; 5],
}

/// An opened device.
#[repr(C)]
#[allow(missing_docs, reason = "ibv_open_device(3)")]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    /// [`ABI_EXTENDED`] if a [`verbs_context`] surrounds this structure.
    pub abi_compat: *mut c_void,
}

/// The value of [`ibv_context::abi_compat`] that marks an extended context.
pub const ABI_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// An opened device with the later additions to verbs. It grows at its start, so that the end, to which programs hold a
/// pointer, stays in place.
#[repr(C)]
#[allow(missing_docs, reason = "each is the function of that name with `ibv_` before it")]
pub struct verbs_context {
    pub query_port:
        Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    pub advise_mr:
        Option<unsafe extern "C" fn(*mut ibv_pd, c_uint, u32, *mut ibv_sge, u32) -> c_int>,
    pub _after_advise_mr: [Unsupported; 23],
    pub create_cq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub priv_: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> c_int,
    >,
    pub _after_query_device_ex: [Unsupported; 5],
    pub create_qp_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
    pub create_srq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    pub _after_create_srq_ex: [Unsupported; 2],
    pub _abi_placeholder3: u64,
    /// Size of this structure in bytes, by which programs detect the available functions.
    pub sz: usize,
    pub context: ibv_context,
}
