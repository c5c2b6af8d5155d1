//! Packets at hosts: arrival, placement and departure.

use weft_topo::{LinkId, NodeId};
use weft_transport::{
    Arrival, ConnectionId, Departure, Endpoint, Payload, Placement, TrimmedAt, Verdict,
};
use weft_units::Duration;
use weft_wire::Packet;

use super::Network;
use crate::event::{Event, PortEvent};
use crate::fabric::{Loss, Telemetry};
use crate::nic;
use crate::packet::{Ecn, Hop, Integrity, PacketRef, PacketSlot};
use crate::pcie::Piece;
use crate::time::{SimSpan, SimTime};
use crate::traffic::{MessageId, Notice};

impl Network {
    /// Handles an event of the host being served.
    #[inline]
    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(hop) => self.arrive(hop),
            Event::Pull { host } => {
                self.hosts[host.index()].pull_scheduled = false;
                self.pull(host);
            }
            Event::Deadline { host } => self.deadline(host),
            Event::Placed { host, connection, psn } => self.placed(host, connection, psn),
            Event::Wake { workload, token, .. } => {
                self.notices.push_back((workload, Notice::Woken { token }));
            }
            Event::Act { host, channel, act } => self.act(host, channel, act),
            Event::Port { node, link, event } => self.port_event(node, link, event),
            Event::Timer { .. } => unreachable!("hosts have deadlines"),
        }
    }

    /// Handles an event of a host's port that holds queues: there may be room for more packets.
    #[inline(never)]
    fn port_event(&mut self, node: NodeId, link: LinkId, event: PortEvent) {
        self.fabric.port_event(self.now, link, event, &mut self.events);
        self.pull(node);
    }

    /// Handles a packet's arrival at its host.
    fn arrive(&mut self, hop: Hop) {
        if !self.fabric.link_stayed_up(hop) {
            return self.fabric.lose(hop.packet(), Loss::LinkDown);
        }
        let slot = self.fabric.packets.get(hop.packet());
        if let Some(capture) = &mut self.capture {
            capture.received(self.now, hop, &slot);
        }
        match slot.integrity {
            Integrity::Sound => {}
            Integrity::Trimmed(at) => return self.arrive_trimmed(hop, at),
            Integrity::BadChecksum => return self.fabric.lose(hop.packet(), Loss::BadChecksum),
            Integrity::Malformed => return self.fabric.lose(hop.packet(), Loss::Malformed),
        }
        self.fabric.counters.delivered += 1;
        let now = self.now.engine_clock();
        let arrival = Arrival {
            from: nic::address_on(slot.source, slot.source_port),
            received_at: now,
            congestion_experienced: hop.ecn() == Ecn::CongestionExperienced,
            hops: hop.switches(),
        };
        let host = &mut self.hosts[hop.node().index()];
        if host.stack.is_some() {
            return self.arrive_at_stack(hop, &arrival);
        }
        if let Some(telemetry) = &mut self.fabric.telemetry {
            receive_telemetry(telemetry, &mut host.endpoint, hop, &arrival, &slot.packet);
        }
        let verdict = host.endpoint.handle_packet(now, &arrival, &slot.packet, slot.payload_len);
        self.fabric.packets.remove(hop.packet());
        if let Verdict::Place(placement) = &verdict {
            host.received_bytes += u64::from(placement.len);
            if let Some(observer) = &mut self.observer {
                observer.on_place(hop.node(), placement);
            }
            if let Some(reordering) = &mut self.reordering {
                reordering.on_place(hop.node(), placement);
            }
            if self.config.place_delay > Duration::ZERO || self.config.pcie.is_some() {
                self.place_later(hop.node(), placement);
            } else {
                if let Some(observer) = &mut self.observer {
                    observer.on_placed(hop.node(), placement.connection, placement.psn);
                }
                host.endpoint
                    .placed(now, placement.connection, placement.psn)
                    .expect("the engine requested it just now");
            }
        }
        self.service(hop.node());
    }

    /// Handles the arrival of headers whose payload a switch cut off. Where hosts encrypt, headers alone prove nothing
    /// and are dropped; channels of a stack find the loss as any other.
    #[cold]
    fn arrive_trimmed(&mut self, hop: Hop, at: TrimmedAt) {
        let slot = self.fabric.packets.get(hop.packet());
        let host = &mut self.hosts[hop.node().index()];
        let (true, Packet::Data(header, _)) = (host.stack.is_none(), &slot.packet) else {
            return self.fabric.lose(hop.packet(), Loss::Malformed);
        };
        self.fabric.counters.delivered += 1;
        let now = self.now.engine_clock();
        let arrival = Arrival {
            from: nic::address_on(slot.source, slot.source_port),
            received_at: now,
            congestion_experienced: hop.ecn() == Ecn::CongestionExperienced,
            hops: hop.switches(),
        };
        host.endpoint.handle_trimmed(now, &arrival, header, at);
        self.fabric.packets.remove(hop.packet());
        self.service(hop.node());
    }

    /// Schedules the placement of a payload.
    #[inline(never)]
    pub(super) fn place_later(&mut self, node: NodeId, placement: &Placement) {
        let &Placement { connection, psn, .. } = placement;
        let dma = self.hosts[node.index()].dma.as_mut();
        let written = dma.map_or(self.now, |dma| dma.write(self.now, Piece::from(placement)));
        let at = written + self.config.place_delay.into();
        self.events.schedule(at, Event::Placed { host: node, connection, psn });
    }

    /// Handles the end of a placement. The connection may have ended meanwhile.
    fn placed(&mut self, node: NodeId, connection: ConnectionId, psn: u32) {
        let now = self.now.engine_clock();
        if let Some(observer) = &mut self.observer {
            observer.on_placed(node, connection, psn);
        }
        let _ = self.hosts[node.index()].endpoint.placed(now, connection, psn);
        self.service(node);
    }

    /// Handles a deadline of a host, unless it has been replaced by an earlier one.
    fn deadline(&mut self, node: NodeId) {
        let host = &mut self.hosts[node.index()];
        if host.wake_at != self.now {
            return;
        }
        host.wake_at = SimTime::FAR_FUTURE;
        if host.stack.is_some() {
            return self.stack_deadline(node);
        }
        host.endpoint.handle_timeout(self.now.engine_clock());
        self.service(node);
    }

    /// Services a host after any event: handles its engine's events, sends, and sets its deadline.
    #[inline]
    pub(super) fn service(&mut self, node: NodeId) {
        if self.hosts[node.index()].stack.is_some() {
            return self.service_stack(node);
        }
        self.service_engine(node);
    }

    /// Services a host's engine, with or without a stack between it and its ports.
    #[inline]
    pub(super) fn service_engine(&mut self, node: NodeId) {
        while let Some(event) = self.hosts[node.index()].endpoint.poll_event() {
            if self.defers_engine_events {
                self.deferred = Some(event);
                return;
            }
            if let Some(observer) = &mut self.observer {
                observer.on_event(node, &event);
            }
            if let Some(record) = &mut self.record {
                record.push((node, event));
            }
            self.on_engine_event(node, event);
        }
        if self.hosts[node.index()].pull_scheduled {
            self.rearm(node);
        } else {
            self.pull(node);
        }
    }

    /// Schedules the engine's deadline unless the world will poll it earlier.
    #[inline]
    pub(super) fn rearm(&mut self, node: NodeId) {
        let host = &mut self.hosts[node.index()];
        let Some(at) = host.endpoint.poll_timeout() else { return };
        let at = SimTime::serving(at).max(self.now);
        if at < host.wake_at {
            host.wake_at = at;
            self.events.schedule(at, Event::Deadline { host: node });
        }
    }

    /// Takes packets from the engine while the ports have room, and sets its deadline.
    fn pull(&mut self, node: NodeId) {
        if self.hosts[node.index()].stack.is_some() {
            return self.pull_from_stack(node);
        }
        let now = self.now.engine_clock();
        if self.config.fabric.port.control_first {
            self.pull_control(node);
        }
        let mut slot = PacketSlot::default();
        loop {
            if let Some(at) = self.full_until(node) {
                self.wait_for_room(node, at);
                break;
            }
            let engine = &mut self.hosts[node.index()].endpoint;
            if !engine.wants_transmit() {
                break;
            }
            let mut departure = None;
            engine.poll_burst(now, 1, &mut slot.packet, |only, _| departure = Some(*only));
            // The departure is not moved: it was written in smaller pieces than a move would read.
            let Some(departure) = &departure else { break };
            let packet = self.fabric.packets.reserve();
            self.put_on_wire(node, packet, &mut slot, departure);
        }
        self.rearm(node);
    }

    /// Schedules the next pull for `at`, when a port has room. Ports that hold queues report each departure instead;
    /// while one is paused, packets without payload overtake waiting ones. (An RNIC's ACKs wait with its payload, as
    /// they share a class on RoCE networks.)
    #[inline]
    pub(super) fn wait_for_room(&mut self, node: NodeId, at: SimTime) {
        if !self.fabric.holds_queues() {
            self.hosts[node.index()].pull_scheduled = true;
            self.events.schedule(at, Event::Pull { host: node });
        } else if !self.config.stack_has_channels() && self.is_paused(node) {
            self.pull_control(node);
        }
    }

    /// Takes packets without payload from the engine, whatever the ports hold.
    #[cold]
    fn pull_control(&mut self, node: NodeId) {
        if self.hosts[node.index()].stack.is_some() {
            return self.pull_control_sealed(node);
        }
        let now = self.now.engine_clock();
        let mut slot = PacketSlot::default();
        loop {
            let engine = &mut self.hosts[node.index()].endpoint;
            let Some(departure) = engine.poll_control_into(now, &mut slot.packet) else { return };
            let packet = self.fabric.packets.reserve();
            self.put_on_wire(node, packet, &mut slot, &departure);
        }
    }

    /// Returns `true` if a port of a host is paused.
    fn is_paused(&self, node: NodeId) -> bool {
        let mut ports = self.hosts[node.index()].ports.iter();
        ports.any(|port| self.fabric.pause(port.link).holds(self.now))
    }

    /// Returns the time at which the fullest port will be half empty; `None` while all have room.
    #[inline]
    pub(super) fn full_until(&self, node: NodeId) -> Option<SimTime> {
        let mut until = None;
        for port in &self.hosts[node.index()].ports {
            let busy_until = self.fabric.link(port.link).busy_until;
            if busy_until.since(self.now) >= port.ahead {
                let half_empty = busy_until.as_picos() - port.ahead.as_picos() / 2;
                until = until.max(Some(SimTime::from_picos(half_empty)));
            }
        }
        until
    }

    /// Puts a packet that leaves its engine on the wire; `slot` has its headers, `packet` is its place in the pool.
    #[inline(always)] // Once for every packet; the other caller is cold.
    pub(super) fn put_on_wire(
        &mut self,
        node: NodeId,
        packet: PacketRef,
        slot: &mut PacketSlot,
        departure: &Departure,
    ) {
        let host = &mut self.hosts[node.index()];
        let source_port = host.entropy.source_port(departure.connection, departure.path);
        slot.source = node;
        slot.source_port = source_port;
        slot.payload_len = departure.payload_len();
        slot.integrity = Integrity::Sound;
        if let Some(capture) = &mut self.capture {
            capture.sent(self.now, node, departure.to, slot);
        }
        let header_len = u16::try_from(slot.packet.len()).expect("headers are short");
        let overhead = self.config.transport.packet_overhead;
        let size = nic::frame_len(overhead, header_len, slot.payload_len);
        let is_data = matches!(slot.packet, Packet::Data(..));
        let destination = nic::host_at(departure.to, self.fabric.topology.hosts());
        // A reply to an attacker's forged address is sent to the host itself.
        let destination = destination.unwrap_or(node);
        let tuple = nic::five_tuple(node, destination, source_port);
        let hash = self.fabric.hash().base(&tuple);
        let index = self.config.port_of(departure.connection, departure.path.0.into());
        let index = index % host.ports.len();
        let link = host.ports[index].link;
        let hop = Hop::new(packet, node, destination, hash, size);
        let hop = if is_data { hop } else { hop.as_control() };
        // Stored last: the headers were written in smaller pieces than a copy reads.
        self.fabric.packets.set(packet, slot);
        if self.fabric.holds_queues() {
            return self.put_in_queue(node, link, hop, departure.connection);
        }
        if self.config.pcie.is_some() {
            let Departure { connection, payload, .. } = *departure;
            return self.put_when_read(node, index, hop, connection.zip(payload));
        }
        let jitter = self.draw_jitter(self.now, node, index, size);
        self.fabric.inject(self.now, link, jitter, hop, &mut self.events);
    }

    /// Puts a packet on the wire at a host with a bus, once its payload has been read.
    #[inline(never)]
    fn put_when_read(
        &mut self,
        node: NodeId,
        index: usize,
        hop: Hop,
        payload: Option<(ConnectionId, Payload)>,
    ) {
        let at = payload.map_or(self.now, |payload| self.read(node, payload));
        let jitter = self.draw_jitter(at, node, index, hop.size());
        let link = self.hosts[node.index()].ports[index].link;
        self.fabric.inject(at, link, jitter, hop, &mut self.events);
    }

    /// Returns the time at which a payload has been read from memory.
    fn read(&mut self, node: NodeId, (connection, payload): (ConnectionId, Payload)) -> SimTime {
        let Payload { token, offset, len } = payload;
        let message = u32::try_from(token).ok().map(MessageId);
        let record = message.and_then(|message| self.traffic.message(message));
        let end = offset + u32::from(len);
        let length = record.map_or(end, |record| record.request.length);
        let piece = Piece { connection: connection.0, length, offset, len };
        let dma = self.hosts[node.index()].dma.as_mut();
        dma.map_or(self.now, |dma| dma.read(self.now, piece))
    }

    /// Puts a packet on a port that holds queues.
    #[inline(never)]
    fn put_in_queue(
        &mut self,
        node: NodeId,
        link: LinkId,
        hop: Hop,
        connection: Option<ConnectionId>,
    ) {
        if let Some(telemetry) = &mut self.fabric.telemetry {
            match (connection, self.fabric.packets.get(hop.packet()).packet) {
                (Some(connection), Packet::Ack(ack)) if !ack.special => {
                    telemetry.echo((node, connection), ack.timestamp_echo, hop.packet());
                }
                _ => telemetry.clear(hop.packet()),
            }
        }
        let jitter = SimSpan::from_picos(self.hosts[node.index()].jitter.draw());
        self.fabric.inject_into_queue(self.now, link, jitter, hop, &mut self.events);
    }

    /// Returns the jitter of a packet that is ready at `at`, small enough that it overtakes no other.
    #[inline(always)] // Once for every packet; the other caller has a bus.
    fn draw_jitter(&mut self, at: SimTime, node: NodeId, index: usize, size: u16) -> SimSpan {
        let host = &mut self.hosts[node.index()];
        let port = &mut host.ports[index];
        let serialisation = self.fabric.class(port.link).pace.serialisation(size);
        let departure = self.fabric.link(port.link).busy_until.max(at) + serialisation;
        let jittered = departure + SimSpan::from_picos(host.jitter.draw());
        port.last_arrival = jittered.max(port.last_arrival);
        port.last_arrival.since(departure)
    }
}

/// Remembers the telemetry of a data packet that arrived until its ACK, and passes an ACK's to the engine.
#[cold]
fn receive_telemetry(
    telemetry: &mut Telemetry,
    endpoint: &mut Endpoint,
    hop: Hop,
    arrival: &Arrival,
    packet: &Packet,
) {
    match packet {
        Packet::Data(header, _) => {
            let end = (hop.node(), ConnectionId(header.destination_cid));
            telemetry.remember(end, header.timestamp, hop.packet());
        }
        Packet::Ack(ack) => endpoint.handle_telemetry(arrival, ack, telemetry.of(hop.packet())),
        Packet::Setup(_) => {}
    }
}
