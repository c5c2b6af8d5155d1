//! Tests of processes that cannot become neighbours: another user's, and one that may not be traced.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, socket_with,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;
use crate::daemon::properties::process::Child;

const HERE: [u8; 4] = [127, 0, 0, 1];

/// The user called nobody.
const OTHER_USER: libc::uid_t = 65_534;

/// The kinds of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A process that may become a neighbour.
    Neighbour,
    /// A process of another user, which root may trace.
    OtherUser,
    /// A process of this user that forbids to be traced.
    Untraceable,
}

/// Progress of a child, in memory that it shares with the test.
const STARTED: u32 = 0;
const LISTENS: u32 = 1;
/// It received a greeting.
const RECEIVED: u32 = 2;
/// The other end closed the connection without a greeting.
const CLOSED: u32 = 3;
const FAILED: u32 = 4;

impl Kind {
    /// Makes the calling process one of this kind, by system calls only.
    fn become_one(self) -> Option<()> {
        // SAFETY: these system calls read no memory.
        let done = unsafe {
            match self {
                Self::Neighbour => 0,
                Self::OtherUser => {
                    let user = OTHER_USER;
                    let done = libc::syscall(libc::SYS_setresuid, user, user, user);
                    // A change of user clears it.
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    done
                }
                Self::Untraceable => libc::prctl(libc::PR_SET_DUMPABLE, 0).into(),
            }
        };
        (done == 0).then_some(())
    }

    /// Runs a test in a thread that may trace processes of every user, or only those that do not forbid it.
    fn run<T: Send>(self, test: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let ran = scope.spawn(move || {
                if self == Self::Untraceable {
                    let mut own = capabilities(None).unwrap();
                    own.effective.remove(CapabilitySet::SYS_PTRACE);
                    set_capabilities(None, own).unwrap();
                }
                test()
            });
            ran.join().unwrap()
        })
    }

    /// Returns a port of its own, so that no test waits for another's descriptors to close.
    const fn port(self, number: u16) -> u16 {
        61_200 + 10 * self as u16 + number
    }

    /// Returns the kinds that this user can start.
    fn all(test: &str) -> Vec<Self> {
        let mut all = vec![Self::Neighbour, Self::Untraceable];
        if rustix::process::geteuid().is_root() {
            all.push(Self::OtherUser);
        } else {
            weft_testkit::skip(test, "only root may start a process of another user");
        }
        all
    }
}

/// A child that follows a script once.
struct Peer {
    progress: &'static AtomicU32,
    _child: Child,
}

impl Peer {
    /// Starts a process of this kind that calls `script`, which returns how it ends. `script` may make only system
    /// calls.
    fn start(kind: Kind, script: impl Fn(&AtomicU32) -> Option<u32>) -> Self {
        let (null, protection) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the kernel chooses the address; the page stays mapped, and has zeroes.
        let progress = unsafe {
            let page = mmap_anonymous(null, 4096, protection, MapFlags::SHARED).unwrap();
            AtomicU32::from_ptr(page.cast())
        };
        let child = Child::start_with(|| {
            if matches!(progress.load(Ordering::Relaxed), RECEIVED | CLOSED | FAILED) {
                // SAFETY: this system call reads no memory.
                unsafe { libc::pause() };
            }
            let end = kind.become_one().and_then(|()| script(progress)).unwrap_or(FAILED);
            progress.store(end, Ordering::Release);
        });
        Self { progress, _child: child }
    }

    /// Returns the progress once it is not `before`, and calls `meanwhile` in between.
    fn progress_after(&self, before: u32, mut meanwhile: impl FnMut()) -> u32 {
        let deadline = Clock.now() + Duration::from_secs(20);
        loop {
            match self.progress.load(Ordering::Acquire) {
                progress if progress != before => return progress,
                _ => assert!(Clock.now() < deadline, "the other process does nothing"),
            }
            meanwhile();
            std::thread::yield_now();
        }
    }
}

/// Returns a socket that waits.
fn socket() -> Option<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).ok()
}

/// Waits for a greeting or the end of the connection.
fn wait(socket: &OwnedFd) -> u32 {
    match recv(socket, &mut [0_u8; 64], RecvFlags::empty()) {
        Ok((1.., _)) => RECEIVED,
        _ => CLOSED,
    }
}

/// Connects, sends a valid greeting and waits for the answer.
fn greet(address: &SocketAddrUnix, port: u16) -> Option<u32> {
    let (socket, doorbell) = (socket()?, eventfd(0, EventfdFlags::CLOEXEC).ok()?);
    let (_segment, file) = Segment::make().ok()?;
    connect(&socket, address).ok()?;
    // The other end may have closed it already.
    let _ = greeting::send(&socket, port, &[file.as_fd(), doorbell.as_fd()]);
    Some(wait(&socket))
}

