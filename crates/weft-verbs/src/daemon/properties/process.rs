//! A process whose memory a hostile client passes to the daemon: writes there harm no other process.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attach::Probe;

/// The address of the process's memory that scripts name.
pub(super) static ADDRESS: AtomicU64 = AtomicU64::new(0);

const BYTES: usize = 1 << 16;

/// A child that ends with its parent, and is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Starts a process that calls `step` for ever. `step` may make only system calls: other threads' locks stay
    /// locked in the child.
    pub(crate) fn start_with(step: impl Fn()) -> Self {
        // SAFETY: the child makes system calls only.
        let id = unsafe { libc::fork() };
        assert!(id >= 0, "there are processes");
        if id == 0 {
            // Sockets that the child kept open would not seem closed to their other ends.
            // SAFETY: neither reads memory of this process.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
            }
            loop {
                step();
            }
        }
        Self(id)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: this is a child of this process that has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, core::ptr::null_mut(), 0);
        }
    }
}

/// A child whose memory this process may read and write.
pub(crate) struct Process {
    #[cfg_attr(not(test), expect(dead_code, reason = "it is killed when it is dropped"))]
    child: Child,
    memory: File,
    address: u64,
}

impl Process {
    /// Starts a process that sleeps.
    pub(super) fn start() -> Self {
        Self::start_with(|| {
            // SAFETY: this system call reads no memory.
            unsafe { libc::pause() };
        })
    }

    /// Starts a process that calls `step` for ever. `step` may make only system calls: other threads' locks stay
    /// locked in the child.
    pub(crate) fn start_with(step: impl Fn()) -> Self {
        // It exists in the child too.
        let bytes = Box::leak(vec![0_u8; BYTES].into_boxed_slice());
        let address = bytes.as_ptr().expose_provenance() as u64;
        ADDRESS.store(address, Ordering::Relaxed);
        let child = Child::start_with(step);
        let path = format!("/proc/{}/mem", child.0);
        let memory = File::options().read(true).write(true).open(path);
        Self { child, memory: memory.expect("a child may be read"), address }
    }

    pub(crate) const fn address(&self) -> u64 {
        self.address
    }

    /// Returns a descriptor of its memory, to pass on.
    pub(crate) fn memory(&self) -> OwnedFd {
        self.memory.try_clone().expect("there are descriptors").into()
    }

    /// Returns `true` while it is in an uninterruptible wait in the kernel.
    #[cfg(test)]
    pub(crate) fn is_blocked(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.0));
        stat.expect("it is a child")
            .rsplit_once(") ")
            .is_some_and(|(_, state)| state.starts_with('D'))
    }

    /// Returns the value at an address of its memory.
    pub(crate) fn probe(&self) -> Probe {
        let value = 0x0123_4567_89ab_cdef_u64;
        self.memory.write_all_at(&value.to_ne_bytes(), self.address).expect("it is its memory");
        Probe { address: self.address, value }
    }
}
