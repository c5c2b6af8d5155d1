//! TAP interfaces in a network namespace of the thread's own, which ends with the thread.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

/// Moves the thread from the machine's network to one without interfaces.
pub(crate) fn leave_network() -> Result<()> {
    // SAFETY: the call takes no memory; it concerns this thread and those it will spawn only.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Runs `ip` in the thread's network.
pub(crate) fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(Error::other(format!("ip {arguments}: {errors}")))
        }
    }
}

/// An interface whose frames are read and written here, after virtio-net headers of 12 bytes.
#[derive(Debug)]
pub(crate) struct Tap(File);

impl Tap {
    /// Creates a TAP that takes no offload, so that the kernel does all the work itself.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        // SAFETY: zeros are a request without a name or flags.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags.try_into().expect("a flag of 16 bits");
        let (header, little_endian) = (12 as libc::c_int, 1 as libc::c_int);
        let fd = file.as_raw_fd();
        // SAFETY: each request points to the value it reads, which lives until the request returns; the last
        // one takes a
        // number.
        let results = unsafe {
            [
                libc::ioctl(fd, libc::TUNSETIFF, &raw const request),
                libc::ioctl(fd, libc::TUNSETVNETHDRSZ, &raw const header),
                libc::ioctl(fd, libc::TUNSETVNETLE, &raw const little_endian),
                libc::ioctl(fd, libc::TUNSETOFFLOAD, 0),
            ]
        };
        match results.contains(&-1) {
            true => Err(Error::last_os_error()),
            false => Ok(Self(file)),
        }
    }

    /// Returns the next frame, if one is available.
    pub(crate) fn read(&mut self) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0; 1 << 17];
        match self.0.read(&mut frame) {
            Ok(len) => {
                frame.truncate(len);
                Ok(Some(frame))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Passes the kernel a frame, as if the frame had arrived.
    pub(crate) fn write(&mut self, frame: &[u8]) -> Result<()> {
        self.0.write(frame).map(|len| assert_eq!(len, frame.len(), "a frame is taken whole"))
    }
}
