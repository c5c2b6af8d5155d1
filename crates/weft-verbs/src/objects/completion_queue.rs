//! Completion queues, polled whole or field by field.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_rnic::Arm;
use weft_udp::Clock;
use weft_units::Duration;

use super::channel::CompletionChannel;
use super::completion::wc;
use super::{Object, Shared};
use crate::context::{Context, Opened};
use crate::device::limits;
use crate::engine::Watcher;
use crate::engine::events::Open;
use crate::errno::{EINVAL, EOPNOTSUPP, Errno, Outcome, count, number, pointer};
use weft_verbs_abi::*;

#[repr(C)]
pub(super) struct CompletionQueue {
    public: Shared<ibv_cq_ex>,
    pub(super) opened: Arc<Opened>,
    pub(super) number: weft_rnic::CompletionQueue,
    /// Number of open completion events.
    pub(super) announced: Open,
    /// Number of open asynchronous events.
    pub(super) asynchronous: Open,
    /// The completion that is read field by field. The polling thread holds the queue's mutex.
    current: UnsafeCell<ibv_wc>,
}

// SAFETY: the type is `repr(C)`, and begins with the structure.
unsafe impl Object for CompletionQueue {
    type Public = ibv_cq_ex;
}

/// The parameters of a new completion queue.
struct Wanted {
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
}

/// Returns the capacity of a queue for which a program requests `cqe` entries: the next higher power of two up to the
/// limit, because hardware rounds up and programs rely on it. `ib_send_lat -e` requests one entry, and has two
/// completions when an ACK comes after its peer's answer. A request above the limit is returned as it is.
fn capacity_of(cqe: u32) -> u32 {
    let rounded = cqe.saturating_add(1).checked_next_power_of_two();
    rounded.map_or(cqe, |rounded| rounded.min(limits::CQE.cast_unsigned()).max(cqe))
}

/// # Safety
/// The context is open, and the channel null or valid.
unsafe fn create(wanted: &Wanted) -> Outcome<*mut ibv_cq_ex> {
    // SAFETY: guaranteed by the caller.
    let opened = unsafe { Context::of(wanted.context) }.opened.clone();
    // SAFETY: guaranteed by the caller.
    let vectors = unsafe { (*wanted.context).num_comp_vectors };
    if wanted.comp_vector >= vectors.cast_unsigned() {
        return Err(EINVAL);
    }
    // SAFETY: all-zero bytes are valid for pointers, nullable functions and numbers.
    let zero: ibv_cq_ex = unsafe { core::mem::zeroed() };
    let capacity = capacity_of(wanted.cqe);
    let base = ibv_cq {
        context: wanted.context,
        channel: wanted.channel,
        cq_context: wanted.cq_context,
        handle: 0,
        cqe: c_int::try_from(capacity).map_err(|_| EINVAL)?,
        ..zero.base
    };
    let queue = CompletionQueue {
        public: Shared::new(by_fields(ibv_cq_ex { base, ..zero })),
        opened: opened.clone(),
        number: weft_rnic::CompletionQueue(0),
        announced: Open::default(),
        asynchronous: Open::default(),
        current: UnsafeCell::new(ibv_wc::default()),
    };
    let public = queue.publish();
    // SAFETY: the channel is null or valid.
    let channel = unsafe { wanted.channel.as_mut() }.map(|channel| {
        // SAFETY: guaranteed by the caller.
        unsafe { CompletionChannel::of(channel) }
    });
    let watcher = Watcher {
        channel: channel.map(|channel| channel.queue.clone()),
        ..opened.watcher(public.expose_provenance())
    };
    let made = opened.engine.create_cq(opened.number, capacity, watcher);
    let Ok(made) = made.inspect_err(|_| {
        // SAFETY: it was published above, and no program has it.
        drop(unsafe { CompletionQueue::take(public) });
    }) else {
        return made.map(|_| public);
    };
    if let Some(channel) = channel {
        channel.users.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: it was published above, and no program has it.
    unsafe {
        (*public.cast::<CompletionQueue>()).number = made;
        (*public).base.handle = made.0;
    }
    Ok(public)
}

/// # Safety
/// `context` is open, and `channel` null or valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer(|| {
        let cqe = u32::try_from(cqe).map_err(|_| EINVAL)?;
        let comp_vector = u32::try_from(comp_vector).map_err(|_| EINVAL)?;
        let wanted = Wanted { context, cqe, cq_context, channel, comp_vector };
        // SAFETY: guaranteed by the caller.
        unsafe { create(&wanted) }.map(<*mut ibv_cq_ex>::cast)
    })
}

