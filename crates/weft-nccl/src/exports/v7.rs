//! Version 7: sizes are C ints.

use core::ffi::c_int;

use weft_nccl_abi::{ncclNet_v7_t, ncclNetProperties_v7_t, ncclResult_t};

use super::{Exported, call};
use crate::plugin;

unsafe extern "C" fn properties(device: c_int, to: *mut ncclNetProperties_v7_t) -> ncclResult_t {
    call(|| {
        let of = plugin::properties(device)?;
        // SAFETY: NCCL passes room for the result.
        unsafe {
            to.write(ncclNetProperties_v7_t {
                name: of.name,
                pciPath: of.pciPath,
                guid: of.guid,
                ptrSupport: of.ptrSupport,
                speed: of.speed,
                port: of.port,
                latency: of.latency,
                maxComms: of.maxComms,
                maxRecvs: of.maxRecvs,
                netDeviceType: of.netDeviceType,
                netDeviceVersion: of.netDeviceVersion,
            });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
static ncclNetPlugin_v7: Exported<ncclNet_v7_t> = Exported(ncclNet_v7_t {
    name: super::NAME,
    init: Some(super::init),
    devices: Some(super::devices),
    getProperties: Some(properties),
    listen: Some(super::listen),
    connect: Some(super::connect_offload),
    accept: Some(super::accept_offload),
    regMr: Some(super::register_int),
    regMrDmaBuf: None,
    deregMr: Some(super::deregister),
    isend: Some(super::send_int),
    irecv: Some(super::receive_int),
    iflush: Some(super::flush),
    test: Some(super::test),
    closeSend: Some(super::close),
    closeRecv: Some(super::close),
    closeListen: Some(super::close_listener),
    getDeviceMr: None,
    irecvConsumed: None,
});
