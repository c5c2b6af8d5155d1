//! Tests of tenants that block a system call on their memory, or on descriptors they send. The daemon gives up the
//! thread that makes the call.

use std::sync::mpsc::channel;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::fuse::SilentFile;
use super::*;
use crate::daemon::properties::process::Process;
use crate::daemon::stalls::MAX_THREADS;

const PAGE: usize = 4096;

/// A process with a page of a file whose bytes never come.
struct Hostile {
    page: u64,
    file: SilentFile,
    process: Process,
}

impl Hostile {
    /// Starts a process that maps the page, and calls `step` for ever. Returns `None` if this user may not mount.
    fn start(step: impl Fn()) -> Option<Self> {
        let file = SilentFile::mount(true)?;
        let (null, protection) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        let open = file.open();
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap(null, PAGE, protection, MapFlags::SHARED, &open, 0) }.unwrap();
        let process = Process::start_with(step);
        // SAFETY: no value of Rust is in it, in this process.
        unsafe { munmap(start, PAGE) }.unwrap();
        Some(Self { page: start.expose_provenance() as u64, file, process })
    }

    /// Attaches it, with the objects for a write of eight bytes from one address of its memory to another.
    fn prepare(&self, daemon: &Running, from: u64, to: u64) -> Prepared {
        let mut guest = self.attach(daemon).unwrap();
        let objects = guest.make_objects();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let [lkey, rkey] = [from, to].map(|address| {
            let region = Region { address, length: 8, iova: address, access };
            guest.number(Command::Register(objects.domain, region))
        });
        let peer = QueuePairNumber(guest.number(Command::CreateQp(objects.request)));
        guest.connect(objects.context, objects.qp, peer);
        let (from, to) = (Sge { address: from, length: 8, lkey }, Remote { address: to, rkey });
        Prepared { guest, qp: objects.qp, from, to }
    }

    fn attach(&self, daemon: &Running) -> Result<Guest, CallError> {
        let caller = Caller::connect(&daemon.path).unwrap();
        let (memory, probe) = (self.process.memory(), self.process.probe());
        Guest::attach_with(caller, "a", memory.as_fd(), probe)
    }
}

/// A client with a write ready to post.
struct Prepared {
    guest: Guest,
    qp: QueuePairNumber,
    from: Sge,
    to: Remote,
}

impl Prepared {
    fn write(&mut self) {
        let pieces = [self.from];
        let request = SendRequest::new(1, Operation::Write(self.to), Data::Gather(&pieces));
        self.guest.post(&Work::Send(self.qp, Posted::numbered(1, &request)));
        self.guest.signal.give();
    }
}

/// Runs a function that must not wait for files. After ten seconds the files are released, so that the test fails and
/// does not hang.
fn without_waiting_for<T>(files: &[&SilentFile], run: impl FnOnce() -> T) -> T {
    let (done, is_done) = channel();
    let releases: Vec<_> = files.iter().map(|file| file.releaser()).collect();
    let watcher = std::thread::spawn(move || {
        let in_time = is_done.recv_timeout(Duration::from_secs(10)).is_ok();
        if !in_time {
            releases.into_iter().for_each(|release| release());
        }
        in_time
    });
    let result = run();
    // The watcher may have given up already.
    let _ = done.send(());
    assert!(watcher.join().unwrap(), "the daemon stood still until files were released");
    result
}

/// Has a correct client write to itself.
fn write_honestly(daemon: &Running) {
    let mut honest = daemon.attach("a");
    let objects = honest.make_objects();
    let other = QueuePairNumber(honest.number(Command::CreateQp(objects.request)));
    honest.connect(objects.context, objects.qp, other);
    honest.write(&objects, Remote { address: objects.address(), rkey: objects.key });
    assert_eq!(honest.completed(), Status::Success);
}

fn skip() {
    weft_testkit::skip("pages of FUSE", "this user may not mount a file system (CAP_SYS_ADMIN)");
}

