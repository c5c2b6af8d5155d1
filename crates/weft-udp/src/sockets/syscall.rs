//! The two system calls that carry batches, `sendmmsg(2)` and `recvmmsg(2)`, behind safe functions.
//! This module contains all unsafe code of this crate and makes no decisions.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_void, cmsghdr, iovec, mmsghdr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use super::Instruction;

/// Maximum messages of one call.
pub(super) const BATCH: usize = 32;

/// Maximum bytes of a received message: the largest that GRO coalesces.
pub(super) const RECEIVE_BUFFER: usize = 65_536;

/// One UDP datagram, or several of one size to the same peer that the kernel segments (GSO).
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) to: SocketAddr,
    pub(super) bytes: &'a [u8],
    /// Length of each datagram except the last, which may be shorter, in bytes; `None` for a single datagram.
    pub(super) segment: Option<u16>,
    /// The IP header's traffic class, DSCP and ECN bits; `None` for the socket's.
    pub(super) traffic_class: Option<u8>,
}

/// The metadata of a received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) from: SocketAddr,
    pub(super) len: usize,
    /// Length of each datagram in it except the last, in bytes; `len` if it holds only one.
    pub(super) segment: usize,
    /// The IP header's traffic class: DSCP and ECN bits.
    pub(super) traffic_class: u8,
    /// The IP header's TTL or hop limit; zero if the kernel reports none.
    pub(super) hop_limit: u8,
    /// The kernel's time of arrival, wall clock, nanoseconds; zero where stamping is off.
    pub(super) wall_clock_nanos: u64,
}

/// A buffer for all requested control messages, aligned as `cmsghdr` must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 128]);

const EMPTY_CONTROL: Control = Control([0; 128]);

/// Sends `messages`, at most [`BATCH`] of them, without blocking, and returns the number that the
/// kernel accepted.
///
/// # Errors
/// The kernel's error for the first message; if a later one fails, the count ends before it.
pub(super) fn send<'a>(
    socket: BorrowedFd<'_>,
    messages: impl Iterator<Item = Outgoing<'a>>,
) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<sockaddr_storage>::uninit() }; BATCH];
    let mut vectors = [const { MaybeUninit::<iovec>::uninit() }; BATCH];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH];
    let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; BATCH];
    let mut count = 0;
    for (slot, message) in messages.take(BATCH).enumerate() {
        let vector = vectors[slot].write(iovec {
            iov_base: message.bytes.as_ptr().cast_mut().cast(),
            iov_len: message.bytes.len(),
        });
        // SAFETY: all fields of `mmsghdr` are integers and pointers, for which zero is a value.
        let header = headers[slot].write(unsafe { std::mem::zeroed::<mmsghdr>() });
        header.msg_hdr.msg_namelen = write_name(&mut names[slot], message.to);
        header.msg_hdr.msg_name = names[slot].as_mut_ptr().cast();
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        if message.segment.is_some() || message.traffic_class.is_some() {
            let control = controls[slot].write(EMPTY_CONTROL);
            header.msg_hdr.msg_controllen = write_controls(control, &message);
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        }
        count = slot + 1;
    }
    // SAFETY: the first `count` headers are initialised; each points to a name, a vector and a
    // control of the same slot, initialised above and alive until this function returns, and to
    // bytes that are borrowed for longer than it runs. The kernel reads them and writes `msg_len`.
    let sent = unsafe {
        let count = u32::try_from(count).expect("at most BATCH");
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), count, libc::MSG_DONTWAIT)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Buffers for one call of `recvmmsg`, and the messages of the last call.
pub(super) struct Receiver {
    buffers: Box<[u8]>,
    metas: Vec<Meta>,
    slots: usize,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Receiver").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Returns buffers for `slots` messages a call, 1 to [`BATCH`].
    pub(super) fn new(slots: usize) -> Self {
        let slots = slots.clamp(1, BATCH);
        let buffers = vec![0; slots * RECEIVE_BUFFER].into_boxed_slice();
        Self { buffers, metas: Vec::with_capacity(slots), slots }
    }

