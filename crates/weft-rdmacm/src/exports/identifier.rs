//! Identifiers, their options and their ports; the list of devices.

use core::ffi::{c_int, c_void};

use crate::abi::*;
use crate::errno::{EINVAL, EOPNOTSUPP, Errno, Outcome, pointer, status};
use crate::event::{Channel, acknowledge};
use crate::id::{Id, Making};
use crate::service::with;
use weft_verbs_abi::{ibv_context, qp_type};

/// # Safety
/// The channel is null or open.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    port_space: u32,
    qp_type: u32,
) -> Outcome<*mut rdma_cm_id> {
    if ![port_space::TCP, port_space::UDP].contains(&port_space) {
        return Err(EOPNOTSUPP);
    }
    let is_synchronous = channel.is_null();
    let channel = if is_synchronous { Channel::open()? } else { channel };
    // SAFETY: guaranteed by the caller, or the channel was opened above.
    Ok(unsafe { Id::create(Making { channel, is_synchronous, context, port_space, qp_type }) })
}

/// # Safety
/// The channel is null or open, and `to` has room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    to: *mut *mut rdma_cm_id,
    context: *mut c_void,
    port_space: u32,
) -> c_int {
    status(|| {
        let service = if port_space == port_space::UDP { qp_type::UD } else { qp_type::RC };
        // A program learns here that there is no device, not when it resolves an address.
        with(|_| Ok(()))?;
        // SAFETY: guaranteed by the caller.
        unsafe { to.write(create(channel, context, port_space, service)?) };
        Ok(())
    })
}

/// Destroys the identifier and everything it owns.
///
/// # Safety
/// The identifier was created; only threads that wait for its events to be acknowledged still use it.
pub(super) unsafe fn destroy(public: *mut rdma_cm_id) -> Outcome<()> {
    // SAFETY: guaranteed by the caller.
    let id = unsafe { Id::of(public) };
    with(|state| {
        let (communication, bound) = {
            let mut details = id.details();
            (details.communication.take(), details.bound.take())
        };
        state.manager.stop_listening(id.owner());
        if let Some(communication) = communication {
            state.manager.forget(state.now, communication);
            state.ids.remove(&communication);
        }
        bound.iter().for_each(|bound| state.sockets.release(bound));
        Ok(())
    })?;
    let (events, is_synchronous) = {
        let details = id.details();
        (details.events.clone(), details.is_synchronous)
    };
    for event in events.take(|event| event.is_of(&id.open)) {
        if event.public.event == cm_event::CONNECT_REQUEST {
            // SAFETY: the program has not received it.
            unsafe { destroy(event.public.id) }?;
        }
        id.open.close(1);
    }
    // SAFETY: the program holds the last event of a synchronous call until the next call.
    unsafe {
        acknowledge(core::mem::replace(&mut (*public).event, core::ptr::null_mut()));
    }
    id.open.wait_for_none();
    // SAFETY: nothing uses it any more; a synchronous identifier is the only user of its channel.
    unsafe {
        let channel = (*public).channel;
        drop(Box::from_raw(public.cast::<Id>()));
        if is_synchronous {
            Channel::close(channel);
        }
    }
    Ok(())
}

/// # Safety
/// `id` is a live identifier that is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| unsafe { destroy(id) })
}

/// Moves the identifier's events, pending ones included, to another channel; with a null channel, to one of its own, on
/// which its calls wait.
///
/// # Safety
/// `id` is a live identifier, and the channel null or open.
pub(super) unsafe fn migrate(id: *mut rdma_cm_id, to: *mut rdma_event_channel) -> Outcome<()> {
    let is_synchronous = to.is_null();
    let to = if is_synchronous { Channel::open()? } else { to };
    // SAFETY: guaranteed by the caller.
    let (this, events, from) = unsafe { (Id::of(id), Channel::events(to), (*id).channel) };
    let (was_synchronous, old) = {
        let mut details = this.details();
        let was = core::mem::replace(&mut details.is_synchronous, is_synchronous);
        (was, core::mem::replace(&mut details.events, events.clone()))
    };
    let waiting = old.take(|event| event.is_of(&this.open));
    waiting.into_iter().for_each(|event| events.push(event));
    // SAFETY: guaranteed by the caller; a synchronous identifier is the only user of its channel.
    unsafe {
        (*id).channel = to;
        if was_synchronous {
            acknowledge(core::mem::replace(&mut (*id).event, core::ptr::null_mut()));
            Channel::close(from);
        }
    }
    Ok(())
}

/// # Safety
/// `id` is a live identifier, and the channel null or open.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| unsafe { migrate(id, channel) })
}

/// # Safety
/// `id` is a live identifier, and `value` points to `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    status(|| {
        if level != option::LEVEL_ID {
            return Err(Errno(libc::ENOSYS));
        }
        let expected = match name {
            option::TOS | option::ACK_TIMEOUT => 1,
            option::REUSEADDR | option::AFONLY => size_of::<c_int>(),
            _ => return Err(Errno(libc::ENOSYS)),
        };
        if len != expected || value.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: guaranteed by the caller.
        let (id, first) = unsafe { (Id::of(id), value.cast::<u8>().read()) };
        let mut details = id.details();
        match name {
            option::TOS => details.traffic_class = first,
            option::ACK_TIMEOUT if first < 32 => details.ack_timeout = Some(first),
            option::ACK_TIMEOUT => return Err(EINVAL),
            // SAFETY: guaranteed by the caller.
            option::AFONLY => details.only_ipv6 = unsafe { value.cast::<c_int>().read() } != 0,
            // A port is free as soon as its listener is gone, so `REUSEADDR` has no effect.
            _ => {}
        }
        Ok(())
    })
}

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: guaranteed by the caller.
    let address = unsafe { crate::address::of_storage(&(*id).route.addr.src_addr) };
    address.map_or(0, |address| address.port().to_be())
}

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: guaranteed by the caller.
    let address = unsafe { crate::address::of_storage(&(*id).route.addr.dst_addr) };
    address.map_or(0, |address| address.port().to_be())
}

/// # Safety
/// `count` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    pointer(|| {
        let contexts: Vec<_> =
            with(|state| Ok(state.devices.iter().map(|device| device.context).collect()))?;
        // SAFETY: the list has room for every context and a null; the caller guarantees `count`.
        unsafe {
            let list = libc::calloc(contexts.len() + 1, size_of::<*mut ibv_context>());
            let list: *mut *mut ibv_context = crate::ibverbs::made(list)?.cast();
            list.copy_from_nonoverlapping(contexts.as_ptr(), contexts.len());
            if let Some(count) = count.as_mut() {
                *count = c_int::try_from(contexts.len()).unwrap_or(c_int::MAX);
            }
            Ok(list)
        }
    })
}

/// # Safety
/// `list` came from `rdma_get_devices` and is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: guaranteed by the caller.
    unsafe { libc::free(list.cast()) };
}
