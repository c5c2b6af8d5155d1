//! The recipients of completions and events.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_rnic::{CompletionQueue, Context, Event, QueuePairNumber, SharedReceiveQueue};
use weft_verbs_abi::event_type;

use crate::engine::events::EventQueue;

/// The address of a program's object. The engine never dereferences it.
pub(crate) type Object = usize;

/// The queue of a completion channel: the completion queues that have events.
pub(crate) type Channel = EventQueue<Object>;

/// An asynchronous event of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asynchronous {
    pub(crate) kind: u32,
    pub(crate) object: Object,
}

/// The recipient of a completion queue's events.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) object: Object,
    pub(crate) channel: Option<Arc<Channel>>,
    pub(crate) events: Arc<EventQueue<Asynchronous>>,
}

/// The recipients of all objects' events.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    pub(crate) contexts: BTreeMap<Context, Arc<EventQueue<Asynchronous>>>,
    pub(crate) cqs: BTreeMap<CompletionQueue, Watcher>,
    pub(crate) qps: BTreeMap<QueuePairNumber, Watcher>,
    pub(crate) srqs: BTreeMap<SharedReceiveQueue, Watcher>,
}

impl Watchers {
    pub(crate) fn notify(&self, event: Event) {
        let (watcher, kind) = match event {
            Event::Completion { cq } => {
                if let Some(Watcher { object, channel: Some(channel), .. }) = self.cqs.get(&cq) {
                    channel.push(*object);
                }
                return;
            }
            Event::CqError { cq } => (self.cqs.get(&cq), event_type::CQ_ERR),
            Event::QpFatal { qp } => (self.qps.get(&qp), event_type::QP_FATAL),
            Event::QpRequestError { qp } => (self.qps.get(&qp), event_type::QP_REQ_ERR),
            Event::QpAccessError { qp } => (self.qps.get(&qp), event_type::QP_ACCESS_ERR),
            Event::CommunicationEstablished { qp } => (self.qps.get(&qp), event_type::COMM_EST),
            Event::SendQueueDrained { qp } => (self.qps.get(&qp), event_type::SQ_DRAINED),
            Event::LastWqeReached { qp } => (self.qps.get(&qp), event_type::QP_LAST_WQE_REACHED),
            Event::SrqLimitReached { srq } => (self.srqs.get(&srq), event_type::SRQ_LIMIT_REACHED),
            _ => return,
        };
        if let Some(watcher) = watcher {
            watcher.events.push(Asynchronous { kind, object: watcher.object });
        }
    }
}
