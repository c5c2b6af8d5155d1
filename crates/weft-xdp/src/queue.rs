//! An AF_XDP socket on one queue of an interface, with its packet buffers (UMEM): chunks of equal size, of which the
//! first part is for frames to be sent and the rest for those that arrive.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use weft_wire::EthernetHeader;

use crate::netlink::Interface;
use crate::refusal::Refusal;
use crate::ring::{Consumer, Producer};
use crate::sys::{self, Mapping};

/// Entries of each ring: at least the number of chunks that can be in it.
const RING: u32 = 2048;

/// Chunks for frames to be sent.
const SENT_CHUNKS: u32 = 1536;

/// Chunks for frames that arrive.
const RECEIVED_CHUNKS: u32 = 2048;

/// Maximum chunks of one frame to be sent. The datagrams of longer frames are left to the kernel.
const MAX_FRAME_CHUNKS: usize = 4;

/// Bytes at the start of a chunk that the kernel keeps free before an arriving frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;

/// Bytes of sent frames that the kernel keeps for a socket: the frames in a device's queue.
const SEND_BUFFER: i32 = 4 << 20;

/// `XDP_MAX_TX_SKB_BUDGET` (linux/if_xdp.h of 6.17): frames that a system call sends in copy mode, 32 by default.
const MAX_TX_SKB_BUDGET: i32 = 9;
/// A batch of an agent, and the kernel's limit for the option is far above it.
const TX_BUDGET: u32 = 256;

/// Attempts to bind a queue that is in use: the kernel releases it up to 0.3 s after its socket is closed.
const MAX_BIND_ATTEMPTS: u32 = 100;
const BIND_INTERVAL: Duration = Duration::from_millis(10);

/// A bound socket and its packet buffers.
#[derive(Debug)]
pub(crate) struct Queue {
    // Closed before the memory is unmapped.
    socket: OwnedFd,
    umem: Mapping,
    layout: Layout,
}

/// The size of chunks, bytes, and the number of them that the longest sent frame needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) chunk: usize,
    pub(crate) frame_chunks: usize,
}

/// The rings of a socket.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) fill: Producer<u64>,
    pub(crate) rx: Consumer<libc::xdp_desc>,
    pub(crate) tx: Producer<libc::xdp_desc>,
    pub(crate) completion: Consumer<u64>,
}

/// The part of a queue's packet buffers that frames of one direction use.
#[derive(Debug)]
pub(crate) struct Region {
    queue: Arc<Queue>,
    start: usize,
    end: usize,
}

impl Layout {
    /// Returns the layout for packets of `mtu` bytes with their IP headers: small chunks if one holds a frame.
    pub(crate) fn of(mtu: usize) -> Self {
        let frame = mtu + EthernetHeader::LEN;
        let chunk = if HEADROOM + frame <= 2048 { 2048 } else { 4096 };
        Self { chunk, frame_chunks: frame.div_ceil(chunk).clamp(1, MAX_FRAME_CHUNKS) }
    }

    /// Returns the bytes of the longest frame that can be sent.
    pub(crate) fn max_frame(self) -> usize {
        self.chunk * self.frame_chunks
    }

    /// Returns the number of frames that can be with the kernel at a time.
    pub(crate) fn frames(self) -> usize {
        SENT_CHUNKS as usize / self.frame_chunks
    }

    /// Returns `true` if a frame may arrive in several chunks.
    fn is_scattered(self) -> bool {
        self.chunk == 4096
    }

    fn sent_bytes(self) -> usize {
        SENT_CHUNKS as usize * self.chunk
    }

    fn bytes(self) -> usize {
        self.sent_bytes() + RECEIVED_CHUNKS as usize * self.chunk
    }
}

