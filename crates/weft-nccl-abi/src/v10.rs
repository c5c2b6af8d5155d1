//! Version 10, from NCCL 2.26 on: it added the profiler and a communicator's settings.

use core::ffi::c_char;

use crate::{
    Accept_v7, Close, Connect_v10, DeregMr, Devices, GetDeviceMr, GetProperties_v9, Iflush,
    Init_v10, Irecv_v10, IrecvConsumed, Isend_v10, Listen_v6, MakeVDevice_v9, RegMr_v8,
    RegMrDmaBuf, Test,
};

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclNet_v10_t {
    pub name: *const c_char,
    pub init: Init_v10,
    pub devices: Devices,
    pub getProperties: GetProperties_v9,
    pub listen: Listen_v6,
    pub connect: Connect_v10,
    pub accept: Accept_v7,
    pub regMr: RegMr_v8,
    pub regMrDmaBuf: RegMrDmaBuf,
    pub deregMr: DeregMr,
    pub isend: Isend_v10,
    pub irecv: Irecv_v10,
    pub iflush: Iflush,
    pub test: Test,
    pub closeSend: Close,
    pub closeRecv: Close,
    pub closeListen: Close,
    pub getDeviceMr: GetDeviceMr,
    pub irecvConsumed: IrecvConsumed,
    pub makeVDevice: MakeVDevice_v9,
}
