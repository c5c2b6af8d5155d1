//! The sending side: datagrams of one path, peer and size are stored contiguously and passed to the
//! kernel as one message (GSO); one call sends up to 32 messages of a path.
//!
//! Contents are copied into the outbox. A vector of headers and payloads in place (`iovec`) was measured and
//! is no faster (`docs/design/agent-sockets.md`), and a copy can wait here while the kernel's
//! buffers are full, independently of the application's memory.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;
use weft_units::Instant;

use super::backlog::Backlog;
use super::syscall::{self, BATCH, Outgoing};
use super::wire::XdpOutbox;
use super::{ECT_0, Tap};

/// The largest UDP payload over IPv4, which is also GSO's limit.
const MAX_BYTES: usize = 65_507;

/// The bits of the DSCP in a traffic class (RFC 2474, section 3).
const DSCP: u8 = 0b1111_1100;

/// [`ECT_0`] in a traffic class.
const ECN_CAPABLE: u8 = 0b10;

/// `UDP_MAX_SEGMENTS` of the oldest kernels that have GSO (Linux 4.18).
const MAX_SEGMENTS: usize = 64;

/// The numbers of datagrams and bytes sent on one path. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PathCount {
    /// Datagrams that the kernel accepted.
    pub datagrams: u64,
    /// Their UDP payload, bytes.
    pub bytes: u64,
}

/// Counters of batches. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SendCounters {
    /// System calls.
    pub calls: u64,
    /// Messages that the kernel accepted: single datagrams and GSO messages.
    pub messages: u64,
    /// Number of times that the kernel's buffers were full, so that a batch waited.
    pub blocked: u64,
    /// Datagrams that were dropped because they exceed the interface's MTU: the configured packet size is wrong.
    pub too_big: u64,
    /// Datagrams that were dropped because the kernel refused them for another reason, such as no route, or a firewall.
    pub refused: u64,
    /// Number of times that the kernel refused segmentation; single datagrams are sent from then on.
    pub offload_refused: u64,
    /// Datagrams that left by AF_XDP; they are among `messages`.
    pub xdp_frames: u64,
}

/// Datagrams of one size to one peer on one path, stored contiguously.
#[derive(Debug)]
pub(super) struct Group {
    to: SocketAddr,
    path: u16,
    /// The traffic class without its ECN bits; zero for the socket's.
    traffic_class: u8,
    /// Size of each datagram except the last, which may be shorter, in bytes.
    segment: u16,
    count: u16,
    /// `true` if no datagram can be added: the last one is shorter, or the maximum number is reached.
    full: bool,
    bytes: Box<[u8]>,
    len: usize,
}

/// Sending sockets and the datagrams that wait for them.
#[derive(Debug)]
pub struct Outbox {
    pub(super) sockets: Vec<Socket>,
    /// The groups that wait, in the order of their first datagram.
    groups: Vec<Group>,
    /// Index into `groups` of the latest group of each path.
    latest: Vec<Option<u32>>,
    /// Buffers for reuse, the most recently used last.
    spare: Vec<Box<[u8]>>,
    /// `true` while datagrams are sent as messages that the kernel segments.
    offload: bool,
    /// Number of datagrams that wait.
    waiting: usize,
    counters: SendCounters,
    paths: Vec<PathCount>,
    /// The part of these datagrams that the kernel holds.
    backlog: Backlog,
    /// AF_XDP, if datagrams take it.
    xdp: Option<XdpOutbox>,
    /// The capture of sent datagrams, and the port of each socket.
    pub(super) tap: Option<(Tap, Vec<u16>)>,
}

/// The result of sending groups.
enum Sent {
    All,
    Blocked,
    /// The kernel refused to segment the next group.
    NotSegmented,
}

impl Outbox {
    pub(super) fn new(sockets: Vec<Socket>, offload: bool) -> Self {
        let paths = sockets.len();
        Self {
            sockets,
            groups: Vec::new(),
            latest: vec![None; paths],
            spare: Vec::new(),
            offload,
            waiting: 0,
            counters: SendCounters::default(),
            paths: vec![PathCount::default(); paths],
            backlog: Backlog::new(paths),
            xdp: None,
            tap: None,
        }
    }

