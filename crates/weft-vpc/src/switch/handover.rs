//! The handover of work from one thread of a host to another (BIFROST, section 5.2, flow redirect).
//!
//! A port belongs to one thread, together with its connections, rules and counters. A packet or frame that another
//! thread receives is handed over whole and once: the receiving thread either uses it or drops it.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::path::PathNews;
use weft_transport::{Arrival, ConnectionId};
use weft_units::Instant;
use weft_wire::{MacAddr, Packet, SetupKind, VirtioNetHeader};

use super::arrive::PlainArrival;
use super::{DropCause, Inbound, Place, PortId, Switch, SwitchConfig, Tenants, Vni};
use crate::Frame;

/// A unit of work for another thread of this host, with its bytes.
#[derive(Clone, Debug)]
pub enum Handover {
    /// A frame that a tenant of this host sent.
    Frame {
        /// The sending port.
        from: PortId,
        /// The frame's network.
        vni: Vni,
        /// The destination port; all ports of the network if `None`.
        to: Option<PortId>,
        /// The frame with its virtio-net header.
        bytes: Vec<u8>,
    },
    /// A frame of another host that came outside a pair's connection.
    Plain {
        /// The sending host.
        from: SocketAddr,
        /// `true` if the sender is authenticated.
        proven: bool,
        /// The frame's network.
        vni: Vni,
        /// The frame.
        ethernet: Vec<u8>,
    },
    /// A packet of the transport.
    Packet {
        /// The path and marks with which it arrived.
        arrival: Arrival,
        /// The network that it was addressed to.
        vni: Vni,
        /// The packet's headers.
        packet: Packet,
        /// The payload.
        payload: Vec<u8>,
    },
    /// A datagram that names a connection of that thread, as it arrived: only the owner, which encrypts, can read
    /// it there ([`Switch::redirect_datagram`]).
    Datagram {
        /// The path and marks with which it arrived.
        arrival: Arrival,
        /// The datagram's bytes.
        bytes: Vec<u8>,
    },
    /// A finding of the transport about a path to another host.
    Path(PathNews),
    /// A machine that came to a port of the sending thread, or left it.
    Presence(Presence),
}

/// The presence of a machine at a port of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The port.
    pub port: PortId,
    /// The port's network.
    pub vni: Vni,
    /// The machine's address.
    pub address: MacAddr,
    /// `true` if the machine is there.
    pub present: bool,
}

/// A frame that another thread's tenant sent.
struct LocalFrame<'a> {
    from: PortId,
    vni: Vni,
    /// The destination port; all ports of the network if `None`.
    to: Option<PortId>,
    /// The frame with its virtio-net header.
    bytes: &'a [u8],
}

impl Switch {
    /// Handles work that another thread of this host handed over.
    pub fn handle_handover(
        &mut self,
        now: Instant,
        handover: Handover,
        tenants: &mut impl Tenants,
    ) {
        match handover {
            Handover::Frame { from, vni, to, bytes } => {
                self.ingest_frame(now, &LocalFrame { from, vni, to, bytes: &bytes }, tenants);
            }
            Handover::Plain { from, proven, vni, ethernet } => {
                let arrival = PlainArrival { from, proven, vni, ethernet: &ethernet };
                self.ingest_plain(now, arrival, tenants);
            }
            Handover::Packet { arrival, vni, packet, payload } => {
                let inbound =
                    Inbound { arrival: &arrival, vni, packet: &packet, payload: &payload };
                self.ingest_packet(now, &inbound, tenants);
            }
            Handover::Presence(presence) => self.apply_presence(now, presence, tenants),
            Handover::Path(news) => self.endpoint.handle_path_news(now, &news),
            Handover::Datagram { .. } => self.counters.drop_frame(DropCause::Malformed),
        }
    }

