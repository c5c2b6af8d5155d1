//! The messages of one connection that are partly received, or wait for earlier messages. Payload is placed on arrival;
//! messages are executed in order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_transport::Placement;
use weft_wire::{MissingOperands, RdmaHeader, RdmaOpcode, RdmaOperation};

use crate::memory::{Held, Place};
use crate::receive_queue::Receive;

/// Maximum messages in an inbox: those that may begin before the first is complete. Each has at least one packet in the
/// transport's window, which is not larger.
const MAX_MESSAGES: u32 = 8192;

/// The reason for refusing a request (IBTA volume 1, chapter 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No receive request is available.
    NotReady,
    /// The request is invalid, or invalid for this queue pair.
    InvalidRequest,
    /// The message is longer than the receive buffer.
    TooLong,
    /// Key, bounds or rights do not allow the access.
    Access,
    /// The memory of the receive request is not registered for writing.
    LocalProtection,
}

/// The handling of a message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// The payload is placed.
    Place,
    /// The payload is dropped, and the message is refused in its turn.
    Refuse(Refusal),
}

/// A packet whose payload is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldPart {
    pub(crate) packet: Held,
    pub(crate) offset: u32,
    pub(crate) len: u16,
    /// The peer whose limit the bytes count toward.
    pub(crate) peer: IpAddr,
}

/// A message of which the first packet has arrived.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) header: RdmaHeader,
    pub(crate) opcode: RdmaOpcode,
    /// The operation of the message; an error for an atomic without operands.
    pub(crate) operation: Result<RdmaOperation, MissingOperands>,
    pub(crate) length: u32,
    /// Bytes that have arrived.
    arrived: u32,
    /// `true` once all bytes have arrived.
    whole: bool,
    pub(crate) intake: Intake,
    /// The receive request that it consumed from a shared queue.
    pub(crate) receive: Option<Receive>,
    /// Packets whose payload the owner holds.
    pub(crate) held: Vec<HeldPart>,
    /// The target of a WRITE, and its byte ranges that were placed before earlier messages were complete.
    pub(crate) target: Option<Place>,
    early: Vec<(u32, u32)>,
}

impl Incoming {
    #[inline]
    pub(crate) fn new(header: RdmaHeader, opcode: RdmaOpcode, length: u32) -> Self {
        Self {
            header,
            opcode,
            operation: RdmaOperation::decode(opcode, &header),
            length,
            arrived: 0,
            whole: false,
            intake: Intake::Place,
            receive: None,
            held: Vec::new(),
            target: None,
            early: Vec::new(),
        }
    }

    /// Returns the ranges of the owner's memory that a WRITE filled before earlier messages were complete.
    fn early(&self) -> impl Iterator<Item = Place> {
        let target = self.target.into_iter();
        target.flat_map(|Place { owner, address, .. }| {
            let place = move |&(from, to): &(u32, u32)| Place {
                owner,
                address: address + u64::from(from),
                len: to - from,
            };
            self.early.iter().map(place)
        })
    }

    /// Records the arrival of a packet; returns `false` if the packets are longer than the message.
    pub(crate) fn note(&mut self, len: u16) -> bool {
        let arrived = self.arrived.checked_add(len.into()).filter(|&bytes| bytes <= self.length);
        let Some(arrived) = arrived.filter(|_| !self.whole) else { return false };
        self.arrived = arrived;
        self.whole = arrived == self.length;
        true
    }

    /// Undoes [`note`](Self::note) for a packet that the peer will retransmit.
    pub(crate) const fn forget(&mut self, len: u16) {
        self.arrived -= len as u32;
        self.whole = false;
    }

    /// Returns `true` if a packet of this length completes the message.
    pub(crate) fn completes(&self, len: u16) -> bool {
        self.length - self.arrived == u32::from(len)
    }
}

/// The messages of one connection by their number.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Number of the first message.
    first: u32,
    messages: VecDeque<Option<Incoming>>,
    /// Number of messages with bytes that were placed early.
    early: u32,
}

/// A part of a packet's payload: its place, and its offset in the payload.
pub(crate) type Part = (Place, u16);

/// Returns `part` without the bytes of `newer`: none, one or two parts.
fn subtract(part: Part, newer: &Place) -> impl Iterator<Item = Part> {
    let (place, from) = part;
    let (start, end) = (place.address, place.address + u64::from(place.len));
    let cut =
        |address: u64| if place.owner == newer.owner { address.clamp(start, end) } else { end };
    let cuts = [(start, cut(newer.address)), (cut(newer.address + u64::from(newer.len)), end)];
    cuts.into_iter().filter(|(start, end)| start < end).map(move |(address, to)| {
        let len = u32::try_from(to - address).expect("a part of a packet");
        let skipped = u16::try_from(address - start).expect("a part of a packet");
        (Place { address, len, ..place }, from + skipped)
    })
}

