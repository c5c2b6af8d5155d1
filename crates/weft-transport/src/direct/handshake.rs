//! The set-up and end of connections over links.

use core::net::SocketAddr;

use weft_wire::{Packet, SetupHeader, SetupKind, SetupParameters, U4};

use super::stream::{Setup, Stream};
use super::{Direct, DirectConfig, LinkId, MAX_ANSWERS};
use crate::connection::{CAPABILITIES, MIN_VERSION, VERSION, is_usable};
use crate::path::PathId;
use crate::{CloseReason, Departure, DropReason, Event, Verdict};

impl Direct {
    /// Queues a reset for an unknown connection, unless [`MAX_ANSWERS`] are queued. Returns the verdict on the packet
    /// that named the connection.
    pub(super) fn reset_unknown(&mut self, link: LinkId, to: SocketAddr, cid: u32) -> Verdict {
        let reset = setup(SetupKind::Reset, cid, 0, None);
        let departure =
            Departure { to, connection: None, path: PathId(0), padding: 0, payload: None };
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back((link, departure, reset));
        }
        Verdict::Dropped(DropReason::UnknownConnection)
    }

    /// Processes a set-up packet. Returns `false` if it does not fit the connection's state.
    pub(super) fn handle_setup(
        &mut self,
        link: LinkId,
        from: SocketAddr,
        header: &SetupHeader,
    ) -> bool {
        let SetupHeader { kind, local_cid, destination_cid, terms, .. } = *header;
        let usable = terms.filter(|terms| local_cid != 0 && is_usable(terms));
        match (kind, usable) {
            (SetupKind::Request, Some(terms)) => {
                let peer = SocketAddr::new(from.ip(), terms.receive_port);
                self.accept(link, peer, local_cid, &terms);
                return true;
            }
            (SetupKind::Accept, Some(terms)) => {
                let Some(slot) = self.streams.find(destination_cid) else { return false };
                let stream = self.streams.at(slot);
                if stream.link != link || stream.setup != Setup::Requesting {
                    return false;
                }
                stream.establish(local_cid, &terms, &self.config);
                let connection = stream.id;
                self.events.push_back(Event::Connected { connection });
                return true;
            }
            (SetupKind::Reset, _) => {
                let Some(slot) = self.streams.with_remote(link, local_cid) else { return false };
                self.retire(slot, CloseReason::Reset);
                return true;
            }
            _ => {}
        }
        let reason = match kind {
            SetupKind::Reject => CloseReason::Refused,
            SetupKind::Close => CloseReason::Peer,
            _ => return false,
        };
        let slot = self.streams.find(destination_cid);
        let Some(slot) = slot.filter(|&slot| self.streams.at(slot).link == link) else {
            return false;
        };
        self.retire(slot, reason);
        true
    }

    /// Accepts a peer's request, or rejects it at the limit of connections. A request is dropped while [`MAX_ANSWERS`]
    /// are queued: its answer would have no room.
    fn accept(&mut self, link: LinkId, peer: SocketAddr, remote: u32, theirs: &SetupParameters) {
        if self.answers.len() >= MAX_ANSWERS {
            return;
        }
        let timeout = self.config.peer_timeout;
        let slot =
            self.streams.insert(|id| Stream::new(id, link, peer, Setup::Established, timeout));
        let Some(slot) = slot else {
            let reject = setup(SetupKind::Reject, 0, remote, None);
            let departure = Departure {
                to: peer,
                connection: None,
                path: PathId(0),
                padding: 0,
                payload: None,
            };
            return self.answers.push_back((link, departure, reject));
        };
        let stream = self.streams.at(slot);
        stream.establish(remote, theirs, &self.config);
        let connection = stream.id;
        let terms = Some(self.config.terms());
        self.answer(slot, SetupKind::Accept, terms);
        self.events.push_back(Event::Accepted { connection, service: theirs.service });
    }

    /// Queues a set-up packet of a connection.
    pub(super) fn answer(&mut self, slot: u32, kind: SetupKind, terms: Option<SetupParameters>) {
        let stream = self.streams.at(slot);
        let packet = setup(kind, stream.id.0, stream.remote, terms);
        self.answers.push_back((stream.link, stream.departure(None), packet));
    }

    /// Removes a connection. Unless the peer already knows, sends it the last ACK and then a close.
    pub(super) fn retire(&mut self, slot: u32, reason: CloseReason) {
        use CloseReason::{LinkDown, Peer, Refused, Reset};
        let peer_knows = matches!(reason, Peer | Reset | Refused | LinkDown);
        if !peer_knows {
            let stream = self.streams.at(slot);
            if let Some(ack) = stream.poll_ack() {
                let (link, departure) = (stream.link, stream.departure(None));
                self.answers.push_back((link, departure, ack.alone()));
            }
            self.answer(slot, SetupKind::Close, None);
        }
        let connection = self.streams.remove(slot);
        self.events.push_back(Event::Closed { connection, reason });
    }
}

impl DirectConfig {
    /// Returns the terms that this end offers.
    pub(super) fn terms(&self) -> SetupParameters {
        SetupParameters {
            capabilities: CAPABILITIES,
            first_psn: 0,
            mtu: self.mtu,
            window: self.window,
            paths: 1,
            receive_port: self.receive_port,
            service: 0,
            min_version: MIN_VERSION.get(),
            token: 0,
        }
    }
}

pub(super) fn setup(
    kind: SetupKind,
    local_cid: u32,
    destination_cid: u32,
    terms: Option<SetupParameters>,
) -> Packet {
    let version = VERSION;
    let (cc_type, thread_id, reason) = (U4::truncate(0), 0, 0);
    Packet::Setup(SetupHeader {
        kind,
        version,
        cc_type,
        thread_id,
        reason,
        local_cid,
        destination_cid,
        terms,
    })
}
