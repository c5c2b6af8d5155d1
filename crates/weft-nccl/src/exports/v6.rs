//! Version 6: sizes are C ints, and there is no network offload.

use core::ffi::c_int;

use weft_nccl_abi::{ncclNet_v6_t, ncclNetProperties_v6_t, ncclResult_t};

use super::{Exported, call};
use crate::plugin;

unsafe extern "C" fn properties(device: c_int, to: *mut ncclNetProperties_v6_t) -> ncclResult_t {
    call(|| {
        let of = plugin::properties(device)?;
        // SAFETY: NCCL passes room for the result.
        unsafe {
            to.write(ncclNetProperties_v6_t {
                name: of.name,
                pciPath: of.pciPath,
                guid: of.guid,
                ptrSupport: of.ptrSupport,
                speed: of.speed,
                port: of.port,
                latency: of.latency,
                maxComms: of.maxComms,
                maxRecvs: of.maxRecvs,
            });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
static ncclNetPlugin_v6: Exported<ncclNet_v6_t> = Exported(ncclNet_v6_t {
    name: super::NAME,
    init: Some(super::init),
    devices: Some(super::devices),
    getProperties: Some(properties),
    listen: Some(super::listen),
    connect: Some(super::connect),
    accept: Some(super::accept),
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
});
