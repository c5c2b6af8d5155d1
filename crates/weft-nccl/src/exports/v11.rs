//! Version 11: with a context for each communicator.

use core::ffi::{c_int, c_void};

use weft_nccl_abi::{
    ncclDebugLogger_t, ncclNet_v11_t, ncclNetCommConfig_v10_t, ncclNetProperties_v11_t,
    ncclNetVDeviceProps_v9_t, ncclProfilerCallback_t, ncclResult_t, result,
};

use super::{Exported, call, write_pointer};
use crate::plugin;

/// NCCL calls this once for each communicator. All use the same device, so the context is empty.
pub(super) unsafe extern "C" fn init(
    context: *mut *mut c_void,
    _communicator: u64,
    _config: *mut ncclNetCommConfig_v10_t,
    log: ncclDebugLogger_t,
    _profile: ncclProfilerCallback_t,
) -> ncclResult_t {
    // SAFETY: NCCL passes room for the context, and its logger.
    unsafe {
        write_pointer(context, None);
        super::init(log)
    }
}

pub(super) unsafe extern "C" fn listen(
    _context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { super::listen(device, handle, comm) }
}

pub(super) unsafe extern "C" fn connect(
    _context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    _offload: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { super::connect(device, handle, comm) }
}

/// The device is the process's and stays open: another communicator may follow.
pub(super) unsafe extern "C" fn finalize(_context: *mut c_void) -> ncclResult_t {
    result::SUCCESS
}

unsafe extern "C" fn properties(device: c_int, to: *mut ncclNetProperties_v11_t) -> ncclResult_t {
    call(|| {
        let of = plugin::properties(device)?;
        // SAFETY: NCCL passes room for the result.
        unsafe {
            to.write(ncclNetProperties_v11_t {
                name: of.name,
                pciPath: of.pciPath,
                guid: of.guid,
                ptrSupport: of.ptrSupport,
                regIsGlobal: of.regIsGlobal,
                forceFlush: of.forceFlush,
                speed: of.speed,
                port: of.port,
                latency: of.latency,
                maxComms: of.maxComms,
                maxRecvs: of.maxRecvs,
                netDeviceType: of.netDeviceType,
                netDeviceVersion: of.netDeviceVersion,
                vProps: ncclNetVDeviceProps_v9_t { ndevs: 1, devs: [device, 0, 0, 0] },
                maxP2pBytes: of.maxP2pBytes,
                maxCollBytes: of.maxCollBytes,
                maxMultiRequestSize: of.maxMultiRequestSize,
            });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
static ncclNetPlugin_v11: Exported<ncclNet_v11_t> = Exported(ncclNet_v11_t {
    name: super::NAME,
    init: Some(init),
    devices: Some(super::devices),
    getProperties: Some(properties),
    listen: Some(listen),
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
    finalize: Some(finalize),
    setNetAttr: None,
});
