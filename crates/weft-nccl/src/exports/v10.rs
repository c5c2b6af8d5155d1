//! Version 10: with arguments for the profiler, and a communicator's settings in `connect`.

use core::ffi::{c_int, c_void};

use weft_nccl_abi::{
    ncclDebugLogger_t, ncclNet_v10_t, ncclNetCommConfig_v10_t, ncclProfilerCallback_t, ncclResult_t,
};

use super::Exported;

unsafe extern "C" fn init(
    log: ncclDebugLogger_t,
    _profile: ncclProfilerCallback_t,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { super::init(log) }
}

unsafe extern "C" fn connect(
    device: c_int,
    _config: *mut ncclNetCommConfig_v10_t,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    _offload: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { super::connect(device, handle, comm) }
}

#[unsafe(no_mangle)]
static ncclNetPlugin_v10: Exported<ncclNet_v10_t> = Exported(ncclNet_v10_t {
    name: super::NAME,
    init: Some(init),
    devices: Some(super::devices),
    getProperties: Some(super::v9::properties),
    listen: Some(super::listen),
    connect: Some(connect),
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
});
