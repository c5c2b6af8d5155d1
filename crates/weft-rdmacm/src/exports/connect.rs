//! The calls that begin and end connections.

use core::ffi::{c_int, c_void};

use super::{channel, complete};
use crate::abi::*;
use crate::errno::{EINVAL, Errno, Outcome, status};
use crate::id::{Details, Id};
use crate::manager::{Rejection, Space};
use crate::message::{Offer, Reason, private_data};
use crate::service::{Handle, with};
use crate::transition;
use weft_verbs_abi::{qp_state, qp_type};

/// The maximum retry count: it has three bits.
const MAX_RETRIES: u8 = 7;

/// Returns a copy of the program's private data.
///
/// # Errors
/// `EINVAL`: it has more than `max` bytes.
///
/// # Safety
/// `data` is null or points to `len` bytes.
unsafe fn private(data: *const c_void, len: u8, max: usize) -> Outcome<Vec<u8>> {
    if data.is_null() || len == 0 {
        return Ok(Vec::new());
    }
    if usize::from(len) > max {
        return Err(EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len.into()) }.to_vec())
}

/// Returns this end's offer from the program's parameters; missing ones come from the request or are the maximum.
///
/// # Safety
/// `id` is a live identifier, and `param` is null or valid by `rdma_connect(3)`.
unsafe fn offer(
    id: *mut rdma_cm_id,
    details: &Details,
    param: *const rdma_conn_param,
    max_data: usize,
) -> Outcome<Offer> {
    let max = details.max_resources;
    let request = details.peer.as_ref();
    // This end serves what the other requests, and requests what the other serves.
    let (serve, initiate) = request.map_or((max, max), |peer| {
        (peer.initiator_depth.min(max), peer.responder_resources.min(max))
    });
    let retries = request.map_or(MAX_RETRIES, |peer| peer.retry_count);
    let base = Offer {
        service: service_of(id),
        responder_resources: serve,
        initiator_depth: initiate,
        retry_count: retries,
        rnr_retry_count: request.map_or(MAX_RETRIES, |peer| peer.rnr_retry_count),
        ..details.own.clone()
    };
    // SAFETY: guaranteed by the caller.
    let (param, pair) = unsafe { (param.as_ref(), (*id).qp.as_ref()) };
    let Some(param) = param else {
        return Ok(Offer { queue_pair: pair.map_or(0, |pair| pair.qp_num), ..base });
    };
    let of = |wanted: u8, max: u8| if wanted == RDMA_MAX_RESOURCES { max } else { wanted };
    let chosen = Offer {
        queue_pair: pair.map_or(param.qp_num, |pair| pair.qp_num),
        responder_resources: of(param.responder_resources, serve),
        initiator_depth: of(param.initiator_depth, initiate),
        retry_count: if request.is_some() { retries } else { param.retry_count.min(MAX_RETRIES) },
        rnr_retry_count: param.rnr_retry_count.min(MAX_RETRIES),
        flow_control: param.flow_control != 0,
        shared_receive_queue: pair.map_or(param.srq != 0, |pair| !pair.srq.is_null()),
        // SAFETY: guaranteed by the caller.
        private_data: unsafe { private(param.private_data, param.private_data_len, max_data)? },
        ..base
    };
    let fits = chosen.responder_resources <= max && chosen.initiator_depth <= max;
    if fits && chosen.queue_pair < 1 << 24 { Ok(chosen) } else { Err(EINVAL) }
}

fn service_of(id: *mut rdma_cm_id) -> u8 {
    // SAFETY: `id` is a live identifier, whose type is set at its creation.
    let service = unsafe { (*id).qp_type };
    u8::try_from(service).unwrap_or(0)
}