    /// Receives without blocking and returns the number of messages; zero if none has arrived.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.metas.clear();
        let mut names = [const { MaybeUninit::<sockaddr_storage>::uninit() }; BATCH];
        let mut vectors = [const { MaybeUninit::<iovec>::uninit() }; BATCH];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH];
        let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; BATCH];
        for (slot, buffer) in self.buffers.chunks_exact_mut(RECEIVE_BUFFER).enumerate() {
            let vector = vectors[slot]
                .write(iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
            // SAFETY: all fields of `mmsghdr` are integers and pointers; zero is a value.
            let header = headers[slot].write(unsafe { std::mem::zeroed::<mmsghdr>() });
            header.msg_hdr.msg_name = names[slot].as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = length_of::<sockaddr_storage>();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls[slot].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of::<Control>();
        }
        // SAFETY: the first `slots` headers are initialised; each points to a name, a vector and a
        // control of the same slot and to a buffer of its own, all alive and unaliased until this
        // function returns. The kernel writes no more than the lengths given.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                u32::try_from(self.slots).expect("at most BATCH"),
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        };
        for (slot, header) in headers.iter().take(received).enumerate() {
            // SAFETY: the headers were initialised above and the kernel filled the first
            // `received` of them, each name and control to the length in the header.
            let meta = unsafe { read_meta(header.assume_init_ref(), &names[slot]) };
            self.metas.push(meta);
        }
        Ok(received)
    }

    /// Returns `true` if the last call filled every buffer.
    pub(super) fn is_full(&self) -> bool {
        self.metas.len() == self.slots
    }

    /// Returns the bytes of message `index` of the last call.
    ///
    /// # Panics
    /// If `index` is not below the number of its messages.
    #[inline]
    pub(super) fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let start = index * RECEIVE_BUFFER;
        &mut self.buffers[start..start + self.metas[index].len]
    }

    /// Returns message `index` of the last call: its metadata and its bytes.
    ///
    /// # Panics
    /// If `index` is not below the number of its messages.
    #[inline]
    pub(super) fn message(&self, index: usize) -> (Meta, &[u8]) {
        let meta = self.metas[index];
        let start = index * RECEIVE_BUFFER;
        (meta, &self.buffers[start..start + meta.len])
    }
}

/// Sets an integer socket option that socket2 does not support.
///
/// # Errors
/// The kernel's error: this kernel, or this kind of socket, does not have the option.
pub fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads one `int` from a local that is alive.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast::<c_void>(),
            length_of::<c_int>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the bytes that were sent on a socket and have not left the host, with the kernel's overhead
/// for each datagram (`SIOCOUTQ`, udp(7)); zero if the kernel reports none.
pub(super) fn unsent(socket: BorrowedFd<'_>) -> u64 {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one `int` to a local that is alive.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Attaches this program, which selects the receiver of a datagram among the sockets that share
/// `socket`'s port.
///
/// # Errors
/// The kernel's error: the program is invalid, or this kernel supports none.
pub(super) fn attach_steering(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|&Instruction { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k })
        .collect();
    let refused = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(refused)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies a `sock_fprog` and `len` instructions from locals that are
    // alive, and writes nothing.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast::<c_void>(),
            length_of::<libc::sock_fprog>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn length_of<T>() -> u32 {
    u32::try_from(size_of::<T>()).expect("socket structures are small")
}

/// Writes `address` in the kernel's format and returns its length.
fn write_name(name: &mut MaybeUninit<sockaddr_storage>, address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(address) => {
            let value = sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a `sockaddr_storage` is large and aligned enough for every address.
            unsafe { name.as_mut_ptr().cast::<sockaddr_in>().write(value) };
            length_of::<sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let value = sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { name.as_mut_ptr().cast::<sockaddr_in6>().write(value) };
            length_of::<sockaddr_in6>()
        }
    }
}

fn family(family: c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).expect("address families are small")
}

