//! Identifiers made from results of `rdma_getaddrinfo(3)`, whose calls block until they are done.

use core::ffi::c_int;
use core::ptr;

use super::{identifier, queue_pair, resolve};
use crate::abi::*;
use crate::errno::{EINVAL, Errno, Outcome, status};
use crate::event::acknowledge;
use crate::id::{Id, Template};
use weft_verbs_abi::{ibv_pd, ibv_qp_init_attr};

/// Converts the result of one of this library's functions.
fn succeeded(result: c_int) -> Outcome<()> {
    if result == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// # Safety
/// `id` is a live identifier, and the others are the arguments of `rdma_create_ep(3)`.
unsafe fn prepare(
    id: *mut rdma_cm_id,
    found: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if found.ai_flags & addrinfo_flag::PASSIVE != 0 {
            succeeded(resolve::rdma_bind_addr(id, found.ai_src_addr))?;
            Id::of(id).details().template =
                init.as_ref().map(|init| Template { domain: pd, init: *init });
            return Ok(());
        }
        let (from, to) = (found.ai_src_addr, found.ai_dst_addr);
        succeeded(resolve::rdma_resolve_addr(id, from, to, 0))?;
        succeeded(resolve::rdma_resolve_route(id, 0))?;
        if init.is_null() {
            return Ok(());
        }
        (*init).qp_type = (*id).qp_type;
        succeeded(queue_pair::rdma_create_qp(id, pd, init))
    }
}

/// # Safety
/// `to` has room for a pointer, `found` is a result of `rdma_getaddrinfo`, and the others are null or valid by the
/// manual page.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_ep(
    to: *mut *mut rdma_cm_id,
    found: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| unsafe {
        let found = &*found;
        let (port_space, service) =
            (found.ai_port_space.cast_unsigned(), found.ai_qp_type.cast_unsigned());
        let id = identifier::create(ptr::null_mut(), ptr::null_mut(), port_space, service)?;
        if let Err(errno) = prepare(id, found, pd, init) {
            identifier::destroy(id)?;
            return Err(errno);
        }
        to.write(id);
        Ok(())
    })
}

/// # Safety
/// `id` is a live identifier that is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    let _ = status(|| unsafe {
        queue_pair::destroy(id);
        queue_pair::rdma_destroy_srq(id);
        identifier::destroy(id)
    });
}

/// # Safety
/// `listener` is a live identifier, and `to` has room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    to: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| unsafe {
        let (is_synchronous, template) = {
            let details = Id::of(listener).details();
            (details.is_synchronous, details.template)
        };
        if !is_synchronous {
            return Err(EINVAL);
        }
        acknowledge(core::mem::replace(&mut (*listener).event, ptr::null_mut()));
        let event = super::channel::next((*listener).channel)?;
        if (*event).event != cm_event::CONNECT_REQUEST {
            acknowledge(event);
            return Err(EINVAL);
        }
        let new = (*event).id;
        let made = identifier::migrate(new, ptr::null_mut()).and_then(|()| {
            template.map_or(Ok(()), |Template { domain, mut init }| {
                init.qp_type = (*new).qp_type;
                succeeded(queue_pair::rdma_create_qp(new, domain, &raw mut init))
            })
        });
        if let Err(errno) = made {
            acknowledge(event);
            identifier::destroy(new)?;
            return Err(errno);
        }
        (*new).event = event;
        to.write(new);
        Ok(())
    })
}
