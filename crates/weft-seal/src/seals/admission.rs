//! Connection set-up: the exchange in requests and accepts, and packets that anybody can forge.

use alloc::boxed::Box;
use core::net::SocketAddr;

use weft_transport::{Admission, ConnectionId, SetupClass, SetupFault};
use weft_wire::{SetupHeader, SetupKind};

use super::Seals;
use crate::Mode;
use crate::channel::Channel;
use crate::exchange::{Agreed, Initiator, Own, Responder};

/// The reason of a reset that answers an encrypted packet.
const RESET_OF_SEALED: u8 = 5;

impl Seals {
    /// Returns the action for a set-up packet from `from`. `rest` follows its header and terms;
    /// `named` is the endpoint's lookup (`Endpoint::classify_setup`): nothing is computed or changed before
    /// the endpoint has validated the sender's address.
    pub fn admit(
        &mut self,
        from: SocketAddr,
        header: &SetupHeader,
        rest: &[u8],
        named: SetupClass,
    ) -> Admission {
        if !self.is_on() {
            return Admission::Take;
        }
        match (header.kind, named) {
            (SetupKind::Request, SetupClass::New) => self.admit_request(from, header, rest),
            (SetupKind::Accept, SetupClass::Connection(connection)) => {
                self.admit_accept(connection, header, rest)
            }
            (SetupKind::Reset, SetupClass::Connection(connection)) => {
                self.admit_reset(connection, header)
            }
            _ => Admission::Take,
        }
    }

    fn admit_request(&mut self, from: SocketAddr, header: &SetupHeader, rest: &[u8]) -> Admission {
        let Some(terms) = header.terms else { return Admission::Take };
        let key = (SocketAddr::new(from.ip(), terms.receive_port), header.local_cid);
        if rest.is_empty() {
            if self.config.mode == Mode::Required {
                self.counters.refused_clear += 1;
                return Admission::Refuse(SetupFault::NotEncrypted);
            }
            self.answering.insert(key, None);
            return Admission::Take;
        }
        if !self.budget.take() {
            // The peer retransmits.
            self.counters.postponed_exchanges += 1;
            return Admission::Drop;
        }
        let own = own(&self.config, &self.identity);
        let answering = Responder::new(own, &mut self.random, header, rest);
        let accepted = answering.ok().filter(|answering| self.config.accepts(answering.peer()));
        let Some(answering) = accepted else {
            self.counters.refused_exchanges += 1;
            return Admission::Refuse(SetupFault::NotAuthentic);
        };
        self.answering.insert(key, Some(Box::new(answering)));
        Admission::TakeSealed
    }

    fn admit_accept(
        &mut self,
        connection: ConnectionId,
        header: &SetupHeader,
        rest: &[u8],
    ) -> Admission {
        let Some(asking) = self.asking.get_mut(&connection) else {
            // A retransmission.
            let known = self.channels.get(&connection);
            let same = known.is_none_or(|channel| channel.remote == header.local_cid);
            return if same { Admission::Take } else { Admission::Drop };
        };
        if rest.is_empty() {
            if asking.insists {
                self.counters.refused_clear += 1;
                return Admission::Drop;
            }
            if self.config.mode == Mode::Required {
                self.counters.refused_clear += 1;
                return Admission::GiveUp(connection, SetupFault::NotEncrypted);
            }
            self.asking.remove(&connection);
            self.speak_clear(connection);
            return Admission::Take;
        }
        let Ok(agreed) = asking.finish(header, rest) else {
            // A forgery, or a peer with another pre-shared key: the genuine accept may still
            // arrive.
            self.counters.refused_exchanges += 1;
            return Admission::Drop;
        };
        self.asking.remove(&connection);
        if !self.config.accepts(agreed.peer) {
            self.counters.refused_exchanges += 1;
            return Admission::GiveUp(connection, SetupFault::NotAuthentic);
        }
        self.install(connection, header.local_cid, agreed, None);
        Admission::TakeSealed
    }

    /// Anybody on the path can forge a reset. It is checked further if it answers a recent packet.
    fn admit_reset(&mut self, connection: ConnectionId, header: &SetupHeader) -> Admission {
        let Some(channel) = self.channels.get(&connection) else { return Admission::Take };
        if header.reason == RESET_OF_SEALED && channel.sent_lately(header.destination_cid) {
            return Admission::Doubt(connection);
        }
        // A peer that has shown no keys may have given the connection up before the accept came.
        if channel.accept.is_some() { Admission::Take } else { Admission::Drop }
    }

    /// The extension of a request of this end's: the same one whenever it is sent, until the peer accepts. A request after
    /// that is of a peer that has forgotten the keys (`Admission::Doubt`), and begins another exchange.
    pub(super) fn ask(&mut self, connection: ConnectionId, request: &SetupHeader) -> Option<&[u8]> {
        let Self { config, identity, random, asking, channels, .. } = self;
        let asking = asking.entry(connection).or_insert_with(|| {
            let insists = channels.remove(&connection).is_some();
            Initiator::new(own(config, identity), random, request, insists)
        });
        Some(&asking.extension)
    }

    /// Agrees on what a connection that this end accepts is encrypted with, the first time that its accept leaves.
    /// Returns the extension of the accept: the same one whenever it is sent, until the peer shows that it has it.
    pub(super) fn accept(
        &mut self,
        to: SocketAddr,
        connection: ConnectionId,
        accept: &SetupHeader,
    ) -> Option<&[u8]> {
        match self.answering.remove(&(to, accept.destination_cid)) {
            Some(Some(answering)) => {
                let (extension, agreed) = answering.finish(self.config.cipher, accept);
                self.install(connection, accept.destination_cid, agreed, Some(extension));
            }
            Some(None) => self.speak_clear(connection),
            None => {}
        }
        self.channels.get(&connection)?.accept.as_deref()
    }

    /// Returns the bytes of a connection's [`Wrap::Exchange`](super::Wrap::Exchange).
    pub(super) fn extension(&self, connection: ConnectionId) -> Option<&[u8]> {
        let asking = self.asking.get(&connection).map(|asking| &*asking.extension);
        asking.or_else(|| self.channels.get(&connection)?.accept.as_deref())
    }

    /// The peer cannot encrypt, and this end does not insist.
    fn speak_clear(&mut self, connection: ConnectionId) {
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