/// Writes the control messages that request segmentation and a traffic class; returns their length.
fn write_controls(control: &mut Control, message: &Outgoing<'_>) -> usize {
    let mut len = 0;
    if let Some(segment) = message.segment {
        len += write_control(&mut control.0[len..], libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    if let Some(class) = message.traffic_class {
        let (level, kind) = match message.to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        len += write_control(&mut control.0[len..], level, kind, c_int::from(class));
    }
    len
}

/// Writes a control message of one number to `out`, which is aligned for its header; returns its length with padding,
/// after which another header is aligned, too.
///
/// # Panics
/// If `out` has no room.
fn write_control<T: Copy>(out: &mut [u8], level: c_int, kind: c_int, value: T) -> usize {
    let data_len = length_of::<T>();
    // SAFETY: `CMSG_LEN` and `CMSG_SPACE` only compute.
    let (len, space) = unsafe { (libc::CMSG_LEN(data_len), libc::CMSG_SPACE(data_len) as usize) };
    let out = &mut out[..space];
    let header = out.as_mut_ptr().cast::<cmsghdr>();
    assert!(header.is_aligned(), "control messages start at multiples of a header's alignment");
    // SAFETY: the header and the number fit `out`, whose length was checked, and the header is aligned.
    unsafe {
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = len as usize;
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
    }
    space
}

/// Reads the metadata of one message.
///
/// # Safety
/// `header` was filled by `recvmmsg`: its control buffer up to `msg_controllen`, and `name` up to
/// `msg_namelen`.
unsafe fn read_meta(header: &mmsghdr, name: &MaybeUninit<sockaddr_storage>) -> Meta {
    let len = (header.msg_len as usize).min(RECEIVE_BUFFER);
    let mut meta = Meta {
        // SAFETY: the caller guarantees a filled name.
        from: unsafe { read_name(name) },
        len,
        segment: len,
        traffic_class: 0,
        hop_limit: 0,
        wall_clock_nanos: 0,
    };
    // SAFETY: the caller guarantees a filled control buffer; `CMSG_FIRSTHDR` and `CMSG_NXTHDR` stay
    // inside `msg_controllen`, and each case reads the type the kernel documents for its option
    // (ip(7), ipv6(7), udp(7), socket(7)).
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&raw const header.msg_hdr);
        while let Some(control) = next.as_ref() {
            let data = libc::CMSG_DATA(control);
            match (control.cmsg_level, control.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    meta.segment = usize::try_from(read_int(data)).unwrap_or(len).max(1);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => meta.traffic_class = data.read(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    meta.traffic_class = u8::try_from(read_int(data)).unwrap_or(0);
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    meta.hop_limit = u8::try_from(read_int(data)).unwrap_or(0);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
                    meta.wall_clock_nanos = seconds * 1_000_000_000 + nanos;
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(&raw const header.msg_hdr, control);
        }
    }
    meta
}

/// Reads an `int`.
///
/// # Safety
/// `data` points to an `int`, aligned or not.
unsafe fn read_int(data: *const u8) -> c_int {
    // SAFETY: the caller guarantees an `int` at `data`.
    unsafe { data.cast::<c_int>().read_unaligned() }
}

/// Reads an address in the kernel's format.
///
/// # Safety
/// The kernel filled `name` with an address of its family.
unsafe fn read_name(name: &MaybeUninit<sockaddr_storage>) -> SocketAddr {
    // SAFETY: the family is the first field of every address, and the caller guarantees that the
    // rest is an address of that family.
    unsafe {
        match c_int::from(name.as_ptr().cast::<libc::sa_family_t>().read()) {
            libc::AF_INET6 => {
                let value = name.as_ptr().cast::<sockaddr_in6>().read();
                SocketAddr::V6(SocketAddrV6::new(
                    Ipv6Addr::from(value.sin6_addr.s6_addr),
                    u16::from_be(value.sin6_port),
                    value.sin6_flowinfo,
                    value.sin6_scope_id,
                ))
            }
            _ => {
                let value = name.as_ptr().cast::<sockaddr_in>().read();
                SocketAddr::V4(SocketAddrV4::new(
                    Ipv4Addr::from(u32::from_be(value.sin_addr.s_addr)),
                    u16::from_be(value.sin_port),
                ))
            }
        }
    }
}
