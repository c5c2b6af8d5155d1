//! The tables of functions that programs call through an opened device.

use core::ffi::c_int;

use super::queries::{query_device_ex, query_port};
use crate::device::DEVICE;
use crate::objects;
use weft_verbs_abi::*;

/// Number of completion vectors.
const COMP_VECTORS: c_int = 1;

/// Returns the tables of a context whose asynchronous events come at this descriptor.
pub(super) fn tables(async_fd: c_int) -> verbs_context {
    // SAFETY: all-zero bytes are valid for nullable functions, pointers and numbers.
    let zero: verbs_context = unsafe { core::mem::zeroed() };
    let ops = ibv_context_ops {
        alloc_mw: Some(objects::alloc_mw),
        bind_mw: Some(objects::bind_mw),
        dealloc_mw: Some(objects::dealloc_mw),
        poll_cq: Some(objects::poll_cq),
        req_notify_cq: Some(objects::req_notify_cq),
        post_srq_recv: Some(objects::post_srq_recv),
        post_send: Some(objects::post_send),
        post_recv: Some(objects::post_recv),
        ..zero.context.ops
    };
    let context = ibv_context {
        device: (&raw const DEVICE.public).cast_mut(),
        ops,
        // Programs may duplicate it to share the device between processes, which Weft does not support.
        cmd_fd: async_fd,
        async_fd,
        num_comp_vectors: COMP_VECTORS,
        abi_compat: ABI_EXTENDED,
        ..zero.context
    };
    verbs_context {
        query_port: Some(query_port),
        query_device_ex: Some(query_device_ex),
        create_cq_ex: Some(objects::create_cq_ex),
        create_qp_ex: Some(objects::create_qp_ex),
        create_srq_ex: Some(objects::create_srq_ex),
        sz: size_of::<verbs_context>(),
        context,
        ..zero
    }
}
