//! The overlay's switch as the node of a thread's driver: arriving datagrams are opened in place and go to the switch
//! or to the thread that they are for; the switch's packets and frames go to the underlay.

use weft_seal::{OpenError, Seals};
use weft_transport::{Arrival, ConnectionId, EndedConnection};
use weft_udp::Node;
use weft_udp::sockets::Sockets;
use weft_units::Instant;
use weft_vpc::{Inbound, Switch, Vni};
use weft_wire::{Packet, SealedContent, SetupHeader, SetupKind, VxlanHeader, VxlanNext};

use crate::redirect::ThreadIndex;
use crate::tenants::Ports;
use crate::underlay::{CLEAR, Counters, Link, PlainSender, push_packet};

/// A thread's switch and its ports.
#[derive(Debug)]
pub(crate) struct SwitchNode<'a> {
    pub(crate) switch: &'a mut Switch,
    pub(crate) ports: &'a mut Ports,
    pub(crate) plain: &'a mut PlainSender,
    pub(crate) counters: &'a mut Counters,
    pub(crate) index: ThreadIndex,
    /// Number of source ports to each thread of another host.
    pub(crate) paths: u16,
}

impl Node<Sockets> for SwitchNode<'_> {
    /// Handles a received datagram. The node itself counts the malformed ones, because other threads hand some over.
    #[inline]
    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) -> bool {
        self.ingest(now, arrival, datagram, seals);
        true
    }

    fn handle_stray(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) -> bool {
        self.ingest(now, arrival, datagram, seals);
        true
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.switch.handle_timeout(now, self.ports);
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        room: usize,
        sockets: &mut Sockets,
        seals: &mut Seals,
    ) -> usize {
        let Self { switch, ports, plain, counters, index, paths } = self;
        let outbox = &mut sockets.outbox;
        let limit = outbox.waiting() + room;
        let mut link = Link { outbox, seals, index: *index, paths: *paths };
        let mut packet = Packet::default();
        let mut sent = switch.poll_burst(now, room, &mut packet, |leaving| {
            push_packet(&mut link, leaving, *ports);
        });
        while link.outbox.waiting() < limit {
            let Some(frame) = switch.poll_plain() else { break };
            plain.send(&frame, &mut link, *ports, counters);
            sent += 1;
        }
        while link.outbox.waiting() < limit {
            let Some(copied) = ports.mirrors.pop() else { break };
            plain.send_copy(copied, &mut link, counters);
            sent += 1;
        }
        sent
    }

    #[inline]
    fn poll_ended(&mut self) -> Option<EndedConnection> {
        self.switch.poll_ended()
    }
}

impl SwitchNode<'_> {
    /// Handles a received datagram, which is opened in place.
    #[inline]
    pub(crate) fn ingest(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) {
        match VxlanHeader::parse(datagram) {
            Ok((vxlan, inside)) if vxlan.next == VxlanNext::Frame => {
                self.switch.handle_plain(now, arrival.from, vni_of(&vxlan), inside, self.ports);
            }
            Ok((vxlan, inside)) => {
                let (vni, connection) = (vni_of(&vxlan), connection_in(inside));
                let leaves =
                    |connection| self.switch.redirect_datagram(arrival, connection, datagram);
                if !connection.is_some_and(leaves) {
                    self.ingest_payload(now, arrival, (vni, connection), datagram, seals);
                }
            }
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Handles the payload after VXLAN's header, if it is for this thread.
    #[inline]
    fn ingest_payload(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        (vni, connection): (Vni, Option<ConnectionId>),
        datagram: &mut [u8],
        seals: &mut Seals,
    ) {
        let inside = match seals.open(datagram, CLEAR) {
            Ok((inside, SealedContent::Packet)) => inside,
            Ok((ethernet, SealedContent::Frame)) => {
                let connection = connection.expect("it was opened with its keys");
                return self.switch.handle_sealed(now, connection, vni, ethernet, self.ports);
            }
            Err(OpenError::UnknownKey { connection, iv }) => {
                return self.switch.handle_unknown_encrypted(arrival, connection, iv);
            }
            Err(_) => return,
        };
        // The packet is matched by reference: a move right after the parse would wait for the parse's own
        // stores.
        match &Packet::parse(inside) {
            Ok((packet @ Packet::Setup(header), rest)) => {
                let inbound = Inbound { arrival, vni, packet, payload: rest };
                if !self.switch.redirect_packet(&inbound) {
                    self.admit(now, arrival, header, rest, seals);
                }
            }
            Ok((packet, payload)) if !packet.announces_rdma() => {
                let inbound = Inbound { arrival, vni, packet, payload };
                self.switch.handle_packet(now, &inbound, self.ports);
            }
            _ => self.counters.malformed += 1,
        }
    }

    /// Handles a set-up packet that is for this thread. `rest` follows its header.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        rest: &[u8],
        seals: &mut Seals,
    ) {
        let named = self.switch.classify_setup(now, arrival, header);
        let admission = seals.admit(arrival.from, header, rest, named);
        let sealed = seals.is_sealed(ConnectionId(header.destination_cid));
        self.switch.handle_admission(now, arrival, header, admission, sealed);
    }
}