/// The error of a peer that violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError;

impl Inbox {
    /// Size of an entry in bytes.
    pub(crate) const ENTRY_BYTES: usize = size_of::<Option<Incoming>>();

    fn index(&self, message: u32) -> Result<usize, ProtocolError> {
        let distance = message.wrapping_sub(self.first);
        if distance < MAX_MESSAGES { Ok(distance as usize) } else { Err(ProtocolError) }
    }

    /// Returns `true` if no message is in the inbox.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.iter().all(Option::is_none)
    }

    /// Returns `true` if the message is the next one and has not begun.
    #[inline]
    pub(crate) fn is_next(&self, message: u32) -> bool {
        message == self.first && !matches!(self.messages.front(), Some(Some(_)))
    }

    /// Advances past the first message, which was executed without an entry.
    #[inline]
    pub(crate) fn pass_first(&mut self) {
        self.first = self.first.wrapping_add(1);
        self.messages.pop_front();
    }

    /// Returns `true` if it has entries, of messages that have begun or precede one that has.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Returns the message of a packet, if it has begun.
    ///
    /// # Errors
    /// The packet contradicts an earlier packet of the message, or the message is out of range.
    pub(crate) fn known(
        &self,
        placement: &Placement,
        header: &RdmaHeader,
    ) -> Result<Option<&Incoming>, ProtocolError> {
        match self.messages.get(self.index(placement.message)?) {
            Some(Some(known)) => {
                let (length, opcode) = (known.length, known.opcode as u8);
                let same = known.header == *header
                    && (length, opcode) == (placement.length, placement.opcode);
                if same { Ok(Some(known)) } else { Err(ProtocolError) }
            }
            _ => Ok(None),
        }
    }

    /// Returns `true` if the message has begun, without a comparison of headers.
    ///
    /// # Errors
    /// The message is out of range.
    pub(crate) fn holds(&self, message: u32) -> Result<bool, ProtocolError> {
        Ok(matches!(self.messages.get(self.index(message)?), Some(Some(_))))
    }

    /// Returns the number of entries that [`begin`](Self::begin) adds for a message: its own, and those of earlier
    /// messages that have not begun.
    pub(crate) fn entries_to(&self, message: u32) -> usize {
        (self.ahead_of(message) as usize + 1).saturating_sub(self.messages.len())
    }

    /// Returns the number of entries.
    pub(crate) fn entries(&self) -> usize {
        self.messages.len()
    }

    /// Adds a message, which must be in range.
    ///
    /// # Panics
    /// If the message is out of range; [`known`](Self::known) and [`holds`](Self::holds) check that.
    pub(crate) fn begin(&mut self, message: u32, incoming: Incoming) {
        let index = self.index(message).expect("the caller asked whether it is known");
        while self.messages.len() <= index {
            self.messages.push_back(None);
        }
        self.messages[index] = Some(incoming);
    }

    /// Returns a message that has begun.
    ///
    /// # Panics
    /// If it has not.
    #[inline]
    pub(crate) fn message(&mut self, message: u32) -> &mut Incoming {
        let index = self.index(message).expect("the caller asked whether it is known");
        self.messages[index].as_mut().expect("it has begun")
    }

    /// Returns the number of messages before this one.
    pub(crate) fn ahead_of(&self, message: u32) -> u32 {
        message.wrapping_sub(self.first)
    }

    /// Records that a range of a WRITE was placed while earlier messages may still write there.
    pub(crate) fn note_early(&mut self, message: u32, offset: u32, len: u16) {
        let incoming = self.message(message);
        let end = offset + u32::from(len);
        let first = incoming.early.is_empty();
        match incoming.early.iter_mut().find(|(from, to)| *to == offset || *from == end) {
            Some((_, to)) if *to == offset => *to = end,
            Some((from, _)) => *from = offset,
            None => incoming.early.push((offset, end)),
        }
        self.early += u32::from(first);
    }

    /// Removes from `parts` the bytes that messages after `message` have already written, so that the newer bytes stay.
    pub(crate) fn cut_newer(&self, message: u32, parts: &mut Vec<Part>) {
        if self.early == 0 {
            return;
        }
        let after = message.wrapping_sub(self.first).wrapping_add(1) as usize;
        for newer in self.messages.iter().skip(after).flatten().flat_map(Incoming::early) {
            let overlaps = |place: &Place| {
                place.owner == newer.owner
                    && place.address < newer.address + u64::from(newer.len)
                    && newer.address < place.address + u64::from(place.len)
            };
            if parts.iter().any(|(place, _)| overlaps(place)) {
                *parts = parts.iter().flat_map(|&part| subtract(part, &newer)).collect();
            }
        }
    }

    /// Returns the number of the message that was taken last.
    pub(crate) fn last_taken(&self) -> u32 {
        self.first.wrapping_sub(1)
    }

    /// Takes the first message if it is complete.
    pub(crate) fn pop_whole(&mut self) -> Option<Incoming> {
        self.messages.front()?.as_ref().filter(|incoming| incoming.whole)?;
        self.first = self.first.wrapping_add(1);
        let taken = self.messages.pop_front().flatten();
        self.early -= u32::from(taken.as_ref().is_some_and(|incoming| !incoming.early.is_empty()));
        taken
    }

    /// Removes and returns all messages, when the connection ends.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Incoming> {
        self.messages.drain(..).flatten()
    }
}

