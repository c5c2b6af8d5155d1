//! The sending side: datagrams are written into packet buffers, and one system call passes a batch to the kernel.

use std::net::{IpAddr, SocketAddr};

use weft_units::{Duration, Instant};
use weft_wire::MacAddr;

use crate::frame::{Headers, headers_len};
use crate::neighbours::Neighbours;
use crate::queue::Region;
use crate::ring::{Consumer, Producer};
use crate::sys;

/// The time for which datagrams are left to the kernel's sockets after it refused to send: the interface is down.
const DOWN_INTERVAL: Duration = Duration::from_secs(1);

/// Counters of a sender. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// System calls.
    pub calls: u64,
    /// Frames passed to the kernel.
    pub frames: u64,
    /// Number of times that frames had to wait, because the interface's queue was full.
    pub blocked: u64,
}

/// Sends UDP datagrams from one address, by one queue of its interface.
#[derive(Debug)]
pub struct Sender {
    region: Region,
    tx: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    neighbours: Neighbours,
    local: IpAddr,
    hop_limit: u8,
    /// The frames that are not the kernel's, most recently used last.
    free: Vec<u32>,
    /// Number of chunks of each frame that are the kernel's.
    held: Box<[u8]>,
    /// Number of frames that the kernel has not read.
    waiting: usize,
    now: Instant,
    down_until: Instant,
    counters: SenderCounters,
}

/// Room for one datagram.
#[derive(Debug)]
pub struct Frame<'a> {
    sender: &'a mut Sender,
    index: u32,
    next_hop: MacAddr,
    to: SocketAddr,
    len: usize,
}

impl Sender {
    pub(crate) fn new(
        region: Region,
        tx: Producer<libc::xdp_desc>,
        completion: Consumer<u64>,
        neighbours: Neighbours,
        local: IpAddr,
        hop_limit: u8,
    ) -> Self {
        let frames = region.queue().layout().frames();
        Self {
            region,
            tx,
            completion,
            neighbours,
            local,
            hop_limit,
            free: (0..u32::try_from(frames).expect("at most the number of chunks")).collect(),
            held: vec![0; frames].into_boxed_slice(),
            waiting: 0,
            now: Instant::EPOCH,
            down_until: Instant::EPOCH,
            counters: SenderCounters::default(),
        }
    }

    /// Returns room for a datagram of `len` bytes to a peer. `None` leaves it to the kernel's sockets: the peer's
    /// Ethernet address is unknown or to be verified, the datagram is too long, or all buffers are in use.
    #[inline]
    pub fn frame(&mut self, to: &SocketAddr, len: usize) -> Option<Frame<'_>> {
        if to.is_ipv4() != self.local.is_ipv4() || self.now < self.down_until {
            return None;
        }
        let ip = to.ip();
        let packet = headers_len(ip) - weft_wire::EthernetHeader::LEN + len;
        let max_frame = self.region.queue().layout().max_frame();
        if packet > self.neighbours.interface().mtu || headers_len(ip) + len > max_frame {
            return None;
        }
        let next_hop = self.neighbours.address(ip)?;
        if self.free.is_empty() {
            self.reclaim();
        }
        let index = self.free.pop()?;
        Some(Frame { sender: self, index, next_hop, to: *to, len })
    }

    /// Returns the number of frames that the kernel has not taken.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the counters.
    pub fn counters(&self) -> SenderCounters {
        self.counters
    }

    /// Reads changes of routes and neighbours, at most once each millisecond. Called before the first frame of a batch.
    #[inline]
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.neighbours.handle_timeout(now);
    }

    /// Passes all frames to the kernel; those for which the interface's queue has no room wait.
    pub fn flush(&mut self, now: Instant) {
        self.handle_timeout(now);
        if self.waiting == 0 {
            return;
        }
        self.tx.publish();
        self.reclaim();
        if self.tx.needs_wakeup() {
            self.send();
        }
        let chunks = self.region.queue().layout().frame_chunks;
        self.waiting = (self.tx.unread() as usize).div_ceil(chunks).min(self.waiting);
    }

    /// Calls the kernel until it has taken all frames, or makes no progress.
    fn send(&mut self) {
        let mut left = self.tx.unread();
        while left > 0 {
            self.counters.calls += 1;
            let sent = sys::send(self.region.queue().socket());
            let before = std::mem::replace(&mut left, self.tx.unread());
            match sent.err().and_then(|error| error.raw_os_error()) {
                None | Some(libc::EINTR) => {}
                // A call takes a limited number of frames.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) if left < before => {}
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => {
                    self.counters.blocked += 1;
                    return;
                }
                Some(_) => {
                    self.down_until = self.now + DOWN_INTERVAL;
                    return;
                }
            }
        }
    }

    /// Takes back the frames that have left.
    fn reclaim(&mut self) {
        let layout = self.region.queue().layout();
        let mut count = 0;
        while let Some(offset) = self.completion.peek(count) {
            count += 1;
            let index = usize::try_from(offset).unwrap_or(usize::MAX) / layout.max_frame();
            let Some(held) = self.held.get_mut(index).filter(|held| **held > 0) else { continue };
            *held -= 1;
            if *held == 0 {
                self.free.push(u32::try_from(index).expect("an index of `held`"));
            }
        }
        if count > 0 {
            self.completion.release(count);
        }
    }

    fn offset(&self, index: u32) -> usize {
        index as usize * self.region.queue().layout().max_frame()
    }
}

impl Frame<'_> {
    /// Returns the bytes of the datagram, to be written. They hold those of an earlier one.
    #[inline]
    pub fn payload(&mut self) -> &mut [u8] {
        let start = self.sender.offset(self.index) + headers_len(self.to.ip());
        self.sender.region.bytes_mut(start, self.len)
    }

    /// Puts headers before the datagram. It leaves with the next [`flush`](Sender::flush), from this port and with this
    /// traffic class, DSCP and ECN bits.
    #[inline]
    pub fn queue(self, source_port: u16, traffic_class: u8) {
        let Self { sender, index, next_hop, to, len } = self;
        let (start, bytes) = (sender.offset(index), headers_len(to.ip()) + len);
        let headers = Headers {
            ethernet: [sender.neighbours.interface().address, next_hop],
            from: SocketAddr::new(sender.local, source_port),
            to,
            traffic_class,
            hop_limit: sender.hop_limit,
        };
        headers.emit(sender.region.bytes_mut(start, bytes));
        let chunk = sender.region.queue().layout().chunk;
        let mut held = 0;
        for at in (0..bytes).step_by(chunk) {
            let is_last = at + chunk >= bytes;
            sender.tx.push(libc::xdp_desc {
                addr: (start + at) as u64,
                len: u32::try_from(chunk.min(bytes - at)).expect("at most a chunk"),
                options: if is_last { 0 } else { libc::XDP_PKT_CONTD },
            });
            held += 1;
        }
        sender.held[index as usize] = held;
        sender.waiting += 1;
        sender.counters.frames += 1;
    }
}