/// Connects, and waits for the end.
fn connect_in_silence(address: &SocketAddrUnix) -> Option<u32> {
    let socket = socket()?;
    connect(&socket, address).ok()?;
    Some(wait(&socket))
}

/// Listens under the name of a port, and waits for the first connection's greeting.
fn lie_in_wait(address: &SocketAddrUnix, progress: &AtomicU32) -> Option<u32> {
    let listener = socket()?;
    bind(&listener, address).ok()?;
    listen(&listener, 1).ok()?;
    progress.store(LISTENS, Ordering::Release);
    let socket = accept_with(&listener, SocketFlags::CLOEXEC).ok()?;
    Some(wait(&socket))
}

/// It sends its own valid proof.
#[test]
fn a_greeting_of_a_process_that_may_not_be_traced_is_refused() {
    for kind in Kind::all("greetings of other users") {
        let (own, other) = (kind.port(0), kind.port(1));
        let address = greeting::address(own).unwrap();
        let accepted = kind.run(|| {
            let listener = greeting::listen(own).unwrap();
            let peer = Peer::start(kind, |_| greet(&address, other));
            let mut socket = None;
            peer.progress_after(STARTED, || {
                socket = socket.take().or_else(|| greeting::accept(&listener));
                // The peer waits for the answer or the end.
                let greeted = socket.as_ref().map(|socket| greeting::receive(socket, 2));
                match greeted {
                    None | Some(GreetingState::Nothing) => {}
                    Some(GreetingState::Refused) => socket = None,
                    Some(GreetingState::Accepted(greeting)) => {
                        assert_eq!(greeting.port, other);
                        rustix::io::write(socket.as_ref().unwrap(), b"welcome").unwrap();
                    }
                }
            })
        });
        let expected = if kind == Kind::Neighbour { RECEIVED } else { CLOSED };
        assert_eq!(accepted, expected, "{kind:?}");
    }
}

/// It takes no place of those that may still greet.
#[test]
fn a_connection_of_a_process_that_may_not_be_traced_is_closed_at_once() {
    for kind in Kind::all("connections of other users").into_iter().skip(1) {
        let own = kind.port(2);
        let address = greeting::address(own).unwrap();
        let closed = kind.run(|| {
            let mut neighbours = Neighbours::open(own, vec![HERE.into()]).unwrap();
            let peer = Peer::start(kind, |_| connect_in_silence(&address));
            let now = Clock.now();
            peer.progress_after(STARTED, || neighbours.service(now))
        });
        assert_eq!(closed, CLOSED, "{kind:?}");
    }
}

/// Any user may bind the name of a port before its process does. A holder of another process's doorbell can read its
/// counter, so that neighbours do not wake that process.
#[test]
fn an_impostor_under_the_name_of_a_port_receives_no_descriptors() {
    for kind in Kind::all("impostors of other users") {
        let (own, other) = (kind.port(3), kind.port(4));
        let address = greeting::address(other).unwrap();
        let received = kind.run(|| {
            let mut neighbours = Neighbours::open(own, vec![HERE.into()]).unwrap();
            let peer = Peer::start(kind, |progress| lie_in_wait(&address, progress));
            assert_eq!(peer.progress_after(STARTED, || ()), LISTENS);
            assert_eq!(neighbours.meet(SocketAddr::from((HERE, other))), None);
            peer.progress_after(LISTENS, || ())
        });
        let expected = if kind == Kind::Neighbour { RECEIVED } else { CLOSED };
        assert_eq!(received, expected, "{kind:?}");
    }
}

#[test]
fn silent_connections_are_closed_and_keep_no_other_out() {
    let (own, other) = (Kind::Neighbour.port(5), Kind::Neighbour.port(6));
    let mut neighbours = Neighbours::open(own, vec![HERE.into()]).unwrap();
    let now = Clock.now();
    let connect = |_| greeting::connect(own).unwrap();
    let silent: Vec<_> = (0..pending::MAX_PENDING_PEERS).map(connect).collect();
    neighbours.service(now);
    let late = greeting::connect(own).unwrap();
    let (_segment, file) = Segment::make().unwrap();
    greeting::send(&late, other, &[file.as_fd(), late.as_fd()]).unwrap();
    neighbours.service(now + ANSWER_TIME - Duration::from_nanos(1));
    assert_eq!(neighbours.len(), 0, "the silent ones have their time");
    neighbours.service(now + ANSWER_TIME);
    assert_eq!(neighbours.len(), 1);
    let is_closed = |socket| matches!(greeting::receive(socket, 1), GreetingState::Refused);
    // A child that another test forks at this moment holds a copy of each socket until it ends.
    let deadline = Clock.now() + Duration::from_secs(20);
    while !silent.iter().all(is_closed) {
        assert!(Clock.now() < deadline, "a silent connection stays open");
        std::thread::yield_now();
    }
}
