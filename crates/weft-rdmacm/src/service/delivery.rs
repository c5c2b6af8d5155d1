//! Delivery of the manager's events to the identifiers of programs.

use std::ptr;

use super::{Handle, State};
use crate::event;
use crate::id::{Id, Making};
use crate::manager::{AddressPair, Event, Space};
use crate::message::{CommunicationId, Offer};

impl State {
    /// Passes an event to the identifier of its connection, or a request to its listener.
    pub(super) fn deliver(&mut self, about: CommunicationId, event: Event) {
        if let Event::Requested { listener, local, remote, offer } = event {
            let listener = ptr::with_exposed_provenance::<Id>(listener.0);
            // SAFETY: a listener leaves the manager before it is destroyed, under the lock that is held.
            let listener = unsafe { &*listener };
            self.on_request(listener, about, AddressPair { local, remote }, offer);
        } else if let Some(&Handle(id)) = self.ids.get(&about) {
            // SAFETY: the handle leaves the table before its identifier is destroyed, under the lock that is held.
            unsafe { &*id }.on_event(event);
        }
    }

    /// Handles a request for a connection to a listener: makes its identifier.
    fn on_request(
        &mut self,
        listener: &Id,
        about: CommunicationId,
        addresses: AddressPair,
        offer: Offer,
    ) {
        let AddressPair { local, remote } = addresses;
        let making = {
            let is_synchronous = false;
            // SAFETY: while it listens, a program changes only `context`, which it may.
            let public = unsafe { &*listener.public() };
            let (channel, context) = (public.channel, public.context);
            let (port_space, qp_type) = (public.ps, public.qp_type);
            Making { channel, is_synchronous, context, port_space, qp_type }
        };
        // SAFETY: a channel is closed after its listeners are destroyed.
        let new = unsafe { Id::of(Id::create(making)) };
        if let Some((device, row)) = self.device_with(local.ip()) {
            new.attach(device, row, local);
        }
        new.set_peer(remote);
        let event = event::Event::request(listener.public(), &listener.open, new.public());
        let event = match listener.space() {
            Space::Connected => event.with_connection(&offer),
            Space::Datagram => event.with_data(&offer.private_data),
        };
        let mut details = new.details();
        details.communication = Some(about);
        details.peer = Some(offer);
        drop(details);
        self.ids.insert(about, Handle(new));
        listener.announce(event);
    }
}
