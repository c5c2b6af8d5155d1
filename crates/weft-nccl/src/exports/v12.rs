//! Version 12: the form in which [`plugin`] works.

use core::ffi::c_int;

use weft_nccl_abi::{ncclNet_v12_t, ncclNetProperties_v12_t, ncclResult_t};

use super::{Exported, call, v11, write};
use crate::plugin;

unsafe extern "C" fn properties(device: c_int, to: *mut ncclNetProperties_v12_t) -> ncclResult_t {
    // SAFETY: NCCL passes room for the result.
    call(|| plugin::properties(device).map(|of| unsafe { write(to, of) }))
}

#[unsafe(no_mangle)]
static ncclNetPlugin_v12: Exported<ncclNet_v12_t> = Exported(ncclNet_v12_t {
    name: super::NAME,
    init: Some(v11::init),
    devices: Some(super::devices),
    getProperties: Some(properties),
    listen: Some(v11::listen),
    connect: Some(v11::connect),
    accept: Some(super::accept_offload),
    regMr: Some(super::register),
    regMrDmaBuf: None,
    deregMr: Some(super::deregister),
    isend: Some(super::send_profiled),
    irecv: Some(super::receive_profiled),
    iflush: Some(super::flush),
    test: Some(super::test),
    closeSend: Some(super::close),
    closeRecv: Some(super::close),
    closeListen: Some(super::close_listener),
    getDeviceMr: None,
    irecvConsumed: None,
    makeVDevice: None,
    finalize: Some(v11::finalize),
    setNetAttr: None,
});
