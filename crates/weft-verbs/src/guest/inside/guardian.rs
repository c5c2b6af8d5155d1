//! A process that outlives this one until the host no longer uses its memory.
//!
//! A program that is killed would give its pages back at once, to whatever the kernel needs pages for next, while the
//! host may still write to them. So a second process shares the address space, which then exists for as long as either
//! does, and has the ring that pins its pages. It has nothing else of the first one, and waits for its end; then it ends
//! the device over the port, and ends after the host's answer.

use std::ffi::{c_int, c_long, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use crate::attach::{Request, encode};
use crate::engine::fork::Held;
use crate::guest::frames::frame;
use crate::thread::SignalsBlocked;

/// Size of its stack, bytes.
const STACK: usize = 64 << 10;

/// The data of the second process: it allocates nothing, because a thread of the first may have died with the lock.
struct Plan {
    /// Readable when the first process has ended.
    ended: RawFd,
    port: RawFd,
    /// The descriptors that it keeps, in order: the two above, and the ring.
    kept: [RawFd; 3],
    /// A frame of another session, which ends the device of this one.
    farewell: Vec<u8>,
    session: u32,
}

/// Starts the guardian of this process's device on a port. `session` is not that of the process. The guardian acts when
/// the returned descriptor is closed, and until then keeps `ring` open.
///
/// # Errors
/// There are no more descriptors, no more memory or no more processes.
pub(crate) fn start(port: &File, ring: BorrowedFd<'_>, session: u32) -> io::Result<Held> {
    let (ended, lifeline) = UnixStream::pair()?;
    let mut message = Vec::new();
    encode(&Request::Describe { name: String::new() }, &mut message);
    let farewell = frame(session, &message)?;
    let (end, port) = (ended.as_raw_fd(), port.as_raw_fd());
    let mut kept = [end, port, ring.as_raw_fd()];
    kept.sort_unstable();
    let plan = Plan { ended: end, port, kept, farewell, session };
    // Both are the other process's, which may outlive this one.
    let plan = Box::leak(Box::new(plan));
    let stack = Box::leak(vec![0_u128; STACK / size_of::<u128>()].into_boxed_slice());
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let _signals = SignalsBlocked::new();
    // Without a signal at its end, the program does not find it among its children (wait(2)).
    // SAFETY: the function uses its own stack and the plan, both of which live forever, and calls the kernel alone.
    let process =
        unsafe { libc::clone(guard, top, libc::CLONE_VM, ptr::from_mut(plan).cast::<c_void>()) };
    if process < 0 { Err(io::Error::last_os_error()) } else { Ok(Held::new(lifeline.into())) }
}

/// Runs in the other process.
extern "C" fn guard(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes its plan, which lives forever and which nothing changes.
    let plan = unsafe { &*plan.cast::<Plan>() };
    let name = c"weft-guardian".as_ptr().expose_provenance();
    // SAFETY: these calls pass descriptors of this process, which shares none with the first, and bytes that exist.
    unsafe {
        // A signal to the first one's group, or to all processes of its name, must not end this process before its time.
        call(libc::SYS_setsid, [0; 5]);
        call(libc::SYS_prctl, [libc::PR_SET_NAME.unsigned_abs() as usize, name, 0, 0, 0]);
        if close_others(plan.kept) {
            while read(plan.ended, &mut [0; 64]) > 0 {}
            // A write to a port without a relay waits for one, whose daemon has nothing of this device any more.
            if has_relay(plan.port) {
                let bytes = plan.farewell.as_ptr().expose_provenance();
                let port = plan.port.cast_unsigned() as usize;
                call(libc::SYS_write, [port, bytes, plan.farewell.len(), 0, 0]);
                await_answer(plan);
            }
        }
    }
    0
}

/// Makes a system call. The functions of libc use the memory of the thread that made this process, `errno` and more,
/// which is gone once that thread has ended.
///
/// # Safety
/// As for the call.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: c_long, arguments: [usize; 5]) -> isize {
    let [first, second, third, fourth, fifth] = arguments;
    let result: isize;
    // SAFETY: guaranteed by the caller; the kernel changes these registers alone.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call, without the memory of a thread.
///
/// # Safety
/// As for the call.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: c_long, arguments: [usize; 5]) -> isize {
    let [first, second, third, fourth, fifth] = arguments;
    let result: isize;
    // SAFETY: guaranteed by the caller; the kernel changes this register alone.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first => result,
            in("x1") second,
            in("x2") third,
            in("x3") fourth,
            in("x4") fifth,
            options(nostack),
        );
    }
    result
}

