//! Functions that allocate and free registered memory.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::room;
use crate::failure::status;
use crate::tables::with;
use crate::types::xrdma_context;

/// Allocates `len` bytes of registered memory from the context's cache, to send from without a copy (XRDMA_LENT).
/// The bytes are not zeroed.
///
/// # Errors
/// * EINVAL: the length is 0 or at least 4 GiB; or the context is null, gone, or another thread's.
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

/// Frees memory of xrdma_reg_mem(3).
///
/// # Errors
/// * EINVAL: there is no such memory, or it was freed; or the context is null, gone, or another thread's.
/// * EBUSY: the memory is lent to a message that is not delivered yet.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_dereg_mem(context: *mut xrdma_context, memory: *mut c_void) -> c_int {
    status(|| {
        with(|tables| {
            let (context, _) = tables.context(context.addr())?;
            context.deregister(memory.addr())
        })
    })
}