/// A hostile tenant makes the daemon read a packet from, or write it to, a file whose file system never answers. The
/// kernel's wait ends only with the file system.
#[test]
fn a_page_that_a_file_system_keeps_ends_its_tenant_and_holds_up_nobody() {
    for is_source in [true, false] {
        let daemon = Running::start();
        daemon.make("a");
        let Some(hostile) = Hostile::start(std::thread::yield_now) else { return skip() };
        let (page, own) = (hostile.page, hostile.process.address());
        let (from, to) = if is_source { (page, own) } else { (own, page) };
        without_waiting_for(&[&hostile.file], || {
            let mut prepared = hostile.prepare(&daemon, from, to);
            prepared.write();
            write_honestly(&daemon);
            until("the hostile tenant's end", || prepared.guest.is_ended());
            assert!(hostile.file.is_asked(), "the daemon went without the page");
        });
    }
}

/// A hostile tenant registers anonymous memory and locks its address space: one of its threads waits for a page of the
/// file through `/proc/self/mem`, another waits to change mappings, and then every access to any of its pages waits.
#[test]
fn an_address_space_that_is_locked_ends_its_tenant_and_holds_up_nobody() {
    let daemon = Running::start();
    daemon.make("a");
    let map_and_unmap = || {
        let (null, protection) = (core::ptr::null_mut(), ProtFlags::READ);
        // SAFETY: the kernel chooses the address, which nothing uses.
        unsafe {
            if let Ok(start) = mmap_anonymous(null, PAGE, protection, MapFlags::PRIVATE) {
                let _ = munmap(start, PAGE);
            }
        }
        std::thread::yield_now();
    };
    let Some(hostile) = Hostile::start(map_and_unmap) else { return skip() };
    let own = hostile.process.address();
    let mut prepared = hostile.prepare(&daemon, own, own + 8);
    without_waiting_for(&[&hostile.file], || {
        let memory = hostile.process.memory();
        let page = hostile.page;
        let reader =
            std::thread::spawn(move || rustix::io::pread(memory, &mut [0; 8], page).is_err());
        until("the reader's sleep", || hostile.file.is_asked());
        until("the lock", || hostile.process.is_blocked());
        prepared.write();
        write_honestly(&daemon);
        until("the hostile tenant's end", || prepared.guest.is_ended());
        hostile.file.release();
        assert!(reader.join().unwrap());
    });
}

/// A hostile tenant sends a file in place of its memory, or with a message without descriptors: examining it or closing
/// it waits for its file system.
#[test]
fn a_file_that_a_tenant_sends_ends_the_tenant_and_holds_up_nobody() {
    let attach = Request::attach("a", Probe { address: 0, value: 0 });
    for request in [attach, Request::List { after: String::new() }] {
        let daemon = Running::start();
        daemon.make("a");
        let Some(file) = SilentFile::mount(false) else { return skip() };
        let mut hostile = daemon.attach("a");
        without_waiting_for(&[&file], || {
            let (open, mut message) = (file.open(), Vec::new());
            encode(&request, &mut message);
            hostile.caller.socket().send(&message, &[open.as_fd()], false).unwrap();
            until("the daemon's look", || file.is_asked());
            write_honestly(&daemon);
            until("the hostile tenant's end", || daemon.used("a") == Amounts::NONE);
            file.release();
            // The thread that was given up has its socket until then.
            until("the end of its connection", || hostile.is_ended());
        });
    }
}

/// The fourth process of a user whose memory blocks a thread is the last one, until its file system releases a thread.
#[test]
fn a_user_blocks_at_most_four_threads_and_may_attach_again_without_them() {
    let daemon = Running::start();
    daemon.make("a");
    let tenants: Vec<Hostile> =
        (0..MAX_THREADS).map_while(|_| Hostile::start(std::thread::yield_now)).collect();
    if tenants.len() < MAX_THREADS {
        return skip();
    }
    let attach = || tenants[0].attach(&daemon);
    let files: Vec<_> = tenants.iter().map(|hostile| &hostile.file).collect();
    without_waiting_for(&files, || {
        let mut other = daemon.attach("a");
        for hostile in &tenants {
            assert!(!other.is_ended());
            let mut prepared = hostile.prepare(&daemon, hostile.page, hostile.process.address());
            prepared.write();
            until("the hostile tenant's end", || prepared.guest.is_ended());
        }
        assert!(other.is_ended(), "it is of the same user");
        let refusal = attach().err();
        assert!(
            matches!(refusal, Some(CallError::Refused { errno: libc::EBUSY, .. })),
            "{refusal:?}"
        );
        // An excluded user may still send requests.
        assert_eq!(daemon.used("a").processes, 0);
    });
    tenants[0].file.release();
    until("a thread's end", || attach().is_ok());
}