/// Reads a file; returns the number of bytes, zero at its end, or a negative number.
///
/// # Safety
/// The descriptor is of this process.
unsafe fn read(file: RawFd, bytes: &mut [u8]) -> isize {
    let (file, start) = (file.cast_unsigned() as usize, bytes.as_mut_ptr().expose_provenance());
    // SAFETY: the buffer has this length.
    unsafe { call(libc::SYS_read, [file, start, bytes.len(), 0, 0]) }
}

/// Returns `true` if the host's end of a port is open.
///
/// # Safety
/// The descriptor is of this process.
unsafe fn has_relay(port: RawFd) -> bool {
    let mut watched = libc::pollfd { fd: port, events: 0, revents: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let [file, time] =
        [(&raw mut watched).expose_provenance(), (&raw const at_once).expose_provenance()];
    // SAFETY: both structures exist for as long as the call.
    unsafe { call(libc::SYS_ppoll, [file, 1, time, 0, 0]) == 0 }
}

/// Closes all descriptors but these, among them the first one's end of the pair. Returns `true` on success.
///
/// # Safety
/// Nothing in this process uses another descriptor.
unsafe fn close_others(kept: [RawFd; 3]) -> bool {
    let [first, second, third] = kept.map(|file| file.cast_unsigned() as usize);
    let last = u32::MAX as usize;
    let between = [(0, first), (first + 1, second), (second + 1, third), (third + 1, last)];
    between.into_iter().all(|(from, end)| {
        // SAFETY: guaranteed by the caller.
        from >= end || unsafe { call(libc::SYS_close_range, [from, end - 1, 0, 0, 0]) } == 0
    })
}

/// Reads from the port until a frame of this session, or the port's end.
///
/// # Safety
/// The plan's port is open.
unsafe fn await_answer(plan: &Plan) {
    let (mut bytes, mut window) = ([0_u8; 512], !plan.session);
    loop {
        // SAFETY: guaranteed by the caller.
        let read = unsafe { read(plan.port, &mut bytes) };
        let read = usize::try_from(read).ok().and_then(|read| bytes.get(..read));
        let Some(read @ [_, ..]) = read else { return };
        if comes_into(&mut window, read, plan.session) {
            return;
        }
    }
}

/// Moves a window of four bytes over a stream. Returns `true` if a session's number comes into it. Frames of the session
/// before may precede it: their bytes are those of the number only by chance.
fn comes_into(window: &mut u32, bytes: &[u8], session: u32) -> bool {
    bytes.iter().any(|&byte| {
        *window = *window >> 8 | u32::from(byte) << 24;
        *window == session
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_s_number_is_found_wherever_it_begins() {
        let session = u32::from_le_bytes([1, 1, 2, 3]);
        let is_found = |pieces: &[&[u8]]| {
            let mut window = !session;
            pieces.iter().any(|bytes| comes_into(&mut window, bytes, session))
        };
        assert!(is_found(&[&[1, 1, 2, 3]]));
        assert!(is_found(&[&[9, 1, 1, 1, 2, 3]]), "a byte of it comes before");
        assert!(is_found(&[&[1, 1, 2, 1], &[1, 2], &[3]]), "in pieces, after a part of it");
        assert!(!is_found(&[&[1, 1, 2], &[1, 2, 3, 1, 1, 3, 2]]));
    }
}
