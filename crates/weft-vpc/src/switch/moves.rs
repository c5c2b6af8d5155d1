//! Machines that move between hosts: a port whose machine comes and goes, and the frames that follow a machine to its
//! new place.
//!
//! The new host announces the machine to all hosts of its network, and the first frame on each of its connections shows
//! its place to that connection's host. A host that learns either closes its connections to the former place and sends
//! what was not acknowledged there to the new one, so neither a time-out nor a tenant's retransmission is waited for.

use alloc::vec::Vec;

use weft_transport::ConnectionId;
use weft_units::Instant;
use weft_wire::MacAddr;

use super::pair::VnicPair;
use super::{DropCause, Handover, Place, PortId, Presence, Switch, TenantFrame, Tenants, Vni};

impl Switch {
    /// Sets whether the machine of a port of this thread is there. While it is not, it may be on another host: its place
    /// is learned, and frames for it that arrive here are declined, so that their senders keep them.
    pub fn set_present(
        &mut self,
        now: Instant,
        port: PortId,
        present: bool,
        tenants: &mut impl Tenants,
    ) {
        let Some(known) = self.ports.get(&port) else { return };
        let (vni, addresses) = (known.config.vni, known.config.addresses.clone());
        let (own, threads) = (self.config.thread_id, self.config.threads);
        for address in addresses {
            let presence = Presence { port, vni, address, present };
            self.apply_presence(now, presence, tenants);
            for thread in (0..threads).filter(|&other| other != own) {
                self.hand_over(thread, Handover::Presence(presence));
            }
        }
    }

    /// Applies a presence on this thread.
    pub(super) fn apply_presence(
        &mut self,
        now: Instant,
        presence: Presence,
        tenants: &mut impl Tenants,
    ) {
        let Presence { port, vni, address, present } = presence;
        let here = Place::Port(port);
        let table = self.table(vni);
        if present {
            table.set_mac(address, Some(here));
            self.follow(now, vni, address, tenants);
        } else if table.place_if_set(address) == Some(here) {
            table.set_mac(address, None);
        }
    }

    /// Sends a frame in the name of a port's machine to all other ports and hosts of its network, as an announcement of
    /// its place. The port's policies do not apply: its owner composed the frame.
    pub fn announce(&mut self, now: Instant, sent: TenantFrame, tenants: &mut impl Tenants) {
        match self.ports.get(&sent.port) {
            Some(port) => {
                let vni = port.config.vni;
                self.flood(now, sent, vni, tenants);
            }
            None => tenants.release(sent.port, sent.token),
        }
    }

    /// Closes the connections to a machine's former places, and sends their frames to its place.
    #[cold]
    pub(super) fn follow(
        &mut self,
        now: Instant,
        vni: Vni,
        machine: MacAddr,
        tenants: &mut impl Tenants,
    ) {
        let Some(place) = self.table(vni).place(machine, now) else { return };
        for port in self.others(vni, None).collect::<Vec<_>>() {
            for connection in self.pairs.joining((port, machine)) {
                if self.pairs.get(connection).is_some_and(|pair| !pair.leads_to(place)) {
                    self.redirect_pair(now, connection, place, tenants);
                }
            }
        }
    }

    /// Closes a pair's connection, and sends the frames that were not acknowledged on it to `place`. The former host may
    /// have delivered some of them.
    fn redirect_pair(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        place: Place,
        tenants: &mut impl Tenants,
    ) {
        self.endpoint.close(now, connection);
        let Some(mut pair) = self.pairs.remove(connection) else { return };
        let (vni, port, local, remote) = (pair.vni, pair.port, pair.local, pair.remote);
        core::mem::take(&mut pair.arriving).cancel(port, tenants);
        for frame in pair.into_frames() {
            match place {
                Place::Peer(peer) => {
                    let vnics = VnicPair { vni, port, local, remote, peer };
                    // The window of its tenant bounds what was on its way.
                    self.carry_to_peer(now, vnics, frame, usize::MAX, tenants);
                }
                Place::Port(to) => {
                    let sent = TenantFrame { port, token: frame.token, len: frame.len };
                    match self.carry_locally(now, sent, vni, Some((to, remote)), tenants) {
                        true => tenants.release(port, frame.token),
                        false => self.drop_frame(port, frame.token, DropCause::NoRoute, tenants),
                    }
                }
            }
        }
    }
}
