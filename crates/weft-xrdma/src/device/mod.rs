//! A device of `libibverbs.so.1` for the messaging layer: it opens, polls completions and closes.

use core::cell::Cell;
use core::ptr;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, RawFd};

use weft_units::Duration;

use crate::library::{Verbs, VerbsLibraryError, check_pointer};
use crate::memory::{Pages, Space};
use weft_verbs_abi::*;

mod completions;
mod gids;
mod labels;
mod open;
mod receives;
mod regions;
mod segments;
mod source_ports;
mod work;

use completions::{Completions, Reserved};
use labels::Labels;
pub use labels::PacketLabels;
use open::{open_device, query_device};
use regions::Regions;
use segments::Segments;
use source_ports::SourcePorts;
use work::Retries;

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

/// An opened device.
#[derive(Debug)]
pub struct IbVerbs {
    verbs: Verbs,
    name: String,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    completions: Completions,
    srq: *mut ibv_srq,
    gid: Ipv6Addr,
    gid_index: u8,
    mtu: u32,
    retries: Retries,
    labels: Labels,
    source_ports: Option<SourcePorts>,
    pages: Pages,
    /// Queue pairs by their numbers, with the room for their completions.
    qps: BTreeMap<u32, (*mut ibv_qp, Reserved)>,
    /// The queue pair that was used last: most messages answer another of the same channel. Null if it is gone.
    last_qp: Cell<(u32, *mut ibv_qp)>,
    regions: Regions,
    segments: Segments,
    space: Space,
}

// SAFETY: only the owner of the device uses the objects, and libibverbs allows any thread.
unsafe impl Send for IbVerbs {}

impl IbVerbs {
    /// Opens a device with a completion queue of `completions` entries, or of as many as it has.
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
            completions: Completions::new(context),
            srq: ptr::null_mut(),
            gid: Ipv6Addr::UNSPECIFIED,
            gid_index: 0,
            mtu: 0,
            retries: Retries::NIC,
            labels: wanted.for_port(gids::is_ethernet(&name, PORT)),
            source_ports: None,
            pages: options.pages,
            name: String::new(),
            qps: BTreeMap::new(),
            last_qp: Cell::new((0, ptr::null_mut())),
            regions: Regions::default(),
            segments: Segments::default(),
            space: Space::default(),
        };
        this.find_address(&name, options.address)?;
        if let Some(ports) = wanted.source_ports {
            this.source_ports = Some(SourcePorts::new(&this.verbs, &name, ports)?);
        }
        this.name = name;
        // SAFETY: the context is open; the domain is destroyed with `this`.
        let pd = unsafe { (this.verbs.ibv_alloc_pd)(context) };
        this.pd = check_pointer("ibv_alloc_pd", pd)?;
        let device = query_device(&this.verbs, context)?;
        this.retries = Retries::of(&device);
        let max_entries = u64::try_from(device.max_cqe).unwrap_or(0);
        this.completions.open(&this.verbs, completions, max_entries)?;
        Ok(this)
    }

    /// Returns the device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the descriptor that becomes readable when an armed device has completions.
    pub fn event_fd(&self) -> RawFd {
        self.completions.event_fd()
    }

    /// Returns the same descriptor, borrowed.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.event_fd()) }
    }

    /// Arms the device: the next completion makes the descriptor readable. Earlier ones do not: poll once more.
    pub fn arm(&mut self) {
        self.completions.arm();
    }

    /// Consumes pending notifications.
    pub fn take_notifications(&mut self) {
        self.completions.take_notifications(&self.verbs);
    }

    /// Returns the durations of the device's slow calls since the last time, oldest first.
    pub(crate) fn take_segments(&mut self) -> Vec<(&'static str, Duration)> {
        self.segments.take()
    }
}

impl Drop for IbVerbs {
    fn drop(&mut self) {
        // SAFETY: each object was created, is not destroyed yet, and is destroyed before the objects that it uses.
        unsafe {
            for (qp, _) in self.qps.values() {
                (self.verbs.ibv_destroy_qp)(*qp);
            }
            for region in self.regions.iter() {
                (self.verbs.ibv_dereg_mr)(region.mr);
            }
            if !self.srq.is_null() {
                (self.verbs.ibv_destroy_srq)(self.srq);
            }
            self.completions.destroy(&self.verbs);
            if !self.pd.is_null() {
                (self.verbs.ibv_dealloc_pd)(self.pd);
            }
            (self.verbs.ibv_close_device)(self.context);
        }
    }
}
