//! Queries of a device, its port and its tables.

use core::ffi::{c_int, c_uint};

use crate::device::{DEVICE, gid_of};
use crate::interfaces::Address;
use weft_verbs_abi::*;

/// The only partition, with full membership (IBTA, section 10.9.1.2).
const DEFAULT_PKEY: u16 = 0xffff;

/// Copies the first `len` bytes of `from`, or all of them.
///
/// # Safety
/// `to` has room for `len` bytes.
unsafe fn copy_some<T>(from: &T, to: *mut T, len: usize) {
    let len = len.min(size_of::<T>());
    // SAFETY: both are at least that long, and one was just made here.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const *from).cast::<u8>(), to.cast::<u8>(), len)
    };
}

/// # Safety
/// `attributes` has room for the structure.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    _context: *mut ibv_context,
    attributes: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { attributes.write(DEVICE.attributes()) };
    0
}

/// # Safety
/// `attributes` has room for `len` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    _context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attributes: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    // SAFETY: the pointer is null or a structure; the caller guarantees it.
    if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
        return libc::EINVAL;
    }
    if len < size_of::<ibv_device_attr>() {
        return libc::EINVAL;
    }
    // SAFETY: all-zero bytes are valid for numbers.
    let zero: ibv_device_attr_ex = unsafe { core::mem::zeroed() };
    let orig_attr = DEVICE.attributes();
    let device_cap_flags_ex = orig_attr.device_cap_flags.into();
    let all = ibv_device_attr_ex { orig_attr, device_cap_flags_ex, phys_port_cnt_ex: 1, ..zero };
    // SAFETY: guaranteed by the caller.
    unsafe { copy_some(&all, attributes, len) };
    0
}

/// # Safety
/// `attributes` has room for `len` bytes.
pub(crate) unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { copy_some(&DEVICE.port(), attributes, len) };
    0
}

/// # Safety
/// `attributes` has room for the fields before `link_layer`: older programs have no more.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { query_port(context, port, attributes, COMPAT_PORT_ATTR_LEN) }
}

/// Returns the address of a row, if there is one.
fn address(port: u32, row: usize) -> Option<&'static Address> {
    DEVICE.addresses.get(row).filter(|_| port == 1)
}

fn entry(address: &Address, row: usize) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: gid_of(address.ip),
        gid_index: u32::try_from(row).unwrap_or(u32::MAX),
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: address.interface,
    }
}

/// # Safety
/// `gid` has room for a GID.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    port: u8,
    row: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let Some(address) = usize::try_from(row).ok().and_then(|row| address(port.into(), row)) else {
        return -1;
    };
    // SAFETY: guaranteed by the caller.
    unsafe { gid.write(gid_of(address.ip)) };
    0
}

/// # Safety
/// `to` has room for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    _context: *mut ibv_context,
    port: u32,
    row: u32,
    to: *mut ibv_gid_entry,
    _flags: u32,
    len: usize,
) -> c_int {
    let row = row as usize;
    let Some(address) = address(port, row) else { return libc::EINVAL };
    // SAFETY: guaranteed by the caller.
    unsafe { copy_some(&entry(address, row), to, len) };
    0
}

/// # Safety
/// `to` has room for `capacity` entries of `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    _context: *mut ibv_context,
    to: *mut ibv_gid_entry,
    capacity: usize,
    _flags: u32,
    len: usize,
) -> isize {
    if capacity < DEVICE.addresses.len() {
        return -(libc::EINVAL as isize);
    }
    for (row, address) in DEVICE.addresses.iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { copy_some(&entry(address, row), to.byte_add(row * len), len) };
    }
    DEVICE.addresses.len().cast_signed()
}

/// # Safety
/// `kind` has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut ibv_context,
    port: u8,
    row: c_uint,
    kind: *mut c_uint,
) -> c_int {
    // This private interface counts RoCE v2 as 1.
    const ROCE_V2: c_uint = 1;
    if address(port.into(), row as usize).is_none() {
        return libc::EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { kind.write(ROCE_V2) };
    0
}

/// # Safety
/// `pkey` has room for a key.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port: u8,
    row: c_int,
    pkey: *mut u16,
) -> c_int {
    if port != 1 || row != 0 {
        return libc::EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { pkey.write(DEFAULT_PKEY) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    if port == 1 && pkey == DEFAULT_PKEY { 0 } else { -1 }
}
