//! Tests of memory whose page faults its tenant is to serve, and never does (`userfaultfd(2)`).

use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::mpsc::channel;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::*;

const PAGE: usize = 4096;

/// A page that is missing until the holder of `server` provides it, or closes.
struct Unserved {
    start: *mut libc::c_void,
    server: Option<OwnedFd>,
}

impl Unserved {
    /// Returns `None` if this user may have no such page: serving faults of the kernel requires CAP_SYS_PTRACE.
    fn new() -> Option<Self> {
        /// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
        const API: libc::c_ulong = 0xc018_aa3f;
        /// `_IOWR(0xaa, 0, struct uffdio_register)`.
        const REGISTER: libc::c_ulong = 0xc020_aa00;
        const MISSING: u64 = 1;
        // SAFETY: it takes a number, and returns a descriptor or -1.
        let made = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let made = i32::try_from(made).ok().filter(|&fd| fd >= 0)?;
        // SAFETY: nothing else owns it.
        let server = unsafe { OwnedFd::from_raw_fd(made) };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = core::ptr::null_mut();
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap_anonymous(null, PAGE, protection, MapFlags::PRIVATE) }.unwrap();
        let mut api = [0xaa_u64, 0, 0];
        let mut register = [start.expose_provenance() as u64, PAGE as u64, MISSING, 0];
        for (request, argument) in [(API, api.as_mut_ptr()), (REGISTER, register.as_mut_ptr())] {
            // SAFETY: the argument has the length that the request number encodes.
            let done = unsafe { libc::ioctl(server.as_raw_fd(), request, argument) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        }
        Some(Self { start, server: Some(server) })
    }

    fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }
}

impl Drop for Unserved {
    fn drop(&mut self) {
        // SAFETY: no value of Rust is in it.
        let _ = unsafe { munmap(self.start, PAGE) };
    }
}

/// A hostile tenant makes the daemon read a packet from, or write it to, a page that never comes. The kernel serves no
/// fault of an access through `/proc/PID/mem` with `userfaultfd`: the access fails, which ends the tenant.
#[test]
fn a_page_that_userfaultfd_keeps_ends_its_tenant_and_holds_up_nobody() {
    for is_source in [true, false] {
        let daemon = Running::start();
        daemon.make("a");
        let (mut hostile, mut honest) = (daemon.attach("a"), daemon.attach("a"));
        let (of_hostile, of_honest) = (hostile.make_objects(), honest.make_objects());
        let Some(mut page) = Unserved::new() else {
            let why = "this user may not serve faults of the kernel (CAP_SYS_PTRACE)";
            return weft_testkit::skip("a page that userfaultfd keeps", why);
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = Region { address: page.address(), length: 8, iova: page.address(), access };
        let key = hostile.number(Command::Register(of_hostile.domain, region));
        let peer = QueuePairNumber(hostile.number(Command::CreateQp(of_hostile.request)));
        hostile.connect(of_hostile.context, of_hostile.qp, peer);
        let (own, kept) = ((of_hostile.address(), of_hostile.key), (page.address(), key));
        let (from, to) = if is_source { (kept, own) } else { (own, kept) };
        let pieces = [Sge { address: from.0, length: 8, lkey: from.1 }];
        let write = Operation::Write(Remote { address: to.0, rkey: to.1 });
        let request = SendRequest::new(1, write, Data::Gather(&pieces));
        hostile.post(&Work::Send(of_hostile.qp, Posted::numbered(1, &request)));
        hostile.signal.give();

        // Waiters for the page are released in the end, so that the test fails and does not hang.
        let (done, is_done) = channel();
        let server = page.server.take();
        let watcher = std::thread::spawn(move || {
            let in_time = is_done.recv_timeout(Duration::from_secs(10)).is_ok();
            drop(server);
            in_time
        });
        let other = QueuePairNumber(honest.number(Command::CreateQp(of_honest.request)));
        honest.connect(of_honest.context, of_honest.qp, other);
        honest.write(&of_honest, Remote { address: of_honest.address(), rkey: of_honest.key });
        let status = honest.completed();
        until("the hostile tenant's end", || hostile.is_ended());
        // The watcher may have given up already.
        let _ = done.send(());
        assert!(watcher.join().unwrap(), "the daemon stood still until the page was let go");
        assert_eq!(status, Status::Success);
    }
}
