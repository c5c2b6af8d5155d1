//! Events as programs hold them, and the channels that deliver them.

use core::ffi::c_int;
use std::sync::Arc;

use crate::abi::*;
use crate::errno::Outcome;
use crate::events::{EventQueue, Open};
use crate::message::Offer;
use weft_verbs_abi::ibv_ah_attr;

/// An event that a program gets from `rdma_get_cm_event(3)`.
#[repr(C)]
pub(crate) struct Event {
    pub(crate) public: rdma_cm_event,
    /// The open events of the identifier that is not destroyed before the program has acknowledged this event.
    holds: *const Open,
    /// Private data, padded with zeros: programs read the full size of InfiniBand's messages.
    private_data: [u8; 256],
}

// SAFETY: the objects it points to live until it is acknowledged, and any thread may acknowledge it.
unsafe impl Send for Event {}

pub(crate) type Events = EventQueue<Box<Event>>;

impl Event {
    /// Creates an event about an identifier, and counts it among the identifier's open events.
    pub(crate) fn new(id: *mut rdma_cm_id, open: &Open, kind: u32, status: c_int) -> Box<Self> {
        // SAFETY: all-zero bytes are valid for its numbers and pointers.
        let param = unsafe { core::mem::zeroed() };
        open.add();
        Box::new(Self {
            public: rdma_cm_event {
                id,
                listen_id: core::ptr::null_mut(),
                event: kind,
                status,
                param,
            },
            holds: open,
            private_data: [0; 256],
        })
    }

    /// Creates the event of a request to `listener`, whose open events are these. It holds the listener, because the
    /// program may destroy the identifier `new` at any time.
    pub(crate) fn request(
        listener: *mut rdma_cm_id,
        open: &Open,
        new: *mut rdma_cm_id,
    ) -> Box<Self> {
        let mut event = Self::new(new, open, cm_event::CONNECT_REQUEST, 0);
        event.public.listen_id = listener;
        event
    }

    /// Returns `true` if it counts among these open events.
    pub(crate) fn is_of(&self, open: &Open) -> bool {
        core::ptr::eq(self.holds, open)
    }

    fn store_private_data(&mut self, data: &[u8]) -> (*const core::ffi::c_void, u8) {
        self.private_data[..data.len()].copy_from_slice(data);
        let pointer =
            if data.is_empty() { core::ptr::null() } else { self.private_data.as_ptr().cast() };
        (pointer, u8::try_from(data.len()).unwrap_or(u8::MAX))
    }

    /// Adds private data only.
    pub(crate) fn with_data(mut self: Box<Self>, data: &[u8]) -> Box<Self> {
        let (private_data, private_data_len) = self.store_private_data(data);
        // SAFETY: all-zero bytes are valid for its numbers and pointers.
        let zero: rdma_conn_param = unsafe { core::mem::zeroed() };
        self.public.param.conn = rdma_conn_param { private_data, private_data_len, ..zero };
        self
    }

    /// Adds the other end's offer, with the two READ and atomic limits exchanged: each end serves what the other
    /// requests.
    pub(crate) fn with_connection(mut self: Box<Self>, offer: &Offer) -> Box<Self> {
        let (private_data, private_data_len) = self.store_private_data(&offer.private_data);
        self.public.param.conn = rdma_conn_param {
            private_data,
            private_data_len,
            responder_resources: offer.initiator_depth,
            initiator_depth: offer.responder_resources,
            flow_control: offer.flow_control.into(),
            retry_count: offer.retry_count,
            rnr_retry_count: offer.rnr_retry_count,
            srq: offer.shared_receive_queue.into(),
            qp_num: offer.queue_pair,
        };
        self
    }

    /// Adds the address of the other end's datagram queue pair.
    pub(crate) fn with_datagrams(
        mut self: Box<Self>,
        offer: &Offer,
        ah_attr: ibv_ah_attr,
    ) -> Box<Self> {
        let (private_data, private_data_len) = self.store_private_data(&offer.private_data);
        let (qp_num, qkey) = (offer.queue_pair, offer.qkey);
        self.public.param.ud =
            rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey };
        self
    }
}

/// Acknowledges an event, if there is one.
///
/// # Safety
/// The event came from `rdma_get_cm_event` and is not used afterwards.
pub(crate) unsafe fn acknowledge(event: *mut rdma_cm_event) {
    if !event.is_null() {
        // SAFETY: guaranteed by the caller; the identifier it holds is not destroyed before this.
        unsafe {
            let event = Box::from_raw(event.cast::<Event>());
            (*event.holds).close(1);
        }
    }
}

/// A channel as the program holds it.
#[repr(C)]
pub(crate) struct Channel {
    public: rdma_event_channel,
    events: Arc<Events>,
}

impl Channel {
    /// Opens a channel.
    ///
    /// # Errors
    /// The process has no more descriptors.
    pub(crate) fn open() -> Outcome<*mut rdma_event_channel> {
        let events = Arc::new(EventQueue::open()?);
        let public = rdma_event_channel { fd: events.descriptor() };
        Ok(Box::into_raw(Box::new(Self { public, events })).cast())
    }

    /// Returns the queue of a channel.
    ///
    /// # Safety
    /// The channel is open.
    pub(crate) unsafe fn events(channel: *mut rdma_event_channel) -> Arc<Events> {
        // SAFETY: guaranteed by the caller; the structure of C is the first field of ours.
        unsafe { (*channel.cast::<Self>()).events.clone() }
    }

    /// Closes a channel.
    ///
    /// # Safety
    /// The channel is open and is not used afterwards.
    pub(crate) unsafe fn close(channel: *mut rdma_event_channel) {
        // SAFETY: guaranteed by the caller; the channel was made from a `Box`.
        drop(unsafe { Box::from_raw(channel.cast::<Self>()) });
    }
}
