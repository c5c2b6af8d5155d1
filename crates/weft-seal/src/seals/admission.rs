//! Connection set-up: the exchange in requests and accepts, and packets that anybody can forge.

use alloc::boxed::Box;
use core::net::SocketAddr;

use weft_transport::{Admission, ConnectionId, SetupClass, SetupFault};
use weft_wire::{SetupHeader, SetupKind};

use super::Seals;
use crate::Mode;
use crate::channel::Channel;
use crate::exchange::{Agreed, Initiator, Own, Responder};

/// The reason of a reset that answers an encrypted packet: `Proof::Iv` of `weft-transport`.
const RESET_OF_SEALED: u8 = 5;

impl Seals {
    /// Returns the verdict on a set-up packet from `from`, for `Endpoint::handle_admission`. `rest` follows its header
    /// and terms; `named` is the result of `Endpoint::classify_setup`: nothing is computed or changed before the
    /// endpoint has validated the sender's address.
    pub fn admit(
        &mut self,
        from: SocketAddr,
        header: &SetupHeader,
        rest: &[u8],
        named: SetupClass,
    ) -> Admission {
        if !self.is_on() {
            return Admission::Admit;
        }
        match (header.kind, named) {
            (SetupKind::Request, SetupClass::New) => self.admit_request(from, header, rest),
            (SetupKind::Accept, SetupClass::Connection(connection)) => {
                self.admit_accept(connection, header, rest)
            }
            (SetupKind::Reset, SetupClass::Connection(connection)) => {
                self.admit_reset(connection, header)
            }
            _ => Admission::Admit,
        }
    }

    fn admit_request(&mut self, from: SocketAddr, header: &SetupHeader, rest: &[u8]) -> Admission {
        let Some(terms) = header.terms else { return Admission::Admit };
        let key = (SocketAddr::new(from.ip(), terms.receive_port), header.local_cid);
        if rest.is_empty() {
            if self.config.mode == Mode::Required {
                self.counters.refused_clear += 1;
                return Admission::Refuse(SetupFault::NotEncrypted);
            }
            self.responders.insert(key, None);
            return Admission::Admit;
        }
        if !self.budget.take() {
            // The peer retransmits.
            self.counters.postponed_exchanges += 1;
            return Admission::Drop;
        }
        let own = own(&self.config, &self.identity);
        let responder = Responder::new(own, &mut self.random, header, rest);
        let accepted = responder.ok().filter(|responder| self.config.accepts(responder.peer()));
        let Some(responder) = accepted else {
            self.counters.refused_exchanges += 1;
            return Admission::Refuse(SetupFault::NotAuthentic);
        };
        self.responders.insert(key, Some(Box::new(responder)));
        Admission::AdmitSealed
    }

    fn admit_accept(
        &mut self,
        connection: ConnectionId,
        header: &SetupHeader,
        rest: &[u8],
    ) -> Admission {
        let Some(initiator) = self.initiators.get_mut(&connection) else {
            // The accept is a retransmission.
            let known = self.channels.get(&connection);
            let same = known.is_none_or(|channel| channel.remote == header.local_cid);
            return if same { Admission::Admit } else { Admission::Drop };
        };
        if rest.is_empty() {
            if initiator.requires_encryption {
                self.counters.refused_clear += 1;
                return Admission::Drop;
            }
            if self.config.mode == Mode::Required {
                self.counters.refused_clear += 1;
                return Admission::Close(connection, SetupFault::NotEncrypted);
            }
            self.initiators.remove(&connection);
            self.note_clear(connection);
            return Admission::Admit;
        }
        let Ok(agreed) = initiator.finish(header, rest) else {
            // A forgery, or a peer with another pre-shared key: the genuine accept may still
            // arrive.
            self.counters.refused_exchanges += 1;
            return Admission::Drop;
        };
        self.initiators.remove(&connection);
        if !self.config.accepts(agreed.peer) {
            self.counters.refused_exchanges += 1;
            return Admission::Close(connection, SetupFault::NotAuthentic);
        }
        self.install(connection, header.local_cid, agreed, None);
        Admission::AdmitSealed
    }

    /// Returns the verdict on a reset, which anybody on the path can forge: the peer is probed if it answers a recent
    /// packet.
    fn admit_reset(&mut self, connection: ConnectionId, header: &SetupHeader) -> Admission {
        let Some(channel) = self.channels.get(&connection) else { return Admission::Admit };
        if header.reason == RESET_OF_SEALED && channel.sent_lately(header.destination_cid) {
            return Admission::Probe(connection);
        }
        // A peer that has shown no keys may have given the connection up before the accept came.
        if channel.accept.is_some() { Admission::Admit } else { Admission::Drop }
    }

    /// Returns the extension of a request of this end, the same one for each retransmission until the peer accepts. A
    /// later request goes to a peer that has lost the keys (`Admission::Probe`), and begins another exchange.
    pub(super) fn request_extension(
        &mut self,
        connection: ConnectionId,
        request: &SetupHeader,
    ) -> Option<&[u8]> {
        let Self { config, identity, random, initiators, channels, .. } = self;
        let initiator = initiators.entry(connection).or_insert_with(|| {
            let requires_encryption = channels.remove(&connection).is_some();
            Initiator::new(own(config, identity), random, request, requires_encryption)
        });
        Some(&initiator.extension)
    }

    /// Returns the extension of an accept of this end, the same one for each retransmission until the peer proves that
    /// it has received it. The first call for a connection computes its keys.
    pub(super) fn accept_extension(
        &mut self,
        to: SocketAddr,
        connection: ConnectionId,
        accept: &SetupHeader,
    ) -> Option<&[u8]> {
        match self.responders.remove(&(to, accept.destination_cid)) {
            Some(Some(responder)) => {
                let (extension, agreed) = responder.finish(self.config.cipher, accept);
                self.install(connection, accept.destination_cid, agreed, Some(extension));
            }
            Some(None) => self.note_clear(connection),
            None => {}
        }
        self.channels.get(&connection)?.accept.as_deref()
    }

    /// Returns the bytes of a connection's [`Wrap::Exchange`](super::Wrap::Exchange).
    pub(super) fn extension(&self, connection: ConnectionId) -> Option<&[u8]> {
        let extension = self.initiators.get(&connection).map(|initiator| &*initiator.extension);
        extension.or_else(|| self.channels.get(&connection)?.accept.as_deref())
    }

    /// Records that a connection is not encrypted, because the peer cannot encrypt and this end does not require it.
    fn note_clear(&mut self, connection: ConnectionId) {
        self.counters.clear += 1;
        self.clear.insert(connection);
    }

    fn install(
        &mut self,
        connection: ConnectionId,
        remote: u32,
        agreed: Agreed,
        accept: Option<Box<[u8]>>,
    ) {
        let channel = Channel::new(remote, agreed, self.config.cipher, self.epoch, accept);
        self.channels.insert(connection, Box::new(channel));
        self.counters.exchanges += 1;
        self.log(connection, true);
        self.log(connection, false);
    }
}

fn own<'a>(config: &'a crate::SealConfig, identity: &'a crate::PrivateKey) -> Own<'a> {
    Own { identity, preshared_key: config.preshared_key.as_ref(), cipher: config.cipher }
}
