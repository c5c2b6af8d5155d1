//! One neighbour: a process of this host with mutual access to memory. Two rings carry packets, a descriptor wakes it,
//! and a socket reports when it is gone.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weft_ring::leases::{Backing, Borrower, LeaseKey, Lender, Terms};
use weft_ring::records::{CAPACITY, Reader, Unread, Writer};
use weft_rnic::{Lease, LeaseId, LeasedAccess, Reach, Source, Transmit};
use weft_transport::{ConnectionId, LinkId};

use super::borrowed::MappedRegions;
use super::record::{Addresses, Head};
use super::segment::Segment;
use super::{greeting, leased_access};

/// Bytes read before a neighbour that waits for room is woken: while it writes, more can be read.
const NOTIFY_AFTER: u64 = CAPACITY / 2;

/// A neighbour.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) link: LinkId,
    /// The port of its share.
    pub(super) port: u16,
    socket: OwnedFd,
    doorbell: OwnedFd,
    writer: Writer,
    reader: Reader,
    pid: i32,
    lender: Lender,
    borrower: Borrower,
    mapped: MappedRegions,
    /// Bytes read since the last check for a neighbour that waits for room.
    passed: u64,
    /// `true` if there is no room for a record of maximum length; nothing is sent then.
    full: bool,
    /// `true` if a record was written since the reader was last woken.
    pub(super) unannounced: bool,
    /// `true` if it closed its socket: records written before may still be read.
    pub(super) gone: bool,
    /// `true` if it broke the protocol.
    pub(super) broken: bool,
    /// The source and destination of its last packet, once verified.
    pub(super) last_received: Option<Addresses>,
    /// The source and destination of the last packet to it.
    last_sent: Option<Addresses>,
    /// The memory of the rings.
    _segment: Segment,
}

/// The result of an access to mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    /// The memory is not mapped, or this thread may not use the mapping.
    Not,
    /// The lease was revoked, or the memory does not exist any more.
    Failed,
    /// The request was executed.
    Executed,
}

/// The parts of a channel.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) port: u16,
    pub(super) pid: i32,
    pub(super) socket: OwnedFd,
    pub(super) doorbell: OwnedFd,
    pub(super) segment: Segment,
    /// `true` if this end made the segment: its maker writes into the first ring.
    pub(super) made: bool,
}

impl Channel {
    pub(super) fn new(link: LinkId, parts: Parts) -> Self {
        let Parts { port, pid, socket, doorbell, segment, made } = parts;
        let [first, second] = segment.rings();
        let (out, into) = if made { (first, second) } else { (second, first) };
        let [first, second] = segment.leases();
        let (lent, borrowed) = if made { (first, second) } else { (second, first) };
        Self {
            link,
            port,
            pid,
            lender: Lender::new(lent),
            borrower: Borrower::new(borrowed),
            mapped: MappedRegions::default(),
            socket,
            doorbell,
            writer: Writer::new(out),
            reader: Reader::new(into),
            passed: 0,
            full: false,
            unannounced: false,
            gone: false,
            broken: false,
            last_received: None,
            last_sent: None,
            _segment: segment,
        }
    }

    /// Returns the socket that closes when the neighbour is gone.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Grants the neighbour a lease on memory of this process.
    pub(super) fn lend(&mut self, connection: ConnectionId, lease: &Lease, backing: Backing) {
        let Lease { key, start, length, address, writable, readable, .. } = *lease;
        let connection_there = lease.connection.0;
        self.lender.lend(
            connection.0,
            &Terms {
                connection: connection_there,
                key,
                start,
                length,
                address,
                writable,
                readable,
                backing,
            },
        );
    }

    /// Revokes the leases for which `selects` returns `true`. The neighbour does not use them any more when this
    /// returns.
    pub(super) fn revoke(&mut self, selects: impl Fn(&LeaseKey) -> bool) {
        let (socket, broken) = (self.socket.as_fd(), self.broken);
        let revoked = self.lender.revoke(selects, || {
            let is_gone = broken || !greeting::is_quiet(socket);
            if !is_gone {
                // The neighbour finishes in a few microseconds, unless another program has its processor.
                std::thread::yield_now();
            }
            is_gone
        });
        // One that sleeps wakes to unmap the memory, which would be kept as long as it sleeps.
        self.unannounced |= revoked;
    }

