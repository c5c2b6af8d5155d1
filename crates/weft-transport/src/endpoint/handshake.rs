//! Connection set-up: requests, answered without state until the address is proved, and packets that name no
//! connection.

use core::net::SocketAddr;

use weft_units::Instant;
use weft_wire::{Packet, SetupHeader, SetupKind, SetupParameters};

use super::token::Requester;
use super::{Arrival, Endpoint, Transmit};
use crate::connection::{
    CAPABILITIES, Connection, MIN_VERSION, PeerRequest, Proof, VERSION, is_usable,
};
use crate::{CloseReason, DropReason, Event, Verdict};

/// Maximum number of queued answers that belong to no connection; further ones are dropped.
const MAX_ANSWERS: usize = 256;

/// The reason a request is refused, as carried in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NoCommonVersion = 1,
    NotAccepting = 2,
    Unusable = 3,
    NotEncrypted = 4,
    NotAuthentic = 5,
}

/// A set-up packet that belongs to no connection of this end.
pub(super) struct Answer {
    kind: SetupKind,
    destination_cid: u32,
    local_cid: u32,
    reason: u8,
    terms: Option<SetupParameters>,
}

impl Answer {
    /// Returns the reset of a connection that this end does not know, with the proof that this end received a packet
    /// of it.
    pub(super) fn reset(unknown_cid: u32, proof: Proof) -> Self {
        let (reason, destination_cid) = proof.to_wire();
        Self {
            kind: SetupKind::Reset,
            destination_cid,
            local_cid: unknown_cid,
            reason,
            terms: None,
        }
    }
}

impl Endpoint {
    /// Processes a set-up packet. `sealed` is `true` if the packets after it are encrypted.
    pub(super) fn handle_setup(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        sealed: bool,
    ) -> Verdict {
        let outcome = match (header.kind, &header.terms) {
            (SetupKind::Request, Some(terms)) => {
                self.handle_request(now, arrival, header, terms, sealed)
            }
            (SetupKind::Challenge, Some(terms)) => {
                self.with_connection(now, arrival, header, |connection, _| {
                    connection.handle_challenge(terms)
                })
            }
            (SetupKind::Accept, Some(terms)) => {
                self.handle_accepted(now, arrival, header, terms, sealed)
            }
            (SetupKind::Reject, _) => self.handle_reject(now, arrival, header),
            (SetupKind::Close, _) => self.handle_close(now, arrival, header),
            (SetupKind::Reset, _) => self.handle_reset(now, arrival, header),
            (_, None) => Err(DropReason::Malformed),
        };
        match outcome {
            Ok(()) => Verdict::Done,
            Err(reason) => self.shared.refuse(reason),
        }
    }

    /// Processes a peer's request for a connection.
    fn handle_request(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        theirs: &SetupParameters,
        sealed: bool,
    ) -> Result<(), DropReason> {
        let ip = arrival.from.ip();
        let requester = Requester { ip, receive_port: theirs.receive_port, cid: header.local_cid };
        let peer = SocketAddr::new(ip, theirs.receive_port);
        if header.local_cid == 0 || theirs.receive_port == 0 {
            return Err(DropReason::Malformed);
        }
        if !self.tokens.check(now, &requester, theirs.token) {
            // A token from before this end restarted proves nothing, so a challenge carries a new one.
            self.challenge(now, peer, &requester, header);
            return if theirs.token == 0 { Ok(()) } else { Err(DropReason::BadToken) };
        }
        let key = (ip, header.local_cid, theirs.receive_port);
        if let Some(&slot) = self.by_peer.get(&key)
            && let Some(connection) = self.connections.get_mut(slot)
        {
            connection.retransmit_accept();
            self.reschedule(now, slot);
            return Ok(());
        }
        if let Some(refusal) = self.refusal(header, theirs) {
            self.reject(peer, header, refusal);
            return Err(match refusal {
                Refusal::NoCommonVersion => DropReason::UnknownVersion,
                _ => DropReason::UnexpectedSetup,
            });
        }
        let (origin, config) = (self.next_origin(), &self.shared.config);
        let request = PeerRequest { peer, header, terms: theirs };
        let slot =
            self.connections.insert(|id| Connection::accepting(id, request, origin, now, config));
        let Some(slot) = slot else {
            self.reject(peer, header, Refusal::NotAccepting);
            return Err(DropReason::TooManyConnections);
        };
        self.by_peer.insert(key, slot);
        self.shared.accepted += 1;
        if sealed {
            let connection = self.connections.get_mut(slot).expect("inserted just now");
            connection.expect_proof(now, theirs.service, &self.shared.config);
        } else {
            let connection = self.connection(slot).id;
            self.shared.events.push_back(Event::Accepted { connection, service: theirs.service });
        }
        self.reschedule(now, slot);
        Ok(())
    }

