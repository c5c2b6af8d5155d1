//! Enumeration and opening of devices.

use core::ffi::{c_char, c_int};

use super::tables::tables;
use crate::context::Context;
use crate::device::{DEVICE, Device};
use crate::engine::Engine;
use crate::errno::{number, pointer};
use crate::usage;
use weft_verbs_abi::*;

/// Returns the device's name if this process requested the list of devices and made no queue pair; else null. The
/// preloaded library calls it when a program exits.
#[unsafe(no_mangle)]
extern "C" fn weft_unused_device() -> *const c_char {
    if usage::is_unused() && DEVICE.is_there() {
        (&raw const DEVICE.public.name).cast()
    } else {
        core::ptr::null()
    }
}

/// # Safety
/// `count` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    usage::on_list();
    DEVICE.look_again(Engine::has_lost_daemon());
    let null = core::ptr::null_mut();
    let found: &Device = &DEVICE;
    let there = found.is_there();
    let device = if there { (&raw const found.public).cast_mut() } else { null };
    let list = Box::new([device, null]);
    // SAFETY: guaranteed by the caller.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = there.into();
    }
    Box::into_raw(list).cast()
}

/// # Safety
/// `list` is null or came from [`ibv_get_device_list`] and is not freed yet.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        // SAFETY: it was made from such a box.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ibv_device; 2]>()) });
    }
}

/// # Safety
/// `device` came from the list.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: devices live as long as the program.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    // The kernel has no index for this device.
    -1
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> be64 {
    be64::from_ne_bytes(DEVICE.guid)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(_device: *mut ibv_device) -> *mut ibv_context {
    pointer(|| Context::open(tables))
}

/// # Safety
/// `context` is open, and is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: guaranteed by the caller.
    number(|| unsafe { Context::close(context) })
}
