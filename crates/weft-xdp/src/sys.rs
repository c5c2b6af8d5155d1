//! The system calls of AF_XDP and BPF, behind safe functions, and memory that is shared with the kernel. With
//! [`ring`](crate::ring) this module contains all unsafe code of the crate.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libc::{c_int, c_long, c_void, socklen_t};

/// Memory that this process shares with the kernel: the packet buffers (UMEM) or a ring of a socket.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory of the process, which any thread may use. The type gives no access to it but by
// `at`, whose users say why theirs is exclusive.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of zeros. After a fork parent and child share them: a copy would leave the kernel with the
    /// pages of one of the two.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps the first `len` bytes of a socket's ring at this page offset.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn ring(socket: BorrowedFd<'_>, len: usize, offset: i64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: c_int, fd: c_int, offset: i64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases no memory of this process.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at zero by itself");
        Ok(Self { start, len })
    }

    /// Returns the address of the bytes from `offset` on, of which there are at least `len`.
    ///
    /// # Panics
    /// If the mapping ends before them.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{len} bytes at {offset} of {}", self.len);
        // SAFETY: the offset lies inside the mapping.
        unsafe { self.start.add(offset) }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and references into it borrow an owner of this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Opens an AF_XDP socket.
///
/// # Errors
/// The kernel's error: it takes CAP_NET_RAW, and a kernel with `CONFIG_XDP_SOCKETS`.
pub(crate) fn open_socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers, and the descriptor that it returns has no other owner.
    unsafe {
        let socket = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if socket < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(socket)) }
    }
}

/// Sets a socket option whose value is a plain structure of the kernel's headers or a number.
///
/// # Errors
/// The kernel's error.
fn set<T: Copy>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of a local that is alive.
    let result = unsafe {
        let value = (&raw const value).cast::<c_void>();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, length_of::<T>())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets a number of a socket's AF_XDP options, such as the length of a ring.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_xdp(socket: BorrowedFd<'_>, option: c_int, value: u32) -> io::Result<()> {
    set(socket, libc::SOL_XDP, option, value)
}

/// Sets the bytes of sent packets that the kernel keeps for this socket, past the limit of
/// `net.core.wmem_max` with CAP_NET_ADMIN.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
}

/// Registers the packet buffers of a socket: chunks of `chunk` bytes. The caller keeps `umem` until the socket is closed.
///
/// # Errors
/// The kernel's error.
pub(crate) fn register(socket: BorrowedFd<'_>, umem: &Mapping, chunk: u32) -> io::Result<()> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut region: libc::xdp_umem_reg = unsafe { zeroed() };
    region.addr = umem.start.as_ptr() as u64;
    region.len = umem.len as u64;
    region.chunk_size = chunk;
    set(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, region)
}

/// Returns the offsets of producer, consumer, descriptors and flags in each ring's mapping.
///
/// # Errors
/// The kernel's error, or `Unsupported` before Linux 5.4, whose rings have no flags.
pub(crate) fn ring_offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all fields are integers, for which zero is a value; the kernel writes at most `len` bytes.
    unsafe {
        let mut offsets: libc::xdp_mmap_offsets = zeroed();
        let mut len = length_of::<libc::xdp_mmap_offsets>();
        let (level, option) = (libc::SOL_XDP, libc::XDP_MMAP_OFFSETS);
        let out = (&raw mut offsets).cast::<c_void>();
        match libc::getsockopt(socket.as_raw_fd(), level, option, out, &raw mut len) {
            0 if len == length_of::<libc::xdp_mmap_offsets>() => Ok(offsets),
            0 => Err(io::ErrorKind::Unsupported.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Binds a socket to a queue of an interface.
///
/// # Errors
/// The kernel's error: EBUSY if another socket has the queue, EINVAL if there is no such queue.
pub(crate) fn bind(
    socket: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    flags: u16,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: u16::try_from(libc::AF_XDP).expect("address families are small"),
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the kernel reads an address of this length from a local that is alive.
    let result = unsafe {
        let len = length_of::<libc::sockaddr_xdp>();
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel send the frames of the socket's TX ring.
///
/// # Errors
/// The kernel's error: EAGAIN, EBUSY or ENOBUFS if frames remain, which a later call sends.
#[inline]
pub(crate) fn send(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no bytes.
    let result = unsafe { libc::send(socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tells the kernel that the fill ring has buffers again. An error changes nothing: the next call says the same.
pub(crate) fn refilled(socket: BorrowedFd<'_>) {
    // SAFETY: the call takes no bytes.
    unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
}

/// An operation of bpf(2) with its part of `union bpf_attr`.
fn bpf<T: Copy>(command: c_long, mut attributes: T) -> io::Result<c_int> {
    // SAFETY: `attributes` is a local in the kernel's format, whose pointers the callers keep alive; the kernel treats
    // bytes past its length as zero.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            (&raw mut attributes).cast::<c_void>(),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(c_int::try_from(result).expect("a descriptor or zero"))
}

/// Takes a descriptor that bpf(2) returned.
fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the kernel has just returned it, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// An instruction of the kernel's BPF machine (`struct bpf_insn` of linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// The destination register in the lower four bits, the source register in the upper ones.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// Makes the map from queue to AF_XDP socket (`BPF_MAP_TYPE_XSKMAP`).
///
/// # Errors
/// The kernel's error: EPERM without CAP_BPF and CAP_NET_ADMIN.
pub(crate) fn make_map(queues: u32) -> io::Result<OwnedFd> {
    const MAP_CREATE: c_long = 0;
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let attributes = Attributes { map_type: 17, key_size: 4, value_size: 4, max_entries: queues };
    bpf(MAP_CREATE, attributes).map(owned)
}

/// Makes `socket` the receiver of a queue's redirected packets.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_map(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    const MAP_UPDATE_ELEM: c_long = 2;
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let socket = socket.as_raw_fd();
    let attributes = Attributes {
        map: descriptor(map),
        padding: 0,
        key: &raw const queue as u64,
        value: &raw const socket as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE_ELEM, attributes).map(drop)
}

/// Loads an XDP program, which may see the first piece of a packet in several pieces.
///
/// # Errors
/// The kernel's error: EPERM without CAP_BPF and CAP_NET_ADMIN, EINVAL or EACCES if it refuses an instruction.
pub(crate) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    const PROG_LOAD: c_long = 5;
    const PROG_TYPE_XDP: u32 = 6;
    const XDP_HAS_FRAGS: u32 = 1 << 5;
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
    }
    // Only programs with the licence of the kernel may use some of its functions; this one uses none of those.
    let license = c"Apache-2.0";
    let attributes = Attributes {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: u32::try_from(program.len()).expect("a short program"),
        insns: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: XDP_HAS_FRAGS,
        prog_name: *b"weft_steer\0\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: ATTACH_XDP,
    };
    bpf(PROG_LOAD, attributes).map(owned)
}

/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;

/// Attaches a program to an interface, in its driver if that has XDP. It is detached when the returned link is closed.
///
/// # Errors
/// The kernel's error: EBUSY if the interface has a program.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    const LINK_CREATE: c_long = 28;
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = descriptor(program);
    bpf(LINK_CREATE, Attributes { program, interface, attach_type: ATTACH_XDP, flags: 0 })
        .map(owned)
}

fn descriptor(fd: BorrowedFd<'_>) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("an open descriptor")
}

fn length_of<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).expect("socket structures are small")
}
