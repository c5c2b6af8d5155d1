//! Transmission of datagrams, and the connections to their hosts.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::{ConnectionId, Message};
use weft_units::Instant;
use weft_wire::{RdmaHeader, U24};

use super::{Host, Outbound, SERVICE};
use crate::device::Device;
use crate::device::active::ActiveQp;
use crate::device::begin::check_memory;
use crate::queue_pair::{QueuePair, State, Token, Wqe};
use crate::{Context, QueuePairNumber, Service, Status};

/// The bit of a posted Q_Key that requests the sending queue pair's own Q_Key instead (IBTA volume 1, chapter 10).
const PRIVILEGED: u32 = 1 << 31;

impl ActiveQp<'_> {
    /// Sends the datagrams that can be sent.
    pub(in crate::device) fn pump_datagrams(&mut self, now: Instant) {
        while self.pair.state == State::ReadyToSend
            && !self.pair.requester.broken
            && self.begin_datagram(now)
        {}
    }

    /// Sends the next datagram; returns `false` if it has to wait.
    fn begin_datagram(&mut self, now: Instant) -> bool {
        let (qp, accessor, max_bytes) = (self.qp, self.accessor(), self.limits.datagram_bytes);
        let QueuePair { context, send, requester, .. } = &mut *self.pair;
        let Some((number, wqe)) = send.upcoming() else { return false };
        let Some(datagram) = wqe.datagram.filter(|_| wqe.outcome.is_none()) else {
            send.advance();
            return true;
        };
        if let Some(status) = check_memory(self.emtt, accessor, wqe, max_bytes) {
            wqe.outcome = Some(status);
            send.advance();
            requester.broken = true;
            return false;
        }
        let opcode = wqe.operation.opcode(Service::UnreliableDatagram);
        let message = Message {
            token: Token::Request { qp, round: 0, number }.pack(),
            opcode: opcode.expect("checked when it was posted") as u8,
            tag: 0,
            length: u32::try_from(wqe.length).expect("checked just now"),
        };
        let to = (*context, datagram.address);
        let Some(host) = self.datagrams.outbound.get_mut(&to) else {
            return self.connect_to_host(now, to);
        };
        if !host.ready || self.carriers.submit(now, host.connection, message).is_err() {
            if !host.waiting.contains(&qp) {
                host.waiting.push(qp);
            }
            return false;
        }
        host.in_flight.push_back((qp, number));
        send.advance();
        true
    }

    /// Opens a connection to a host. Returns `true` if the queue pair can continue with the next datagram.
    fn connect_to_host(&mut self, now: Instant, to: Host) -> bool {
        let Ok(connection) = self.carriers.connect(now, to.1, SERVICE) else {
            self.lose_upcoming(to.1);
            return true;
        };
        let (in_flight, waiting) = (VecDeque::new(), alloc::vec![self.qp]);
        let host = Outbound { connection, ready: false, in_flight, waiting };
        self.datagrams.outbound.insert(to, host);
        self.datagrams.hosts.insert(connection, to);
        false
    }

    /// Completes the next datagram as lost, if it goes to this host, which cannot be reached.
    fn lose_upcoming(&mut self, address: SocketAddr) {
        if let Some((_, wqe)) = self.pair.send.upcoming()
            && wqe.datagram.is_some_and(|datagram| datagram.address == address)
        {
            wqe.outcome = Some(Status::Success);
            self.pair.send.advance();
        }
    }
}

impl Device {
    /// Continues the queue pairs that wait for a connection, which is now ready.
    pub(in crate::device) fn on_connected(&mut self, now: Instant, connection: ConnectionId) {
        let Some(to) = self.datagrams.hosts.get(&connection) else { return };
        let Some(host) = self.datagrams.outbound.get_mut(to) else { return };
        host.ready = true;
        for qp in core::mem::take(&mut host.waiting) {
            self.pump(now, qp);
        }
    }

    /// Handles the arrival of the first datagram in flight on a connection; returns `false` if the connection carries none.
    pub(in crate::device) fn on_datagram_sent(
        &mut self,
        now: Instant,
        connection: ConnectionId,
    ) -> bool {
        let Some(to) = self.datagrams.hosts.get(&connection) else { return false };
        let Some(host) = self.datagrams.outbound.get_mut(to) else { return false };
        let sent = host.in_flight.pop_front();
        let waiting = core::mem::take(&mut host.waiting);
        if host.is_idle() && waiting.is_empty() && self.contexts.get(to.0.0).is_none() {
            self.carriers.close(now, connection);
        }
        if let Some((qp, number)) = sent
            && let Some(mut active) = self.active(qp)
        {
            active.pair.send.finish_number(number, Status::Success);
            active.pump(now);
        }
        for qp in waiting {
            self.pump(now, qp);
        }
        true
    }

    /// Handles the end of a connection that carried datagrams: those in flight complete as sent, since the service is
    /// unreliable.
    pub(in crate::device) fn on_datagrams_closed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
    ) {
        self.end_inbound(connection);
        let Some(to) = self.datagrams.hosts.remove(&connection) else { return };
        let Some(host) = self.datagrams.outbound.remove(&to) else { return };
        for &(qp, number) in &host.in_flight {
            if let Some(active) = self.active(qp) {
                active.pair.send.finish_number(number, Status::Success);
            }
        }
        for &qp in &host.waiting {
            if let Some(mut active) = self.active(qp) {
                active.lose_upcoming(to.1);
            }
        }
        for qp in host.in_flight.into_iter().map(|(qp, _)| qp).chain(host.waiting) {
            self.pump(now, qp);
        }
    }

    /// Closes the idle connections of a context, or of all contexts.
    pub(in crate::device) fn end_datagrams(&mut self, now: Instant, of: Option<Context>) {
        let hosts = self.datagrams.outbound.iter();
        let idle = hosts
            .filter(|((context, _), host)| host.is_idle() && of.is_none_or(|of| of == *context));
        for connection in idle.map(|(_, host)| host.connection).collect::<Vec<_>>() {
            self.carriers.close(now, connection);
        }
    }
}

/// Returns the header of a datagram's packets.
pub(in crate::device) fn datagram_header(
    wqe: &Wqe,
    qp: QueuePairNumber,
    own_qkey: u32,
) -> RdmaHeader {
    let Some(datagram) = wqe.datagram else { return RdmaHeader::default() };
    let privileged = datagram.qkey & PRIVILEGED != 0;
    let qkey = if privileged { own_qkey } else { datagram.qkey };
    let operation = wqe.operation.datagram(U24::truncate(qp.0), qkey);
    RdmaHeader {
        solicited: wqe.solicited,
        destination_qp: U24::truncate(datagram.qp.0),
        ..operation.expect("checked when it was posted").header()
    }
}
