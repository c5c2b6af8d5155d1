//! Hosts with a stack beyond the plain transport: the dispatch of events to it.

use weft_topo::NodeId;
use weft_transport::Arrival;
use weft_units::Instant;

use super::Network;
use crate::event::Event;
use crate::packet::Hop;
use crate::stack::Stack;
use crate::time::SimTime;
use crate::traffic::{ChannelId, MessageId};

impl Network {
    /// Sets up a channel at both ends.
    pub(super) fn join_stacks(&mut self, channel: ChannelId, from: NodeId, to: NodeId) {
        match self.hosts[from.index()].stack.as_deref() {
            Some(Stack::Overlay(_)) => self.join_vteps(channel, from, to),
            _ => self.join_messengers(channel, from, to),
        }
    }

    /// Submits a message to its host's stack; returns `false` if it must wait.
    pub(super) fn send_on_stack(
        &mut self,
        host: NodeId,
        channel: ChannelId,
        message: MessageId,
    ) -> bool {
        match self.hosts[host.index()].stack.as_deref() {
            Some(Stack::Overlay(_)) => self.send_on_flow(host, channel, message),
            _ => self.send_message(host, channel, message),
        }
    }

    /// Handles a packet's arrival at a host that has a stack.
    #[inline(never)]
    pub(super) fn arrive_at_stack(&mut self, hop: Hop, arrival: &Arrival) {
        match self.hosts[hop.node().index()].stack.as_deref() {
            Some(Stack::Overlay(_)) => self.arrive_at_vtep(hop, arrival),
            Some(Stack::Sealed(_)) => self.arrive_sealed(hop, arrival),
            _ => self.arrive_at_messenger(hop, arrival),
        }
    }

    /// Handles a deadline of a host's stack.
    pub(super) fn stack_deadline(&mut self, node: NodeId) {
        match self.hosts[node.index()].stack.as_deref() {
            Some(Stack::Overlay(_)) => self.service_vtep(node),
            Some(Stack::Sealed(_)) => self.sealed_deadline(node),
            _ => self.messenger_deadline(node),
        }
    }

    /// Services a host with a stack after any event.
    #[inline(never)]
    pub(super) fn service_stack(&mut self, node: NodeId) {
        match self.hosts[node.index()].stack.as_deref() {
            Some(Stack::Overlay(_)) => self.service_vtep(node),
            Some(Stack::Sealed(_)) => self.service_engine(node),
            _ => self.service_messenger(node),
        }
    }

    /// Takes packets from a host's stack while the ports have room.
    #[inline(never)]
    pub(super) fn pull_from_stack(&mut self, node: NodeId) {
        match self.hosts[node.index()].stack.as_deref() {
            Some(Stack::Overlay(_)) => self.service_vtep(node),
            Some(Stack::Sealed(_)) => self.pull_sealed(node),
            _ => self.pull_from_messenger(node),
        }
    }

    /// Closes a channel at its opener's stack.
    pub(super) fn close_on_stack(&mut self, host: NodeId, channel: ChannelId) {
        let now = self.now.engine_clock();
        match self.hosts[host.index()].stack.as_deref_mut() {
            Some(Stack::Overlay(_)) => self.close_flow(channel),
            Some(Stack::Messages(messenger)) => messenger.close(now, channel),
            Some(Stack::Sealed(_)) | None => {}
        }
        self.service(host);
    }

    /// Schedules a stack's deadline unless the world will poll it earlier.
    pub(super) fn rearm_stack(&mut self, node: NodeId, due: Option<Instant>) {
        let Some(at) = due else { return };
        let at = SimTime::serving(at).max(self.now);
        let host = &mut self.hosts[node.index()];
        if at < host.wake_at {
            host.wake_at = at;
            self.events.schedule(at, Event::Deadline { host: node });
        }
    }
}
