//! The completion queues of a device: one on NICs, whose queues hold millions of entries, and further ones where a queue
//! is short, as on the kernel's rxe.

use core::ffi::c_int;
use core::ptr;
use std::collections::VecDeque;

use weft_msg::{DeviceError, QpSizes};
use weft_rnic::Status;

use crate::library::{Verbs, VerbsLibraryError, check_pointer, refused};
use weft_verbs_abi::*;

/// Maximum number of completions per poll of the device.
const MAX_BATCH: usize = 16;

/// The queues, and completions that were polled and are not handled yet.
#[derive(Debug)]
pub(super) struct Completions {
    context: *mut ibv_context,
    /// The descriptor of all queues' notifications.
    channel: *mut ibv_comp_channel,
    queues: Vec<Queue>,
    /// Maximum entries of a queue.
    max_entries: u64,
    /// The queue of the next poll.
    polled: usize,
    /// The last batch: completions from `next` to `filled` are not handled yet.
    batch: [ibv_wc; MAX_BATCH],
    next: usize,
    filled: usize,
    /// `true` if the last batch emptied its queue.
    drained: bool,
    /// Completions that follow the batch: those polled because a queue pair was reset.
    held: VecDeque<ibv_wc>,
}

/// A queue.
#[derive(Debug)]
struct Queue {
    cq: *mut ibv_cq,
    entries: u64,
    /// Number of completions that its queue pairs may have.
    reserved: u64,
}

/// The place of a queue pair's completions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    queue: usize,
    count: u64,
}

impl Completions {
    /// Returns no queues.
    pub(super) fn new(context: *mut ibv_context) -> Self {
        Self {
            context,
            channel: ptr::null_mut(),
            queues: Vec::new(),
            max_entries: 0,
            polled: 0,
            batch: [ibv_wc::default(); MAX_BATCH],
            next: 0,
            filled: 0,
            drained: false,
            held: VecDeque::new(),
        }
    }