fn vni_of(vxlan: &VxlanHeader) -> Vni {
    Vni::new(vxlan.vni.get()).expect("24 bits")
}

/// Returns the connection that a packet names, sealed or not, which identifies its thread. A reset has one of its
/// receiver's numbers at this place.
#[inline]
fn connection_in(packet: &[u8]) -> Option<ConnectionId> {
    let word = packet.get(8..12)?.first_chunk()?;
    let is_reset = packet[0] == SetupKind::Reset.packet_type();
    (!is_reset).then(|| ConnectionId(u32::from_be_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weft_seal::{Mode, SealConfig};
    use weft_transport::{Secret, TransportConfig};
    use weft_units::Seed;
    use weft_vpc::{InClear, SwitchConfig};
    use weft_wire::{SealedHeader, SetupParameters, U4};

    use super::*;
    use crate::underlay::header;

    const RED: Vni = Vni::new(7).unwrap();

    /// Receives a datagram from `host` that `write` fills after VXLAN's header, padded to 200 bytes.
    fn arrive(
        node: &mut SwitchNode<'_>,
        seals: &mut Seals,
        host: u8,
        write: impl FnOnce(&mut [u8]),
    ) {
        let mut datagram = [0; 200];
        header(RED, VxlanNext::Weft).emit(&mut datagram);
        write(&mut datagram[CLEAR..]);
        let arrival = Arrival {
            from: SocketAddr::new([192, 0, 2, host].into(), 49_152),
            received_at: Instant::EPOCH,
            congestion_experienced: false,
            hops: 0,
        };
        node.ingest(Instant::EPOCH, &arrival, &mut datagram, seals);
    }

    #[test]
    fn hosts_that_are_no_peers_get_no_answer_and_no_state() {
        let config = SwitchConfig {
            in_clear: InClear::Nothing,
            ..SwitchConfig::new(TransportConfig::bifrost())
        };
        let mut switch = Switch::new(config, Seed(1), Secret::new([7; 16])).unwrap();
        let peer: SocketAddr = "192.0.2.2:4789".parse().unwrap();
        switch.set_peers(RED, vec![peer]);
        let config = SealConfig { mode: Mode::Required, ..SealConfig::default() };
        let mut seals = Seals::new(config, [7; 32]);
        let mut node = SwitchNode {
            switch: &mut switch,
            ports: &mut Ports::default(),
            plain: &mut PlainSender::default(),
            counters: &mut Counters::default(),
            index: ThreadIndex { thread: 0, threads: 1 },
            paths: 1,
        };
        for host in 0..=255 {
            // A request, and a packet under unknown keys.
            let terms = SetupParameters { receive_port: 4789, ..SetupParameters::default() };
            let request = SetupHeader {
                kind: SetupKind::Request,
                version: U4::truncate(1),
                cc_type: U4::truncate(0),
                thread_id: 0,
                reason: 0,
                local_cid: 9,
                destination_cid: 0,
                terms: Some(terms),
            };
            arrive(&mut node, &mut seals, host, |out| {
                Packet::Setup(request).emit(out);
            });
            let sealed = SealedHeader { spi: 9, ..SealedHeader::default() };
            arrive(&mut node, &mut seals, host, |out| sealed.emit(out));
        }
        let mut answers = vec![];
        let mut packet = Packet::default();
        switch.poll_burst(Instant::EPOCH, 1_000, &mut packet, |leaving| {
            answers.push(leaving.departure.to.ip());
        });
        assert_eq!(answers, [peer.ip(); 2]);
        assert_eq!(switch.counters().dropped_for(weft_vpc::DropCause::UnknownPeer), 2 * 255);
        assert_eq!(seals.counters().unknown_key, 256);
    }
}