    /// Passes each lease from the neighbour to `each`, with the way in which this process uses it.
    #[inline]
    pub(super) fn take_leases(&mut self, mut each: impl FnMut(LeaseId, Lease, Reach)) {
        let Self { link, pid, ref socket, ref mut mapped, .. } = *self;
        self.borrower.take_leases(|number, terms| {
            // Another process may have the ID of a dead one.
            let may_map = terms.backing != Backing::Private && greeting::is_quiet(socket.as_fd());
            let is_mapped = may_map && mapped.map(pid, number, &terms);
            let Terms { connection, key, start, length, address, writable, readable, .. } = terms;
            let connection = ConnectionId(connection);
            let lease = Lease { connection, key, start, length, address, writable, readable };
            let reach = if is_mapped { Reach::Mapped } else { Reach::SystemCall };
            each(LeaseId { link, number }, lease, reach);
        });
    }

    /// Unmaps memory of the neighbour that this process may not use any more.
    pub(super) fn unmap_revoked(&mut self) {
        let Self { borrower, mapped, .. } = self;
        mapped.retain(|number| borrower.is_valid(number));
    }

    /// Executes a request in the neighbour's memory, if it is mapped. Returns `true` if that succeeded.
    #[inline]
    pub(super) fn execute_mapped(&self, request: &LeasedAccess<'_>) -> Mapped {
        let number = request.lease.number;
        let region = self.mapped.get(number).filter(|region| region.is_usable());
        let Some(region) = region.filter(|_| !self.broken) else { return Mapped::Not };
        let executed = self.borrower.with_lease(number, || region.execute(request));
        if executed { Mapped::Executed } else { Mapped::Failed }
    }

    /// Executes a request in the neighbour's memory by a system call. Returns `true` if that succeeded. It checks first
    /// that the neighbour lives: another process may have the ID of a dead one.
    pub(super) fn execute_by_call(&self, request: &LeasedAccess<'_>) -> bool {
        !self.broken
            && self.borrower.with_lease(request.lease.number, || {
                greeting::is_quiet(self.socket.as_fd()) && leased_access::execute(self.pid, request)
            })
    }

    /// Sends a packet with the source `from`. There is room: the device sends nothing over a link that reported to be
    /// full.
    pub(super) fn push(&mut self, transmit: &Transmit, source: Source<'_>, from: IpAddr) {
        let head = Head::new(transmit, from, &mut self.last_sent);
        self.writer.write(head.record_len(), |room| head.write(source, room));
        self.unannounced = true;
        self.full = !self.has_room();
    }

    fn has_room(&mut self) -> bool {
        let room = self.writer.has_room();
        self.broken |= room.is_err();
        room.unwrap_or(false)
    }

    /// Returns `true` if there is no room for another record.
    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    /// Returns `true` if there is room again after there was none.
    pub(super) fn finds_room(&mut self) -> bool {
        let found = self.full && self.has_room();
        self.full &= !found;
        found
    }

    /// Wakes the neighbour if it sleeps.
    pub(super) fn announce(&mut self) {
        if core::mem::take(&mut self.unannounced) && self.writer.reader_sleeps() {
            self.ring();
        }
    }

    fn ring(&self) {
        // A full counter wakes it too.
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }

    /// Returns the next record, if there is one.
    pub(super) fn peek(&mut self) -> Option<Unread> {
        let peeked = self.reader.peek();
        self.broken |= peeked.is_err();
        peeked.ok().flatten()
    }

    /// Releases the record that `peek` returned.
    pub(super) fn release(&mut self, len: usize) {
        self.reader.release(len);
        self.passed += len as u64;
        if self.passed >= NOTIFY_AFTER {
            self.notify_room();
        }
    }

    /// Wakes the neighbour if it waits for room and sleeps.
    pub(super) fn notify_room(&mut self) {
        self.passed = 0;
        if self.reader.writer_waits() && self.writer.reader_sleeps() {
            self.ring();
        }
    }

    /// Returns `true` if nothing more can arrive from it.
    pub(super) fn is_over(&self) -> bool {
        self.broken || self.gone && !self.has_records()
    }

    #[inline]
    pub(super) fn has_records(&self) -> bool {
        !self.reader.is_empty()
    }

    pub(super) fn set_asleep(&self, asleep: bool) {
        self.reader.set_asleep(asleep);
    }
}
