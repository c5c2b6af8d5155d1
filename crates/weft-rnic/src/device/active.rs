//! One queue pair with the parts of its device that its events need. An event looks its queue pair up once and is
//! handled here; the device handles events that concern several queue pairs.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use weft_transport::ConnectionId;
use weft_units::Instant;

use super::Device;
use super::carriers::Carriers;
use super::datagrams::Datagrams;
use super::holding::Holding;
use crate::completion::{Completion, Cq, Pushed};
use crate::error::Object;
use crate::memory::{Accessor, Emtt};
use crate::queue_pair::{Part, QueuePair, Role};
use crate::receive_queue::Srq;
use crate::table::Table;
use crate::{CompletionQueue, Event, LeaseEvent, Limits, Place, QueuePairNumber, VerbsError};

/// A queue pair that handles an event.
pub(super) struct ActiveQp<'a> {
    pub(super) qp: QueuePairNumber,
    pub(super) pair: &'a mut QueuePair,
    pub(super) limits: &'a Limits,
    pub(super) carriers: &'a mut Carriers,
    pub(super) emtt: &'a mut Emtt,
    pub(super) srqs: &'a mut Table<Srq>,
    pub(super) connections: &'a mut BTreeMap<ConnectionId, (QueuePairNumber, Role)>,
    pub(super) waits: &'a mut BTreeSet<(Instant, QueuePairNumber)>,
    pub(super) datagrams: &'a mut Datagrams,
    pub(super) holding: &'a mut Holding,
    pub(super) completing: Completing<'a>,
    /// The places of the payload that is being handled.
    pub(super) places: &'a mut Vec<Place>,
    pub(super) parts: &'a mut Vec<Part>,
    pub(super) has_lent: &'a mut bool,
    pub(super) lease_events: &'a mut VecDeque<LeaseEvent>,
    pub(super) leased_accesses: &'a mut VecDeque<QueuePairNumber>,
}

/// The completion queues, and the notifications of their completions.
pub(super) struct Completing<'a> {
    pub(super) cqs: &'a mut Table<Cq>,
    pub(super) ready: &'a mut VecDeque<CompletionQueue>,
    pub(super) events: &'a mut VecDeque<Event>,
}

impl Device {
    /// Looks a queue pair up for an event.
    #[inline]
    pub(super) fn active(&mut self, qp: QueuePairNumber) -> Option<ActiveQp<'_>> {
        Some(ActiveQp {
            qp,
            pair: self.qps.get_mut(qp.0)?,
            limits: &self.limits,
            carriers: &mut self.carriers,
            emtt: &mut self.emtt,
            srqs: &mut self.srqs,
            connections: &mut self.connections,
            waits: &mut self.waits,
            datagrams: &mut self.datagrams,
            holding: &mut self.holding,
            completing: Completing {
                cqs: &mut self.cqs,
                ready: &mut self.ready,
                events: &mut self.events,
            },
            places: &mut self.places,
            parts: &mut self.parts,
            has_lent: &mut self.has_lent,
            lease_events: &mut self.lease_events,
            leased_accesses: &mut self.leased_accesses,
        })
    }

    /// Looks a queue pair up for a command.
    ///
    /// # Errors
    /// The queue pair does not exist.
    #[inline]
    pub(super) fn qp(&mut self, qp: QueuePairNumber) -> Result<ActiveQp<'_>, VerbsError> {
        self.active(qp).ok_or(VerbsError::Unknown(Object::QueuePair))
    }
}

impl ActiveQp<'_> {
    /// Returns the queue pair as the initiator of a memory access.
    #[inline]
    pub(super) const fn accessor(&self) -> Accessor {
        Accessor { domain: self.pair.request.domain, qp: self.qp.0 }
    }
}

impl Completing<'_> {
    /// Returns `true` if another completion fits.
    #[inline]
    pub(super) fn has_room(&self, cq: CompletionQueue) -> bool {
        self.cqs.get(cq.0).is_some_and(|queue| queue.completions.has_room())
    }

    /// Adds a completion; returns `false` if it is lost because the completion queue has no room. The caller then puts
    /// the queue pair in error.
    pub(super) fn complete(&mut self, cq: CompletionQueue, completion: Completion) -> bool {
        let queue = self.cqs.get_mut(cq.0).expect("queue pairs keep their completion queues");
        let pushed = queue.completions.push(completion);
        match pushed {
            Pushed::Wakes => self.events.push_back(Event::Completion { cq }),
            Pushed::Overruns => self.events.push_back(Event::CqError { cq }),
            Pushed::Waits | Pushed::Lost => {}
        }
        if !queue.ready {
            queue.ready = true;
            self.ready.push_back(cq);
        }
        matches!(pushed, Pushed::Waits | Pushed::Wakes)
    }
}
