//! What sets connections up: the exchange in requests and accepts, and the packets that anybody can write.

use alloc::boxed::Box;
use core::net::SocketAddr;

use weft_transport::{Admission, ConnectionId, SetupFault};
use weft_wire::{SetupHeader, SetupKind, Terms};

use super::{MOST_ANSWERS, Seals};
use crate::Mode;
use crate::channel::Channel;
use crate::exchange::{Agreed, Answering, Asking, Own};

impl Seals {
    /// Returns what is to be done with a packet of set-up that came in the clear. `rest` follows its header and
    /// terms; `proven` says whether a request's token proves its sender's address, before which nothing is computed
    /// for it.
    pub fn admit(
        &mut self,
        from: SocketAddr,
        header: &SetupHeader,
        rest: &[u8],
        proven: impl FnOnce() -> bool,
    ) -> Admission {
        if !self.is_on() {
            return Admission::Take;
        }
        match (header.kind, &header.terms) {
            (SetupKind::Request, Some(terms)) => {
                self.admit_request(from, header, terms, rest, proven)
            }
            (SetupKind::Accept, Some(terms)) => self.admit_accept(from, header, terms, rest),
            (SetupKind::Reset, _) => {
                let named = self.by_remote.get(&(from.ip(), header.local_cid));
                named.map_or(Admission::Take, |&connection| Admission::Doubt(connection))
            }
            _ => Admission::Take,
        }
    }

    fn admit_request(
        &mut self,
        from: SocketAddr,
        header: &SetupHeader,
        terms: &Terms,
        rest: &[u8],
        proven: impl FnOnce() -> bool,
    ) -> Admission {
        let key = (SocketAddr::new(from.ip(), terms.receive_port), header.local_cid);
        if terms.token == 0 || self.answering.contains_key(&key) || !proven() {
            return Admission::Take;
        }
        let named = self.by_remote.get(&(from.ip(), header.local_cid));
        if named.and_then(|id| self.channels.get(id)).is_some_and(|channel| channel.to == key.0) {
            // The accept was lost: it is sent again.
            return Admission::Take;
        }
        if rest.is_empty() {
            return self.without_exchange();
        }
        let own = own(&self.config, &self.identity);
        let Ok(answering) = Answering::new(own, &mut self.random, header, rest) else {
            self.counters.refused_exchanges += 1;
            return Admission::Refuse(SetupFault::NotAuthentic);
        };
        if self.config.peers.as_ref().is_some_and(|peers| !peers.contains(&answering.peer())) {
            self.counters.refused_exchanges += 1;
            return Admission::Refuse(SetupFault::NotAuthentic);
        }
        if self.answering_order.len() >= MOST_ANSWERS
            && let Some(oldest) = self.answering_order.pop_front()
        {
            self.answering.remove(&oldest);
        }
        self.answering.insert(key, answering);
        self.answering_order.push_back(key);
        Admission::Take
    }

    /// A peer asks for a connection without saying that it can encrypt.
    fn without_exchange(&mut self) -> Admission {
        if self.config.mode == Mode::Required {
            self.counters.refused_clear += 1;
            return Admission::Refuse(SetupFault::NotEncrypted);
        }
        self.counters.clear += 1;
        Admission::Take
    }

    fn admit_accept(
        &mut self,
        from: SocketAddr,
        header: &SetupHeader,
        terms: &Terms,
        rest: &[u8],
    ) -> Admission {
        let connection = ConnectionId(header.destination_cid);
        let Some(asking) = self.asking.get_mut(&connection) else {
            // Once more, or of a connection that is none.
            let known = self.channels.get(&connection);
            let same = known.is_none_or(|channel| channel.remote == header.local_cid);
            return if same { Admission::Take } else { Admission::Drop };
        };
        if rest.is_empty() {
            return self.accepted_without_exchange(connection);
        }
        let Ok(agreed) = asking.finish(header, rest) else {
            // A forgery, or a peer with another pre-shared key: who has the same one is still waited for.
            self.counters.refused_exchanges += 1;
            return Admission::Drop;
        };
        self.asking.remove(&connection);
        if self.config.peers.as_ref().is_some_and(|peers| !peers.contains(&agreed.peer)) {
            self.counters.refused_exchanges += 1;
            return Admission::GiveUp(connection, SetupFault::NotAuthentic);
        }
        let to = SocketAddr::new(from.ip(), terms.receive_port);
        self.install(connection, to, header.local_cid, agreed);
        Admission::Take
    }

    /// A peer accepted without saying that it can encrypt.
    fn accepted_without_exchange(&mut self, connection: ConnectionId) -> Admission {
        if self.config.mode == Mode::Required {
            self.counters.refused_clear += 1;
            return Admission::GiveUp(connection, SetupFault::NotEncrypted);
        }
        self.counters.clear += 1;
        self.asking.remove(&connection);
        Admission::Take
    }

    /// The extension of a request of this end's: the same one whenever it is sent.
    pub(super) fn ask(&mut self, connection: ConnectionId, request: &SetupHeader) -> Option<&[u8]> {
        let Self { config, identity, random, asking, .. } = self;
        let asking = asking
            .entry(connection)
            .or_insert_with(|| Asking::new(own(config, identity), random, request));
        Some(&asking.extension)
    }

    /// The extension of an accept of this end's, if the peer can encrypt: the same one whenever it is sent.
    pub(super) fn accept(
        &mut self,
        to: SocketAddr,
        connection: ConnectionId,
        accept: &SetupHeader,
    ) -> Option<&[u8]> {
        if let Some(answering) = self.answering.remove(&(to, accept.destination_cid)) {
            let (extension, agreed) = answering.finish(self.config.cipher, accept);
            let channel = self.install(connection, to, accept.destination_cid, agreed);
            channel.accept = Some(extension);
        }
        self.channels.get(&connection)?.accept.as_deref()
    }

    /// What [`Wrap::Exchange`](super::Wrap::Exchange) of a connection carries.
    pub(super) fn extension(&self, connection: ConnectionId) -> Option<&[u8]> {
        let asking = self.asking.get(&connection).map(|asking| &*asking.extension);
        asking.or_else(|| self.channels.get(&connection)?.accept.as_deref())
    }

    fn install(
        &mut self,
        connection: ConnectionId,
        to: SocketAddr,
        remote: u32,
        agreed: Agreed,
    ) -> &mut Channel {
        let channel = Channel::new(to, remote, agreed, self.config.cipher, self.epoch);
        let channel = Box::new(channel);
        self.by_remote.insert((to.ip(), remote), connection);
        self.channels.insert(connection, channel);
        self.counters.exchanges += 1;
        self.log(connection, true);
        self.log(connection, false);
        self.channels.get_mut(&connection).expect("inserted just now")
    }
}

fn own<'a>(config: &'a crate::SealConfig, identity: &'a crate::PrivateKey) -> Own<'a> {
    Own { identity, preshared_key: config.preshared_key.as_ref(), cipher: config.cipher }
}
