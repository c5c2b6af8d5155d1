//! Switches whose forwarding model services every packet, and the model's commands.

use weft_topo::{LinkId, NodeId};

use super::{Fabric, Loss};
use crate::event::{Event, Events};
use crate::nic::{self, FRAME_OVERHEAD};
use crate::packet::{Hop, PacketSlot};
use crate::switch::{Command, Decision, Fate, Forward, Label};
use crate::time::SimTime;

/// Bytes of a control packet between switches: Ethernet's shortest frame.
const CONTROL_SIZE: u16 = 64;
const _: () = assert!(CONTROL_SIZE > FRAME_OVERHEAD);

impl Fabric {
    /// Has the model service a packet that arrived at a switch.
    pub(super) fn service(&mut self, now: SimTime, hop: Hop, events: &mut Events) {
        if !self.link_stayed_up(hop) {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        let candidates = self.routes.next_links(hop.node(), hop.destination());
        if candidates.is_empty() {
            return self.lose(hop.packet(), Loss::NoRoute);
        }
        let decision = decision!(self, now, hop, candidates);
        match self.forwarding.service(&decision, &mut self.labels, &mut self.commands) {
            Fate::Forward(link) => self.put(now, link, hop, events),
            Fate::Hold => {}
            Fate::Take => {
                self.counters.control_received += 1;
                self.packets.remove(hop.packet());
            }
        }
        self.execute(now, hop.node(), events);
    }

    pub(super) fn timer(&mut self, now: SimTime, switch: NodeId, token: u64, events: &mut Events) {
        let index = (switch.0 - self.hosts) as usize;
        self.forwarding.timer(now, index, token, &mut self.commands);
        self.execute(now, switch, events);
    }

    /// Executes the model's commands.
    fn execute(&mut self, now: SimTime, switch: NodeId, events: &mut Events) {
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            match command {
                Command::Send(hop) => self.send_by_route(now, hop, events),
                Command::Emit { source, destination, port, label } => {
                    let slot = PacketSlot { source, source_port: port, ..PacketSlot::default() };
                    let hop = self.control_packet(switch, destination, slot, label);
                    self.send_by_route(now, hop, events);
                }
                Command::Wake { at, token } => events.schedule(at, Event::Timer { switch, token }),
            }
        }
        self.commands = commands;
    }

    fn send_by_route(&mut self, now: SimTime, hop: Hop, events: &mut Events) {
        match self.next_link(now, hop) {
            Some(link) => self.put(now, link, hop, events),
            None => self.lose(hop.packet(), Loss::NoRoute),
        }
    }

    fn put(&mut self, now: SimTime, link: LinkId, hop: Hop, events: &mut Events) {
        if self.holds_queues() {
            self.enter_queue(now, link, hop, events);
        } else {
            self.enqueue(now, link, hop, events);
        }
    }

    /// Creates a control packet with a label at a switch, addressed to `to`.
    fn control_packet(&mut self, at: NodeId, to: NodeId, slot: PacketSlot, label: Label) -> Hop {
        self.counters.control_sent += 1;
        let tuple = nic::five_tuple(slot.source, to, slot.source_port);
        let packet = self.packets.insert(&slot);
        self.labels.set(packet, label);
        self.datagrams.clear(packet);
        let hop = Hop::new(packet, at, to, self.hash.base(&tuple), CONTROL_SIZE).as_control();
        // The packet seems to have arrived by the first of the switch's cables.
        hop.on(self.topology.ports(at)[0].reverse(), at, 0)
    }
}
