//! A packet socket (packet(7)) that reports the segment size of each frame. It has all unsafe code of the sniffer and
//! makes no decisions.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::{c_int, c_void, iovec, msghdr, sockaddr_ll, sockaddr_storage};
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, Protocol, Socket, Type};
use weft_udp::sockets::set_option;
use weft_udp::wait::timespec;
use weft_units::Duration;

/// Size of the buffer, bytes: the largest frame with offloads, and the header before it.
const BUFFER: usize = (64 << 10) + 1024;

/// Length of the `struct virtio_net_hdr` before each packet, bytes: flags, GSO type, header length, segment length,
/// checksum start and offset.
const OFFLOAD_HEADER: usize = 10;

/// `VIRTIO_NET_HDR_GSO_UDP_L4` (Linux 6.2): UDP, segmented after its header.
const GSO_UDP_L4: u8 = 5;

/// Maximum bytes of packets that the kernel holds between reads.
const RECEIVE_BUFFER: c_int = 64 << 20;

/// A frame as the kernel delivered it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) bytes: &'a [u8],
    /// UDP payload length of each datagram but the last, if the frame has several.
    pub(super) segment: Option<u16>,
    pub(super) outgoing: bool,
    pub(super) time_ns: u64,
}

#[derive(Debug)]
pub(super) struct PacketSocket {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl PacketSocket {
    /// Opens a socket that receives everything on the interface with this index.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn open(interface: i32) -> io::Result<Self> {
        // With no protocol the socket receives nothing until it is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        let socket = OwnedFd::from(socket);
        let fd = socket.as_fd();
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // More than `net.core.rmem_max` requires CAP_NET_ADMIN; `dropped` counts any loss.
        if set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER).is_err() {
            set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER)?;
        }
        let every = u16::try_from(libc::ETH_P_ALL).expect("protocols are 16 bits").to_be();
        // SAFETY: all fields are integers, for which zero is a value.
        let mut address: sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).expect("families are small");
        address.sll_protocol = every;
        address.sll_ifindex = interface;
        // SAFETY: the address is a local of the length given, and the kernel only reads it.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                u32::try_from(size_of::<sockaddr_ll>()).expect("small"),
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { socket, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// Waits for a frame for at most `within`. Returns `false` if none arrived or a signal interrupted the wait.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn wait(&self, within: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(within))) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the next frame; `None` if none waits.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn receive(&mut self) -> io::Result<Option<Frame<'_>>> {
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut control = Control([0; 64]);
        let mut name = MaybeUninit::<sockaddr_storage>::zeroed();
        let mut vector =
            iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() };
        // SAFETY: all fields of `msghdr` are integers and pointers, for which zero is a value.
        let mut header: msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = u32::try_from(size_of::<sockaddr_storage>()).expect("small");
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>();
        // SAFETY: name, vector, buffer and control are alive and as long as the header says.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, 0) };
        let Ok(len) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        };
        // SAFETY: the kernel wrote an address of a packet socket; its memory was zero before.
        let from = unsafe { name.as_ptr().cast::<sockaddr_ll>().read() };
        // SAFETY: the kernel filled the control buffer up to `msg_controllen`.
        let time_ns = unsafe { read_time(&header) };
        let Some((offload, bytes)) = self.buffer[..len].split_at_checked(OFFLOAD_HEADER) else {
            return Err(io::Error::other("the kernel gave a packet without its offload header"));
        };
        // Legacy fields are in the machine's own order (packet(7)).
        let segment = u16::from_ne_bytes([offload[4], offload[5]]);
        let segment = (offload[1] & 0x7f == GSO_UDP_L4 && segment > 0).then_some(segment);
        Ok(Some(Frame {
            bytes,
            segment,
            outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
            time_ns,
        }))
    }

    /// Returns the number of frames that the kernel dropped since the last call because the buffer was full.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn dropped(&self) -> io::Result<u32> {
        /// `struct tpacket_stats`.
        #[repr(C)]
        struct Counts {
            packets: u32,
            drops: u32,
        }
        let mut counts = Counts { packets: 0, drops: 0 };
        let mut length = u32::try_from(size_of::<Counts>()).expect("small");
        // SAFETY: the kernel writes at most `length` bytes into a local that is alive.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counts).cast::<c_void>(),
                &raw mut length,
            )
        };
        if result == 0 { Ok(counts.drops) } else { Err(io::Error::last_os_error()) }
    }
}

/// Returns the kernel's wall-clock time of the packet, nanoseconds since 1970; zero if there is none.
///
/// # Safety
/// The control buffer of `header` is filled up to `msg_controllen`.
unsafe fn read_time(header: &msghdr) -> u64 {
    // SAFETY: `CMSG_FIRSTHDR` and `CMSG_NXTHDR` stay inside `msg_controllen`, and the kernel's data
    // for this option is a `timespec` (socket(7)).
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = next.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
            {
                let time = libc::CMSG_DATA(control).cast::<libc::timespec>().read_unaligned();
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                return seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0);
            }
            next = libc::CMSG_NXTHDR(header, control);
        }
    }
    0
}
