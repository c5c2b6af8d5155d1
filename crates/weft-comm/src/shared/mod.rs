//! Shared memory for messages between ranks of one server. Each rank has a file with an area for each rank that it
//! shares memory with, to which it writes its messages to that rank.

mod area;
mod doorbell;
mod file;
mod mapping;

use std::io;
use std::os::fd::BorrowedFd;

use weft_units::{Duration, Instant};

use area::{Arrived, Receiver, Sender};
use doorbell::{Doorbell, Work};

pub(crate) use area::AreaSize;
pub(crate) use file::{FileId, OwnFile, RankFile, open};

/// A message in a slot.
#[derive(Debug)]
pub(crate) struct Slot {
    from: usize,
    slot: usize,
    len: usize,
}

/// A message received from a rank.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message that stays in its slot until it is released.
    Slot(Slot),
    /// A copy, because the receiver holds the maximum number of slots.
    Copied(Vec<u8>),
}

/// Another rank's file, and the areas of the two.
#[derive(Debug)]
pub(crate) struct PeerFile {
    /// The other rank's file.
    pub(crate) file: RankFile,
    /// Number of areas before the other rank's in this rank's file.
    pub(crate) outgoing: usize,
    /// Number of areas before this rank's in the other rank's file.
    pub(crate) incoming: usize,
}

/// Another rank of this server: the areas of both directions, and its doorbell.
#[derive(Debug)]
struct Peer {
    sender: Sender,
    receiver: Receiver,
    doorbell: Doorbell,
}

/// A rank's view of the memory that it shares with others.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Each rank with which this one shares memory.
    peers: Vec<Option<Peer>>,
    /// This rank's doorbell.
    doorbell: Doorbell,
}

impl Shared {
    /// Maps the areas between this rank and others, by rank. `rate` limits each area, in bytes per second, to emulate a
    /// link. The names of this rank's file are removed.
    ///
    /// # Errors
    /// Returns the kernel's error, or `UnexpectedEof` if a file is too short.
    pub(crate) fn map(
        own: OwnFile,
        peers: Vec<Option<PeerFile>>,
        size: AreaSize,
        rate: Option<u64>,
    ) -> io::Result<Self> {
        let map = |peer: PeerFile| {
            let PeerFile { file, outgoing, incoming } = peer;
            let [outgoing, incoming] = [outgoing, incoming].map(|areas| file::offset(areas, size));
            Ok(Peer {
                sender: Sender::map(&own.opened.file, outgoing, size, rate)?,
                receiver: Receiver::map(&file.file, incoming, size)?,
                doorbell: Doorbell::of(file)?,
            })
        };
        let peers = peers.into_iter().map(|peer| peer.map(map).transpose());
        let peers = peers.collect::<io::Result<_>>()?;
        Ok(Self { peers, doorbell: Doorbell::of(own.opened)? })
    }

    /// Returns `true` if this rank shares memory with another one.
    pub(crate) fn has(&self, rank: usize) -> bool {
        self.peers[rank].is_some()
    }

    /// Copies a message to a rank with which this one shares memory, and wakes it if it sleeps. Returns `true` if there was
    /// room.
    pub(crate) fn send(&mut self, to: usize, now: Instant, head: &[u8], body: &[u8]) -> bool {
        let Some(peer) = &mut self.peers[to] else { return false };
        let sent = peer.sender.send(now, head, body);
        if sent {
            peer.doorbell.ring(Work::Message);
        }
        sent
    }

    /// Returns the next message of a rank, if it has arrived and its delivery time has passed.
    pub(crate) fn receive(&mut self, from: usize, now: Instant) -> Option<Received> {
        let peer = self.peers[from].as_mut()?;
        Some(match peer.receiver.receive(now)? {
            Arrived::InSlot { slot, len } => Received::Slot(Slot { from, slot, len }),
            Arrived::Copied(bytes) => {
                peer.doorbell.ring(Work::Room);
                Received::Copied(bytes)
            }
        })
    }

    /// Returns a message's bytes.
    pub(crate) fn bytes(&self, message: &Slot) -> &[u8] {
        let Slot { from, slot, len } = *message;
        self.peers[from].as_ref().map_or(&[], |peer| peer.receiver.bytes(slot, len))
    }

    /// Releases a slot, and wakes its sender if it sleeps until one is free.
    pub(crate) fn release(&mut self, message: &Slot) {
        if let Some(peer) = &mut self.peers[message.from] {
            peer.receiver.release(message.slot);
            peer.doorbell.ring(Work::Room);
        }
    }

    /// Prepares to sleep on [`descriptor`](Self::descriptor). Returns the time until the next message may be read,
    /// `Duration::MAX` if none is on its way, or `None` if there is work: a message, or room for one that was refused.
    /// [`disarm`](Self::disarm) ends the sleep in both cases.
    pub(crate) fn arm(&mut self, now: Instant) -> Option<Duration> {
        self.doorbell.arm(Work::Message);
        if self.peers.iter().flatten().any(|peer| peer.sender.is_full) {
            self.doorbell.arm(Work::Room);
        }
        let mut sleep = Duration::MAX;
        for peer in self.peers.iter_mut().flatten() {
            let due = peer.receiver.next_at();
            if peer.sender.has_new_room() || due.is_some_and(|due| due <= now) {
                return None;
            }
            sleep = due.map_or(sleep, |due| sleep.min(due.since(now)));
        }
        Some(sleep)
    }

    /// Withdraws the requests of [`arm`](Self::arm).
    pub(crate) fn disarm(&mut self) {
        self.doorbell.disarm();
    }

    /// Returns the descriptor that is readable when another rank has added work for this sleeping one.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.doorbell.descriptor()
    }
}

#[cfg(test)]
mod tests;
