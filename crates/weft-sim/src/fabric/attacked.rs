//! Links with an attacker ([`fault::attack`](crate::fault::attack)).

use super::Fabric;
use crate::event::Events;
use crate::fault::attack::{Addresses, Forgery};
use crate::nic::{self, FRAME_OVERHEAD};
use crate::packet::{Hop, PacketSlot};
use crate::time::SimTime;

impl Fabric {
    /// Lets the attacker on a link process a packet: it may change the packet, and send others. `is_attacked` is `true`
    /// if the packet must be attacked; otherwise the attacker decides that when it observes it.
    pub(super) fn attack(
        &mut self,
        is_attacked: bool,
        arrival: SimTime,
        hop: Hop,
        events: &mut Events,
    ) {
        let Self { packets, datagrams, attacker, .. } = self;
        let slot = packets.get(hop.packet());
        let Some(datagram) = datagrams.get_mut(hop.packet()) else { return };
        let addresses = Addresses {
            source: slot.source,
            source_port: slot.source_port,
            destination: hop.destination(),
        };
        if !attacker.observe(addresses, datagram) && !is_attacked {
            return;
        }
        let forgeries = attacker.attack(addresses, datagram);
        self.counters.forged += u64::from(forgeries.changed);
        for (late, Forgery { mut from_to, bytes }) in forgeries.made {
            if hop.node().0 < self.hosts {
                // There is no other host behind this link.
                from_to.destination = hop.node();
            }
            let Addresses { source, source_port, destination } = from_to;
            self.counters.attacker_made += 1;
            let len = u16::try_from(bytes.len())
                .expect("at most 64 bytes longer than an observed datagram");
            let slot =
                PacketSlot { source, source_port, payload_len: len, ..PacketSlot::default() };
            let packet = self.packets.insert(&slot);
            *self.datagrams.of(packet) = bytes;
            let hash = self.hash.base(&nic::five_tuple(source, destination, source_port));
            let size = FRAME_OVERHEAD + len;
            let forged = Hop::new(packet, source, destination, hash, size).as_control();
            let forged = forged.on(hop.link(), hop.node(), hop.epoch());
            events.schedule_arrival(arrival + late, forged);
        }
    }
}
