//! Version 8, from NCCL 2.20 on: registrations have a size of 64 bits and may be valid for all comms.

use core::ffi::c_char;

use crate::{
    Accept_v7, Close, Connect_v7, DeregMr, Devices, GetDeviceMr, GetProperties_v8, Iflush, Init_v6,
    Irecv_v6, IrecvConsumed, Isend_v6, Listen_v6, RegMr_v8, RegMrDmaBuf, Test,
};

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclNet_v8_t {
    pub name: *const c_char,
    pub init: Init_v6,
    pub devices: Devices,
    pub getProperties: GetProperties_v8,
    pub listen: Listen_v6,
    pub connect: Connect_v7,
    pub accept: Accept_v7,
    pub regMr: RegMr_v8,
    pub regMrDmaBuf: RegMrDmaBuf,
    pub deregMr: DeregMr,
    pub isend: Isend_v6,
    pub irecv: Irecv_v6,
    pub iflush: Iflush,
    pub test: Test,
    pub closeSend: Close,
    pub closeRecv: Close,
    pub closeListen: Close,
    pub getDeviceMr: GetDeviceMr,
    pub irecvConsumed: IrecvConsumed,
}
