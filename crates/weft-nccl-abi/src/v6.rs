//! Version 6, the oldest that NCCL 2.18 to 2.32 load: sizes of messages and of registrations are C ints.

use core::ffi::c_char;

use crate::{
    Accept_v6, Close, Connect_v6, DeregMr, Devices, GetProperties_v6, Iflush, Init_v6, Irecv_v6,
    Isend_v6, Listen_v6, RegMr_v6, RegMrDmaBuf, Test,
};

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclNet_v6_t {
    pub name: *const c_char,
    pub init: Init_v6,
    pub devices: Devices,
    pub getProperties: GetProperties_v6,
    pub listen: Listen_v6,
    pub connect: Connect_v6,
    pub accept: Accept_v6,
    pub regMr: RegMr_v6,
    pub regMrDmaBuf: RegMrDmaBuf,
    pub deregMr: DeregMr,
    pub isend: Isend_v6,
    pub irecv: Irecv_v6,
    pub iflush: Iflush,
    pub test: Test,
    pub closeSend: Close,
    pub closeRecv: Close,
    pub closeListen: Close,
}
