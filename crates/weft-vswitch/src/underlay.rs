//! The datagrams between hosts: VXLAN, and after it a packet of the transport or a tenant's frame, each
//! sealed or unencrypted. They are sealed and opened in place.

use std::net::SocketAddr;

use crate::redirect::ThreadIndex;
use weft_seal::{OpenError, Seals, Wrap};
use weft_transport::{Arrival, ConnectionId};
use weft_udp::sockets::Outbox;
use weft_units::Instant;
use weft_vpc::gateway::forward;
use weft_vpc::{Frame, Leaving, Plain, Reading, Switch, Tenants, Vni};
use weft_wire::{
    Packet, SealedContent, SetupHeader, SetupKind, U24, VirtioNetHeader, VxlanHeader, VxlanNext,
};

/// Length of the part of a datagram that is authenticated but not encrypted, bytes: it names the network.
const CLEAR: usize = VxlanHeader::LEN;

fn header(vni: Vni, next: VxlanNext) -> VxlanHeader {
    VxlanHeader { vni: U24::truncate(vni.get()), next }
}

/// The destination of a datagram.
struct Way {
    to: SocketAddr,
    /// The thread of the other host, if it is known.
    theirs: Option<u8>,
    path: u16,
    vxlan: VxlanHeader,
    wrap: Wrap,
    content: SealedContent,
}

/// Writes a datagram into the outbox: the VXLAN header, then `len` bytes that `fill` writes.
#[inline]
fn push(link: &mut Link<'_>, way: &Way, len: usize, fill: impl FnOnce(&mut [u8])) {
    // The frame is too long for this network, as with a tenant's jumbo frames; the kernel would refuse it too.
    let Ok(size) = u16::try_from(CLEAR + way.wrap.len() + len) else { return };
    let Link { outbox, seals, index, paths } = link;
    let socket = u16::from(index.group(way.theirs)) * *paths + way.path % *paths;
    outbox.push(&way.to, socket, size, |out| {
        way.vxlan.emit(out);
        let inside = way.wrap.inside(CLEAR, out.len());
        fill(&mut out[inside]);
        match way.content {
            SealedContent::Packet => seals.seal(way.wrap, CLEAR, out),
            SealedContent::Frame => seals.seal_frame(way.wrap, CLEAR, out),
        }
    });
}

/// The parts that a host needs to send datagrams.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) seals: &'a mut Seals,
    pub(crate) index: ThreadIndex,
    /// Number of source ports to each thread of another host.
    pub(crate) paths: u16,
}

/// Numbers of datagrams and frames that this overlay could not handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) malformed: u64,
    /// Number of frames that could not be sent: their virtio-net header does not match, or they are too long for
    /// the network.
    pub(crate) unsendable: u64,
    /// Number of handovers for which another thread of this host had no room.
    pub(crate) not_handed_over: u64,
}

/// Writes a packet of the transport into the outbox.
#[inline]
pub(crate) fn push_packet(link: &mut Link<'_>, leaving: &Leaving<'_>, tenants: &mut impl Tenants) {
    let headers = leaving.packet.len();
    let len = headers + usize::from(leaving.payload_len());
    let departure = leaving.departure;
    let way = Way {
        to: departure.to,
        theirs: leaving.peer_thread(),
        path: departure.path.0,
        vxlan: header(leaving.vni, VxlanNext::Weft),
        wrap: link.seals.wrap(&departure.to, departure.connection, leaving.packet),
        content: SealedContent::Packet,
    };
    push(link, &way, len, |out| {
        leaving.packet.emit(out);
        leaving.read(tenants, &mut out[headers..]);
    });
}

/// A thread's switch, and the keys of its connections.
#[derive(Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) switch: &'a mut Switch,
    pub(crate) seals: &'a mut Seals,
    pub(crate) counters: &'a mut Counters,
}

