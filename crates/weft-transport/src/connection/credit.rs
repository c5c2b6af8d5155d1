//! Credits of a receiver, for congestion controls that send by them (RCCC; Ultra Ethernet specification 1.0.3, section
//! 3.6.14).
//!
//! The sender requests credit and the receiver grants it with special ACKs. Both carry a total since the connection
//! began, in units of 256 bytes modulo 2^32, in the field of the sequence number, so that a later one replaces a lost one.
//! The specification puts the request into data packets; a packet of its own leaves their headers as they are.
//!
//! All connections that want credit take turns: each is granted four packets at a time, at 0.99 of the rate of the port.
//! A connection takes the next free time for its grant when its last one has left, which is round robin without a list
//! of connections.

use weft_units::{ByteCount, Duration, Instant};
use weft_wire::AckType;

use super::{Connection, Shared};
use crate::congestion::Congestion;
use crate::path::PathId;
use crate::pool::before;
use crate::timers::Timer;
use crate::{DropReason, TransportConfig};

/// The unit of credit, bytes.
const UNIT: u32 = 256;

/// Number of packets of a grant.
const GRANT_PACKETS: u32 = 4;

/// The part of the port's rate that is granted: 99/100.
const RATE: (u64, u64) = (99, 100);

/// The bandwidth-delay products that a sender may want at a time; an honest one wants up to 3/2 of its own.
const MAX_WANTED: u64 = 8;

/// The credit that a receiver grants on one connection.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// The totals that the sender wants and that were granted, units.
    wanted: u32,
    granted: u32,
    /// The time of the next grant and its units; `None` if no credit is wanted.
    next: Option<(Instant, u32)>,
}

/// The credit of a sender on one connection.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    /// The totals that were granted and requested, units.
    granted: u32,
    requested: u32,
    /// The time of the last request.
    requested_at: Instant,
}

/// The totals of both directions of a connection.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    pub(super) grants: Grants,
    pub(super) own: Credit,
}

impl Credits {
    /// Returns the time of the next grant.
    pub(super) fn grant_at(&self) -> Option<Instant> {
        self.grants.next.map(|(at, _)| at)
    }
}

/// Returns the units that a connection is granted at a time.
fn grant_units(mtu: u16) -> u32 {
    (GRANT_PACKETS * u32::from(mtu) / UNIT).max(1)
}

/// Returns the time that the granted packets occupy the port, at the granted part of its rate.
fn span(units: u32, mtu: u16, config: &TransportConfig) -> Duration {
    let bytes = units * UNIT;
    let packets = bytes.div_ceil(mtu.into());
    let wire = u64::from(bytes) + u64::from(packets) * u64::from(config.packet_overhead);
    config.line_rate.serialization_delay(ByteCount(wire)) * RATE.1 / RATE.0
}

impl Connection {
    /// Processes a sender's request for credit.
    pub(super) fn handle_credit_request(&mut self, now: Instant, total: u32, shared: &mut Shared) {
        let grants = &mut self.credits.get_or_insert_default().grants;
        if before(grants.wanted, total) {
            let most = shared.config.bdp().0.saturating_mul(MAX_WANTED) / u64::from(UNIT);
            let most = u32::try_from(most).unwrap_or(u32::MAX / 4).max(grant_units(self.mtu));
            grants.wanted =
                grants.granted.wrapping_add(total.wrapping_sub(grants.granted).min(most));
        }
        if !before(grants.granted, total) {
            // The grant was lost.
            let granted = grants.granted;
            return self.queue_special_ack(now, granted, AckType::Credit);
        }
        if grants.next.is_none() {
            self.schedule_grant(now, shared);
        }
    }

    /// Takes the next free time for a grant.
    fn schedule_grant(&mut self, now: Instant, shared: &mut Shared) {
        let mtu = self.mtu;
        let Some(Credits { grants, .. }) = self.credits.as_deref_mut() else { return };
        let units = grants.wanted.wrapping_sub(grants.granted).min(grant_units(mtu));
        let at = shared.next_grant_at.max(now);
        grants.next = Some((at, units));
        shared.next_grant_at = at + span(units, mtu, &shared.config);
        self.timers.arm_by(Timer::Congestion, at);
    }

    /// Sends the grant that is due.
    pub(super) fn on_grant_timer(&mut self, now: Instant, shared: &mut Shared) {
        let Some(Credits { grants, .. }) = self.credits.as_deref_mut() else { return };
        let Some((at, units)) = grants.next else { return };
        if at > now {
            return self.timers.arm_by(Timer::Congestion, at);
        }
        grants.granted = grants.granted.wrapping_add(units);
        grants.next = None;
        let (granted, wants_more) = (grants.granted, before(grants.granted, grants.wanted));
        self.queue_special_ack(now, granted, AckType::Credit);
        if wants_more {
            self.schedule_grant(now, shared);
        }
    }

    /// Processes credit at the sender.
    ///
    /// # Errors
    /// [`DropReason::StaleAck`] if it is no more than before.
    pub(super) fn handle_credit(
        &mut self,
        now: Instant,
        total: u32,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        let sender = self.sender.as_deref_mut().ok_or(DropReason::StaleAck)?;
        let own = &mut self.credits.get_or_insert_default().own;
        if !before(own.granted, total) {
            return Err(DropReason::StaleAck);
        }
        // More than was requested is not the peer's to grant.
        let total = if before(own.requested, total) { own.requested } else { total };
        let units = total.wrapping_sub(own.granted);
        own.granted = total;
        let in_flight = sender.in_flight;
        let controller = sender.controllers.of(PathId(0));
        controller.on_credit(now, units.saturating_mul(UNIT), in_flight);
        self.request_credit(now, shared);
        self.arm_congestion();
        Ok(())
    }

    /// Queues a request for credit if the congestion control wants a grant more than was requested, so that not every
    /// packet has a request, or wants all that is left: without it the last packets would wait until everything requested
    /// before was granted. After a silence the last request is repeated: it, or the credit, may be lost.
    pub(super) fn request_credit(&mut self, now: Instant, shared: &Shared) {
        let Some(sender) = self.sender.as_deref_mut() else { return };
        let (backlog, in_flight) = (sender.unsent(shared.config.bdp()), sender.in_flight);
        let controller = sender.controllers.of(PathId(0));
        let Some(bytes) = controller.wanted_credit(backlog, in_flight).filter(|&bytes| bytes > 0)
        else {
            return;
        };
        let is_last = controller.wanted_credit(u32::MAX, in_flight) > Some(bytes);
        let units = bytes.div_ceil(UNIT);
        let own = &mut self.credits.get_or_insert_default().own;
        let total = own.granted.wrapping_add(units);
        let more = if before(own.requested, total) { total.wrapping_sub(own.requested) } else { 0 };
        let is_enough = more >= grant_units(self.mtu).min(units) || (is_last && more > 0);
        if is_enough || now.since(own.requested_at) >= shared.config.retransmission.rto_min {
            own.requested = own.requested.wrapping_add(more);
            own.requested_at = now;
            let requested = own.requested;
            self.queue_special_ack(now, requested, AckType::CreditRequest);
        }
    }
}
