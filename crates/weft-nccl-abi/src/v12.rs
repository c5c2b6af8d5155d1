//! Version 12, from NCCL 2.30 on: devices have a rail and a plane, and eight may be merged.

use core::ffi::c_char;

use crate::{
    Accept_v7, Close, Connect_v11, DeregMr, Devices, Finalize, GetDeviceMr, GetProperties_v12,
    Iflush, Init_v11, Irecv_v10, IrecvConsumed, Isend_v10, Listen_v11, MakeVDevice_v12, RegMr_v8,
    RegMrDmaBuf, SetNetAttr, Test,
};

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclNet_v12_t {
    pub name: *const c_char,
    pub init: Init_v11,
    pub devices: Devices,
    pub getProperties: GetProperties_v12,
    pub listen: Listen_v11,
    pub connect: Connect_v11,
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
    pub makeVDevice: MakeVDevice_v12,
    pub finalize: Finalize,
    pub setNetAttr: SetNetAttr,
}
