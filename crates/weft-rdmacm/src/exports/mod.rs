//! The functions of `librdmacm.so.1`, each the one of its manual page. That a pointer is one that we gave, and
//! not destroyed yet, is the program's promise; what else it may do wrong is refused with an error number.

mod addrinfo;
mod channel;
mod connect;
mod endpoint;
mod identifier;
mod queue_pair;
mod resolve;

/// Waits, where the program gave no channel, for what the call began.
///
/// # Errors
/// What the event says: `ECONNREFUSED` for a rejection.
///
/// # Safety
/// `id` is created.
unsafe fn complete(id: *mut crate::abi::rdma_cm_id) -> crate::errno::Outcome<()> {
    use crate::errno::Errno;
    // SAFETY: as the caller says; the event of the call before is not used any more.
    unsafe {
        if !crate::id::Id::of(id).details().is_synchronous {
            return Ok(());
        }
        crate::id::acknowledge(core::mem::replace(&mut (*id).event, core::ptr::null_mut()));
        let event = channel::next((*id).channel)?;
        (*id).event = event;
        match ((*event).event, (*event).status) {
            (_, 0) => Ok(()),
            (crate::abi::cm_event::REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
            (_, status) => Err(Errno(status.abs())),
        }
    }
}
