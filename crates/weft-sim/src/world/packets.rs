//! What happens to packets at hosts: they arrive, are placed, and others leave.

use std::hint::black_box;

use weft_topo::NodeId;
use weft_transport::{Arrival, Transmit, Verdict};
use weft_units::Duration;

use super::Network;
use crate::event::Event;
use crate::fabric::Loss;
use crate::nic::{self, FRAME_OVERHEAD};
use crate::packet::{Ecn, Hop, Integrity, Parcel};
use crate::time::{SimSpan, SimTime};

/// Events looked ahead at together: enough to hide memory's latency, few enough that what was
/// fetched first is still there.
pub(super) const LOOK_AHEAD: usize = 256;

/// The engines of so few hosts stay in the processor's cache without being looked ahead for.
const NEARBY_HOSTS: usize = 256;

impl Network {
    /// Looks at what the next events will need: links for packets at switches, engines for packets
    /// at hosts. Most of it is in no nearby cache, and looked up for many at once the waits for
    /// memory overlap.
    pub(super) fn look_ahead(&mut self) {
        let Self { events, fabric, hosts, expected, now, .. } = self;
        let far = hosts.len() > NEARBY_HOSTS;
        expected.clear();
        events.note(LOOK_AHEAD, |event| match event {
            Event::Arrive(hop) if hop.node().index() >= hosts.len() => {
                fabric.foresee(*now, hop).map(|link| link.0)
            }
            Event::Arrive(hop) if far => {
                expected.push((hop.node(), Some(hop.packet())));
                None
            }
            Event::Pull { host } if far => {
                expected.push((host, None));
                None
            }
            _ => None,
        });
        for &(node, packet) in &*expected {
            black_box(packet.map(|packet| fabric.parcels.get(packet).payload_len));
            black_box(hosts[node.index()].wake_at);
        }
        for &(node, packet) in &*expected {
            let host = &hosts[node.index()];
            match packet {
                Some(packet) => host.endpoint.look_ahead(&fabric.parcels.get(packet).packet),
                None => {
                    black_box(fabric.link(host.ports[0].link).busy_until);
                    host.endpoint.look_ahead_to_transmit();
                }
            }
        }
    }

    /// A packet reached its host.
    pub(super) fn arrive(&mut self, hop: Hop) {
        if !self.fabric.survived_the_link(hop) {
            return self.fabric.lose(hop, Loss::LinkDown);
        }
        let parcel = self.fabric.parcels.get(hop.packet());
        match parcel.integrity {
            Integrity::Sound => {}
            Integrity::BadChecksum => return self.fabric.lose(hop, Loss::BadChecksum),
            Integrity::Malformed => return self.fabric.lose(hop, Loss::Malformed),
        }
        self.fabric.counters.delivered += 1;
        let now = self.now.engine_clock();
        let mut from = nic::address(parcel.source);
        from.set_port(parcel.source_port);
        let arrival = Arrival {
            from,
            received_at: now,
            congestion_experienced: hop.ecn() == Ecn::CongestionExperienced,
            hops: hop.switches(),
        };
        let host = &mut self.hosts[hop.node().index()];
        let verdict =
            host.endpoint.handle_packet(now, &arrival, &parcel.packet, parcel.payload_len);
        self.fabric.parcels.remove(hop.packet());
        if let Verdict::Place(placement) = verdict {
            host.received_bytes += u64::from(placement.len);
            if let Some(observer) = &mut self.observer {
                observer.asked(hop.node(), &placement);
            }
            if self.config.place_delay > Duration::ZERO {
                let waiting = (hop.node(), placement.connection, placement.psn);
                self.placing.push_back(waiting);
                let at = self.now + self.config.place_delay.into();
                self.events.schedule(at, Event::Placed);
            } else {
                if let Some(observer) = &mut self.observer {
                    observer.placed(hop.node(), placement.connection, placement.psn);
                }
                host.endpoint
                    .placed(now, placement.connection, placement.psn)
                    .expect("the engine asked for it just now");
            }
        }
        self.attend(hop.node());
    }

