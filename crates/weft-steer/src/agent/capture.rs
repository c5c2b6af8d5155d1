//! Packets sampled by the kernel: a packet socket with a classic BPF program, run before a packet is queued for the
//! process. A packet that is not sampled costs only that program.
//!
//! hsflowd's mod_pcap samples in the same way. The socket sees packets as they arrive, and as they leave after the
//! queue with any ECN mark of the queue.

use std::io::{self, IoSliceMut};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{LinkAddr, MsgFlags, recvmsg};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::SteerError;

/// Number of bytes of a packet that are reported: Ethernet, two VLAN tags, IPv4 with options, ports.
pub(super) const HEADER_BYTES: usize = 128;
/// Size in bytes of the socket buffer for sampled packets.
const BUFFER_BYTES: usize = 4 << 20;

/// A sampled packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled<'a> {
    pub(super) interface: u32,
    pub(super) direction: Direction,
    /// The length in bytes. Segmentation offload puts many packets into one of up to 64 KiB.
    pub(super) frame_len: u32,
    pub(super) header: &'a [u8],
}

/// The direction of a packet through an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// A packet socket that receives the sampled packets of a namespace.
#[derive(Debug)]
pub(super) struct Capture {
    socket: Socket,
    buffer: [u8; HEADER_BYTES],
}

impl Capture {
    /// Opens a socket that samples one packet in `rate` of all interfaces of this thread's namespace.
    ///
    /// # Errors
    /// Returns `Io` if the kernel refuses the socket.
    pub(super) fn open(rate: u32) -> Result<Self, SteerError> {
        let open = || -> io::Result<Socket> {
            // ETH_P_ALL in network byte order, as packet(7) requires.
            let all = u16::try_from(libc::ETH_P_ALL).expect("an EtherType has 16 bits");
            let all = Protocol::from(i32::from(all.to_be()));
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(all))?;
            socket.attach_filter(&program(rate.max(1)))?;
            socket.set_recv_buffer_size(BUFFER_BYTES)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = open().map_err(SteerError::io(
            "open a packet socket (sampling needs CAP_NET_RAW: run as root)",
        ))?;
        let mut capture = Self { socket, buffer: [0; HEADER_BYTES] };
        // Packets from before the program was attached were not sampled: discard them.
        while capture.next()?.is_some() {}
        Ok(capture)
    }

    /// Returns the next sampled packet, if there is one.
    ///
    /// # Errors
    /// Returns `Io` if the socket fails.
    pub(super) fn next(&mut self) -> Result<Option<Sampled<'_>>, SteerError> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let (length, address) = loop {
            let mut buffers = [IoSliceMut::new(&mut self.buffer)];
            match recvmsg::<LinkAddr>(self.socket.as_raw_fd(), &mut buffers, None, flags) {
                // With MSG_TRUNC this is the packet's length, not the number of bytes copied.
                Ok(message) => break (message.bytes, message.address),
                Err(Errno::EAGAIN) => return Ok(None),
                // An interface went down; others remain.
                Err(Errno::EINTR | Errno::ENETDOWN) => {}
                Err(errno) => return Err(SteerError::io("read drawn packets")(errno.into())),
            }
        };
        let Some(address) = address else { return Ok(None) };
        let direction =
            if address.pkttype() == libc::PACKET_OUTGOING { Direction::Out } else { Direction::In };
        Ok(Some(Sampled {
            interface: u32::try_from(address.ifindex()).unwrap_or(0),
            direction,
            frame_len: u32::try_from(length).unwrap_or(u32::MAX),
            header: &self.buffer[..length.min(HEADER_BYTES)],
        }))
    }

    /// Returns the number of sampled packets dropped for lack of buffer since the last call.
    ///
    /// # Errors
    /// Returns `Io` if the kernel does not report it.
    #[expect(unsafe_code, reason = "no library has this socket option")]
    pub(super) fn dropped(&self) -> Result<u32, SteerError> {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = libc::socklen_t::try_from(size_of::<libc::tpacket_stats>()).unwrap_or(0);
        // SAFETY: the socket is open, and `statistics` is a structure of `length` bytes as packet(7) names
        // it for this option; the kernel writes no more than that.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            return Ok(statistics.tp_drops);
        }
        Err(SteerError::io("read the number of lost packets")(io::Error::last_os_error()))
    }
}

impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns a classic BPF program that accepts one packet in `rate`: those for which a random word modulo `rate` is zero
/// (`linux/filter.h`, `SKF_AD_RANDOM`).
fn program(rate: u32) -> [SockFilter; 5] {
    const RANDOM: u32 = 0xffff_f000 + 56;
    let code = |bits: u32| u16::try_from(bits).expect("BPF's codes are below 256");
    [
        SockFilter::new(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0, 0, RANDOM),
        SockFilter::new(code(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K), 0, 0, rate),
        SockFilter::new(code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), 0, 1, 0),
        SockFilter::new(code(libc::BPF_RET | libc::BPF_K), 0, 0, u32::MAX),
        SockFilter::new(code(libc::BPF_RET | libc::BPF_K), 0, 0, 0),
    ]
}
