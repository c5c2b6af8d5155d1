//! Tests of memory that neighbours map: both ends are in this process, which maps its own memory once more.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use weft_ring::leases::Backing;
use weft_rnic::{Lease, LeaseId, LeasedAccess, Place, Reach, Source};
use weft_transport::{ConnectionId, LinkId};
use weft_units::Seed;

use super::channel::{Channel, Mapped, Parts};
use super::lendable::Lendable;
use super::segment::Segment;
use crate::engine::OWNER;

mod memory;

use memory::{HUGE_PAGE, HugePages, Memory, OVERCOMMIT, PAGE, every_kind};

const CONNECTION: ConnectionId = ConnectionId(5);

/// Both ends of a channel: the lender's and the borrower's.
struct Ends {
    lender: Channel,
    borrower: Channel,
    lendable: Lendable,
    /// The doorbell by which the lender wakes the borrower.
    doorbell: OwnedFd,
}

impl Ends {
    fn new() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let (first, file) = Segment::make().unwrap();
        let second = Segment::take(&file).unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let end = |socket, segment, made| {
            let doorbell = doorbell.try_clone().unwrap();
            Channel::new(LinkId(0), Parts { port: 1, pid, socket, doorbell, segment, made })
        };
        let (lender, borrower) = (end(a, first, true), end(b, second, false));
        Self { lender, borrower, lendable: Lendable::default(), doorbell }
    }

    /// Returns `true` if the borrower was woken since the last call.
    fn is_woken(&self) -> bool {
        rustix::io::read(&self.doorbell, &mut [0; 8]).is_ok()
    }

    fn lend(&mut self, lease: &Lease) -> Option<(LeaseId, Reach)> {
        let backing = self.lendable.backing(lease);
        self.lend_as(lease, backing)
    }

    fn lend_as(&mut self, lease: &Lease, backing: Backing) -> Option<(LeaseId, Reach)> {
        self.lender.lend(CONNECTION, lease, backing);
        let mut taken = None;
        self.borrower.take_leases(|id, found, reach| {
            assert_eq!(found, *lease);
            taken = Some((id, reach));
        });
        taken
    }

    fn lend_mapped(&mut self, lease: &Lease) -> LeaseId {
        let (id, reach) = self.lend(lease).unwrap();
        assert_eq!(reach, Reach::Mapped);
        id
    }

    /// Executes a request in the region of a lease, at an offset.
    fn access(&self, id: LeaseId, lease: &Lease, offset: u64, of: Access<'_>) -> Mapped {
        let (writes, bytes) = match of {
            Access::Write(bytes) => (true, (bytes.as_ptr(), bytes.len())),
            Access::Read(bytes) => (false, (bytes.as_mut_ptr().cast_const(), bytes.len())),
        };
        let length = u32::try_from(bytes.1).unwrap();
        let address = bytes.0.expose_provenance() as u64;
        let places = [Place { owner: OWNER, address, len: length }];
        let local = Source::Memory(&places);
        let address = lease.address + offset;
        self.borrower.execute_mapped(&LeasedAccess { lease: id, address, length, writes, local })
    }
}

