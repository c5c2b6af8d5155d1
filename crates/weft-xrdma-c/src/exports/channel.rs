//! Functions that open, close and describe channels.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

use weft_msg::Carrier;

use super::{copy_known, resolve, room, text};
use crate::failure::{Failure, contain, status};
use crate::tables::with;
use crate::types::{xrdma_carrier, xrdma_channel, xrdma_channel_state, xrdma_context};

/// Accepts channels at an address, HOST:PORT; port 0 selects a free port. XRDMA_EVENT_ACCEPTED follows for each.
///
/// Returns the port.
///
/// # Errors
/// * EINVAL: the text is not an address; or the context is null, gone, or another thread's.
/// * EADDRINUSE, EADDRNOTAVAIL: the address is in use, or not this host's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_listen(
    context: *mut xrdma_context,
    address: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the header asks for it.
        let address = resolve(unsafe { text(address, "the address") }?)?;
        with(|tables| {
            let (context, _) = tables.context(context.addr())?;
            Ok(context.node.listen(address)?.port().into())
        })
    })
}

/// Opens a channel to an address, HOST:PORT, and waits until it is open, 5 seconds at most.
///
/// # Errors
/// * EINVAL: the text is not an address; or the context is null, gone, or another thread's.
/// * ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT: no peer answers at the address.
/// * EPROTO: the peer does not speak X-RDMA.
/// * ENOMEM: the device has no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_connect(
    context: *mut xrdma_context,
    address: *const c_char,
    channel: *mut *mut xrdma_channel,
) -> c_int {
    status(|| {
        // SAFETY: the header asks for it.
        let (place, address) =
            unsafe { (room(channel, "the channel")?, text(address, "the address")?) };
        let (address, handle) = (resolve(address)?, context.addr());
        let channel = with(|tables| {
            let (context, channels) = tables.context(handle)?;
            let id = context.node.connect_and_wait(address)?;
            context.channel_handle(channels, handle, id)
        })?;
        place.write(ptr::without_provenance_mut(channel));
        Ok(0)
    })
}

/// Starts to open a channel to HOST:PORT. XRDMA_EVENT_CONNECTED or XRDMA_EVENT_CONNECT_FAILED follows, with the
/// number that this call returns.
///
/// # Errors
/// * EINVAL: the text is not an address; or the context is null, gone, or another thread's.
/// * ENOMEM: the device has no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_connect_async(
    context: *mut xrdma_context,
    address: *const c_char,
) -> i64 {
    let act = || {
        // SAFETY: the header asks for it.
        let address = resolve(unsafe { text(address, "the address") }?)?;
        with(|tables| {
            let (context, _) = tables.context(context.addr())?;
            Ok(context.node.connect(address)?.number().cast_signed())
        })
    };
    contain(act, i64::from)
}

/// Closes a channel: messages already sent still arrive, no more can be sent. XRDMA_EVENT_CLOSED follows.
///
/// # Errors
/// * EINVAL: the channel is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_close(channel: *mut xrdma_channel) -> c_int {
    status(|| {
        with(|tables| {
            let (context, id) = tables.channel(channel.addr())?;
            let now = context.node.now();
            context.node.context().close(now, id);
            Ok(0)
        })
    })
}

/// Ends a channel at once and drops its messages in flight, without notice to the peer. XRDMA_EVENT_CLOSED follows.
///
/// # Errors
/// * EINVAL: the channel is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_abort(channel: *mut xrdma_channel) -> c_int {
    status(|| {
        with(|tables| {
            let (context, id) = tables.channel(channel.addr())?;
            let now = context.node.now();
            context.node.context().abort(now, id);
            Ok(0)
        })
    })
}

/// Moves a channel to `carrier`, XRDMA_CARRIER_RDMA or XRDMA_CARRIER_TCP, in both directions. Messages in flight are not
/// lost, repeated or reordered. The carrier changes while both ends poll; xrdma_channel_status(3) reports it.
///
/// # Errors
/// * EINVAL: there is no such carrier; or the channel is null, gone, or another thread's.
/// * ENOTCONN: the channel is not open.
/// * EOPNOTSUPP: it has no TCP connection: the end that opened it had not the option `streams`.
/// * ENETDOWN: its queue pair is broken.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_switch(channel: *mut xrdma_channel, carrier: c_int) -> c_int {
    status(|| {
        let to = match carrier {
            it if it == xrdma_carrier::XRDMA_CARRIER_RDMA as c_int => Carrier::Rdma,
            it if it == xrdma_carrier::XRDMA_CARRIER_TCP as c_int => Carrier::Stream,
            it => return Err(Failure::argument(format!("carrier {it} does not exist"))),
        };
        with(|tables| {
            let (context, id) = tables.channel(channel.addr())?;
            let now = context.node.now();
            context.node.context().switch(now, id, to)?;
            Ok(0)
        })
    })
}

/// Sets a channel's user pointer, which its events carry.
///
/// # Errors
/// * EINVAL: the channel is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_set_user_data(
    channel: *mut xrdma_channel,
    user_data: *mut c_void,
) -> c_int {
    status(|| {
        with(|tables| {
            tables.channels.get_mut(channel.addr())?.user_data = user_data;
            Ok(0)
        })
    })
}

/// Returns the pointer that xrdma_set_user_data(3) set for a channel.
///
/// # Errors
/// Returns null if no pointer was set, or the channel is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_user_data(channel: *const xrdma_channel) -> *mut c_void {
    let act = || with(|tables| Ok(tables.channels.get(channel.addr())?.user_data));
    contain(act, |_| ptr::null_mut())
}

/// Writes a channel's state and counters to `state`. `size` is the size of `state` when the program was compiled; a
/// newer library writes no more than that.
///
/// # Errors
/// * EINVAL: the channel is null, gone, or another thread's; or `state` is null.
/// * ENOTCONN: the channel ended, and XRDMA_EVENT_CLOSED is pending.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_channel_status(
    channel: *const xrdma_channel,
    state: *mut xrdma_channel_state,
    size: usize,
) -> c_int {
    status(|| {
        let (now, clock) = with(|tables| {
            let (context, id) = tables.channel(channel.addr())?;
            let now = context.node.now();
            let context = context.node.context();
            let status = context.status(id);
            let status =
                status.ok_or_else(|| Failure::new(libc::ENOTCONN, "the channel is closed"))?;
            Ok((status, context.clock(now, id)))
        })?;
        let stats = now.stats;
        let now = xrdma_channel_state {
            sent: stats.sent,
            sent_bytes: stats.sent_bytes,
            received: stats.received,
            received_bytes: stats.received_bytes,
            large: stats.large,
            acks: stats.acks,
            nops: stats.nops,
            probes: stats.probes,
            switches: stats.switches,
            frames_retransmitted: stats.frames_retransmitted,
            starved: stats.starved,
            receive_bytes: now.receive_bytes,
            clock_offset_ns: clock.map_or(0, |clock| clock.offset),
            in_flight: now.in_flight.into(),
            depth: now.depth.into(),
            backlog: now.backlog,
            fetching: now.fetching,
            asked: now.pending_calls,
            carrier: match now.carrier {
                Carrier::Rdma => xrdma_carrier::XRDMA_CARRIER_RDMA,
                Carrier::Stream => xrdma_carrier::XRDMA_CARRIER_TCP,
            },
        };
        // SAFETY: the header asks for it.
        unsafe { copy_known(&now, state, size) }?;
        Ok(0)
    })
}
