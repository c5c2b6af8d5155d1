//! Event channels, and the actions that follow when a program takes an event from one.

use core::ffi::{CStr, c_char, c_int};

use crate::abi::*;
use crate::errno::{Outcome, pointer, status};
use crate::event::{Channel, Event, acknowledge};
use crate::id::Id;
use crate::manager::Rejection;
use crate::service::with;
use crate::transition;
use weft_verbs_abi::qp_state;

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(Channel::open)
}

/// # Safety
/// The channel is open and is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let _ = status(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { Channel::close(channel) };
        Ok(())
    });
}

/// # Safety
/// The channel is open, and `to` has room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    to: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| unsafe {
        to.write(next(channel)?);
        Ok(())
    })
}

/// # Safety
/// The event came from `rdma_get_cm_event` and is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { acknowledge(event) };
        Ok(())
    })
}

/// Returns the next event of a channel, after the queue pair has the state that the event implies.
///
/// # Safety
/// The channel is open.
pub(super) unsafe fn next(channel: *mut rdma_event_channel) -> Outcome<*mut rdma_cm_event> {
    // SAFETY: guaranteed by the caller.
    let mut event = unsafe { Channel::events(channel) }.wait()?;
    // SAFETY: an identifier is not destroyed while an event about it is open.
    let id = unsafe { Id::of(event.public.id) };
    match event.public.event {
        cm_event::CONNECT_RESPONSE => respond(id, &mut event),
        // On failure the queue pair keeps its state; the event itself reports the error.
        cm_event::REJECTED | cm_event::UNREACHABLE => {
            let _ = transition::advance(id, &[qp_state::ERR]);
        }
        _ => {}
    }
    Ok(Box::into_raw(event).cast())
}

/// Handles the other end's reply: makes the identifier's queue pair ready and notifies the other end. A program that
/// made its own queue pair does both itself.
fn respond(id: &Id, event: &mut Event) {
    // SAFETY: only the calls that make and destroy the queue pair write this field.
    if unsafe { (*id.public()).qp }.is_null() {
        return;
    }
    let ready =
        transition::advance(id, &[qp_state::RTR, qp_state::RTS]).and_then(|()| establish(id));
    match ready {
        Ok(()) => event.public.event = cm_event::ESTABLISHED,
        Err(errno) => {
            event.public.event = cm_event::CONNECT_ERROR;
            event.public.status = errno.negative();
            let _ = transition::advance(id, &[qp_state::ERR]);
            let _ = id.communication().and_then(|communication| {
                with(|state| {
                    Ok(state.manager.reject(state.now, communication, Rejection::CONSUMER))
                })
            });
        }
    }
}

/// Notifies the other end that this one is ready.
///
/// # Errors
/// `ENOTCONN`: the other end has left meanwhile.
pub(super) fn establish(id: &Id) -> Outcome<()> {
    let communication = id.communication()?;
    let ready = with(|state| Ok(state.manager.ready(state.now, communication)))?;
    if ready { Ok(()) } else { Err(crate::errno::Errno(libc::ENOTCONN)) }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: u32) -> *const c_char {
    const NAMES: &[&CStr] = &[
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let name = usize::try_from(event).ok().and_then(|event| NAMES.get(event));
    name.unwrap_or(&c"UNKNOWN EVENT").as_ptr()
}
