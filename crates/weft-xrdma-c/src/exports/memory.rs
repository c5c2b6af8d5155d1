//! Registered memory.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::room;
use crate::failure::status;
use crate::tables::with;
use crate::types::xrdma_context;

/// Takes `len` bytes from the context's memory cache, which are registered with its device, to send from without a
/// copy (XRDMA_LENT). They are not zero.
///
/// # Errors
/// * EINVAL: no length, or a length over 4 GiB; or the context is null, gone, or another thread's.
/// * ENOMEM: the cache is at its limit (`memory_limit`), or the device has no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_reg_mem(
    context: *mut xrdma_context,
    len: usize,
    memory: *mut *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: the header asks for it.
        let place = unsafe { room(memory, "the memory") }?;
        let address = with(|tables| {
            let (context, _) = tables.context(context.addr())?;
            context.register(len)
        })?;
        place.write(ptr::with_exposed_provenance_mut(address));
        Ok(0)
    })
}

/// Gives back memory of xrdma_reg_mem(3).
///
/// # Errors
/// * EINVAL: there is no such memory, or it was given back; or the context is null, gone, or another thread's.
/// * EBUSY: a message that it is lent to is not delivered yet.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_dereg_mem(context: *mut xrdma_context, memory: *mut c_void) -> c_int {
    status(|| {
        with(|tables| {
            let (context, _) = tables.context(context.addr())?;
            context.deregister(memory.addr())
        })
    })
}
