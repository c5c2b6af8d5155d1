//! The receiving side: a batch of datagrams in place in the packet buffers, which return to the kernel before the next.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::frame::{self, Parsed};
use crate::queue::Region;
use crate::ring::{Consumer, Producer};
use crate::sys;

/// Maximum frames of one batch.
const BATCH: usize = 64;

/// Maximum chunks of one frame that is received: that of the longest IP packet.
const MAX_CHUNKS: u32 = 18;

/// Receives UDP datagrams of one address and port, on all queues of its interface. Dropping it detaches the program.
#[derive(Debug)]
pub struct Receiver {
    // Closed first, so that the kernel redirects no packet to a closed socket.
    _link: OwnedFd,
    queues: Vec<ReceiveQueue>,
    batch: Vec<Place>,
    /// Frames that arrived in several chunks, one after the other.
    joined: Vec<u8>,
    /// Frames that were no datagram.
    malformed: u64,
}

#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) region: Region,
    pub(crate) fill: Producer<u64>,
    pub(crate) rx: Consumer<libc::xdp_desc>,
    /// Chunks that the next batches return to the kernel.
    pub(crate) used: Vec<u64>,
}

/// A datagram that arrived, and its place.
#[derive(Clone, Copy, Debug)]
struct Place {
    parsed: Parsed,
    /// The queue in whose buffers it is; `None` if it is among those that were joined.
    queue: Option<usize>,
    /// Offset of its frame.
    offset: usize,
}

/// A datagram's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Source address and port.
    pub from: SocketAddr,
    /// The IP header's traffic class, DSCP and ECN bits.
    pub traffic_class: u8,
    /// The IP header's TTL or hop limit.
    pub hop_limit: u8,
}

impl Receiver {
    pub(crate) fn new(link: OwnedFd, queues: Vec<ReceiveQueue>) -> Self {
        let (batch, joined) = (Vec::with_capacity(BATCH), Vec::new());
        Self { _link: link, queues, batch, joined, malformed: 0 }
    }

    /// Receives without blocking and returns the number of datagrams. Those of the last call are no longer valid.
    #[inline]
    pub fn receive(&mut self) -> usize {
        self.batch.clear();
        self.joined.clear();
        for index in 0..self.queues.len() {
            self.queues[index].refill();
            self.receive_from(index);
        }
        self.batch.len()
    }

    fn receive_from(&mut self, index: usize) {
        let Self { queues, batch, joined, malformed, .. } = self;
        let queue = &mut queues[index];
        while batch.len() < BATCH {
            let Some((first, chunks)) = queue.next() else { return };
            let (offset, len) =
                (usize::try_from(first.addr).unwrap_or(usize::MAX), first.len as usize);
            let place = if chunks > 1 {
                let start = joined.len();
                queue.join(chunks, joined);
                frame::parse(&joined[start..]).map(|it| Place {
                    parsed: it,
                    queue: None,
                    offset: start,
                })
            } else if queue.region.has(offset, len) {
                let parsed = frame::parse(queue.region.bytes(offset, len));
                parsed.map(|parsed| Place { parsed, queue: Some(index), offset })
            } else {
                None
            };
            queue.take(chunks);
            match place {
                Some(place) => batch.push(place),
                None => *malformed += 1,
            }
        }
    }

    /// Returns `true` if the last [`receive`](Self::receive) filled its batch.
    pub fn is_full(&self) -> bool {
        self.batch.len() == BATCH
    }

    /// Returns datagram `index` of the last [`receive`](Self::receive).
    ///
    /// # Panics
    /// If `index` is not below the number that it returned.
    #[inline]
    pub fn datagram(&self, index: usize) -> (Metadata, &[u8]) {
        let Place { parsed, queue, offset } = self.batch[index];
        let start = offset + parsed.start;
        let bytes = match queue {
            Some(queue) => self.queues[queue].region.bytes(start, parsed.len),
            None => &self.joined[start..start + parsed.len],
        };
        let Parsed { from, traffic_class, hop_limit, .. } = parsed;
        (Metadata { from, traffic_class, hop_limit }, bytes)
    }

    /// Returns the bytes of datagram `index`, to be changed in place.
    ///
    /// # Panics
    /// If `index` is not below the number that the last [`receive`](Self::receive) returned.
    #[inline]
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let Place { parsed, queue, offset } = self.batch[index];
        let start = offset + parsed.start;
        match queue {
            Some(queue) => self.queues[queue].region.bytes_mut(start, parsed.len),
            None => &mut self.joined[start..start + parsed.len],
        }
    }

    /// Returns the number of redirected frames that were no datagram: IP packets without their end, or with a wrong
    /// header checksum.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the sockets to wait on, one of each queue.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.region.queue().socket())
    }
}

impl ReceiveQueue {
    /// Returns the used chunks to the kernel: those for which the ring has no room yet, the next time.
    #[inline]
    fn refill(&mut self) {
        if self.used.is_empty() {
            return;
        }
        // The ring holds all chunks, but the kernel reports what it has read from it only after it has reported the frames.
        self.fill.push_most(&mut self.used);
        self.fill.publish();
        if self.fill.needs_wakeup() {
            sys::refilled(self.region.queue().socket());
        }
    }

    /// Returns the first chunk of the next frame, and the number of its chunks, if all of them have arrived.
    #[inline]
    fn next(&mut self) -> Option<(libc::xdp_desc, u32)> {
        let first = self.rx.peek(0)?;
        let (mut last, mut chunks) = (first, 1);
        while last.options & libc::XDP_PKT_CONTD != 0 && chunks < MAX_CHUNKS {
            last = self.rx.peek(chunks)?;
            chunks += 1;
        }
        Some((first, chunks))
    }

    /// Appends the bytes of the next `chunks` chunks.
    fn join(&mut self, chunks: u32, out: &mut Vec<u8>) {
        for ahead in 0..chunks {
            let Some(chunk) = self.rx.peek(ahead) else { return };
            let (offset, len) =
                (usize::try_from(chunk.addr).unwrap_or(usize::MAX), chunk.len as usize);
            if self.region.has(offset, len) {
                out.extend_from_slice(self.region.bytes(offset, len));
            }
        }
    }

    /// Removes the next `chunks` chunks from the ring.
    #[inline]
    fn take(&mut self, chunks: u32) {
        let size = self.region.queue().layout().chunk as u64;
        for ahead in 0..chunks {
            if let Some(chunk) = self.rx.peek(ahead) {
                // A chunk is returned by the address of its start.
                self.used.push(chunk.addr / size * size);
            }
        }
        self.rx.release(chunks);
    }
}
