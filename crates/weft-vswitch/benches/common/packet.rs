//! Frames sent on an interface as they are, and counted on arrival (packet(7)).
#![expect(
    unsafe_code,
    reason = "packet sockets have addresses and counters of which safe forms know nothing"
)]

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

/// A socket that sends or counts whole frames in the namespace in which it was opened.
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket that sends, and receives nothing.
    pub(crate) fn open() -> io::Result<Self> {
        Self::of(None)
    }

    /// Opens a socket that counts the frames of an EtherType, on any interface.
    pub(crate) fn receiving(ether_type: u16) -> io::Result<Self> {
        Self::of(NonZeroU32::new(ether_type.to_be().into()).map(Protocol::from_raw))
    }

    fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        Ok(Self(socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?))
    }

    /// Returns the number of frames since the last call. No frame is read: those without room in the socket
    /// count too.
    pub(crate) fn received(&self) -> io::Result<u64> {
        // SAFETY: all fields of `tpacket_stats` are integers, for which zero is a value.
        let mut counted: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = u32::try_from(size_of::<libc::tpacket_stats>()).expect("two counters");
        // SAFETY: the kernel writes no more than `length` bytes to `counted`, which is alive.
        let got = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counted).cast(),
                &raw mut length,
            )
        };
        if got == 0 { Ok(counted.tp_packets.into()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends a frame on an interface. Returns `false` if its queue is full.
    pub(crate) fn send(&self, interface: libc::c_int, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: all fields of `sockaddr_ll` are integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).expect("families are small");
        address.sll_ifindex = interface;
        let length = u32::try_from(size_of::<libc::sockaddr_ll>()).expect("an address is small");
        // SAFETY: the kernel reads the frame and the address, which are alive, by their lengths.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                length,
            )
        };
        match (sent, io::Error::last_os_error()) {
            (0.., _) => Ok(true),
            (_, error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(false),
            (_, error) => Err(error),
        }
    }
}

/// Returns the index of an interface in the namespace of this thread.
pub(crate) fn interface(name: &str) -> io::Result<libc::c_int> {
    let name = CString::new(name)?;
    // SAFETY: the kernel reads a string that ends with a zero and is alive.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    match libc::c_int::try_from(index) {
        Ok(index @ 1..) => Ok(index),
        _ => Err(io::Error::last_os_error()),
    }
}
