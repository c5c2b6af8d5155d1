//! Leases between hosts, as the owners of their devices manage them.

use alloc::vec::Vec;
use core::mem::take;

use weft_transport::ConnectionId;

use super::network::{End, Host, HostMemory, Network, link_to};
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
            let (leases, reach) = (&mut self.hosts[host].leases, self.reach);
            match event {
                LeaseEvent::Granted { link, owner, connection, lease } => {
                    leases.granted += 1;
                    let (number, key) = (leases.granted, lease.key);
                    leases.valid.push(Lent { number, owner, connection, key });
                    let borrower = usize::try_from(link.0).unwrap();
                    let id = LeaseId { link: link_to(host), number };
                    self.hosts[borrower].device.borrow(lease, id, reach);
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
        let now = self.now;
        self.with_lenders(|hosts, lenders| {
            let device = &mut hosts[host].device;
            while device
                .poll_leased_access(now, |request| lenders.execute(host, request).then_some(now))
            {
            }
        });
    }

    /// Has a host execute a request that is not queued, if a lease of mapped memory allows it.
    pub(super) fn execute_at_once(&mut self, end: &End, request: &SendRequest<'_>) -> bool {
        if self.reach != Reach::Mapped {
            return false;
        }
        for host in 0..self.hosts.len() {
            self.notify_borrowers(host);
        }
        self.with_lenders(|hosts, lenders| {
            let device = &mut hosts[end.host].device;
            device.execute_at_once(end.qp, request, |access| lenders.execute(end.host, access))
        })
    }

    /// Calls `act` with the hosts, and with their memory and leases, which the hosts lack meanwhile.
    fn with_lenders<T>(&mut self, act: impl FnOnce(&mut [Host], &mut Lenders) -> T) -> T {
        let taken = |host: &mut Host| (take(&mut host.memory), take(&mut host.leases));
        let (memories, leases) = self.hosts.iter_mut().map(taken).unzip();
        let mut lenders = Lenders { memories, leases };
        let result = act(&mut self.hosts, &mut lenders);
        let Lenders { memories, leases } = lenders;
        for ((host, memory), leases) in self.hosts.iter_mut().zip(memories).zip(leases) {
            (host.memory, host.leases) = (memory, leases);
        }
        result
    }
}

/// The memory and the leases of all hosts.
struct Lenders {
    memories: Vec<HostMemory>,
    leases: Vec<Leases>,
}

impl Lenders {
    /// Executes a request of host `here`, unless its lease was revoked.
    fn execute(&mut self, here: usize, request: &LeasedAccess<'_>) -> bool {
        let lender = usize::try_from(request.lease.link.0).unwrap();
        let leases = &mut self.leases[lender];
        let lent = leases.valid.iter().find(|lent| lent.number == request.lease.number);
        let Some(&Lent { owner, .. }) = lent else { return false };
        leases.used += 1;
        let there = Place { owner, address: request.address, len: request.length };
        copy(&mut self.memories, (here, lender), there, request);
        true
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
