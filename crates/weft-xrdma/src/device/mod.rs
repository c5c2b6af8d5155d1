//! A device of `libibverbs.so.1` for the messaging layer: it opens, polls completions and closes.

use core::ffi::c_int;
use core::ptr;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, RawFd};

use weft_units::Duration;

use crate::library::{Verbs, VerbsLibraryError, check_pointer};
use crate::memory::Pages;
use weft_verbs_abi::*;

mod gids;
mod labels;
mod open;
mod regions;
mod segments;
mod source_ports;
mod work;

use labels::Labels;
pub use labels::PacketLabels;
use open::open_device;
use regions::Regions;
use segments::Segments;
use source_ports::SourcePorts;

/// The device and its settings.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// The device's name; by default the first device.
    pub device: Option<String>,
    /// The address by which peers reach it; by default its first.
    pub address: Option<IpAddr>,
    /// The kind of pages for its memory.
    pub pages: Pages,
    /// The labels of its packets. The environment variable `WEFT_ROCE` sets those that are `None`.
    pub labels: PacketLabels,
}

/// The port number: a RoCE device has one port per network.
const PORT: u8 = 1;
/// Maximum number of completions per poll of the device.
const MAX_BATCH: usize = 16;

/// An opened device with one completion queue.
#[derive(Debug)]
pub struct IbVerbs {
    verbs: Verbs,
    name: String,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    /// Number of completions that fit in the queue.
    cq_entries: u64,
    srq: *mut ibv_srq,
    gid: Ipv6Addr,
    gid_index: u8,
    mtu: u32,
    labels: Labels,
    source_ports: Option<SourcePorts>,
    pages: Pages,
    qps: BTreeMap<u32, *mut ibv_qp>,
    regions: Regions,
    segments: Segments,
    /// The start of the last mapping; 0 before the first.
    below: usize,
    /// The last batch of completions: those from `next` to `filled` are not handled yet.
    batch: [ibv_wc; MAX_BATCH],
    next: usize,
    filled: usize,
    /// `true` if the last batch emptied the queue.
    drained: bool,
}

// SAFETY: only the owner of the device uses the objects, and libibverbs allows any thread.
unsafe impl Send for IbVerbs {}

impl IbVerbs {
    /// Opens a device with a queue of `completions` entries.
    ///
    /// # Errors
    /// There is no library, no device, no address, or the device has no resources left.
    pub fn open(options: &DeviceOptions, completions: u32) -> Result<Self, VerbsLibraryError> {
        let wanted = options.labels.clone().or_environment()?;
        let verbs = Verbs::load()?;
        let (context, name) = open_device(&verbs, options.device.as_deref())?;
        let mut this = Self {
            verbs,
            context,
            pd: ptr::null_mut(),
            channel: ptr::null_mut(),
            cq: ptr::null_mut(),
            cq_entries: completions.into(),
            srq: ptr::null_mut(),
            gid: Ipv6Addr::UNSPECIFIED,
            gid_index: 0,
            mtu: 0,
            labels: wanted.for_port(gids::is_ethernet(&name, PORT)),
            source_ports: None,
            pages: options.pages,
            name: String::new(),
            qps: BTreeMap::new(),
            regions: Regions::default(),
            segments: Segments::default(),
            below: 0,
            batch: [ibv_wc::default(); MAX_BATCH],
            next: 0,
            filled: 0,
            drained: false,
        };
        this.find_address(&name, options.address)?;
        if let Some(ports) = wanted.source_ports {
            this.source_ports = Some(SourcePorts::new(&this.verbs, &name, ports)?);
        }
        this.name = name;
        let entries = c_int::try_from(completions).unwrap_or(c_int::MAX);
        // SAFETY: the context is open; what it makes is destroyed with `this`.
        unsafe {
            let verbs = &this.verbs;
            this.pd = check_pointer("ibv_alloc_pd", (verbs.ibv_alloc_pd)(context))?;
            let channel = (verbs.ibv_create_comp_channel)(context);
            this.channel = check_pointer("ibv_create_comp_channel", channel)?;
            let flags = libc::fcntl((*this.channel).fd, libc::F_GETFL);
            libc::fcntl((*this.channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            let cq = (verbs.ibv_create_cq)(context, entries, ptr::null_mut(), this.channel, 0);
            this.cq = check_pointer("ibv_create_cq", cq)?;
        }
        Ok(this)
    }

    /// Returns the device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the descriptor that becomes readable when an armed device has completions.
    pub fn event_fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as `self`.
        unsafe { (*self.channel).fd }
    }

    /// Returns the same descriptor, borrowed.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.event_fd()) }
    }

    /// Arms the device: the next completion makes the descriptor readable. Earlier ones do not: poll once more.
    pub fn arm(&mut self) {
        // SAFETY: queue and context are this device's, and the function is what verbs.h would call.
        unsafe {
            if let Some(arm) = (*self.context).ops.req_notify_cq {
                arm(self.cq, 0);
            }
        }
    }

    /// Consumes pending notifications.
    pub fn take_notifications(&mut self) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is this device's, does not block, and both pointers have room.
        unsafe {
            while (self.verbs.ibv_get_cq_event)(self.channel, &raw mut cq, &raw mut context) == 0 {
                (self.verbs.ibv_ack_cq_events)(cq, 1);
            }
        }
    }

    /// Returns the durations of the device's slow calls since the last time, oldest first.
    pub(crate) fn take_segments(&mut self) -> Vec<(&'static str, Duration)> {
        self.segments.take()
    }

    /// Polls completions from the device. Returns `true` if there were any.
    fn take_batch(&mut self) -> bool {
        // The last batch emptied the queue. Another poll would cost a pass of the device before the caller handles
        // these completions.
        if core::mem::take(&mut self.drained) {
            return false;
        }
        // SAFETY: the queue is this device's, and the batch has room for `MAX_BATCH` completions.
        let got = unsafe {
            let room = c_int::try_from(MAX_BATCH).expect("a few");
            let poll = (*self.context).ops.poll_cq;
            poll.map_or(0, |poll| poll(self.cq, room, self.batch.as_mut_ptr()))
        };
        (self.next, self.filled) = (0, usize::try_from(got).unwrap_or(0));
        self.drained = (1..MAX_BATCH).contains(&self.filled);
        self.filled > 0
    }
}

impl Drop for IbVerbs {
    fn drop(&mut self) {
        // SAFETY: each object was created, is not destroyed yet, and is destroyed before the objects that it uses.
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