    /// Returns the reason to refuse this request; `None` if it is acceptable.
    pub(super) fn refusal(
        &self,
        header: &SetupHeader,
        theirs: &SetupParameters,
    ) -> Option<Refusal> {
        let common = header.version >= MIN_VERSION && theirs.min_version <= VERSION.get();
        if !common {
            Some(Refusal::NoCommonVersion)
        } else if !self.accept {
            Some(Refusal::NotAccepting)
        } else if !is_usable(theirs) {
            Some(Refusal::Unusable)
        } else {
            None
        }
    }

    /// Queues a challenge, which requires a proof of address; keeps no state.
    fn challenge(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        requester: &Requester,
        header: &SetupHeader,
    ) {
        let token = self.tokens.make(now, requester);
        let terms = SetupParameters {
            capabilities: CAPABILITIES,
            min_version: MIN_VERSION.get(),
            token,
            ..SetupParameters::default()
        };
        let answer = Answer {
            kind: SetupKind::Challenge,
            destination_cid: header.local_cid,
            local_cid: 0,
            reason: 0,
            terms: Some(terms),
        };
        self.answer(peer, answer);
    }

    /// Queues a reject for the sender of `header`.
    pub(super) fn reject(&mut self, peer: SocketAddr, header: &SetupHeader, refusal: Refusal) {
        let answer = Answer {
            kind: SetupKind::Reject,
            destination_cid: header.local_cid,
            local_cid: 0,
            reason: refusal as u8,
            terms: None,
        };
        self.answer(peer, answer);
    }

    /// Queues a reset for the sender of a packet that names an unknown connection.
    pub(super) fn reset(&mut self, to: SocketAddr, unknown_cid: u32, packet: &Packet) {
        if self.connections.find(unknown_cid).is_none()
            && let Some(proof) = Proof::of(packet)
        {
            self.answer(to, Answer::reset(unknown_cid, proof));
        }
    }

    /// Queues an answer that belongs to no connection; drops it when [`MAX_ANSWERS`] are queued.
    pub(super) fn answer(&mut self, to: SocketAddr, answer: Answer) {
        if self.answers.len() >= MAX_ANSWERS {
            return;
        }
        let Answer { kind, destination_cid, local_cid, reason, terms } = answer;
        let header = SetupHeader {
            kind,
            version: VERSION,
            cc_type: self.shared.cc_type(),
            thread_id: self.shared.identity.thread_id,
            reason,
            local_cid,
            destination_cid,
            terms,
        };
        let packet = Packet::Setup(header);
        let path = self.shared.any_path();
        let answer = Transmit { connection: None, to, path, packet, padding: 0, payload: None };
        self.answers.push_back(answer);
    }

    /// Processes the peer's accept and records its id, because a reset names the connection by that id. An id already
    /// in use for another connection is refused; otherwise the end of one would remove the other. A peer that accepts a
    /// connection which this end no longer wants, or which a late duplicate requested, gets a reset; otherwise it would
    /// wait for its idle timeout.
    fn handle_accepted(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        theirs: &SetupParameters,
        sealed: bool,
    ) -> Result<(), DropReason> {
        let slot = self.accepted_slot(arrival, header, theirs).inspect_err(|reason| {
            if *reason == DropReason::UnknownConnection {
                let peer = SocketAddr::new(arrival.from.ip(), theirs.receive_port);
                self.reset(peer, header.destination_cid, &Packet::Setup(*header));
            }
        })?;
        let connection = self.connections.get_mut(slot).expect("found just now");
        if !connection.handle_accept(now, header, theirs, sealed, &mut self.shared) {
            return Err(DropReason::UnexpectedSetup);
        }
        let key = (arrival.from.ip(), header.local_cid, theirs.receive_port);
        self.by_peer.insert(key, slot);
        self.reschedule(now, slot);
        Ok(())
    }

