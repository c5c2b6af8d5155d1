//! One neighbour: a process of this host that we may see and that may see us. Two rings carry packets, a
//! descriptor wakes it, and a socket says when it is gone.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weft_rnic::{PayloadLost, Place, Source, Transmit};
use weft_transport::{ConnectionId, LinkId};
use weft_wire::{Packet, SetupHeader, SetupKind};

use super::cross_memory;
use super::record::{self, Remote, state};
use super::ring::{Broken, LONGEST, Reader, Writer};
use super::segment::Segment;

/// Records that wait for room in the ring, at most: more than its connections have under way while their
/// windows are what they agreed on. What comes on top is lost, and its connection with it.
const MOST_WAITING: usize = 1 << 16;

/// A record whose payload is still in this process's memory.
#[derive(Debug)]
struct Lent {
    /// Where the record is in the ring; `None` while it waits.
    position: Option<u64>,
    connection: Option<ConnectionId>,
    /// The lowest and the highest address of it.
    from: u64,
    to: u64,
}

/// A neighbour.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) link: LinkId,
    /// The port of its share.
    pub(super) port: u16,
    pub(super) pid: i32,
    socket: OwnedFd,
    doorbell: OwnedFd,
    writer: Writer,
    reader: Reader,
    /// Records that the ring had no room for, and whether each lends memory.
    waiting: VecDeque<(Vec<u8>, bool)>,
    /// In the order of their records.
    lent: VecDeque<Lent>,
    /// Something was written since the reader was looked after.
    pub(super) unannounced: bool,
    /// It hung up: what it wrote before is there to read.
    pub(super) gone: bool,
    /// It broke the rules.
    pub(super) broken: bool,
    record: Vec<u8>,
    /// The address its packets come from, as was found right last.
    pub(super) known_from: Option<IpAddr>,
    /// What the rings are in.
    _segment: Segment,
}

/// What a channel is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) port: u16,
    pub(super) pid: i32,
    pub(super) socket: OwnedFd,
    pub(super) doorbell: OwnedFd,
    pub(super) segment: Segment,
    /// Whether this end made the segment: its maker writes into the first ring.
    pub(super) made: bool,
}

impl Channel {
    pub(super) fn new(link: LinkId, parts: Parts) -> Self {
        let Parts { port, pid, socket, doorbell, segment, made } = parts;
        let [first, second] = segment.rings();
        let (out, into) = if made { (first, second) } else { (second, first) };
        Self {
            link,
            port,
            pid,
            socket,
            doorbell,
            writer: Writer::new(out),
            reader: Reader::new(into),
            waiting: VecDeque::new(),
            lent: VecDeque::new(),
            unannounced: false,
            gone: false,
            broken: false,
            record: Vec::with_capacity(LONGEST),
            known_from: None,
            _segment: segment,
        }
    }

    /// The socket that hangs up when the neighbour is gone.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a packet that says it comes from `from`.
    pub(super) fn push(&mut self, transmit: &Transmit, source: Source<'_>, from: IpAddr) {
        if is_close(&transmit.packet) {
            self.take_back(|lent| lent.connection == transmit.connection);
        }
        let places = record::write(transmit, source, from, &mut self.record);
        let written =
            if self.waiting.is_empty() { self.writer.write(&self.record) } else { Ok(None) };
        let Ok(position) = written else {
            self.broken = true;
            return;
        };
        self.unannounced |= position.is_some();
        if let Some(places) = places {
            self.lend(position, transmit.connection, places);
        }
        if position.is_none() && self.waiting.len() < MOST_WAITING {
            self.waiting.push_back((self.record.clone(), places.is_some()));
        } else if position.is_none() {
            self.broken = true;
        }
    }

    fn lend(&mut self, position: Option<u64>, connection: Option<ConnectionId>, places: &[Place]) {
        self.forget_read();
        let from = places.iter().map(|place| place.address).min().unwrap_or(0);
        let end = |place: &Place| place.address.saturating_add(place.len.into());
        let to = places.iter().map(end).max().unwrap_or(0);
        self.lent.push_back(Lent { position, connection, from, to });
    }

