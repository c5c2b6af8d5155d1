//! Version 9, from NCCL 2.24 on: messages have a size of 64 bits, and devices may be merged.

use core::ffi::c_char;

use crate::{
    Accept_v7, Close, Connect_v7, DeregMr, Devices, GetDeviceMr, GetProperties_v9, Iflush, Init_v6,
    Irecv_v9, IrecvConsumed, Isend_v9, Listen_v6, MakeVDevice_v9, RegMr_v8, RegMrDmaBuf, Test,
};

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclNet_v9_t {
    pub name: *const c_char,
    pub init: Init_v6,
    pub devices: Devices,
    pub getProperties: GetProperties_v9,
    pub listen: Listen_v6,
    pub connect: Connect_v7,
    pub accept: Accept_v7,
    pub regMr: RegMr_v8,
    pub regMrDmaBuf: RegMrDmaBuf,
    pub deregMr: DeregMr,
    pub isend: Isend_v9,
    pub irecv: Irecv_v9,
    pub iflush: Iflush,
    pub test: Test,
    pub closeSend: Close,
    pub closeRecv: Close,
    pub closeListen: Close,
    pub getDeviceMr: GetDeviceMr,
    pub irecvConsumed: IrecvConsumed,
    pub makeVDevice: MakeVDevice_v9,
}