/// # Safety
/// `id` is a live identifier, and `param` is null or valid by the manual page.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let this = unsafe { Id::of(id) };
        let addresses = this.addresses().ok_or(EINVAL)?;
        with(|state| {
            let mut details = this.details();
            if details.communication.is_some() || details.bound.is_none() {
                return Err(EINVAL);
            }
            let max = match this.space() {
                Space::Connected => private_data::REQUEST,
                Space::Datagram => private_data::SERVICE_REQUEST,
            };
            // SAFETY: guaranteed by the caller.
            let offer = unsafe { offer(id, &details, param, max)? };
            let offer = Offer { psn: state.manager.draw_psn(), ..offer };
            details.own = offer.clone();
            state.sockets.connect(addresses.local, addresses.remote);
            let communication = state.manager.connect(state.now, this.space(), addresses, offer);
            details.communication = Some(communication);
            state.ids.insert(communication, Handle(this));
            Ok(())
        })?;
        // SAFETY: guaranteed by the caller.
        unsafe { complete(id) }
    })
}

/// # Safety
/// `id` came with a request, and `param` is null or valid by the manual page.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let this = unsafe { Id::of(id) };
        let communication = this.communication().map_err(|_| EINVAL)?;
        let max = match this.space() {
            Space::Connected => private_data::REPLY,
            Space::Datagram => private_data::SERVICE_REPLY,
        };
        // SAFETY: guaranteed by the caller.
        let offer = unsafe { offer(id, &this.details(), param, max)? };
        let psn = with(|state| Ok(state.manager.draw_psn()))?;
        let qkey = if offer.service == service_number(qp_type::UD) { RDMA_UDP_QKEY } else { 0 };
        let offer = Offer { psn, qkey, ..offer };
        this.details().own = offer.clone();
        if this.space() == Space::Connected {
            transition::advance(this, &[qp_state::RTR, qp_state::RTS])?;
        }
        let accepted = with(|state| Ok(state.manager.accept(state.now, communication, offer)))?;
        if !accepted {
            return Err(Errno(libc::ENOTCONN));
        }
        match this.space() {
            // SAFETY: guaranteed by the caller.
            Space::Connected => unsafe { complete(id) },
            Space::Datagram => Ok(()),
        }
    })
}

fn service_number(service: u32) -> u8 {
    u8::try_from(service).unwrap_or(0)
}

/// Rejects the other end's request or response.
///
/// # Safety
/// `id` came with a request or a response, and `data` is null or points to `len` bytes.
unsafe fn reject(id: *mut rdma_cm_id, data: *const c_void, len: u8, reason: Reason) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let (this, data) = unsafe { (Id::of(id), private(data, len, private_data::REJECT)?) };
        let communication = this.communication().map_err(|_| EINVAL)?;
        let rejection = Rejection { reason, private_data: data };
        let rejected = with(|state| Ok(state.manager.reject(state.now, communication, rejection)))?;
        if rejected { Ok(()) } else { Err(EINVAL) }
    })
}

/// # Safety
/// See [`reject`].
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { reject(id, data, len, Reason::CONSUMER) }
}

/// # Safety
/// See [`reject`].
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { reject(id, data, len, Reason::VENDOR_OPTION) }
}

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| channel::establish(unsafe { Id::of(id) }))
}

/// `IBV_EVENT_COMM_EST`: a packet arrived from the other end.
const COMMUNICATION_ESTABLISHED: u32 = 4;

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    status(|| {
        if event != COMMUNICATION_ESTABLISHED {
            return Err(EINVAL);
        }
        // SAFETY: guaranteed by the caller.
        let communication = unsafe { Id::of(id) }.communication()?;
        // The manager may know it already.
        with(|state| Ok(state.manager.notify(state.now, communication))).map(drop)
    })
}

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let this = unsafe { Id::of(id) };
        let communication = this.communication().map_err(|_| EINVAL)?;
        transition::advance(this, &[qp_state::ERR])?;
        if with(|state| Ok(state.manager.disconnect(state.now, communication)))? {
            // SAFETY: guaranteed by the caller.
            return unsafe { complete(id) };
        }
        // The other end has disconnected; a program whose calls wait needs no event for it.
        let details = this.details();
        let (events, is_synchronous) = (details.events.clone(), details.is_synchronous);
        drop(details);
        if is_synchronous {
            for event in events.take(|event| event.is_of(&this.open)) {
                // SAFETY: no program has received this event.
                unsafe { crate::event::acknowledge(Box::into_raw(event).cast()) };
            }
        }
        Ok(())
    })
}