enum Access<'a> {
    Write(&'a [u8]),
    Read(&'a mut [u8]),
}

/// Writes and reads ranges of memory, and compares all of it.
fn check(kind: &str, memory: &Memory) {
    let (mut ends, lease) = (Ends::new(), memory.lease(7));
    let (id, reach) = ends.lend(&lease).unwrap();
    assert_eq!(reach, Reach::Mapped, "{kind}");
    let mut rng = Seed(1).rng();
    let mut expected = vec![0; memory.len];
    memory.fill(0, &expected);
    for _ in 0..200 {
        let from = rng.below(lease.length);
        let len = 1 + rng.below((lease.length - from).min(3 * PAGE as u64));
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        bytes.fill_with(|| rng.next_u64().to_le_bytes()[0]);
        let at = usize::try_from(from).unwrap() + 100;
        if rng.chance(1, 2) {
            let written = ends.access(id, &lease, from, Access::Write(&bytes));
            assert_eq!(written, Mapped::Executed, "{kind}");
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        } else {
            let read = ends.access(id, &lease, from, Access::Read(&mut bytes));
            assert_eq!(read, Mapped::Executed, "{kind}");
            assert_eq!(bytes, expected[at..at + bytes.len()], "{kind}");
        }
        assert!(memory.bytes(0, memory.len) == expected, "{kind}");
    }
    let outside = ends.access(id, &lease, lease.length - 7, Access::Write(&[1; 8]));
    assert_eq!(outside, Mapped::Failed, "{kind}");
    assert!(memory.bytes(0, memory.len) == expected, "{kind}");
}

#[test]
fn every_kind_of_shared_memory_is_written_and_read_without_a_call() {
    for (kind, memory) in every_kind() {
        check(kind, &memory);
    }
}

#[test]
fn huge_pages_are_written_and_read_without_a_call() {
    let Some(_pages) = HugePages::allow() else {
        return weft_testkit::skip("memory of huge pages", "only root may allow them");
    };
    check("a memfd", &Memory::memfd(MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, 2 * HUGE_PAGE));
    check("a segment", &Memory::segment(libc::SHM_HUGETLB, HUGE_PAGE).removed());
}

#[test]
fn private_memory_is_not_mapped() {
    let (memory, mut ends) = (Memory::anonymous(libc::MAP_PRIVATE), Ends::new());
    let (id, reach) = ends.lend(&memory.lease(7)).unwrap();
    assert_eq!(reach, Reach::SystemCall);
    let lease = memory.lease(7);
    assert_eq!(ends.access(id, &lease, 0, Access::Write(&[1])), Mapped::Not);
    let places = [Place { owner: OWNER, address: memory.address(), len: 8 }];
    let (address, length) = (lease.address + 16, 8);
    let local = Source::Memory(&places);
    memory.fill(0, b"by call!");
    let request = LeasedAccess { lease: id, address, length, writes: true, local };
    assert!(ends.borrower.execute_by_call(&request));
    assert_eq!(memory.bytes(116, 8), b"by call!");
}

/// Returns the number of mappings of this file in this process.
fn mappings_of(file: BorrowedFd<'_>) -> usize {
    let inode = rustix::fs::fstat(file).unwrap().st_ino.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&*inode)).count()
}

#[test]
fn leases_of_one_range_share_a_mapping_and_the_last_one_ends_it() {
    use std::os::fd::AsFd;
    let (memory, mut ends) = (Memory::sealed(), Ends::new());
    let count = || mappings_of(memory.file.as_ref().unwrap().as_fd());
    assert_eq!(count(), 1, "the program's own");
    let first = ends.lend_mapped(&memory.lease(7));
    let second = ends.lend_mapped(&memory.lease(8));
    assert_eq!(count(), 2);
    ends.lender.revoke(|lent| lent.key == 7);
    let lease = memory.lease(7);
    assert_eq!(ends.access(first, &lease, 0, Access::Write(&[1])), Mapped::Failed);
    assert_eq!(memory.bytes(100, 1), [0]);
    assert_eq!(ends.access(second, &lease, 0, Access::Write(&[2])), Mapped::Executed);
    ends.borrower.unmap_revoked();
    assert_eq!(ends.access(first, &lease, 0, Access::Write(&[1])), Mapped::Not);
    assert_eq!(ends.access(second, &lease, 0, Access::Write(&[3])), Mapped::Executed);
    assert_eq!(count(), 2);
    ends.borrower.set_asleep(true);
    ends.lender.revoke(|lent| lent.key == 8);
    ends.lender.announce();
    assert!(ends.is_woken(), "it would keep the memory while it sleeps");
    ends.borrower.unmap_revoked();
    assert_eq!(count(), 1, "nobody tried the lease again");
    ends.lender.revoke(|_| true);
    ends.lender.announce();
    assert!(!ends.is_woken(), "nothing was lent");
    ends.lend_mapped(&lease);
    assert_eq!(count(), 2);
    drop(ends);
    assert_eq!(count(), 1, "the channel has ended");
}

