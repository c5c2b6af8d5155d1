//! Shared memory for messages between ranks of one server. Each rank has a file with an area for each rank that it
//! shares memory with, to which it writes its messages to that rank.

mod area;
mod file;
mod mapping;

use std::fs::File;
use std::io;

use weft_units::Instant;

use area::{Arrived, Receiver, Sender};

pub(crate) use area::AreaSize;
pub(crate) use file::{FileId, OwnFile, open};

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
    pub(crate) file: File,
    /// Number of areas before the other rank's in this rank's file.
    pub(crate) outgoing: usize,
    /// Number of areas before this rank's in the other rank's file.
    pub(crate) incoming: usize,
}

/// A rank's view of the memory that it shares with others.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Both directions to each rank with which this one shares memory.
    peers: Vec<Option<(Sender, Receiver)>>,
}

impl Shared {
    /// Maps the areas between this rank and others, by rank. `rate` limits each area, in bytes per second, to emulate a
    /// link.
    ///
    /// # Errors
    /// Returns the kernel's error, or `UnexpectedEof` if a file is too short.
    pub(crate) fn map(
        own: &OwnFile,
        peers: &[Option<PeerFile>],
        size: AreaSize,
        rate: Option<u64>,
    ) -> io::Result<Self> {
        let map = |peer: &PeerFile| {
            let [outgoing, incoming] =
                [peer.outgoing, peer.incoming].map(|areas| file::offset(areas, size));
            Ok((
                Sender::map(&own.file, outgoing, size, rate)?,
                Receiver::map(&peer.file, incoming, size)?,
            ))
        };
        let peers = peers.iter().map(|peer| peer.as_ref().map(map).transpose());
        Ok(Self { peers: peers.collect::<io::Result<_>>()? })
    }

    /// Returns `true` if this rank shares memory with another one.
    pub(crate) fn has(&self, rank: usize) -> bool {
        self.peers[rank].is_some()
    }

    /// Copies a message to a rank with which this one shares memory. Returns `true` if there was room.
    pub(crate) fn send(&mut self, to: usize, now: Instant, head: &[u8], body: &[u8]) -> bool {
        self.peers[to].as_mut().is_some_and(|(sender, _)| sender.send(now, head, body))
    }

    /// Returns the next message of a rank, if it has arrived and its delivery time has passed.
    pub(crate) fn receive(&mut self, from: usize, now: Instant) -> Option<Received> {
        let (_, receiver) = self.peers[from].as_mut()?;
        Some(match receiver.receive(now)? {
            Arrived::InSlot { slot, len } => Received::Slot(Slot { from, slot, len }),
            Arrived::Copied(bytes) => Received::Copied(bytes),
        })
    }

    /// Returns a message's bytes.
    pub(crate) fn bytes(&self, message: &Slot) -> &[u8] {
        let Slot { from, slot, len } = *message;
        self.peers[from].as_ref().map_or(&[], |(_, receiver)| receiver.bytes(slot, len))
    }

    /// Releases a slot.
    pub(crate) fn release(&mut self, message: &Slot) {
        if let Some((_, receiver)) = &mut self.peers[message.from] {
            receiver.release(message.slot);
        }
    }
}

#[cfg(test)]
mod tests;