    /// Adds a datagram of `size` bytes to peer `to` on `path`; `fill` writes its contents. A path beyond the last
    /// socket shares the socket of another path.
    ///
    /// # Panics
    /// If `size` exceeds the largest UDP payload, 65,507 bytes.
    #[inline]
    pub fn push(&mut self, to: &SocketAddr, path: u16, size: u16, fill: impl FnOnce(&mut [u8])) {
        self.push_classed(to, path, 0, size, fill);
    }

    /// As [`push`](Self::push), with the DSCP of this traffic class in the IP header. Its lower two bits are ignored: the
    /// datagram is ECN-capable.
    ///
    /// # Panics
    /// If `size` exceeds the largest UDP payload, 65,507 bytes.
    #[inline]
    pub fn push_classed(
        &mut self,
        to: &SocketAddr,
        path: u16,
        traffic_class: u8,
        size: u16,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let socket = usize::from(path) % self.sockets.len();
        let class = traffic_class & DSCP;
        if let Some(xdp) = &mut self.xdp
            && let Some((mut frame, port)) = xdp.frame(socket, to, size)
        {
            fill(frame.payload());
            if let Some((tap, _)) = &mut self.tap {
                tap.sent(port, *to, frame.payload());
            }
            frame.queue(port, class | ECN_CAPABLE);
            self.paths[socket].datagrams += 1;
            self.paths[socket].bytes += u64::from(size);
            return;
        }
        let index = match self.latest[socket] {
            Some(latest) if self.groups[latest as usize].accepts(to, class, size) => {
                latest as usize
            }
            _ => self.open_group(*to, socket, class, size),
        };
        let max_segments = if self.offload { MAX_SEGMENTS } else { 1 };
        fill(self.groups[index].append(size, max_segments));
        if self.tap.is_some() {
            self.capture(index, usize::from(size));
        }
        self.waiting += 1;
    }

    /// Writes the last datagram of a group, of `size` bytes, to the capture.
    #[cold]
    fn capture(&mut self, group: usize, size: usize) {
        let Some((tap, ports)) = &mut self.tap else { return };
        let Group { to, path, bytes, len, .. } = &self.groups[group];
        tap.sent(ports[usize::from(*path)], *to, &bytes[len - size..*len]);
    }

    /// Returns the index of the next socket to be added.
    ///
    /// # Panics
    /// If there are 65,536 sockets.
    pub fn next_index(&self) -> u16 {
        u16::try_from(self.sockets.len()).expect("sockets are counted in 16 bits")
    }

    /// Adds a socket at the end, or replaces one; `port` is its source port.
    pub(super) fn place(&mut self, socket: Socket, index: u16, port: u16) {
        let index = usize::from(index);
        if index == self.sockets.len() {
            self.sockets.push(socket);
            self.latest.push(None);
            self.paths.push(PathCount::default());
            self.backlog.add_socket();
        } else {
            self.sockets[index] = socket;
        }
        let of_tap = self.tap.as_mut().map(|(_, ports)| ports);
        let of_xdp = self.xdp.as_mut().map(|xdp| &mut xdp.ports);
        for ports in of_tap.into_iter().chain(of_xdp) {
            ports.resize(self.sockets.len(), port);
            ports[index] = port;
        }
    }