    /// The oldest payload on its way has been placed. Its connection may have ended meanwhile.
    pub(super) fn placed(&mut self) {
        let Some((node, connection, psn)) = self.placing.pop_front() else { return };
        let now = self.now.engine_clock();
        if let Some(observer) = &mut self.observer {
            observer.placed(node, connection, psn);
        }
        let _ = self.hosts[node.index()].endpoint.placed(now, connection, psn);
        self.attend(node);
    }

    pub(super) fn deadline(&mut self, node: NodeId) {
        let host = &mut self.hosts[node.index()];
        if host.wake_at != self.now {
            return;
        }
        host.wake_at = SimTime::FAR_FUTURE;
        host.endpoint.handle_timeout(self.now.engine_clock());
        self.attend(node);
    }

    /// After anything happened to a host: hears its engine out, sends what it may, and sees to its
    /// deadline.
    #[inline]
    pub(super) fn attend(&mut self, node: NodeId) {
        while let Some(event) = self.hosts[node.index()].endpoint.poll_event() {
            if let Some(observer) = &mut self.observer {
                observer.heard(node, &event);
            }
            if let Some(record) = &mut self.record {
                record.push((node, event));
            }
            self.hear(node, event);
        }
        if !self.hosts[node.index()].pull_scheduled {
            self.pull(node);
        }
        self.rearm(node);
    }

    /// Schedules the engine's deadline unless the world will look earlier anyway.
    #[inline]
    fn rearm(&mut self, node: NodeId) {
        let host = &mut self.hosts[node.index()];
        let Some(at) = host.endpoint.poll_timeout() else { return };
        let at = SimTime::serving(at).max(self.now);
        if at < host.wake_at {
            host.wake_at = at;
            self.events.schedule(at, Event::Deadline { host: node });
        }
    }

    /// Takes packets from the engine as long as the ports have room.
    pub(super) fn pull(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        loop {
            if let Some(at) = self.full_until(node) {
                self.hosts[node.index()].pull_scheduled = true;
                self.events.schedule(at, Event::Pull { host: node });
                break;
            }
            let Some(transmit) = self.hosts[node.index()].endpoint.poll_transmit(now) else {
                break;
            };
            self.put_on_wire(node, &transmit);
        }
        self.rearm(node);
    }

    /// When the fullest port will be half empty again; `None` while all have room.
    #[inline]
    fn full_until(&self, node: NodeId) -> Option<SimTime> {
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

    /// A packet leaves its engine.
    #[inline]
    fn put_on_wire(&mut self, node: NodeId, transmit: &Transmit) {
        let host = &mut self.hosts[node.index()];
        let payload_len = transmit.payload.map_or(0, |payload| payload.len);
        let header_len = u16::try_from(transmit.packet.len()).expect("headers are short");
        let size = FRAME_OVERHEAD + header_len + payload_len;
        let source_port = host.entropy.source_port(transmit.connection, transmit.path);
        let destination = nic::host_at(transmit.to, self.fabric.topology.hosts());
        // An answer to a stranger's made-up address goes nowhere.
        let destination = destination.unwrap_or(node);
        let tuple = nic::five_tuple(node, destination, source_port);
        let hash = self.fabric.hash().base(&tuple);
        let index = usize::from(transmit.path.0) % host.ports.len();
        let link = host.ports[index].link;
        let parcel = Parcel {
            source: node,
            source_port,
            payload_len,
            integrity: Integrity::Sound,
            packet: transmit.packet,
        };
        let packet = self.fabric.parcels.insert(parcel);
        let hop = Hop::new(packet, node, destination, hash, size);
        let extra = self.irregularity(node, index, size);
        self.fabric.inject(self.now, link, extra, hop, &mut self.events);
    }

    /// How much later than its port alone would make it a packet arrives, without overtaking.
    #[inline]
    fn irregularity(&mut self, node: NodeId, index: usize, size: u16) -> SimSpan {
        let host = &mut self.hosts[node.index()];
        let port = &mut host.ports[index];
        let serialisation = self.fabric.class(port.link).pace.serialisation(size);
        let departure = self.fabric.link(port.link).busy_until.max(self.now) + serialisation;
        let jittered = departure + SimSpan::from_picos(host.jitter.draw());
        port.last_arrival = jittered.max(port.last_arrival);
        port.last_arrival.since(departure)
    }
}