#[cfg(test)]
mod tests {
    use weft_transport::ConnectionId;

    use super::*;
    use crate::Owner;

    fn placement(message: u32, offset: u32, len: u16, length: u32) -> Placement {
        let opcode = RdmaOpcode::RcWrite as u8;
        Placement {
            connection: ConnectionId(1),
            psn: 0,
            opcode,
            tag: 0,
            message,
            offset,
            len,
            length,
        }
    }

    fn incoming(length: u32) -> Incoming {
        Incoming::new(RdmaHeader::default(), RdmaOpcode::RcWrite, length)
    }

    #[test]
    fn messages_leave_in_order_when_they_are_whole() {
        let mut inbox = Inbox { first: u32::MAX, ..Inbox::default() };
        inbox.begin(0, incoming(0));
        assert!(inbox.message(0).note(0));
        assert!(inbox.pop_whole().is_none(), "the one before has not begun");
        inbox.begin(u32::MAX, incoming(10));
        assert!(inbox.message(u32::MAX).note(4));
        assert!(inbox.pop_whole().is_none());
        assert!(inbox.message(u32::MAX).completes(6));
        assert!(inbox.message(u32::MAX).note(6));
        assert!(inbox.pop_whole().is_some() && inbox.pop_whole().is_some());
        assert!(inbox.pop_whole().is_none());
    }

    #[test]
    fn bytes_of_a_newer_write_are_not_overwritten() {
        let owner = Owner::Gpu(1);
        let place = |address, len| Place { owner, address, len };
        let mut inbox = Inbox::default();
        for (message, address) in [(1, 100), (2, 400)] {
            let target = Some(place(address, 300));
            inbox.begin(message, Incoming { target, ..incoming(300) });
        }
        inbox.note_early(1, 50, 50);
        inbox.note_early(1, 100, 50);
        inbox.note_early(2, 0, 300);
        let cut = |message, address, len| {
            let mut parts = alloc::vec![(place(address, len), 7)];
            inbox.cut_newer(message, &mut parts);
            parts
        };
        assert_eq!(cut(0, 100, 200), [(place(100, 50), 7), (place(250, 50), 157)]);
        assert_eq!(cut(0, 160, 20), []);
        assert_eq!(cut(0, 200, 1000), [(place(250, 150), 57), (place(700, 500), 507)]);
        assert_eq!(cut(1, 100, 200), [(place(100, 200), 7)], "it is the newest there");
        assert_eq!(cut(u32::MAX, 160, 20), [], "of a message that was taken");
        let other = (Place { owner: Owner::Gpu(2), ..place(160, 20) }, 0);
        let mut parts = alloc::vec![other];
        inbox.cut_newer(0, &mut parts);
        assert_eq!(parts, [other]);
    }

    fn known(
        inbox: &Inbox,
        placement: &Placement,
        header: &RdmaHeader,
    ) -> Result<bool, ProtocolError> {
        Ok(inbox.known(placement, header)?.is_some())
    }

    #[test]
    fn packets_that_contradict_each_other_or_lie_far_ahead_violate_the_protocol() {
        let mut inbox = Inbox::default();
        let header = RdmaHeader::default();
        assert_eq!(known(&inbox, &placement(3, 0, 5, 10), &header), Ok(false));
        inbox.begin(3, incoming(10));
        assert_eq!(known(&inbox, &placement(3, 5, 5, 10), &header), Ok(true));
        assert_eq!(known(&inbox, &placement(3, 5, 5, 11), &header), Err(ProtocolError));
        let other = RdmaHeader { key: 1, ..header };
        assert_eq!(known(&inbox, &placement(3, 5, 5, 10), &other), Err(ProtocolError));
        assert_eq!(known(&inbox, &placement(MAX_MESSAGES, 0, 5, 10), &header), Err(ProtocolError));
        assert_eq!(known(&inbox, &placement(u32::MAX, 0, 5, 10), &header), Err(ProtocolError));
        assert!(inbox.message(3).note(6));
        assert!(!inbox.message(3).note(6), "more bytes than the message");
    }
}
