//! A rank's doorbell: two flags in its file by which it requests a wake-up while it sleeps, and a FIFO beside the file whose
//! descriptor it sleeps on. A futex would need no FIFO, but a rank waits for its device's descriptor at the same time.
//!
//! The rank raises a flag, then looks a last time; another rank adds a message or frees a slot, then looks at the flag.
//! Each has a fence in between (`weft_ring::signal`, with its loom model of two such ranks and a sleeper), so that
//! one of the two sees the other: the sleeper finds the work, or the other finds the flag, lowers it and writes a byte.
//! Ranks that are awake cost the others no system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weft_ring::{Mapped, signal};

use super::file::{HEADER_BYTES, RankFile};
use super::mapping::Mapping;

/// The work for which a rank requests a wake-up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// A message has arrived.
    Message,
    /// A slot that the rank filled is free again. A rank requests it only if it found no free slot: otherwise each
    /// message would also wake the rank that has sent it.
    Room,
}

impl Work {
    /// Returns the offset of the flag in the rank's file: each has a cache line, and the first bytes are the file's name.
    const fn flag(self) -> usize {
        match self {
            Self::Message => 64,
            Self::Room => 128,
        }
    }
}

/// The doorbell of this rank, or of another one.
#[derive(Debug)]
pub(super) struct Doorbell {
    header: Mapping,
    fifo: OwnedFd,
}

impl Doorbell {
    /// Returns the doorbell of the rank that has this file.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn of(file: RankFile) -> io::Result<Self> {
        Ok(Self { header: Mapping::of(&file.file, 0, HEADER_BYTES)?, fifo: file.fifo })
    }

    /// Requests a byte in this rank's FIFO for work that is added from now on. The caller must look for earlier work
    /// after this call.
    pub(super) fn arm(&self, work: Work) {
        signal::arm::<Mapped>(self.header.word(work.flag()));
    }

    /// Withdraws all requests and takes the bytes that have answered them. A byte that another rank is about to write ends
    /// the next sleep early.
    pub(super) fn disarm(&self) {
        for work in [Work::Message, Work::Room] {
            signal::withdraw::<Mapped>(self.header.word(work.flag()));
        }
        let _ = rustix::io::read(&self.fifo, &mut [0; 64]);
    }

    /// Wakes the rank if it sleeps and has requested that, for work added before this call.
    pub(super) fn ring(&self, work: Work) {
        if signal::is_armed::<Mapped>(self.header.word(work.flag())) {
            // A full FIFO also wakes its reader.
            let _ = rustix::io::write(&self.fifo, &[1]);
        }
    }

    /// Returns the descriptor that is readable after a ring.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fifo.as_fd()
    }
}
