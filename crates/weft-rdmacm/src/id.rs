//! Identifiers as programs hold them: one end of a connection, or a listener.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::*;
use crate::address::{self, Sockaddr};
use crate::errno::{Errno, Outcome};
use crate::event::{Channel, Event, Events};
use crate::events::Open;
use crate::ibverbs::{Device, PORT, gid_of, has_unseen};
use crate::manager;
use crate::manager::{AddressPair, Space};
use crate::message::{CommunicationId, Offer};
use crate::service::Bound;
use weft_verbs_abi::*;

/// The default partition, the only one that exists.
const PKEY: u16 = 0xffff;

/// An identifier that a program gets from `rdma_create_id(3)`.
#[repr(C)]
pub(crate) struct Id {
    public: UnsafeCell<rdma_cm_id>,
    pub(crate) open: Open,
    details: Mutex<Details>,
}

/// The part that the program does not see. Its lock is taken after the service's lock, never before.
pub(crate) struct Details {
    pub(crate) events: Arc<Events>,
    /// `true` if it was made without a channel: its calls block until they are done.
    pub(crate) is_synchronous: bool,
    pub(crate) bound: Option<Bound>,
    pub(crate) communication: Option<CommunicationId>,
    /// The offer of this end.
    pub(crate) own: Offer,
    /// The offer of the other end.
    pub(crate) peer: Option<Offer>,
    /// The row of the local address in the device's table.
    pub(crate) row: u8,
    /// The device's maximum number of concurrent READs and atomics (`Device::resources`).
    pub(crate) max_resources: u8,
    pub(crate) traffic_class: u8,
    /// The ACK timeout, in the encoding of a queue pair's attributes.
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) only_ipv6: bool,
    /// The template of the queue pairs of a listener's connections.
    pub(crate) template: Option<Template>,
}

/// The attributes of a queue pair to make, in a given domain or the default one.
#[derive(Clone, Copy)]
pub(crate) struct Template {
    pub(crate) domain: *mut ibv_pd,
    pub(crate) init: ibv_qp_init_attr,
}

// SAFETY: pointers to objects of verbs, which any thread may use.
unsafe impl Send for Template {}

/// The parameters of a new identifier.
pub(crate) struct Making {
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) is_synchronous: bool,
    pub(crate) context: *mut c_void,
    pub(crate) port_space: u32,
    pub(crate) qp_type: u32,
}

impl Id {
    /// Creates an identifier.
    ///
    /// # Safety
    /// The channel is open.
    pub(crate) unsafe fn create(making: Making) -> *mut rdma_cm_id {
        // SAFETY: all-zero bytes are valid for its numbers and pointers.
        let zero: rdma_cm_id = unsafe { core::mem::zeroed() };
        let Making { channel, is_synchronous, context, port_space, qp_type } = making;
        let public = rdma_cm_id { channel, context, ps: port_space, qp_type, ..zero };
        let details = Details {
            // SAFETY: guaranteed by the caller.
            events: unsafe { Channel::events(channel) },
            is_synchronous,
            bound: None,
            communication: None,
            own: Offer::default(),
            peer: None,
            row: 0,
            max_resources: 0,
            traffic_class: 0,
            ack_timeout: None,
            only_ipv6: false,
            template: None,
        };
        let id = Self {
            public: UnsafeCell::new(public),
            open: Open::default(),
            details: Mutex::new(details),
        };
        Box::into_raw(Box::new(id)).cast()
    }

    /// Returns the identifier of a C structure.
    ///
    /// # Safety
    /// The structure came from [`Self::create`] and is not destroyed while the reference is used.
    pub(crate) unsafe fn of<'a>(public: *mut rdma_cm_id) -> &'a Self {
        // SAFETY: the structure of C is the first field of ours.
        unsafe { &*public.cast_const().cast::<Self>() }
    }

    pub(crate) fn public(&self) -> *mut rdma_cm_id {
        self.public.get()
    }

