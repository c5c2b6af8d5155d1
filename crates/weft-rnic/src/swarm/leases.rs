//! Leases between hosts, as the owners of their devices manage them.

use alloc::vec::Vec;

use weft_transport::ConnectionId;

use super::network::{HostMemory, Network, link_to};
use crate::*;

/// The leases that a host has granted.
#[derive(Default)]
pub(crate) struct Leases {
    /// Number of leases granted so far.
    granted: u64,
    /// The leases that are not revoked.
    valid: Vec<Lent>,
    /// Number of requests that were executed by a lease.
    pub(crate) used: u64,
}

/// A lease that a host has granted.
struct Lent {
    number: u64,
    owner: Owner,
    connection: ConnectionId,
    key: u32,
}

impl Network {
    /// Delivers a host's notifications for its borrowers.
    pub(super) fn notify_borrowers(&mut self, host: usize) {
        while let Some(event) = self.hosts[host].device.poll_lease_event() {
            let leases = &mut self.hosts[host].leases;
            match event {
                LeaseEvent::Granted { link, owner, connection, lease } => {
                    leases.granted += 1;
                    let (number, key) = (leases.granted, lease.key);
                    leases.valid.push(Lent { number, owner, connection, key });
                    let borrower = usize::try_from(link.0).unwrap();
                    let id = LeaseId { link: link_to(host), number };
                    self.hosts[borrower].device.borrow(lease, id);
                }
                LeaseEvent::KeyRevoked(key) => leases.valid.retain(|lent| lent.key != key),
                LeaseEvent::ConnectionRevoked(connection) => {
                    leases.valid.retain(|lent| lent.connection != connection);
                }
            }
        }
    }

    /// Has a host execute the requests that leases allow.
    pub(super) fn reach(&mut self, host: usize) {
        if !self.hosts[host].device.has_leased_access() {
            return;
        }
        let taken = |other: &mut super::network::Host| core::mem::take(&mut other.memory);
        let mut memories: Vec<HostMemory> = self.hosts.iter_mut().map(taken).collect();
        let mut leases: Vec<Leases> =
            self.hosts.iter_mut().map(|host| core::mem::take(&mut host.leases)).collect();
        let device = &mut self.hosts[host].device;
        while device.poll_leased_access(self.now, |request| {
            let lender = usize::try_from(request.lease.link.0).unwrap();
            let lent = leases[lender].valid.iter().find(|l| l.number == request.lease.number);
            let &Lent { owner, .. } = lent?;
            leases[lender].used += 1;
            let there = Place { owner, address: request.address, len: request.length };
            copy(&mut memories, (host, lender), there, request);
            Some(self.now)
        }) {}
        for ((host, memory), leases) in self.hosts.iter_mut().zip(memories).zip(leases) {
            (host.memory, host.leases) = (memory, leases);
        }
    }
}

fn copy(
    memories: &mut [HostMemory],
    (here, lender): (usize, usize),
    there: Place,
    request: &LeasedAccess<'_>,
) {
    match request.local {
        Source::Memory(places) if request.writes => {
            let pieces = places.iter().flat_map(|place| memories[here].read(place));
            let bytes: Vec<u8> = pieces.copied().collect();
            memories[lender].write(there, &bytes);
        }
        Source::Memory(places) => {
            let mut bytes = &*memories[lender].read(&there).to_vec();
            for &place in places {
                let (piece, rest) = bytes.split_at(place.len as usize);
                memories[here].write(place, piece);
                bytes = rest;
            }
        }
        Source::Inline(bytes) => memories[lender].write(there, bytes),
        Source::Anything => panic!("it goes to memory"),
    }
}
