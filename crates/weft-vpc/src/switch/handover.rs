//! What one thread of a host leaves to another (BIFROST, section 5.2, flow redirect).
//!
//! A port belongs to one thread, and with it its connections, its rules and its counters. What arrives or
//! leaves elsewhere is handed over whole and once: who gets it either uses it or drops it.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::path::PathNews;
use weft_transport::{Arrival, ConnectionId};
use weft_units::Instant;
use weft_wire::{Packet, SetupKind, VirtioNetHeader};

use super::{DropCause, Place, PortId, Switch, SwitchConfig, Tenants, Vni};
use crate::Frame;

/// Something for another thread of this host, with its bytes.
#[derive(Clone, Debug)]
pub enum Handover {
    /// A frame that a tenant of this host sent.
    Frame {
        /// Whose.
        from: PortId,
        /// In which network.
        vni: Vni,
        /// For whom; for everybody in the network if absent.
        to: Option<PortId>,
        /// The frame with its virtio-net header.
        bytes: Vec<u8>,
    },
    /// A frame of another host that came outside a pair's connection.
    Plain {
        /// Which host.
        from: SocketAddr,
        /// `true` if it is certain that it is from there.
        proven: bool,
        /// In which network.
        vni: Vni,
        /// The frame.
        ethernet: Vec<u8>,
    },
    /// A packet of the transport.
    Packet {
        /// How it arrived.
        arrival: Arrival,
        /// Under which network.
        vni: Vni,
        /// Its headers.
        packet: Packet,
        /// What follows them.
        payload: Vec<u8>,
    },
    /// A datagram that names a connection of that thread, as it arrived: what encrypts is the owner's, which takes it
    /// in there ([`Switch::leave_datagram`]).
    Datagram {
        /// How it arrived.
        arrival: Arrival,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A finding of the transport about a path to another host.
    Path(PathNews),
}

impl Switch {
    /// Another thread of this host leaves this to us.
    pub fn handle_handover(
        &mut self,
        now: Instant,
        handover: Handover,
        tenants: &mut impl Tenants,
    ) {
        match handover {
            Handover::Frame { from, vni, to, bytes } => {
                self.take_frame(now, from, vni, to, &bytes, tenants);
            }
            Handover::Plain { from, proven, vni, ethernet } => {
                self.take_plain(now, (from, proven), vni, &ethernet, tenants);
            }
            Handover::Packet { arrival, vni, packet, payload } => {
                self.take_packet(now, &arrival, vni, &packet, &payload, tenants);
            }
            Handover::Path(news) => self.endpoint.handle_path_news(now, &news),
            Handover::Datagram { .. } => self.counters.drop_frame(DropCause::Malformed),
        }
    }

    /// Leaves a datagram that names a connection to the thread that has it. Returns `false` if that is this one, or no
    /// thread of this host.
    #[inline]
    pub fn leave_datagram(
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

    /// A frame of another thread's tenant, for ports of this one.
    fn take_frame(
        &mut self,
        now: Instant,
        from: PortId,
        vni: Vni,
        to: Option<PortId>,
        bytes: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let Some((header, ethernet)) = bytes.split_at_checked(VirtioNetHeader::LEN) else { return };
        let Ok(frame) = Frame::parse(ethernet, ethernet.len()) else { return };
        self.table(vni).learn(&frame, ethernet, Place::Port(from), now);
        let to = match to {
            // It may have gone meanwhile.
            Some(port) => Vec::from_iter(self.ports.contains_key(&port).then_some(port)),
            None => self.others(vni, Some(from)).collect(),
        };
        for port in to {
            self.give(now, port, header, ethernet, tenants);
        }
    }

    /// The other thread that a packet of the transport is for, if it is not this one.
    #[inline]
    pub(super) fn belongs_to(&self, vni: Vni, packet: &Packet) -> Option<u8> {
        if self.config.threads <= 1 {
            return None;
        }
        let cid = match packet {
            Packet::Data(header, _) => header.destination_cid,
            Packet::Ack(header) => header.destination_cid,
            Packet::Setup(header) if header.kind == SetupKind::Request => {
                return self.others.asked_for(vni, header.terms?.service);
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

    /// The other thread that has a connection of this id.
    #[inline]
    fn other_thread_of(&self, cid: u32) -> Option<u8> {
        if self.config.threads <= 1 || cid == 0 {
            return None;
        }
        let thread = self.bits.thread_of(cid);
        (thread != self.config.thread_id && thread < self.config.threads).then_some(thread)
    }

    /// Leaves a packet of the transport to another thread.
    #[cold]
    pub(super) fn redirect(
        &mut self,
        thread: u8,
        arrival: &Arrival,
        vni: Vni,
        packet: &Packet,
        payload: &[u8],
    ) {
        match packet {
            Packet::Setup(_) => self.others.counters.setups += 1,
            _ => self.others.counters.packets += 1,
        }
        let (arrival, packet, payload) = (*arrival, *packet, payload.to_vec());
        self.hand_over(thread, Handover::Packet { arrival, vni, packet, payload });
    }

    /// A reset names a connection by its peer's id, which does not say whose it is here: all look.
    #[cold]
    pub(super) fn spread_reset(&mut self, arrival: &Arrival, vni: Vni, packet: &Packet) {
        let SwitchConfig { thread_id: own, threads, .. } = self.config;
        for thread in (0..threads).filter(|&other| other != own) {
            self.redirect(thread, arrival, vni, packet, &[]);
        }
    }

    /// Tells all other threads what this one's transport learned of a path: they send from the same ports.
    #[cold]
    pub(super) fn spread_path_news(&mut self, news: PathNews) {
        let SwitchConfig { thread_id: own, threads, .. } = self.config;
        for thread in (0..threads).filter(|&other| other != own) {
            self.hand_over(thread, Handover::Path(news));
        }
    }

    pub(super) fn hand_over(&mut self, thread: u8, handover: Handover) {
        match handover {
            Handover::Packet { .. } | Handover::Datagram { .. } => {}
            Handover::Path(_) => self.others.counters.path_news += 1,
            Handover::Frame { .. } | Handover::Plain { .. } => self.others.counters.frames += 1,
        }
        self.others.waiting.push_back((thread, handover));
    }
}