    /// Hands a datagram that names a connection over to the thread that has the connection. Returns `false` if that
    /// is this thread, or no thread of this host.
    #[inline]
    pub fn redirect_datagram(
        &mut self,
        arrival: &Arrival,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> bool {
        let thread = self.other_thread_of(connection.0);
        if let Some(thread) = thread {
            self.others.counters.packets += 1;
            self.hand_over(thread, Handover::Datagram { arrival: *arrival, bytes: bytes.to_vec() });
        }
        thread.is_some()
    }

    /// Delivers a frame of another thread's tenant to ports of this thread.
    fn ingest_frame(&mut self, now: Instant, frame: &LocalFrame<'_>, tenants: &mut impl Tenants) {
        let LocalFrame { from, vni, to, bytes } = *frame;
        let Some((header, ethernet)) = bytes.split_at_checked(VirtioNetHeader::LEN) else { return };
        let Ok(frame) = Frame::parse(ethernet, ethernet.len()) else { return };
        self.table(vni).learn(&frame, ethernet, Place::Port(from), now);
        let to = match to {
            // The port may have been removed meanwhile.
            Some(port) => Vec::from_iter(self.ports.contains_key(&port).then_some(port)),
            None => self.others(vni, Some(from)).collect(),
        };
        for port in to {
            self.deliver(now, port, header, ethernet, tenants);
        }
    }

    /// Returns the thread that a packet of the transport belongs to, if it is not this one.
    #[inline]
    pub(super) fn belongs_to(&self, vni: Vni, packet: &Packet) -> Option<u8> {
        if self.config.threads <= 1 {
            return None;
        }
        let cid = match packet {
            Packet::Data(header, _) => header.destination_cid,
            Packet::Ack(header) => header.destination_cid,
            Packet::Setup(header) if header.kind == SetupKind::Request => {
                return self.others.thread_of_service(vni, header.terms?.service);
            }
            Packet::Setup(header)
                if header.kind == SetupKind::Reset || header.destination_cid == 0 =>
            {
                return None;
            }
            Packet::Setup(header) => header.destination_cid,
        };
        self.other_thread_of(cid)
    }

    /// Returns the thread that has the connection `cid`, if it is not this one.
    #[inline]
    fn other_thread_of(&self, cid: u32) -> Option<u8> {
        if self.config.threads <= 1 || cid == 0 {
            return None;
        }
        let thread = self.bits.thread_of(cid);
        (thread != self.config.thread_id && thread < self.config.threads).then_some(thread)
    }

    /// Hands a packet of the transport over to another thread.
    #[cold]
    pub(super) fn redirect(&mut self, thread: u8, inbound: &Inbound<'_>) {
        let Inbound { arrival, vni, packet, payload } = *inbound;
        match packet {
            Packet::Setup(_) => self.others.counters.setups += 1,
            _ => self.others.counters.packets += 1,
        }
        let (arrival, packet, payload) = (*arrival, *packet, payload.to_vec());
        self.hand_over(thread, Handover::Packet { arrival, vni, packet, payload });
    }

    /// Copies a reset to all other threads: it names a connection by its peer's id, which does not identify
    /// the thread.
    #[cold]
    pub(super) fn broadcast_reset(&mut self, reset: &Inbound<'_>) {
        let SwitchConfig { thread_id: own, threads, .. } = self.config;
        for thread in (0..threads).filter(|&other| other != own) {
            self.redirect(thread, &Inbound { payload: &[], ..*reset });
        }
    }

    /// Copies a finding of this thread's transport about a path to all other threads: they send from the same
    /// ports.
    #[cold]
    pub(super) fn broadcast_path_news(&mut self, news: PathNews) {
        let SwitchConfig { thread_id: own, threads, .. } = self.config;
        for thread in (0..threads).filter(|&other| other != own) {
            self.hand_over(thread, Handover::Path(news));
        }
    }

    pub(super) fn hand_over(&mut self, thread: u8, handover: Handover) {
        match handover {
            Handover::Packet { .. } | Handover::Datagram { .. } | Handover::Presence(_) => {}
            Handover::Path(_) => self.others.counters.path_findings += 1,
            Handover::Frame { .. } | Handover::Plain { .. } => self.others.counters.frames += 1,
        }
        self.others.waiting.push_back((thread, handover));
    }
}
