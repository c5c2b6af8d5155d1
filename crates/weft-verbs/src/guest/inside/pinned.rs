//! Memory of a guest's process whose physical pages stay where they are. `mlock` does not prevent that pages move
//! (compaction); pages of io_uring's registered buffers are pinned for as long as the ring exists or the buffer is not
//! replaced. Nothing is ever submitted to the ring.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::attach::Run;
use crate::engine::fork::Held;
use crate::guest::{PAGE, pages_of};

/// Maximum length of one registered buffer, bytes (`io_uring_register_buffers(3)`).
const MAX_BUFFER: u64 = 1 << 30;

/// Number of buffers of the ring: the kernel's maximum, `IORING_MAX_REG_BUFFERS`.
const BUFFERS: u32 = 1 << 14;

/// The size of `struct io_uring_params`, bytes.
const PARAMETERS: usize = 120;

/// `struct io_uring_rsrc_register`: its operation, `IORING_REGISTER_BUFFERS2`, and `IORING_RSRC_REGISTER_SPARSE`.
#[repr(C)]
struct Table {
    buffers: u32,
    flags: u32,
    reserved: u64,
    data: u64,
    tags: u64,
}

const REGISTER_BUFFERS2: libc::c_uint = 15;
const SPARSE: u32 = 1;

/// `struct io_uring_rsrc_update2`, and its operation, `IORING_REGISTER_BUFFERS_UPDATE`.
#[repr(C)]
struct Update {
    buffer: u32,
    reserved: u32,
    data: *const libc::iovec,
    tags: u64,
    count: u32,
    reserved2: u32,
}

const UPDATE_BUFFERS: libc::c_uint = 16;

/// The ring that pins memory of this process.
#[derive(Debug)]
pub(crate) struct Pins {
    ring: Held,
    /// The numbers of unused buffers.
    free: Mutex<Vec<u32>>,
}

/// Pinned pages, which are released when this is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    pins: Arc<Pins>,
    buffers: Vec<u32>,
}

impl Pins {
    /// Makes the ring.
    ///
    /// # Errors
    /// The kernel has no io_uring, or one before Linux 5.19.
    pub(crate) fn new() -> io::Result<Self> {
        let ring = ring()?;
        let table = Table { buffers: BUFFERS, flags: SPARSE, reserved: 0, data: 0, tags: 0 };
        register(ring.as_fd(), REGISTER_BUFFERS2, &table)?;
        Ok(Self { ring: Held::new(ring), free: Mutex::new((0..BUFFERS).rev().collect()) })
    }

    /// Pins a range of memory.
    ///
    /// # Errors
    /// The range is not mapped, read-only or of an ordinary file; or the user may lock no more memory.
    pub(crate) fn pin(self: &Arc<Self>, address: u64, length: u64) -> io::Result<Pinned> {
        let mut pinned = Pinned { pins: self.clone(), buffers: Vec::new() };
        for index in 0..length.div_ceil(MAX_BUFFER) {
            let start = address + index * MAX_BUFFER;
            let len = (length - index * MAX_BUFFER).min(MAX_BUFFER);
            let [start, len] = [start, len].map(|it| usize::try_from(it).expect("64 bits"));
            let buffer = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let buffer = buffer.ok_or(io::ErrorKind::OutOfMemory)?;
            pinned.buffers.push(buffer);
            self.replace(buffer, ptr::with_exposed_provenance_mut(start), len)?;
        }
        Ok(pinned)
    }

    /// Replaces a buffer, whose old pages the kernel releases within about a second.
    fn replace(&self, buffer: u32, start: *mut libc::c_void, len: usize) -> io::Result<()> {
        let bytes = libc::iovec { iov_base: start, iov_len: len };
        let data = &raw const bytes;
        let update = Update { buffer, reserved: 0, data, tags: 0, count: 1, reserved2: 0 };
        register(self.ring.as_fd(), UPDATE_BUFFERS, &update)
    }
}

impl AsFd for Pins {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for &buffer in &self.buffers {
            // An error has no remedy: the pages stay pinned until the process ends.
            let _ = self.pins.replace(buffer, ptr::null_mut(), 0);
        }
        self.pins.free.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.buffers);
    }
}

fn ring() -> io::Result<OwnedFd> {
    let mut parameters = [0_u64; PARAMETERS / 8];
    // SAFETY: the kernel reads and writes one structure of this size.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_u32, parameters.as_mut_ptr()) };
    let ring = i32::try_from(ring).ok().filter(|&ring| ring >= 0);
    let ring = ring.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call has returned a new descriptor, which is closed on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(ring) })
}

