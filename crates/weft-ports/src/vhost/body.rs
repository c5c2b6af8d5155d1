//! The bodies of the front end's requests.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use vhost::vhost_user::message::VhostUserMemoryRegion;

use super::fault::{FrontEndFault, MemoryFault};

/// The bit of a kick, call or error request without a descriptor.
const NO_FILE: u64 = 1 << 8;

/// The integers of a request's body.
pub(super) struct Body<'a>(pub(super) &'a [u8]);

impl Body<'_> {
    pub(super) fn u32(&self, at: usize) -> Result<u32, FrontEndFault> {
        let bytes = self.0.get(at..at + 4).ok_or(FrontEndFault::TooShort)?;
        Ok(u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
    }

    pub(super) fn u64(&self, at: usize) -> Result<u64, FrontEndFault> {
        let bytes = self.0.get(at..at + 8).ok_or(FrontEndFault::TooShort)?;
        Ok(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
    }

    pub(super) fn region(&self, at: usize) -> Result<VhostUserMemoryRegion, FrontEndFault> {
        let [guest, len, user, offset] = [0, 8, 16, 24].map(|field| self.u64(at + field));
        Ok(VhostUserMemoryRegion::new(guest?, len?, user?, offset?))
    }

    /// Returns the number of the queue that a request names, and the integer after it.
    pub(super) fn queue(&self) -> Result<(u64, u32), FrontEndFault> {
        Ok((self.u32(0)?.into(), self.u32(4)?))
    }
}

/// Returns the regions of a memory table and their files.
pub(super) fn table(
    body: &Body<'_>,
    files: impl Iterator<Item = OwnedFd>,
) -> Result<Vec<(VhostUserMemoryRegion, File)>, FrontEndFault> {
    let count = body.u32(0)? as usize;
    let files: Vec<OwnedFd> = files.collect();
    if count != files.len() {
        let descriptors = files.len();
        return Err(MemoryFault::Descriptors { regions: count, descriptors }.into());
    }
    let region = |(at, file)| Ok((body.region(8 + 32 * at)?, File::from(file)));
    files.into_iter().enumerate().map(region).collect()
}

/// Returns the number of the queue and the eventfd of a request that carries one.
pub(super) fn event(
    body: &Body<'_>,
    file: Option<OwnedFd>,
) -> Result<(u64, Option<OwnedFd>), FrontEndFault> {
    let value = body.u64(0)?;
    let queue = value & (NO_FILE - 1);
    if value & NO_FILE != 0 {
        return Ok((queue, None));
    }
    let file = file.ok_or(FrontEndFault::NoDescriptor)?;
    // A write to anything else could block, and a read from it could have any effect.
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if !link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]") {
        return Err(FrontEndFault::NoEventfd);
    }
    let nonblocking =
        fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK));
    nonblocking.map_err(FrontEndFault::Eventfd)?;
    Ok((queue, Some(file)))
}