    /// Creates the channel of notifications, and a queue of `wanted` entries, or of as many as the device has.
    pub(super) fn open(
        &mut self,
        verbs: &Verbs,
        wanted: u32,
        max_entries: u64,
    ) -> Result<(), VerbsLibraryError> {
        self.max_entries = max_entries;
        // SAFETY: the context is open; the channel is destroyed with the device.
        unsafe {
            let channel = (verbs.ibv_create_comp_channel)(self.context);
            self.channel = check_pointer("ibv_create_comp_channel", channel)?;
            let flags = libc::fcntl((*self.channel).fd, libc::F_GETFL);
            libc::fcntl((*self.channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        self.add_queue(verbs, u64::from(wanted).min(max_entries))
    }

    fn add_queue(&mut self, verbs: &Verbs, entries: u64) -> Result<(), VerbsLibraryError> {
        let count = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: the context is open, and the channel lives longer than its queues.
        let cq =
            unsafe { (verbs.ibv_create_cq)(self.context, count, ptr::null_mut(), self.channel, 0) };
        let cq = check_pointer("ibv_create_cq", cq)?;
        self.queues.push(Queue { cq, entries, reserved: 0 });
        Ok(())
    }

    /// Reserves room for the completions of a queue pair: an overflow would lose a queue and all its queue pairs. A queue
    /// that is too short grows, and one that is full has a successor. Returns the queue.
    pub(super) fn reserve(
        &mut self,
        verbs: &Verbs,
        sizes: QpSizes,
    ) -> Result<(*mut ibv_cq, Reserved), DeviceError> {
        let doing = "making room for completions";
        let count = u64::from(sizes.send) + u64::from(sizes.receive);
        let has_room = |queue: &Queue| queue.reserved + count <= self.max_entries;
        let found = self.queues.iter().position(has_room);
        let index = found.unwrap_or(self.queues.len());
        if found.is_none() {
            if count > self.max_entries {
                return Err(refused(doing, libc::EINVAL));
            }
            let entries = self.queues.first().map_or(count, |first| first.entries).max(count);
            self.add_queue(verbs, entries).map_err(|_| refused(doing, -1))?;
        }
        let queue = &mut self.queues[index];
        let wanted = queue.reserved + count;
        if wanted > queue.entries {
            let entries = cq_entries(wanted).min(self.max_entries);
            let new = c_int::try_from(entries).unwrap_or(c_int::MAX);
            // SAFETY: the queue is this device's.
            match unsafe { (verbs.ibv_resize_cq)(queue.cq, new) } {
                0 => queue.entries = entries,
                code => return Err(refused(doing, code)),
            }
        }
        queue.reserved = wanted;
        Ok((queue.cq, Reserved { queue: index, count }))
    }

    /// Returns the room of a queue pair that is gone.
    pub(super) fn release(&mut self, reserved: Reserved) {
        self.queues[reserved.queue].reserved -= reserved.count;
    }

    /// Returns the descriptor that becomes readable when an armed queue has completions.
    pub(super) fn event_fd(&self) -> c_int {
        // SAFETY: the channel lives as long as `self`.
        unsafe { (*self.channel).fd }
    }

    /// Arms all queues.
    pub(super) fn arm(&self) {
        // SAFETY: queues and context are this device's, and the function is what verbs.h would call.
        unsafe {
            if let Some(arm) = (*self.context).ops.req_notify_cq {
                for queue in &self.queues {
                    arm(queue.cq, 0);
                }
            }
        }
    }

    /// Consumes pending notifications.
    pub(super) fn take_notifications(&self, verbs: &Verbs) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is this device's, does not block, and both pointers have room.
        unsafe {
            while (verbs.ibv_get_cq_event)(self.channel, &raw mut cq, &raw mut context) == 0 {
                (verbs.ibv_ack_cq_events)(cq, 1);
            }
        }
    }

    /// Returns the next completion.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Option<&ibv_wc> {
        if self.next == self.filled && !self.take_batch() {
            return None;
        }
        let completion = self.batch[..self.filled].get(self.next)?;
        self.next += 1;
        Some(completion)
    }

    /// Takes the next batch: held completions, or those of a queue. Returns `false` after a pass over all queues.
    #[inline(always)]
    fn take_batch(&mut self) -> bool {
        if !self.held.is_empty() {
            self.take_held();
            return true;
        }
        while self.polled < self.queues.len() {
            // The last batch emptied the queue. Another poll would cost a pass of the device before the caller handles
            // these completions.
            if !core::mem::take(&mut self.drained) && self.fill(self.polled) {
                return true;
            }
            self.polled += 1;
        }
        self.polled = 0;
        false
    }

    fn take_held(&mut self) {
        (self.next, self.filled) = (0, self.held.len().min(MAX_BATCH));
        let held = self.held.drain(..self.filled);
        self.batch.iter_mut().zip(held).for_each(|(place, completion)| *place = completion);
    }

    /// Polls a batch from a queue. Returns `true` if there were any.
    #[inline]
    fn fill(&mut self, queue: usize) -> bool {
        let cq = self.queues[queue].cq;
        // SAFETY: the queue is this device's, and the batch has room for `MAX_BATCH` completions.
        let got = unsafe {
            let room = c_int::try_from(MAX_BATCH).expect("a few");
            let poll = (*self.context).ops.poll_cq;
            poll.map_or(0, |poll| poll(cq, room, self.batch.as_mut_ptr()))
        };
        (self.next, self.filled) = (0, usize::try_from(got).unwrap_or(0));
        self.drained = (1..MAX_BATCH).contains(&self.filled);
        self.filled > 0
    }

    /// Discards the completions of a queue pair that is reset or gone: they must not reach its next user. NICs' libraries
    /// take them out of the queue; rxe's leaves them there.
    pub(super) fn discard(&mut self, qp: u32, reserved: Reserved) {
        self.held.retain(|completion| completion.qp_num != qp);
        let mut batch = self.next..self.filled;
        let mut later = core::mem::take(&mut self.held);
        loop {
            let others = self.batch[batch].iter().filter(|completion| completion.qp_num != qp);
            self.held.extend(others);
            self.held.append(&mut later);
            let more = self.fill(reserved.queue);
            batch = 0..self.filled;
            if !more {
                break;
            }
        }
        (self.next, self.filled, self.drained) = (0, 0, false);
    }

    /// Destroys the queues and the channel.
    ///
    /// # Safety
    /// The queue pairs are gone, and nothing of this is used again.
    pub(super) unsafe fn destroy(&self, verbs: &Verbs) {
        // SAFETY: each object was created and is not destroyed yet.
        unsafe {
            for queue in &self.queues {
                (verbs.ibv_destroy_cq)(queue.cq);
            }
            if !self.channel.is_null() {
                (verbs.ibv_destroy_comp_channel)(self.channel);
            }
        }
    }
}

/// Returns the number of entries of a completion queue for `wanted` completions: at least as many, and one less than a
/// power of two, because devices reserve an entry and round up.
const fn cq_entries(wanted: u64) -> u64 {
    (wanted + 1).next_power_of_two() - 1
}

/// Returns the status of a `wc_status` of verbs.h; `General` for an unknown one.
#[inline]
pub(super) fn status_of(number: u32) -> Status {
    if number == Status::Success as u32 { Status::Success } else { error_of(number) }
}

fn error_of(number: u32) -> Status {
    use Status::*;
    let errors = [
        LocalLength,
        LocalQpOperation,
        LocalProtection,
        WrFlush,
        MwBind,
        BadResponse,
        LocalAccess,
        RemoteInvalidRequest,
        RemoteAccess,
        RemoteOperation,
        RetryExceeded,
        RnrRetryExceeded,
        RemoteAborted,
        Fatal,
    ];
    errors.into_iter().find(|status| *status as u32 == number).unwrap_or(General)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_queue_has_room_for_all_that_is_wanted() {
        for (wanted, entries) in [(1 << 17, (1 << 18) - 1), ((1 << 17) - 1, (1 << 17) - 1), (1, 1)]
        {
            assert_eq!(cq_entries(wanted), entries, "for {wanted}");
        }
    }
}
