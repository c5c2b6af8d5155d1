//! The signatures of the calls, each under the name of its field and the first version that has it in this form.

use core::ffi::{c_int, c_void};

use crate::{ncclDebugLogger_t, ncclNetVDeviceProps_v9_t, ncclResult_t};

/// The profiler's callback, with the event's handle, type, parent, plugin and data.
pub type ncclProfilerCallback_t = Option<
    unsafe extern "C" fn(*mut *mut c_void, c_int, *mut c_void, i64, *mut c_void) -> ncclResult_t,
>;

/// The settings of a communicator.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclNetCommConfig_v10_t {
    pub trafficClass: c_int,
}

/// The peers and flows of a comm.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclNetCommAttr_v11_t {
    pub maxConcurrentPeers: i32,
    pub minConcurrentPeers: i32,
    pub maxFlowsPerPeer: i32,
    pub minFlowsPerPeer: i32,
}

/// The operation that a communicator executes next.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclNetAttr_v11_t {
    pub sendCommAttr: ncclNetCommAttr_v11_t,
    pub recvCommAttr: ncclNetCommAttr_v11_t,
    pub op: u32,
    pub algo: u32,
    pub proto: u32,
}

/// The device's part of a connection with network offload, which host-only plugins never fill in.
pub type DeviceHandle = c_void;

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*);)+) => {
        $(pub type $name = Option<unsafe extern "C" fn($($argument: $type),*) -> ncclResult_t>;)+
    };
}

calls! {
    Init_v6(log: ncclDebugLogger_t);
    Init_v10(log: ncclDebugLogger_t, profile: ncclProfilerCallback_t);
    Init_v11(context: *mut *mut c_void, communicator: u64, config: *mut ncclNetCommConfig_v10_t, log: ncclDebugLogger_t, profile: ncclProfilerCallback_t);
    Devices(count: *mut c_int);
    Listen_v6(device: c_int, handle: *mut c_void, comm: *mut *mut c_void);
    Listen_v11(context: *mut c_void, device: c_int, handle: *mut c_void, comm: *mut *mut c_void);
    Connect_v6(device: c_int, handle: *mut c_void, comm: *mut *mut c_void);
    Connect_v7(device: c_int, handle: *mut c_void, comm: *mut *mut c_void, offload: *mut *mut DeviceHandle);
    Connect_v10(device: c_int, config: *mut ncclNetCommConfig_v10_t, handle: *mut c_void, comm: *mut *mut c_void, offload: *mut *mut DeviceHandle);
    Connect_v11(context: *mut c_void, device: c_int, handle: *mut c_void, comm: *mut *mut c_void, offload: *mut *mut DeviceHandle);
    Accept_v6(listener: *mut c_void, comm: *mut *mut c_void);
    Accept_v7(listener: *mut c_void, comm: *mut *mut c_void, offload: *mut *mut DeviceHandle);
    RegMr_v6(comm: *mut c_void, data: *mut c_void, size: c_int, kind: c_int, memory: *mut *mut c_void);
    RegMr_v8(comm: *mut c_void, data: *mut c_void, size: usize, kind: c_int, memory: *mut *mut c_void);
    RegMrDmaBuf(comm: *mut c_void, data: *mut c_void, size: usize, kind: c_int, offset: u64, fd: c_int, memory: *mut *mut c_void);
    DeregMr(comm: *mut c_void, memory: *mut c_void);
    Isend_v6(comm: *mut c_void, data: *mut c_void, size: c_int, tag: c_int, memory: *mut c_void, request: *mut *mut c_void);
    Isend_v9(comm: *mut c_void, data: *mut c_void, size: usize, tag: c_int, memory: *mut c_void, request: *mut *mut c_void);
    Isend_v10(comm: *mut c_void, data: *mut c_void, size: usize, tag: c_int, memory: *mut c_void, profile: *mut c_void, request: *mut *mut c_void);
    Irecv_v6(comm: *mut c_void, count: c_int, data: *mut *mut c_void, sizes: *mut c_int, tags: *mut c_int, memory: *mut *mut c_void, request: *mut *mut c_void);
    Irecv_v9(comm: *mut c_void, count: c_int, data: *mut *mut c_void, sizes: *mut usize, tags: *mut c_int, memory: *mut *mut c_void, request: *mut *mut c_void);
    Irecv_v10(comm: *mut c_void, count: c_int, data: *mut *mut c_void, sizes: *mut usize, tags: *mut c_int, memory: *mut *mut c_void, profile: *mut *mut c_void, request: *mut *mut c_void);
    Iflush(comm: *mut c_void, count: c_int, data: *mut *mut c_void, sizes: *mut c_int, memory: *mut *mut c_void, request: *mut *mut c_void);
    Test(request: *mut c_void, done: *mut c_int, sizes: *mut c_int);
    Close(comm: *mut c_void);
    GetDeviceMr(comm: *mut c_void, memory: *mut c_void, device_memory: *mut *mut c_void);
    IrecvConsumed(comm: *mut c_void, count: c_int, request: *mut c_void);
    MakeVDevice_v9(device: *mut c_int, properties: *mut ncclNetVDeviceProps_v9_t);
    MakeVDevice_v12(device: *mut c_int, properties: *mut crate::ncclNetVDeviceProps_v12_t);
    Finalize(context: *mut c_void);
    SetNetAttr(context: *mut c_void, attributes: *mut ncclNetAttr_v11_t);
}

macro_rules! get_properties {
    ($($name:ident: $of:ident;)+) => {
        $(pub type $name = Option<unsafe extern "C" fn(device: c_int, properties: *mut crate::$of) -> ncclResult_t>;)+
    };
}

get_properties! {
    GetProperties_v6: ncclNetProperties_v6_t;
    GetProperties_v7: ncclNetProperties_v7_t;
    GetProperties_v8: ncclNetProperties_v8_t;
    GetProperties_v9: ncclNetProperties_v9_t;
    GetProperties_v11: ncclNetProperties_v11_t;
    GetProperties_v12: ncclNetProperties_v12_t;
}
