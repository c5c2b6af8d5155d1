//! A device of `libibverbs.so.1` as the messaging layer needs one: opened, asked for completions, closed.

use core::ffi::c_int;
use core::ptr;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, RawFd};

use crate::library::{Verbs, VerbsLibraryError, made};
use crate::memory::Pages;
use weft_verbs_abi::*;

mod open;
mod regions;
mod work;

use open::open_device;
use regions::Regions;

/// The device and its settings.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// Its name; the first there is.
    pub device: Option<String>,
    /// The address that peers reach it by; its first.
    pub address: Option<IpAddr>,
    /// The kind of its memory's pages.
    pub pages: Pages,
}

/// RoCE devices have a port for each network.
const PORT: u8 = 1;
/// Completions that are taken from the device at a time.
const BATCH: usize = 16;

/// An opened device with one completion queue.
#[derive(Debug)]
pub struct IbVerbs {
    verbs: Verbs,
    name: String,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    /// Completions that there is room for.
    room: u64,
    srq: *mut ibv_srq,
    gid: Ipv6Addr,
    gid_index: u8,
    mtu: u32,
    pages: Pages,
    qps: BTreeMap<u32, *mut ibv_qp>,
    regions: Regions,
    below: usize,
    batch: [ibv_wc; BATCH],
    next: usize,
    filled: usize,
    /// The last batch was all that the queue had.
    drained: bool,
}

// SAFETY: the objects are used by whoever has the device alone, and libibverbs does not mind which thread that is.
unsafe impl Send for IbVerbs {}

impl IbVerbs {
    /// Opens a device with room for `completions`.
    ///
    /// # Errors
    /// There is no library, no device, no address, or the device has no room.
    pub fn open(options: &DeviceOptions, completions: u32) -> Result<Self, VerbsLibraryError> {
        let verbs = Verbs::load()?;
        let (context, name) = open_device(&verbs, options.device.as_deref())?;
        let mut this = Self {
            verbs,
            context,
            pd: ptr::null_mut(),
            channel: ptr::null_mut(),
            cq: ptr::null_mut(),
            room: completions.into(),
            srq: ptr::null_mut(),
            gid: Ipv6Addr::UNSPECIFIED,
            gid_index: 0,
            mtu: 0,
            pages: options.pages,
            name: String::new(),
            qps: BTreeMap::new(),
            regions: Regions::default(),
            below: 0,
            batch: [ibv_wc::default(); BATCH],
            next: 0,
            filled: 0,
            drained: false,
        };
        this.find_address(&name, options.address)?;
        this.name = name;
        let entries = c_int::try_from(completions).unwrap_or(c_int::MAX);
        // SAFETY: the context is open; what it makes is destroyed with `this`.
        unsafe {
            let verbs = &this.verbs;
            this.pd = made("ibv_alloc_pd", (verbs.ibv_alloc_pd)(context))?;
            let channel = (verbs.ibv_create_comp_channel)(context);
            this.channel = made("ibv_create_comp_channel", channel)?;
            let flags = libc::fcntl((*this.channel).fd, libc::F_GETFL);
            libc::fcntl((*this.channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            let cq = (verbs.ibv_create_cq)(context, entries, ptr::null_mut(), this.channel, 0);
            this.cq = made("ibv_create_cq", cq)?;
        }
        Ok(this)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The descriptor that becomes readable when an armed device has completions.
    pub fn event_fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as `self`.
        unsafe { (*self.channel).fd }
    }

    /// The same, borrowed.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.event_fd()) }
    }

    /// Has the next completion make the descriptor readable. What completed before does not: poll once more.
    pub fn arm(&mut self) {
        // SAFETY: queue and context are this device's, and the function is what verbs.h would call.
        unsafe {
            if let Some(arm) = (*self.context).ops.req_notify_cq {
                arm(self.cq, 0);
            }
        }
    }

    /// Takes the notifications that came.
    pub fn take_notifications(&mut self) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is this device's, does not block, and both pointers have room.
        unsafe {
            while (self.verbs.ibv_get_cq_event)(self.channel, &raw mut cq, &raw mut context) == 0 {
                (self.verbs.ibv_ack_cq_events)(cq, 1);
            }
        }
    }
    /// Takes completions from the device; whether there were any.
    fn take_batch(&mut self) -> bool {
        // To ask a queue again that was empty just now would cost a turn of the device, before what came out of
        // it is handled.
        if core::mem::take(&mut self.drained) {
            return false;
        }
        // SAFETY: the queue is this device's, and the batch has room for what is asked for.
        let got = unsafe {
            let room = c_int::try_from(BATCH).expect("a few");
            let poll = (*self.context).ops.poll_cq;
            poll.map_or(0, |poll| poll(self.cq, room, self.batch.as_mut_ptr()))
        };
        (self.next, self.filled) = (0, usize::try_from(got).unwrap_or(0));
        self.drained = (1..BATCH).contains(&self.filled);
        self.filled > 0
    }
}

impl Drop for IbVerbs {
    fn drop(&mut self) {
        // SAFETY: users before what they use; each was made and is not destroyed yet.
        unsafe {
            for qp in self.qps.values() {
                (self.verbs.ibv_destroy_qp)(*qp);
            }
            for region in self.regions.iter() {
                (self.verbs.ibv_dereg_mr)(region.mr);
            }
            if !self.srq.is_null() {
                (self.verbs.ibv_destroy_srq)(self.srq);
            }
            if !self.cq.is_null() {
                (self.verbs.ibv_destroy_cq)(self.cq);
            }
            if !self.channel.is_null() {
                (self.verbs.ibv_destroy_comp_channel)(self.channel);
            }
            if !self.pd.is_null() {
                (self.verbs.ibv_dealloc_pd)(self.pd);
            }
            (self.verbs.ibv_close_device)(self.context);
        }
    }
}