    pub(crate) fn details(&self) -> MutexGuard<'_, Details> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn owner(&self) -> manager::Owner {
        manager::Owner(core::ptr::from_ref(self).expose_provenance())
    }

    pub(crate) fn space(&self) -> Space {
        // SAFETY: the field is set at creation and never changes.
        match unsafe { (*self.public()).ps } {
            port_space::UDP => Space::Datagram,
            _ => Space::Connected,
        }
    }

    /// Returns the port it is bound to.
    pub(crate) fn port(&self) -> Option<u16> {
        self.details().bound.as_ref().map(Bound::port)
    }

    /// Returns the ID of its connection.
    ///
    /// # Errors
    /// `ENOTCONN`: there is no connection.
    pub(crate) fn communication(&self) -> Outcome<CommunicationId> {
        self.details().communication.ok_or(Errno(libc::ENOTCONN))
    }

    /// Creates an event about it.
    fn event(&self, kind: u32, status: c_int) -> Box<Event> {
        Event::new(self.public(), &self.open, kind, status)
    }

    pub(crate) fn announce(&self, event: Box<Event>) {
        // The lock is released first: the thread that reads the event may take it.
        let events = self.details().events.clone();
        events.push(event);
    }

    pub(crate) fn announce_kind(&self, kind: u32, status: c_int) {
        self.announce(self.event(kind, status));
    }

    /// Attaches it to the device that has its address.
    pub(crate) fn attach(&self, device: &Device, row: u8, local: SocketAddr) {
        let public = self.public();
        // SAFETY: the program reads these fields only after a call or an event has announced them.
        unsafe {
            (*public).verbs = device.context;
            (*public).port_num = PORT;
            if (*public).pd.is_null() {
                (*public).pd = device.domain;
            }
            (*public).route.addr.src_addr = Sockaddr::from(local).0;
            (*public).route.addr.addr.sgid = gid_of(local.ip());
            (*public).route.addr.addr.pkey = PKEY.to_be();
        }
        let mut details = self.details();
        details.row = row;
        details.max_resources = device.resources;
        details.own.mtu = device.mtu;
    }

    pub(crate) fn set_peer(&self, remote: SocketAddr) {
        let public = self.public();
        // SAFETY: as in `attach`.
        unsafe {
            (*public).route.addr.dst_addr = Sockaddr::from(remote).0;
            (*public).route.addr.addr.dgid = gid_of(remote.ip());
        }
    }

    /// Returns the local and the remote address, if both are known.
    pub(crate) fn addresses(&self) -> Option<AddressPair> {
        // SAFETY: a program does not change them.
        let addr = unsafe { &(*self.public()).route.addr };
        let end = |storage: &libc::sockaddr_storage| address::of_storage(storage);
        Some(AddressPair { local: end(&addr.src_addr)?, remote: end(&addr.dst_addr)? })
    }

    /// Returns the queue pair number that the other end uses.
    pub(crate) fn queue_pair(&self) -> u32 {
        self.details().own.queue_pair
    }

    /// Returns `true` if a queue pair of its device has unsent requests or completions that the program has not polled.
    pub(crate) fn has_unseen(&self, queue_pair: u32) -> bool {
        // SAFETY: it is null until the identifier is attached to a device, whose context stays open until the process ends.
        unsafe { has_unseen((*self.public()).verbs, queue_pair) }
    }

    /// Returns the address vector to the other end.
    pub(crate) fn address_vector(&self, details: &Details) -> ibv_ah_attr {
        let remote =
            self.addresses().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |it| it.remote.ip());
        let grh = ibv_global_route {
            dgid: gid_of(remote),
            sgid_index: details.row,
            hop_limit: u8::MAX,
            traffic_class: details.traffic_class,
            ..ibv_global_route::default()
        };
        ibv_ah_attr { grh, is_global: 1, port_num: PORT, ..ibv_ah_attr::default() }
    }

    /// Handles an event of its connection.
    pub(crate) fn on_event(&self, event: manager::Event) {
        use manager::Event as Happened;
        let new = |kind, status| self.event(kind, status);
        self.announce(match event {
            Happened::Requested { .. } => unreachable!("only listeners get requests"),
            Happened::Response(offer) => {
                let event = new(cm_event::CONNECT_RESPONSE, 0).with_connection(&offer);
                self.details().peer = Some(offer);
                event
            }
            Happened::Established => new(cm_event::ESTABLISHED, 0),
            Happened::Resolved(offer) => {
                let vector = self.address_vector(&self.details());
                new(cm_event::ESTABLISHED, 0).with_datagrams(&offer, vector)
            }
            Happened::Rejected { reason, private_data } => {
                new(cm_event::REJECTED, reason.0.into()).with_data(&private_data)
            }
            Happened::Unreachable { status } => new(cm_event::UNREACHABLE, status),
            Happened::Disconnected { status } => new(cm_event::DISCONNECTED, status),
        });
    }
}