/// Makes a call of `io_uring_register(2)` whose argument is a structure with its size.
fn register<T>(ring: BorrowedFd<'_>, operation: libc::c_uint, argument: &T) -> io::Result<()> {
    let ring = ring.as_raw_fd();
    // SAFETY: the kernel reads the structure, and the buffer's address and length in it; without a request it accesses
    // no byte of the buffer.
    let registered = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            operation,
            ptr::from_ref(argument),
            size_of::<T>(),
        )
    };
    if registered < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The physical pages of this process.
#[derive(Debug)]
pub(crate) struct PageMap(File);

impl PageMap {
    /// Opens the page map.
    ///
    /// # Errors
    /// This user may not.
    pub(crate) fn open() -> io::Result<Self> {
        File::open("/proc/self/pagemap").map(Self)
    }

    /// Returns the physical pages of a range of pinned memory.
    ///
    /// # Errors
    /// A page is not there; or the kernel does not show page numbers to this user (CAP_SYS_ADMIN).
    pub(crate) fn runs(&self, address: u64, length: u64) -> io::Result<Vec<Run>> {
        let pages = pages_of(address, length).ok_or(io::ErrorKind::InvalidInput)?;
        let (mut runs, mut entries) = (Vec::new(), [0; 512 * 8]);
        let mut done = 0;
        while done < pages {
            let bytes = (usize::try_from(pages - done).unwrap_or(usize::MAX)).min(512) * 8;
            let at = (address / PAGE + done) * 8;
            let read = rustix::io::pread(self.0.as_fd(), &mut entries[..bytes], at)?;
            let (read, _) = entries[..read].as_chunks::<8>();
            if read.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read.len() as u64;
            for entry in read {
                append(&mut runs, frame_of(u64::from_ne_bytes(*entry))?);
            }
        }
        Ok(runs)
    }
}

/// Returns the page number of an entry of the page map (`Documentation/admin-guide/mm/pagemap.rst`).
fn frame_of(entry: u64) -> io::Result<u64> {
    const PRESENT: u64 = 1 << 63;
    const NUMBER: u64 = (1 << 55) - 1;
    match (entry & PRESENT != 0, entry & NUMBER) {
        (false, _) => Err(io::ErrorKind::NotFound.into()),
        // Physical page zero is the firmware's.
        (true, 0) => Err(io::ErrorKind::PermissionDenied.into()),
        (true, frame) => Ok(frame),
    }
}

/// Appends a page to runs of consecutive pages.
fn append(runs: &mut Vec<Run>, frame: u64) {
    match runs.last_mut() {
        Some(run) if run.first + u64::from(run.pages) == frame && run.pages < u32::MAX => {
            run.pages += 1;
        }
        _ => runs.push(Run { first: frame, pages: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_pages_are_one_run() {
        let mut runs = Vec::new();
        [7, 8, 9, 3, 4, 9].iter().for_each(|&frame| append(&mut runs, frame));
        let run = |first, pages| Run { first, pages };
        assert_eq!(runs, [run(7, 3), run(3, 2), run(9, 1)]);
    }

    #[test]
    fn a_page_map_s_entry_is_present_and_has_a_number() {
        assert_eq!(frame_of(1 << 63 | 1 << 61 | 0x1234).unwrap(), 0x1234);
        assert_eq!(frame_of(0x1234).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(frame_of(1 << 63).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn pinned_pages_are_those_of_the_range_and_buffers_are_used_again() {
        let bytes = vec![1_u8; 5 * 4096];
        let address = bytes.as_ptr().expose_provenance() as u64;
        let pins = match Pins::new() {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                return weft_testkit::skip("pinned pages", "this kernel has no io_uring");
            }
            pins => Arc::new(pins.unwrap()),
        };
        let free = || pins.free.lock().unwrap().len();
        let all = free();
        let pinned = pins.pin(address, 5 * PAGE).unwrap();
        assert_eq!(free(), all - 1);
        let map = PageMap::open().unwrap();
        match map.runs(address, 5 * PAGE) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                weft_testkit::skip("physical pages", "this user may not see them (CAP_SYS_ADMIN)");
            }
            runs => {
                let pages: u64 = runs.unwrap().iter().map(|run| u64::from(run.pages)).sum();
                assert_eq!(Some(pages), pages_of(address, 5 * PAGE));
            }
        }
        drop(pinned);
        assert!(pins.pin(PAGE, PAGE).is_err(), "nothing is mapped there");
        assert_eq!(free(), all);
    }
}