impl Ends<'_> {
    /// Handles a received datagram, which is opened in place.
    #[inline]
    pub(crate) fn ingest_datagram(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        tenants: &mut impl Tenants,
    ) {
        match VxlanHeader::parse(datagram) {
            Ok((vxlan, inside)) if vxlan.next == VxlanNext::Frame => {
                self.switch.handle_plain(now, arrival.from, vni_of(&vxlan), inside, tenants);
            }
            Ok((vxlan, inside)) => {
                let (vni, connection) = (vni_of(&vxlan), connection_in(inside));
                let leaves =
                    |connection| self.switch.redirect_datagram(arrival, connection, datagram);
                if !connection.is_some_and(leaves) {
                    self.ingest_payload(now, arrival, (vni, connection), datagram, tenants);
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
        tenants: &mut impl Tenants,
    ) {
        let inside = match self.seals.open(datagram, CLEAR) {
            Ok((inside, SealedContent::Packet)) => inside,
            Ok((ethernet, SealedContent::Frame)) => {
                let connection = connection.expect("it was opened with its keys");
                return self.switch.handle_sealed(now, connection, vni, ethernet, tenants);
            }
            Err(OpenError::UnknownKey { connection, iv }) => {
                return self.switch.handle_unopened(arrival, connection, iv);
            }
            Err(_) => return,
        };
        // The packet is matched by reference: a move right after the parse would wait for the parse's own
        // stores.
        match &Packet::parse(inside) {
            Ok((packet @ Packet::Setup(header), rest)) => {
                if !self.switch.redirect_packet(arrival, vni, packet, rest) {
                    self.admit(now, arrival, header, rest);
                }
            }
            Ok((packet, payload)) if !packet.announces_rdma() => {
                self.switch.handle_packet(now, arrival, vni, packet, payload, tenants);
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
    ) {
        let named = self.switch.named(now, arrival, header);
        let admission = self.seals.admit(arrival.from, header, rest, named);
        let sealed = self.seals.is_sealed(ConnectionId(header.destination_cid));
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

/// A sender of frames outside pairs' connections, which fills in checksums and cuts frames to the network's
/// size.
#[derive(Debug, Default)]
pub(crate) struct PlainSender {
    frame: Vec<u8>,
    piece: Vec<u8>,
}

impl PlainSender {
    /// Sends a frame, and releases it.
    pub(crate) fn send(
        &mut self,
        plain: &Plain,
        link: &mut Link<'_>,
        tenants: &mut impl Tenants,
        counters: &mut Counters,
    ) {
        self.frame.resize(plain.len as usize, 0);
        tenants.read(plain.port, plain.token, 0, &mut self.frame, Reading::First);
        if plain.is_last {
            tenants.release(plain.port, plain.token);
        }
        if let (Some(next), Some(ethernet)) =
            (plain.next, self.frame.get_mut(VirtioNetHeader::LEN..))
        {
            forward(ethernet, next);
        }
        if self.lay_out(plain, link).is_none() {
            counters.unsendable += 1;
        }
    }

    /// Returns `None` if the frame's virtio-net header does not match it.
    fn lay_out(&mut self, plain: &Plain, link: &mut Link<'_>) -> Option<()> {
        weft_vpc::offload::on_wire(&mut self.frame, &mut self.piece, |frame, ethernet| {
            push_plain(plain, path_of(frame, link.paths), ethernet, link);
        })
    }
}

fn push_plain(plain: &Plain, path: u16, ethernet: &[u8], link: &mut Link<'_>) {
    let wrap = match plain.under {
        None => Some(Wrap::Clear),
        Some(keys) => link.seals.wrap_frame(keys.connection),
    };
    // The connection has just ended, and the frame must not leave unencrypted.
    let Some(wrap) = wrap else { return };
    for &to in &plain.to {
        let next = if plain.under.is_some() { VxlanNext::Weft } else { VxlanNext::Frame };
        let (vxlan, content) = (header(plain.vni, next), SealedContent::Frame);
        let theirs = plain.under.map(|keys| keys.peer_thread);
        let way = Way { to, theirs, path, vxlan, wrap, content };
        push(link, &way, ethernet.len(), |out| out.copy_from_slice(ethernet));
    }
}

/// Returns the path of a plain frame, the same for all frames of a flow, so that the tenant's packets keep their
/// order (RFC 7348, section 5).
fn path_of(frame: &Frame, paths: u16) -> u16 {
    u16::try_from(frame.flow_hash() % u32::from(paths)).expect("less than the paths")
}

#[cfg(test)]
mod tests {
    use weft_seal::{Mode, SealConfig};
    use weft_transport::{Secret, TransportConfig};
    use weft_units::Seed;
    use weft_vpc::{InClear, SwitchConfig};
    use weft_wire::{SealedHeader, SetupParameters, U4};

    use super::*;
    use crate::tenants::Ports;

    const RED: Vni = Vni::new(7).unwrap();

    /// Receives a datagram from `host` that `write` fills after VXLAN's header, padded to 200 bytes.
    fn arrive(ends: &mut Ends<'_>, host: u8, write: impl FnOnce(&mut [u8])) {
        let mut datagram = [0; 200];
        header(RED, VxlanNext::Weft).emit(&mut datagram);
        write(&mut datagram[CLEAR..]);
        let arrival = Arrival {
            from: SocketAddr::new([192, 0, 2, host].into(), 49_152),
            received_at: Instant::EPOCH,
            congestion_experienced: false,
            hops: 0,
        };
        let mut tenants = Ports::default();
        ends.ingest_datagram(Instant::EPOCH, &arrival, &mut datagram, &mut tenants);
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
        let (mut seals, mut counters) = (Seals::new(config, [7; 32]), Counters::default());
        let mut ends = Ends { switch: &mut switch, seals: &mut seals, counters: &mut counters };
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
            arrive(&mut ends, host, |out| {
                Packet::Setup(request).emit(out);
            });
            let sealed = SealedHeader { spi: 9, ..SealedHeader::default() };
            arrive(&mut ends, host, |out| sealed.emit(out));
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