    /// Sends by AF_XDP from now on, from the ports of the sockets. The sockets send what it leaves to the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn send_by(&mut self, sender: weft_xdp::Sender) -> io::Result<()> {
        let ports = self.source_ports()?;
        self.xdp = Some(XdpOutbox { sender, ports, retry_at: Instant::EPOCH });
        Ok(())
    }

    /// Returns the number of datagrams that the kernel has not accepted yet.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting + self.xdp_waiting()
    }

    #[inline]
    fn xdp_waiting(&self) -> usize {
        self.xdp.as_ref().map_or(0, |xdp| xdp.sender.waiting())
    }

    /// Returns the time to call [`flush`](Self::flush) again because frames wait for AF_XDP: no socket becomes writable
    /// when an interface's queue has room.
    #[inline]
    pub fn retry_at(&self) -> Option<Instant> {
        self.xdp.as_ref().filter(|xdp| xdp.sender.waiting() > 0).map(|xdp| xdp.retry_at)
    }

    /// Returns the bytes for which the queue of the host's own link has room. Further datagrams would
    /// delay all later ones in that queue, or be dropped if it is short.
    pub fn room(&mut self, now: Instant) -> u64 {
        let Self { backlog, sockets, .. } = self;
        backlog.room(now, |socket| syscall::unsent(sockets[usize::from(socket)].as_fd()))
    }

    /// Returns the time to call [`room`](Self::room) again, if there was none, or to flush again.
    pub fn room_at(&self) -> Option<Instant> {
        [self.backlog.room_at(), self.retry_at()].into_iter().flatten().min()
    }

    /// Passes all datagrams to the kernel. Those for which its buffers have no room stay, in order,
    /// and [`blocked`](Self::blocked) lists their sockets.
    pub fn flush(&mut self) {
        if let Some(xdp) = &mut self.xdp {
            xdp.flush();
            if let Some((tap, _)) = &self.tap {
                tap.flush();
            }
        }
        self.flush_by(send_groups);
    }

    /// Flushes through `send`. Tests pass a function that acts as a full kernel, since loopback is never full.
    pub(super) fn flush_by(
        &mut self,
        send: impl Fn(BorrowedFd<'_>, &[Group]) -> io::Result<usize> + Copy,
    ) {
        if self.groups.is_empty() {
            return;
        }
        if let Some((tap, _)) = &self.tap {
            tap.flush();
        }
        // Paths are flushed in the order of their first datagram: on paths of equal delay the oldest
        // datagram arrives first, such as the acceptance of a connection before its data.
        let first = &mut self.latest;
        first.fill(None);
        for (index, group) in (0..).zip(&self.groups) {
            first[usize::from(group.path)].get_or_insert(index);
        }
        self.groups.sort_by_key(|group| first[usize::from(group.path)]);
        self.latest.fill(None);
        let mut groups = std::mem::take(&mut self.groups);
        let mut kept = 0;
        let mut start = 0;
        while start < groups.len() {
            let path = groups[start].path;
            let mut run = groups[start..].iter().take_while(|group| group.path == path).count();
            let mut next = start;
            while next < start + run {
                let end = (next + BATCH).min(start + run);
                let (taken, sent) = self.send(&groups[next..end], send);
                next += taken;
                match sent {
                    Sent::All => {}
                    Sent::Blocked => break,
                    Sent::NotSegmented => run += self.split(&mut groups, next),
                }
            }
            for index in start..start + run {
                if index < next {
                    let bytes = std::mem::take(&mut groups[index].bytes);
                    self.waiting -= usize::from(groups[index].count);
                    self.spare.push(bytes);
                } else {
                    groups.swap(kept, index);
                    kept += 1;
                }
            }
            start += run;
        }
        groups.truncate(kept);
        self.groups = groups;
    }

    /// Returns the sockets whose batches wait for room in the kernel. The caller waits until one is writable,
    /// then calls [`flush`](Self::flush).
    pub fn blocked(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.groups
            .chunk_by(|a, b| a.path == b.path)
            .map(|run| self.sockets[usize::from(run[0].path)].as_fd())
    }

    /// Returns the counters of batches.
    pub fn counters(&self) -> SendCounters {
        let Some(xdp) = &self.xdp else { return self.counters };
        let of_xdp = xdp.sender.counters();
        SendCounters {
            calls: self.counters.calls + of_xdp.calls,
            messages: self.counters.messages + of_xdp.frames,
            blocked: self.counters.blocked + of_xdp.blocked,
            xdp_frames: of_xdp.frames,
            ..self.counters
        }
    }

    /// Returns the numbers of datagrams and bytes sent on each path.
    pub fn paths(&self) -> &[PathCount] {
        &self.paths
    }

    /// Returns the source port of each path.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn source_ports(&self) -> io::Result<Vec<u16>> {
        let port = |socket: &Socket| {
            Ok(socket.local_addr()?.as_socket().expect("a UDP socket has an IP address").port())
        };
        self.sockets.iter().map(port).collect()
    }

    #[cold]
    fn new_buffer() -> Box<[u8]> {
        vec![0; MAX_BYTES].into_boxed_slice()
    }

    /// Adds an empty group; returns its index.
    fn open_group(&mut self, to: SocketAddr, socket: usize, class: u8, size: u16) -> usize {
        let bytes = self.spare.pop().unwrap_or_else(Self::new_buffer);
        let path = u16::try_from(socket).expect("paths are counted in 16 bits");
        let index = self.groups.len();
        self.groups.push(Group {
            to,
            path,
            traffic_class: class,
            segment: size,
            count: 0,
            full: false,
            bytes,
            len: 0,
        });
        self.latest[socket] = Some(u32::try_from(index).expect("groups fit in memory"));
        index
    }

    /// Replaces a group by one group for each of its datagrams; returns the number of groups added.
    #[cold]
    fn split(&mut self, groups: &mut Vec<Group>, index: usize) -> usize {
        let Group { to, path, traffic_class, segment, bytes, len, .. } = groups.remove(index);
        let mut singles = Vec::with_capacity(MAX_SEGMENTS);
        for datagram in bytes[..len].chunks(usize::from(segment)) {
            let size = u16::try_from(datagram.len()).expect("a segment's length has 16 bits");
            let bytes = self.spare.pop().unwrap_or_else(Self::new_buffer);
            let mut single = Group {
                to,
                path,
                traffic_class,
                segment: size,
                count: 0,
                full: false,
                bytes,
                len: 0,
            };
            single.append(size, 1).copy_from_slice(datagram);
            singles.push(single);
        }
        self.spare.push(bytes);
        let added = singles.len() - 1;
        groups.splice(index..index, singles);
        added
    }

    /// Sends groups of one path; returns the number of groups that were sent or refused.
    fn send(
        &mut self,
        groups: &[Group],
        send: impl Fn(BorrowedFd<'_>, &[Group]) -> io::Result<usize>,
    ) -> (usize, Sent) {
        let socket = self.sockets[usize::from(groups[0].path)].as_fd();
        let mut done = 0;
        while done < groups.len() {
            self.counters.calls += 1;
            match send(socket, &groups[done..]) {
                Ok(taken) => {
                    self.counters.messages += taken as u64;
                    for group in &groups[done..done + taken] {
                        self.paths[usize::from(group.path)].add(group);
                        self.backlog.take(group.path, group.len);
                    }
                    done += taken;
                }
                Err(error) if is_full(&error) => {
                    self.counters.blocked += 1;
                    return (done, Sent::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let group = &groups[done];
                    if group.count > 1 && is_offload_refusal(&error) {
                        self.offload = false;
                        self.counters.offload_refused += 1;
                        return (done, Sent::NotSegmented);
                    }
                    self.counters.refuse(&error, group.count);
                    done += 1;
                }
            }
        }
        (done, Sent::All)
    }
}

impl Group {
    /// Returns `true` if a datagram of `size` bytes to `to`, of this class, can be added.
    #[inline]
    fn accepts(&self, to: &SocketAddr, class: u8, size: u16) -> bool {
        !self.full
            && size <= self.segment
            && self.len + usize::from(size) <= MAX_BYTES
            && self.traffic_class == class
            && self.to == *to
    }

    /// Adds a datagram of `size` bytes, and returns its bytes to be filled.
    #[inline]
    fn append(&mut self, size: u16, max_segments: usize) -> &mut [u8] {
        let start = self.len;
        self.len += usize::from(size);
        self.count += 1;
        self.full = size < self.segment || usize::from(self.count) >= max_segments;
        &mut self.bytes[start..self.len]
    }

    fn outgoing(&self) -> Outgoing<'_> {
        let segment = (self.count > 1).then_some(self.segment);
        let ecn = u8::try_from(ECT_0).expect("two bits");
        let traffic_class = (self.traffic_class != 0).then_some(self.traffic_class | ecn);
        Outgoing { to: self.to, bytes: &self.bytes[..self.len], segment, traffic_class }
    }
}

impl PathCount {
    fn add(&mut self, group: &Group) {
        self.datagrams += u64::from(group.count);
        self.bytes += group.len as u64;
    }
}

impl SendCounters {
    fn refuse(&mut self, error: &io::Error, datagrams: u16) {
        let counter = match error.raw_os_error() {
            Some(libc::EMSGSIZE) => &mut self.too_big,
            _ => &mut self.refused,
        };
        *counter += u64::from(datagrams);
    }
}

/// Sends groups on a socket; returns the number that the kernel accepted.
///
/// # Errors
/// The kernel's error for the first group.
pub(super) fn send_groups(socket: BorrowedFd<'_>, groups: &[Group]) -> io::Result<usize> {
    syscall::send(socket, groups.iter().map(Group::outgoing))
}

/// Returns `true` for the errors of a kernel without room.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

/// Returns `true` for the errors of a device that cannot segment: EIO without checksum offload,
/// EINVAL if the option is unknown or the segment exceeds the MTU.
fn is_offload_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP))
}