    /// Returns the connection that an accept is for, if it is valid.
    pub(super) fn accepted_slot(
        &self,
        arrival: &Arrival,
        header: &SetupHeader,
        theirs: &SetupParameters,
    ) -> Result<u32, DropReason> {
        if header.local_cid == 0
            || theirs.receive_port == 0
            || !(MIN_VERSION..=VERSION).contains(&header.version)
            || !is_usable(theirs)
        {
            return Err(DropReason::UnexpectedSetup);
        }
        let slot = self.find(arrival, header.destination_cid)?;
        let key = (arrival.from.ip(), header.local_cid, theirs.receive_port);
        if self.by_peer.get(&key).is_some_and(|&owner| owner != slot) {
            return Err(DropReason::UnexpectedSetup);
        }
        Ok(slot)
    }

    fn handle_reject(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
    ) -> Result<(), DropReason> {
        const NO_COMMON_VERSION: u8 = Refusal::NoCommonVersion as u8;
        const NOT_ENCRYPTED: u8 = Refusal::NotEncrypted as u8;
        const NOT_AUTHENTIC: u8 = Refusal::NotAuthentic as u8;
        let reason = match header.reason {
            NO_COMMON_VERSION => CloseReason::NoCommonVersion,
            NOT_ENCRYPTED => CloseReason::NotEncrypted,
            NOT_AUTHENTIC => CloseReason::NotAuthentic,
            _ => CloseReason::Refused,
        };
        self.with_connection(now, arrival, header, |connection, _| {
            let requesting = !connection.is_established();
            connection.closing = requesting.then_some(reason).or(connection.closing);
            requesting
        })
    }

    fn handle_close(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
    ) -> Result<(), DropReason> {
        self.with_connection(now, arrival, header, |connection, _| {
            let theirs = connection.remote_cid == header.local_cid;
            connection.closing = theirs.then_some(CloseReason::Peer).or(connection.closing);
            theirs
        })
    }

    /// Processes the report that the peer does not know a connection. A reset names the connection by the peer's own id
    /// and repeats a number of the packet it answers; an ambiguous id (two endpoints on one address) is left to the
    /// peer timeout.
    fn handle_reset(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
    ) -> Result<(), DropReason> {
        let slot = self.reset_slot(arrival, header).ok_or(DropReason::UnknownConnection)?;
        let connection = self.connections.get_mut(slot).ok_or(DropReason::UnknownConnection)?;
        let proof = Proof::from_wire(header.reason, header.destination_cid);
        if !proof.is_some_and(|proof| connection.is_proof(proof, &self.shared)) {
            return Err(DropReason::UnprovenReset);
        }
        connection.closing = Some(CloseReason::Reset);
        self.reschedule(now, slot);
        Ok(())
    }

    /// Returns the connection that a reset names, if there is exactly one.
    pub(super) fn reset_slot(&self, arrival: &Arrival, header: &SetupHeader) -> Option<u32> {
        let ip = arrival.from.ip();
        let range = (ip, header.local_cid, 0)..=(ip, header.local_cid, u16::MAX);
        let mut matches = self.by_peer.range(range).map(|(_, &slot)| slot);
        let slot = matches.next()?;
        matches.next().is_none().then_some(slot)
    }

    /// Runs `act` on the connection that the header names, if the packet came from its peer's address; `act` returns
    /// `true` if the packet fits the connection's state.
    fn with_connection(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        act: impl FnOnce(&mut Connection, &mut crate::connection::Shared) -> bool,
    ) -> Result<(), DropReason> {
        let slot = self.find(arrival, header.destination_cid)?;
        let connection = self.connections.get_mut(slot).expect("found just now");
        let fits = act(connection, &mut self.shared);
        self.reschedule(now, slot);
        if fits { Ok(()) } else { Err(DropReason::UnexpectedSetup) }
    }
}