impl Queue {
    /// Binds a socket to a queue. All chunks for arriving frames are the kernel's.
    ///
    /// # Errors
    /// The kernel's error; `InvalidInput` if the interface has no such queue.
    pub(crate) fn open(interface: &Interface, queue: u32) -> Result<(Self, Rings), Refusal> {
        let layout = Layout::of(interface.mtu);
        let socket = sys::open_socket().map_err(Refusal::to("open a socket of AF_XDP"))?;
        let fd = socket.as_fd();
        let umem = Mapping::anonymous(layout.bytes()).map_err(Refusal::to("map its buffers"))?;
        let chunk = u32::try_from(layout.chunk).expect("at most 4096");
        sys::register(fd, &umem, chunk).map_err(Refusal::to("register buffers of AF_XDP"))?;
        let mut rings = Rings::map(fd).map_err(Refusal::to("make the rings of AF_XDP"))?;
        // Without these options the kernel takes fewer frames at a time.
        let _ = sys::set_send_buffer(fd, SEND_BUFFER);
        let _ = sys::set_xdp(fd, MAX_TX_SKB_BUDGET, TX_BUDGET);
        let scattered = if layout.is_scattered() { libc::XDP_USE_SG } else { 0 };
        let flags = libc::XDP_USE_NEED_WAKEUP | scattered;
        bind(fd, interface.index, queue, flags)
            .map_err(Refusal::to_on("bind a socket of AF_XDP", &interface.name))?;
        for chunk in 0..RECEIVED_CHUNKS as usize {
            rings.fill.push((layout.sent_bytes() + chunk * layout.chunk) as u64);
        }
        rings.fill.publish();
        Ok((Self { socket, umem, layout }, rings))
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }
}

/// Binds a socket; waits for the release of a queue whose socket was closed a moment ago.
#[expect(clippy::disallowed_methods, reason = "the kernel does not report the release")]
fn bind(socket: BorrowedFd<'_>, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let mut attempts = 0;
    loop {
        match sys::bind(socket, interface, queue, flags) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && attempts < MAX_BIND_ATTEMPTS =>
            {
                attempts += 1;
                std::thread::sleep(BIND_INTERVAL);
            }
            result => return result,
        }
    }
}

impl Rings {
    fn map(socket: BorrowedFd<'_>) -> io::Result<Self> {
        for option in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            sys::set_xdp(socket, option, RING)?;
        }
        let offsets = sys::ring_offsets(socket)?;
        let page =
            |offset: u64| i64::try_from(offset).expect("the kernel's constants are positive");
        let (fill, completion) =
            (page(libc::XDP_UMEM_PGOFF_FILL_RING), page(libc::XDP_UMEM_PGOFF_COMPLETION_RING));
        Ok(Self {
            fill: Producer::map(socket, RING, fill, &offsets.fr)?,
            rx: Consumer::map(socket, RING, libc::XDP_PGOFF_RX_RING, &offsets.rx)?,
            tx: Producer::map(socket, RING, libc::XDP_PGOFF_TX_RING, &offsets.tx)?,
            completion: Consumer::map(socket, RING, completion, &offsets.cr)?,
        })
    }
}

impl Region {
    /// Returns the parts of a queue's buffers for sent and for received frames.
    pub(crate) fn split(queue: &Arc<Queue>) -> [Self; 2] {
        let (middle, end) = (queue.layout.sent_bytes(), queue.umem.len());
        [(0, middle), (middle, end)].map(|(start, end)| Self {
            queue: Arc::clone(queue),
            start,
            end,
        })
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns `true` if these bytes lie in this region: the kernel's descriptors do, unless it is broken.
    #[inline]
    pub(crate) fn has(&self, offset: usize, len: usize) -> bool {
        offset >= self.start && offset.checked_add(len).is_some_and(|end| end <= self.end)
    }

    /// Returns bytes of a chunk that is not the kernel's at present.
    ///
    /// # Panics
    /// If they are not in this region.
    #[inline]
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(self.has(offset, len), "{len} bytes at {offset} belong to the other direction");
        // SAFETY: the bytes are mapped. By the protocol of the rings the kernel does not write to a chunk between its
        // descriptor's arrival and its return, and the other direction has another region.
        unsafe { std::slice::from_raw_parts(self.queue.umem.at(offset, len).as_ptr(), len) }
    }

    /// As [`bytes`](Self::bytes), to be changed.
    ///
    /// # Panics
    /// If they are not in this region.
    #[inline]
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    pub(crate) fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(self.has(offset, len), "{len} bytes at {offset} belong to the other direction");
        // SAFETY: as in `bytes`; one region covers these bytes, and it is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.queue.umem.at(offset, len).as_ptr(), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_1500_bytes_takes_a_small_chunk_and_a_jumbo_frame_three_large_ones() {
        assert_eq!(Layout::of(1_500), Layout { chunk: 2048, frame_chunks: 1 });
        assert_eq!(Layout::of(3_500), Layout { chunk: 4096, frame_chunks: 1 });
        assert_eq!(Layout::of(9_000), Layout { chunk: 4096, frame_chunks: 3 });
        assert_eq!(Layout::of(65_521).max_frame(), 16_384);
        assert_eq!([1_500, 9_000].map(|mtu| Layout::of(mtu).frames()), [1536, 512]);
    }
}