/// Supported fields of completions: the first seven of `enum ibv_create_cq_wc_flags`.
const FIELDS: u64 = (1 << 7) - 1;

/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const MASK_FLAGS: u32 = 1;

/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`, which has no effect here.
const SINGLE_THREADED: u32 = 1;

/// # Safety
/// `context` is open, and `attributes` are valid.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer(|| {
        // SAFETY: guaranteed by the caller.
        let wanted = unsafe { &*attributes };
        let flags = if wanted.comp_mask & MASK_FLAGS != 0 { wanted.flags } else { 0 };
        let unknown = wanted.comp_mask & !MASK_FLAGS != 0 || flags & !SINGLE_THREADED != 0;
        if unknown || wanted.wc_flags & !FIELDS != 0 {
            return Err(EOPNOTSUPP);
        }
        let ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, .. } = *wanted;
        // SAFETY: guaranteed by the caller.
        unsafe { create(&Wanted { context, cqe, cq_context, channel, comp_vector }) }
    })
}

/// The time for which a queue that shrinks is polled first: enough to connect to the same process, to send it datagrams
/// and to get them acknowledged, also through a daemon.
const BEFORE_SHRINKING: Duration = Duration::from_millis(10);

/// # Safety
/// `cq` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    number(|| {
        let capacity = capacity_of(u32::try_from(cqe).map_err(|_| EINVAL)?);
        // SAFETY: guaranteed by the caller.
        let queue = unsafe { CompletionQueue::of(cq.cast()) };
        // Completions that arrive by then count too: hardware takes longer to shrink a queue than to send to itself.
        // SAFETY: guaranteed by the caller.
        let shrinks = capacity < unsafe { (*cq).cqe }.cast_unsigned();
        let until = Clock.now() + BEFORE_SHRINKING;
        while shrinks && Clock.now() < until {
            queue.opened.engine.poll_cq(queue.number, 0, |_| ())?;
            std::thread::yield_now();
        }
        queue.opened.engine.resize_cq(queue.number, capacity)?;
        // SAFETY: guaranteed by the caller.
        unsafe { (*cq).cqe = capacity.cast_signed() };
        Ok(())
    })
}

/// # Safety
/// `cq` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let (queue, channel) = unsafe { (CompletionQueue::of(cq.cast()), (*cq).channel) };
        queue.opened.engine.destroy_cq(queue.number)?;
        let object = cq.expose_provenance();
        if !channel.is_null() {
            // SAFETY: a channel outlives its queues.
            let channel = unsafe { CompletionChannel::of(channel) };
            channel.queue.take(|&about| about == object);
            channel.users.fetch_sub(1, Ordering::Relaxed);
        }
        queue.opened.events.take(|event| event.object == object);
        queue.announced.wait_for_none();
        queue.asynchronous.wait_for_none();
        // SAFETY: no event refers to it any more, and the caller gives it up.
        drop(unsafe { CompletionQueue::take(cq.cast()) });
        Ok(())
    })
}

/// # Safety
/// `cq` exists, and `to` has room for `max` completions.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, max: c_int, to: *mut ibv_wc) -> c_int {
    count(|| {
        let max = usize::try_from(max).map_err(|_| EINVAL)?;
        // SAFETY: guaranteed by the caller.
        let queue = unsafe { CompletionQueue::of(cq.cast()) };
        let mut next = to;
        let taken = queue.opened.engine.poll_cq(queue.number, max, |completion| {
            // SAFETY: the number is at most the caller's room.
            unsafe {
                next.write(wc(&completion));
                next = next.add(1);
            }
        })?;
        c_int::try_from(taken).map_err(|_| EINVAL)
    })
}

/// # Safety
/// `cq` exists.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    number(|| {
        let arm = if solicited_only == 0 { Arm::Next } else { Arm::Solicited };
        // SAFETY: guaranteed by the caller.
        let queue = unsafe { CompletionQueue::of(cq.cast()) };
        queue.opened.engine.arm_cq(queue.number, arm)
    })
}

// The functions that poll field by field.

fn by_fields(queue: ibv_cq_ex) -> ibv_cq_ex {
    ibv_cq_ex {
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        ..queue
    }
}

/// Makes the next completion the current one.
///
/// # Safety
/// `cq` exists, and the caller holds its mutex.
unsafe fn advance(cq: *mut ibv_cq_ex) -> Outcome<()> {
    // SAFETY: guaranteed by the caller.
    let queue = unsafe { CompletionQueue::of(cq) };
    let mut next = None;
    queue.opened.engine.poll_cq(queue.number, 1, |completion| next = Some(wc(&completion)))?;
    let next = next.ok_or(Errno(libc::ENOENT))?;
    // SAFETY: no other thread polls while the mutex is held.
    unsafe {
        (*cq).wr_id = next.wr_id;
        (*cq).status = next.status;
        *queue.current.get() = next;
    }
    Ok(())
}

/// # Safety
/// `cq` exists, and `attributes` are null or a structure.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attributes: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    if unsafe { attributes.as_ref() }.is_some_and(|attributes| attributes.comp_mask != 0) {
        return libc::EINVAL;
    }
    // SAFETY: an all-zero mutex is valid; `end_poll` releases it, or this function if there is no completion.
    unsafe {
        libc::pthread_mutex_lock(&raw mut (*cq).base.mutex);
        let outcome = number(|| advance(cq));
        if outcome != 0 {
            libc::pthread_mutex_unlock(&raw mut (*cq).base.mutex);
        }
        outcome
    }
}

/// # Safety
/// `start_poll` succeeded.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the polling thread holds the mutex.
    number(|| unsafe { advance(cq) })
}

/// # Safety
/// `start_poll` succeeded.
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the polling thread holds the mutex.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*cq).base.mutex) };
}

/// Makes the functions that read a field of the current completion.
macro_rules! fields {
    ($($name:ident: $type:ty = |$wc:ident| $value:expr;)+) => {
        $(
            /// # Safety
            /// Polling has begun and found a completion.
            unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
                // SAFETY: the polling thread holds the mutex.
                let $wc = unsafe { *CompletionQueue::of(cq).current.get() };
                $value
            }
        )+
    };
}

fields! {
    read_opcode: u32 = |wc| wc.opcode;
    read_vendor_err: u32 = |wc| wc.vendor_err;
    read_byte_len: u32 = |wc| wc.byte_len;
    read_imm_data: be32 = |wc| wc.imm_data;
    read_qp_num: u32 = |wc| wc.qp_num;
    read_src_qp: u32 = |wc| wc.src_qp;
    read_wc_flags: c_uint = |wc| wc.wc_flags;
    read_slid: u32 = |wc| wc.slid.into();
    read_sl: u8 = |wc| wc.sl;
    read_dlid_path_bits: u8 = |wc| wc.dlid_path_bits;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_more_entries_than_requested_up_to_the_limit() {
        assert_eq!([0, 1, 2, 3, 100].map(capacity_of), [1, 2, 4, 4, 128]);
        let limit = limits::CQE.cast_unsigned();
        assert_eq!(
            [limit - 1, limit, limit + 1, u32::MAX].map(capacity_of),
            [limit, limit, limit + 1, u32::MAX]
        );
    }
}