/// The region is registered again at another address, and the program has closed and replaced its descriptor.
#[test]
fn memory_is_searched_for_again_after_a_change() {
    let (mut memory, other, mut ends) = (Memory::named("changes"), Memory::sealed(), Ends::new());
    ends.lend_mapped(&memory.lease(7));
    let Backing::File { descriptor, inode, .. } = ends.lendable.backing(&memory.lease(7)) else {
        panic!("it is a file")
    };
    let number = memory.file.as_ref().unwrap().as_raw_fd();
    assert_eq!(i64::from(descriptor), i64::from(number));
    memory.file = None;
    // SAFETY: the number was the test's own and is free: another test may take it, which has the same effect.
    let replaced = unsafe { libc::dup(other.file.as_ref().unwrap().as_raw_fd()) };
    let found = ends.lendable.backing(&memory.lease(7));
    let Backing::File { inode: again, .. } = found else { panic!("its path still exists") };
    assert_eq!(inode, again);
    ends.lender.revoke(|_| true);
    let (id, reach) = ends.lend_as(&memory.lease(7), found).unwrap();
    assert_eq!(reach, Reach::Mapped);
    let written = ends.access(id, &memory.lease(7), 0, Access::Write(b"again"));
    assert_eq!((written, &*memory.bytes(100, 5)), (Mapped::Executed, &b"again"[..]));
    assert!(
        matches!(ends.lendable.backing(&other.lease(7)), Backing::File { inode: of, .. } if of != inode)
    );
    // SAFETY: the descriptor made above.
    unsafe { libc::close(replaced) };
}

#[test]
fn a_lender_that_lies_is_accessed_by_calls_only() {
    let (memory, segment, mut ends) = (Memory::sealed(), Memory::segment(0, 4 * PAGE), Ends::new());
    let lease = memory.lease(7);
    let Backing::File { descriptor, device, inode, offset } = ends.lendable.backing(&lease) else {
        panic!("it is a file")
    };
    let honest = Backing::File { descriptor, device, inode, offset };
    let Backing::Segment { id, .. } = ends.lendable.backing(&segment.lease(8)) else {
        panic!("it is a segment")
    };
    let devices = std::fs::File::open("/dev/zero").unwrap();
    let of_disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let as_file = |file: &std::fs::File| {
        let stat = rustix::fs::fstat(file).unwrap();
        let descriptor = u32::try_from(file.as_raw_fd()).unwrap();
        let device = u32::try_from(stat.st_dev).unwrap();
        Backing::File { descriptor, device, inode: stat.st_ino, offset: 0 }
    };
    let past_the_end = u64::MAX - 100;
    let lies = [
        ("another file", Backing::File { descriptor, device, inode: inode + 1, offset }),
        ("another device", Backing::File { descriptor, device: device + 1, inode, offset }),
        ("no descriptor", Backing::File { descriptor: 1 << 30, device, inode, offset }),
        ("past the end", Backing::File { descriptor, device, inode, offset: 4 * PAGE as u64 }),
        ("no offset", Backing::File { descriptor, device, inode, offset: past_the_end }),
        ("a device", as_file(&devices)),
        ("a file of a disk", as_file(&of_disk)),
        ("no segment", Backing::Segment { id: u32::MAX, offset: 0 }),
        ("no such segment", Backing::Segment { id: id ^ 0x4000_0000, offset: 0 }),
        ("past a segment's end", Backing::Segment { id, offset: 1001 }),
        ("no offset of a segment", Backing::Segment { id, offset: past_the_end }),
    ];
    for (lie, backing) in lies {
        let (_, reach) = ends.lend_as(&lease, backing).unwrap();
        assert_eq!(reach, Reach::SystemCall, "{lie}");
        ends.lender.revoke(|_| true);
    }
    assert_eq!(ends.lend_as(&lease, honest).unwrap().1, Reach::Mapped);
}

