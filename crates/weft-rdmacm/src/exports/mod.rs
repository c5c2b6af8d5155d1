//! The functions of `librdmacm.so.1`, each with its manual page's behaviour. The program guarantees that a pointer came
//! from this library and is not destroyed; any other misuse is refused with an error number.

mod addrinfo;
mod channel;
mod connect;
mod endpoint;
mod identifier;
mod queue_pair;
mod resolve;

/// Waits for the call's event if the identifier has no channel of the program; otherwise returns at once.
///
/// # Errors
/// The status of the event: `ECONNREFUSED` for a rejection.
///
/// # Safety
/// `id` is a live identifier.
unsafe fn complete(id: *mut crate::abi::rdma_cm_id) -> crate::errno::Outcome<()> {
    use crate::errno::Errno;
    // SAFETY: guaranteed by the caller; the event of the previous call is not used any more.
    unsafe {
        if !crate::id::Id::of(id).details().is_synchronous {
            return Ok(());
        }
        crate::event::acknowledge(core::mem::replace(&mut (*id).event, core::ptr::null_mut()));
        let event = channel::next((*id).channel)?;
        (*id).event = event;
        match ((*event).event, (*event).status) {
            (_, 0) => Ok(()),
            (crate::abi::cm_event::REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
            (_, status) => Err(Errno(status.abs())),
        }
    }
}
