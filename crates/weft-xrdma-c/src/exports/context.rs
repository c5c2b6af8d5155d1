//! Functions that create, configure, describe and destroy contexts.

use core::ffi::{c_char, c_int};

use weft_xrdma::Options;

use super::{copy_known, room, text};
use crate::context::Context;
use crate::failure::status;
use crate::tables::with;
use crate::types::{xrdma_context, xrdma_context_state};

/// Opens an RDMA device and creates a context on it for this thread.
///
/// `options` is null, or words NAME=VALUE separated by spaces: `device` (a name; default the first device), `address`
/// (the address that peers use; default the device's first), `pages` (anonymous, huge or malloc), `streams` (true
/// keeps a TCP connection, which is not encrypted, for each channel that this end opens and moves the channel there
/// when RDMA breaks), `show` (a name for `weft stat`, or off), `spin` (the time to poll before sleeping in
/// xrdma_wait(3) and xrdma_call(3)), the labels of its packets on RoCE (`traffic_class`, default 106; `sl`, default 3;
/// `flow_label`, default 0; `source_ports`, a range), and the parameters of xrdma_set_flag(3). The environment variable
/// WEFT_ROCE sets labels that the options do not.
///
/// # Errors
/// * EINVAL: an option does not exist, or its value or WEFT_ROCE is invalid.
/// * EOPNOTSUPP: `source_ports`, and no library of the device's driver sets them.
/// * EACCES: `streams` is true, and WEFT_ENCRYPTION, WEFT_PRESHARED_KEY or WEFT_PEERS requires encryption.
/// * ENODEV: there is no libibverbs.so.1, or no device.
/// * EADDRNOTAVAIL: the device has no such address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_context_create(
    options: *const c_char,
    context: *mut *mut xrdma_context,
) -> c_int {
    status(|| {
        // SAFETY: the header asks for it.
        let place = unsafe { room(context, "the context") }?;
        let options = if options.is_null() {
            Options::default()
        } else {
            // SAFETY: likewise.
            unsafe { text(options, "options") }?.parse()?
        };
        let context = Context::new(options)?;
        let handle = with(|tables| tables.contexts.insert(context))?;
        place.write(core::ptr::without_provenance_mut(handle));
        Ok(0)
    })
}

/// Destroys a context at once, with its channels, messages and registered memory. Messages in flight are lost: close
/// the channels first with xrdma_close(3), and poll until they are closed.
///
/// A thread's contexts are also destroyed when the thread ends.
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_context_destroy(context: *mut xrdma_context) -> c_int {
    status(|| {
        let handle = context.addr();
        let context = with(|tables| {
            let context = tables.contexts.remove(handle)?;
            tables.channels.retain(|channel| channel.context != handle);
            tables.messages.retain(|held| held.context != handle);
            Ok(context)
        })?;
        drop(context);
        Ok(0)
    })
}

/// Changes a parameter of a running context.
///
/// The parameters are those of table III of the paper: `qp_cache`, `outstanding`, `outstanding_min`, `backlog`,
/// `unanswered`, `memory_limit`, `memory_keep`, `keepalive`, `keepalive_timeout`, `ack_delay`, `deadlock_after`, `close_timeout`,
/// `slow_threshold`, `polling_warn`, `carrier` (rdma or tcp), `rdma_retry`, `congested_rtt`, `congested_for`,
/// `trace_every`, and, only in xrdma_context_create(3), `depth`,
/// `ack_every`, `small`, `longest`, `fragment`, `srq`, `reads`, `memory_region`. Values are as in `64`, `64KiB` or `10ms`.
///
/// `filter` injects faults into messages: `none`, or rules separated by semicolons, each a direction, a fault, and as
/// wanted a chance and a kind of message, as in `out drop 1/100; in delay 5ms responses`.
///
/// # Errors
/// * EINVAL: there is no such parameter, it cannot change while the context runs, or the value is out of range; or
///   the context is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_set_flag(
    context: *mut xrdma_context,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the header asks for it.
        let (name, value) = unsafe { (text(name, "the name")?, text(value, "the value")?) };
        with(|tables| {
            let (context, _) = tables.context(context.addr())?;
            context.node.context().set(name, value)?;
            Ok(0)
        })
    })
}

/// Writes a context's state and counters to `state`. `size` is the size of `state` when the program was compiled; a
/// newer library writes no more than that.
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's; or `state` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_context_status(
    context: *const xrdma_context,
    state: *mut xrdma_context_state,
    size: usize,
) -> c_int {
    status(|| {
        let now = with(|tables| {
            let (context, _) = tables.context(context.addr())?;
            let context = context.node.context();
            let stats = context.stats();
            let memory = context.memory();
            Ok(xrdma_context_state {
                memory_bytes: memory.registered,
                memory_used_bytes: memory.used,
                channels: context.channels().count() as u64,
                channels_begun: stats.channels,
                channels_closed: stats.closed,
                qps_cached: context.cached_qps() as u64,
                qps_created: stats.qps_created,
                qps_reused: stats.qps_reused,
                slow_polls: stats.slow_polls,
                slow_calls: stats.slow_calls,
            })
        })?;
        // SAFETY: the header asks for it.
        unsafe { copy_known(&now, state, size) }?;
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use weft_msg::Config;

    #[test]
    fn the_manual_names_every_parameter() {
        let manual = include_str!("../../include/xrdma.h");
        for parameter in Config::default().parameters() {
            assert!(manual.contains(&format!("`{}`", parameter.name)), "{}", parameter.name);
        }
    }
}