/// The page of the access does not exist any more: the access fails, and the process lives.
#[test]
fn truncated_memory_fails_the_access_only() {
    for memory in [Memory::memfd(MemfdFlags::empty(), 4 * PAGE), Memory::named("truncated")] {
        let mut ends = Ends::new();
        let lease = memory.lease(7);
        let id = ends.lend_mapped(&lease);
        let file = memory.file.as_ref().unwrap();
        let size = rustix::fs::fstat(file).unwrap().st_size;
        ftruncate(file, u64::try_from(size).unwrap() - 2 * PAGE as u64).unwrap();
        let (inside, outside) = (0, 3 * PAGE as u64 - 200);
        let mut bytes = [1; 100];
        assert_eq!(ends.access(id, &lease, inside, Access::Write(&bytes)), Mapped::Executed);
        assert_eq!(ends.access(id, &lease, outside, Access::Write(&bytes)), Mapped::Failed);
        // Nothing is read from or written to what is in its place.
        assert_eq!(ends.access(id, &lease, inside, Access::Read(&mut bytes)), Mapped::Failed);
        ends.borrower.unmap_revoked();
        assert_eq!(ends.access(id, &lease, inside, Access::Write(&bytes)), Mapped::Not);
        assert_eq!(memory.bytes(100, 100), [1; 100]);
        ends.lender.revoke(|_| true);
        assert_eq!(ends.lend(&lease).unwrap().1, Reach::SystemCall, "the file is too short");
    }
}

/// The program has not reserved its huge pages, and there are none left.
#[test]
fn huge_pages_that_do_not_exist_are_accessed_by_calls() {
    let Some(pages) = HugePages::allow() else {
        return weft_testkit::skip("used up huge pages", "only root may allow them");
    };
    let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB | MemfdFlags::CLOEXEC;
    let file = memfd_create(c"weft unreserved", flags).unwrap();
    ftruncate(&file, HUGE_PAGE as u64).unwrap();
    let (rights, null) = (libc::PROT_READ | libc::PROT_WRITE, core::ptr::null_mut());
    let (flags, fd) = (libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd());
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let start = unsafe { libc::mmap(null, HUGE_PAGE, rights, flags, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let start = NonNull::new(start.cast()).unwrap();
    let memory = Memory { start, len: HUGE_PAGE, file: Some(file), path: None, segment: None };
    std::fs::write(OVERCOMMIT, "0").unwrap();
    let reach = Ends::new().lend(&memory.lease(7)).unwrap().1;
    drop(pages);
    assert_eq!(reach, Reach::SystemCall);
}

/// A thread that blocks the signal of a fault would be ended with its process.
#[test]
fn a_thread_that_blocks_faults_uses_calls_for_memory_that_can_shrink() {
    let (shrinks, sealed, mut ends) =
        (Memory::memfd(MemfdFlags::empty(), PAGE), Memory::sealed(), Ends::new());
    let leases = [shrinks.lease(7), sealed.lease(8)];
    let ids = [7, 8].map(|key| ends.lend_mapped(&leases[key - 7]));
    let write =
        |ends: &Ends, which: usize| ends.access(ids[which], &leases[which], 0, Access::Write(&[1]));
    assert_eq!([0, 1].map(|which| write(&ends, which)), [Mapped::Executed; 2]);
    let blocked = std::thread::scope(|scope| {
        let (ends, write) = (ends, &write);
        let blocks = scope.spawn(move || {
            // SAFETY: all-zero bytes are a valid set.
            unsafe {
                let mut all = core::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, core::ptr::null_mut());
            }
            [0, 1].map(|which| write(&ends, which))
        });
        blocks.join().unwrap()
    });
    assert_eq!(blocked, [Mapped::Not, Mapped::Executed]);
}
