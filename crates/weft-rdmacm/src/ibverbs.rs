//! The functions of `libibverbs.so.1` that this library calls, and the devices behind them.

use core::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv6Addr};

use crate::errno::{EOPNOTSUPP, Errno, Outcome};
use weft_verbs_abi::*;

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_query_device(context: *mut ibv_context, to: *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(context: *mut ibv_context, port: u8, to: *mut ibv_port_attr) -> c_int;
    fn ibv_query_gid(context: *mut ibv_context, port: u8, row: c_int, to: *mut ibv_gid) -> c_int;
    fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    pub(crate) fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    pub(crate) fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    pub(crate) fn ibv_modify_qp(qp: *mut ibv_qp, to: *mut ibv_qp_attr, mask: c_int) -> c_int;
    pub(crate) fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    pub(crate) fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    pub(crate) fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    pub(crate) fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    pub(crate) fn ibv_create_cq(
        context: *mut ibv_context,
        entries: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq;
    /// Returns nonzero if a connected queue pair has unsent requests, or completions that wait to be polled.
    fn weft_has_unseen(context: *mut ibv_context, qp_num: u32) -> c_int;
    pub(crate) fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
}

/// The port of a device that connections use: a RoCE device has one port per network.
pub(crate) const PORT: u8 = 1;

/// Converts the pointer that a function of verbs returned.
///
/// # Errors
/// The `errno` of that function, if the pointer is null.
pub(crate) fn made<T>(pointer: *mut T) -> Outcome<*mut T> {
    if pointer.is_null() { Err(Errno::last()) } else { Ok(pointer) }
}

/// Converts the number that a function of verbs returned: zero, or an error number.
///
/// # Errors
/// That number.
pub(crate) fn done(result: c_int) -> Outcome<()> {
    if result == 0 { Ok(()) } else { Err(Errno(result.abs())) }
}

/// Returns `true` if a queue pair has unsent requests or completions that the program has not polled.
///
/// # Safety
/// `context` is open, or null.
pub(crate) unsafe fn has_unseen(context: *mut ibv_context, queue_pair: u32) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { weft_has_unseen(context, queue_pair) != 0 }
}

/// A device that stays open until the process ends.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) context: *mut ibv_context,
    /// The IP addresses, by row of the GID table.
    pub(crate) addresses: Vec<IpAddr>,
    /// The maximum number of concurrent READs and atomics, each way.
    pub(crate) resources: u8,
    /// The code of its MTU in verbs.h.
    pub(crate) mtu: u8,
    /// The protection domain for programs that give none.
    pub(crate) domain: *mut ibv_pd,
}

// SAFETY: any thread may use a context and a domain (libibverbs is thread-safe).
unsafe impl Send for Device {}

/// Opens every device.
///
/// # Errors
/// The error of libibverbs.
pub(crate) fn open_devices() -> Outcome<Vec<Device>> {
    let mut count = 0;
    // SAFETY: `count` has room for the number of devices, and the list has that many entries.
    unsafe {
        let list = made(ibv_get_device_list(&raw mut count))?;
        let count = usize::try_from(count).unwrap_or(0);
        let devices = (0..count).map(|index| open_device(*list.add(index))).collect();
        ibv_free_device_list(list);
        devices
    }
}

/// Opens a device, and reads its addresses and limits.
///
/// # Errors
/// The error of libibverbs.
///
/// # Safety
/// `device` is in a list that is not freed.
unsafe fn open_device(device: *mut ibv_device) -> Outcome<Device> {
    // SAFETY: guaranteed by the caller; all-zero bytes are valid for the attributes.
    unsafe {
        let context = made(ibv_open_device(device))?;
        let mut limits: ibv_device_attr = core::mem::zeroed();
        done(ibv_query_device(context, &raw mut limits))?;
        let mut port: ibv_port_attr = core::mem::zeroed();
        done(ibv_query_port(context, PORT, &raw mut port))?;
        let addresses = (0..port.gid_tbl_len).map(|row| {
            let mut gid = ibv_gid::default();
            done(ibv_query_gid(context, PORT, row, &raw mut gid))?;
            Ok(address_of(&gid))
        });
        Ok(Device {
            context,
            addresses: addresses.collect::<Outcome<_>>()?,
            resources: u8::try_from(limits.max_qp_rd_atom.min(limits.max_qp_init_rd_atom))
                .unwrap_or(u8::MAX),
            mtu: u8::try_from(port.active_mtu).unwrap_or(1).clamp(1, 5),
            domain: made(ibv_alloc_pd(context))?,
        })
    }
}

/// Returns the IP address of a RoCE v2 GID (IBTA annex A17).
fn address_of(gid: &ibv_gid) -> IpAddr {
    Ipv6Addr::from(gid.raw).to_canonical()
}

/// Returns the GID of an IP address.
pub(crate) fn gid_of(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    ibv_gid { raw, align: [] }
}

/// Makes a queue pair; writes the actual sizes and defaults back.
///
/// # Safety
/// The objects that `init` names exist.
pub(crate) unsafe fn create_queue_pair(init: &mut ibv_qp_init_attr_ex) -> Outcome<*mut ibv_qp> {
    if init.comp_mask & !qp_init_attr_mask::PD != 0 {
        // SAFETY: guaranteed by the caller.
        return unsafe { create_extended(init) };
    }
    let mut plain = ibv_qp_init_attr {
        qp_context: init.qp_context,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        cap: init.cap,
        qp_type: init.qp_type,
        sq_sig_all: init.sq_sig_all,
    };
    // SAFETY: guaranteed by the caller.
    let pair = made(unsafe { ibv_create_qp(init.pd, &raw mut plain) })?;
    init.cap = plain.cap;
    Ok(pair)
}

/// Makes a queue pair with extended attributes through the device's own function, as the inline function of verbs.h
/// does.
///
/// # Errors
/// `EOPNOTSUPP`: the device has no such function.
///
/// # Safety
/// The objects that `init` names exist.
unsafe fn create_extended(init: &mut ibv_qp_init_attr_ex) -> Outcome<*mut ibv_qp> {
    // SAFETY: guaranteed by the caller; an extended context is the last part of a longer structure.
    unsafe {
        let context = (*init.pd).context;
        if (*context).abi_compat != ABI_EXTENDED {
            return Err(EOPNOTSUPP);
        }
        let extended = context.byte_sub(core::mem::offset_of!(verbs_context, context));
        let create = (*extended.cast::<verbs_context>()).create_qp_ex.ok_or(EOPNOTSUPP)?;
        made(create(context, init))
    }
}