    /// Forgets what the neighbour has read.
    fn forget_read(&mut self) {
        let Ok(read) = self.writer.look() else {
            self.broken = true;
            return;
        };
        while self.lent.front().and_then(|lent| lent.position).is_some_and(|at| at < read) {
            self.lent.pop_front();
        }
    }

    /// Memory is given up: what the neighbour has not read of it, it will not take for ours.
    pub(super) fn take_back_range(&mut self, from: u64, to: u64) {
        self.take_back(|lent| lent.from < to && from < lent.to);
    }

    fn take_back(&mut self, which: impl Fn(&Lent) -> bool) {
        if self.lent.is_empty() {
            return;
        }
        self.forget_read();
        let mut waiting = self.waiting.iter_mut().filter(|(_, lends)| *lends);
        for lent in &self.lent {
            match lent.position {
                Some(position) if which(lent) => self.writer.set_state(position, state::GONE),
                Some(_) => {}
                None => {
                    let record = waiting.next().filter(|_| which(lent));
                    record
                        .into_iter()
                        .for_each(|(record, _)| record::set_state(record, state::GONE));
                }
            }
        }
    }

    /// Writes what waits, as far as there is room, and wakes the neighbour if it sleeps.
    pub(super) fn flush(&mut self) {
        while let Some((record, lends)) = self.waiting.front() {
            match self.writer.write(record) {
                Ok(Some(position)) => {
                    let mut unplaced = self.lent.iter_mut().filter(|lent| lent.position.is_none());
                    if *lends && let Some(lent) = unplaced.next() {
                        lent.position = Some(position);
                    }
                    self.waiting.pop_front();
                    self.unannounced = true;
                }
                Ok(None) => break,
                Err(Broken) => {
                    self.broken = true;
                    break;
                }
            }
        }
        if core::mem::take(&mut self.unannounced) && self.writer.reader_sleeps() {
            // A count that is full wakes it too.
            let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
        }
    }

    /// Whether records wait for room in the ring.
    pub(super) fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Copies the next record to the start of `out`; its length, or `None` if there is none.
    pub(super) fn peek(&mut self, out: &mut [u8; LONGEST]) -> Option<usize> {
        let peeked = self.reader.peek(out);
        self.broken |= peeked.is_err();
        peeked.ok().flatten()
    }

    /// Is done with the record peeked at.
    pub(super) fn pass(&mut self, len: usize) {
        self.reader.pass(len);
    }

    /// Whether nothing more will come of it.
    pub(super) fn is_over(&self) -> bool {
        self.broken || self.gone && !self.has_news()
    }

    pub(super) fn has_news(&self) -> bool {
        !self.reader.is_empty()
    }

    pub(super) fn set_asleep(&self, asleep: bool) {
        self.reader.set_asleep(asleep);
    }

    /// Payload of the record peeked at, that is in the neighbour's memory at these places.
    pub(super) fn there<'a>(&'a self, places: &'a [Remote]) -> There<'a> {
        There { channel: self, places }
    }
}

/// Payload in a neighbour's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct There<'a> {
    channel: &'a Channel,
    places: &'a [Remote],
}

impl There<'_> {
    /// Copies `len` bytes of the payload, from byte `from` on, to `to`; the last of them to `last`.
    ///
    /// # Safety
    /// `to` has room for `len - 1` bytes, that nothing of Rust's refers to.
    ///
    /// # Errors
    /// They are not there any more.
    pub(crate) unsafe fn copy(
        &self,
        from: usize,
        to: *mut u8,
        len: usize,
        last: &mut u8,
    ) -> Result<(), PayloadLost> {
        // SAFETY: as the caller says.
        let read =
            unsafe { cross_memory::read(self.channel.pid, self.places, from, to, len, last) };
        // What it takes back, it takes back before it uses the memory otherwise: so what was read is what
        // was sent, if it was not taken back by now.
        let valid = self.channel.reader.state() == state::THERE;
        if read && valid { Ok(()) } else { Err(PayloadLost) }
    }
}

const fn is_close(packet: &Packet) -> bool {
    matches!(packet, Packet::Setup(SetupHeader { kind: SetupKind::Close, .. }))
}
