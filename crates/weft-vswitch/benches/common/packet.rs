//! Frames put on an interface as they are (packet(7)).
#![expect(unsafe_code, reason = "no safe form of sendto(2) knows addresses of packet sockets")]

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// A socket that sends whole frames in the namespace in which it was opened.
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    pub(crate) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        Ok(Self(socket_with(family, kind, SocketFlags::CLOEXEC, None)?))
    }

    /// Sends a frame out of an interface; false where its queue is full.
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

/// The number of an interface in the namespace of this thread.
pub(crate) fn interface(name: &str) -> io::Result<libc::c_int> {
    let name = CString::new(name)?;
    // SAFETY: the kernel reads a string that ends with a zero and is alive.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    match libc::c_int::try_from(index) {
        Ok(index @ 1..) => Ok(index),
        _ => Err(io::Error::last_os_error()),
    }
}
