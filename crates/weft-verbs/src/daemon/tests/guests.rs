//! Tests of a virtual machine's device, with a process in place of QEMU and its guest: the guest's memory is a file that
//! the process maps, and its ports are Unix sockets.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weft_units::{ByteCount, Rng, Seed};

use super::hostile::{byte, index};
use super::*;
use crate::attach::{Refusal, Run};
use crate::guest::inside::bridge::{self, Bridge};
use crate::guest::inside::guardian;
use crate::guest::{Frames, GuestDevice, PAGE, SLOT, Slot};

/// The size of the guest's memory, bytes.
const MEMORY: u64 = 4 << 20;

/// The time in which no relay notices the silence of a process.
const SILENCE: Duration = Duration::from_secs(3);

/// A guest without QEMU.
struct Machine {
    device: GuestDevice,
    /// The folder of its sockets.
    folder: PathBuf,
    /// The guest's memory, mapped here.
    memory: usize,
}

impl Machine {
    fn start(daemon: &Running, ports: u32) -> Self {
        Self::start_at(&daemon.path, ports)
    }

    fn start_at(daemon: &Path, ports: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("weft-guest-{}-{number}", std::process::id()));
        let memory = ByteCount(MEMORY);
        let device = GuestDevice::start("a", memory, ports, &folder, Some(daemon)).unwrap();
        let len = usize::try_from(MEMORY).unwrap();
        let (null, protection) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        let ram = device.ram();
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap(null, len, protection, MapFlags::SHARED, ram, 0) }.unwrap();
        Self { device, folder, memory: start.expose_provenance() }
    }

    fn connect(&self, port: usize) -> UnixStream {
        UnixStream::connect(&self.device.sockets()[port]).unwrap()
    }

    /// Opens a port, as a process of the guest does.
    fn open(&self, port: usize, session: u32) -> Bridge {
        self.open_on(self.connect(port), port, session)
    }

    fn open_on(&self, stream: UnixStream, port: usize, session: u32) -> Bridge {
        let slot = Slot::map(self.device.bar(), port as u64).unwrap();
        let frames = Frames::new(File::from(OwnedFd::from(stream)));
        bridge::start(frames, session, slot).unwrap()
    }

    /// Returns a page of the guest's memory, whose guest's process has it at `address`.
    fn page(&self, number: u64) -> *mut u8 {
        let offset = usize::try_from(number * PAGE).unwrap();
        core::ptr::with_exposed_provenance_mut(self.memory + offset)
    }

    /// Opens a port and attaches, with page 1 as that of the probe.
    fn attach(&self, port: usize, session: u32) -> Result<Guest, CallError> {
        self.attach_over(self.open(port, session), port)
    }

    fn attach_over(&self, bridge: Bridge, port: usize) -> Result<Guest, CallError> {
        let Bridge { mut caller, signal, .. } = bridge;
        // SAFETY: within the memory, and aligned.
        unsafe { self.page(1).cast::<u64>().write(0x1234_5678) };
        caller.call(&Request::Pages(vec![run(1, 1)]), &[])?;
        let probe = Probe { address: 0x7000_0000, value: 0x1234_5678 };
        let (answer, _) = caller.call(&Request::attach("", probe), &[])?;
        assert_eq!(answer, Answer::Attached);
        let bar = self.device.bar().try_clone_to_owned().unwrap();
        let page = Page::open_in(bar, port as u64 * SLOT).unwrap();
        let (work, notices) = (Producer::new(Page::WORK), Consumer::new(Page::NOTICES));
        Ok(Guest { caller, page, signal, work, notices })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let start = core::ptr::with_exposed_provenance_mut(self.memory);
        // SAFETY: no value refers to it any more.
        let _ = unsafe { munmap(start, usize::try_from(MEMORY).unwrap()) };
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const fn run(first: u64, pages: u32) -> Run {
    Run { first, pages }
}

/// A region at an address of the guest's process.
const AT: u64 = 0x5555_0000_0010;

fn region(length: u64) -> Region {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    Region { address: AT, length, iova: AT, access }
}

/// Registers pages of the guest's memory.
fn register(
    guest: &mut Guest,
    domain: ProtectionDomain,
    pages: Vec<Run>,
    length: u64,
) -> Result<u32, i32> {
    match guest.caller.call(&Request::Pages(pages), &[]) {
        Ok((Answer::Done, _)) => {}
        Err(CallError::Refused { errno, .. }) => return Err(errno),
        other => panic!("{other:?}"),
    }
    Ok(guest.command(Command::Register(domain, region(length)))?.number().unwrap())
}

/// The objects of a guest's process, and two regions of 8,000 bytes whose pages lie apart.
struct GuestObjects {
    context: Context,
    qps: [QueuePairNumber; 2],
    domain: ProtectionDomain,
    keys: [u32; 2],
}

const SOURCE: [u64; 2] = [9, 5];
const TARGET: [u64; 2] = [700, 3];
const LENGTH: u64 = 8_000;

fn prepare(guest: &mut Guest) -> GuestObjects {
    let context = Context(guest.number(Command::OpenContext));
    let domain = ProtectionDomain(guest.number(Command::AllocateDomain(context)));
    let cq = CompletionQueue(guest.number(Command::CreateCq(context, 64)));
    let keys = [SOURCE, TARGET].map(|pages| {
        let pages = pages.map(|page| run(page, 1)).to_vec();
        register(guest, domain, pages, LENGTH).unwrap()
    });
    let request = QueuePairRequest {
        domain,
        service: Service::ReliableConnected,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        max_send: 16,
        max_receive: 16,
        max_send_sge: 4,
        max_receive_sge: 4,
        max_inline: 256,
        signal_all: true,
    };
    let qps = [(); 2].map(|()| QueuePairNumber(guest.number(Command::CreateQp(request))));
    guest.connect(context, qps[0], qps[1]);
    GuestObjects { context, qps, domain, keys }
}

/// Writes all of the first region to the second.
fn write_all(guest: &mut Guest, own: &GuestObjects) -> Status {
    let length = u32::try_from(LENGTH).unwrap();
    let sges = [Sge { address: AT, length, lkey: own.keys[0] }];
    let to = Remote { address: AT, rkey: own.keys[1] };
    let request = SendRequest::new(1, Operation::Write(to), Data::Gather(&sges));
    guest.post(&Work::Send(own.qps[0], Posted::numbered(1, &request)));
    guest.signal.give();
    guest.completed()
}

#[test]
fn a_guest_s_process_writes_from_and_to_scattered_pages() {
    let daemon = Running::start();
    daemon.make("a");
    let machine = Machine::start(&daemon, 1);
    let mut guest = machine.attach(0, 1).unwrap();
    let own = prepare(&mut guest);
    for (page, byte) in SOURCE.into_iter().zip([0x11, 0x22]) {
        // SAFETY: within the memory.
        unsafe { machine.page(page).write_bytes(byte, 4096) };
    }
    assert_eq!(write_all(&mut guest, &own), Status::Success);
    // The region begins at byte 16 of its first page, and has 4,080 bytes of it.
    let byte = |page, at| {
        // SAFETY: within the memory.
        unsafe { machine.page(page).add(at).read_volatile() }
    };
    let [first, second] = TARGET;
    let found = [byte(first, 15), byte(first, 16), byte(first, 4095)];
    assert_eq!(found, [0, 0x11, 0x11]);
    let found = [byte(second, 0), byte(second, 3919), byte(second, 3920)];
    assert_eq!(found, [0x22, 0x22, 0]);
    guest.command(Command::Deregister(own.keys[1])).unwrap();
    assert_eq!(write_all(&mut guest, &own), Status::RemoteAccess);
}

#[test]
fn pages_outside_the_guest_s_memory_and_other_numbers_of_pages_are_refused() {
    let daemon = Running::start();
    daemon.make("a");
    let machine = Machine::start(&daemon, 1);
    let mut guest = machine.attach(0, 1).unwrap();
    let own = prepare(&mut guest);
    let mut try_pages = |pages, length| register(&mut guest, own.domain, pages, length).err();
    let last = MEMORY / PAGE - 1;
    for pages in [run(last, 2), run(last + 1, 1), run(u64::MAX, 1), run(0, 0), run(1 << 20, 1)] {
        assert_eq!(try_pages(vec![pages], 4096), Some(libc::EFAULT), "{pages:?}");
    }
    assert_eq!(try_pages(vec![run(last - 1, 2)], 4096), None);
    for length in [1, 4080, 2 * 4096, u64::MAX] {
        assert_eq!(try_pages(vec![run(2, 2)], length), Some(libc::EINVAL), "{length} bytes");
    }
    // Those before a refusal are not the next region's.
    assert_eq!(guest.caller.call(&Request::Pages(vec![run(5, 1)]), &[]).unwrap().0, Answer::Done);
    let mut try_pages = |pages, length| register(&mut guest, own.domain, pages, length).err();
    assert_eq!(try_pages(vec![run(last + 1, 1)], 4096), Some(libc::EFAULT));
    assert_eq!(try_pages(vec![run(2, 1)], 100), None);
    // Without pages: those of an earlier request are not used again.
    let refused = guest.command(Command::Register(own.domain, region(100)));
    assert_eq!(refused, Err(libc::EINVAL));
    let place = Some((AT, 100));
    let moved = Command::Reregister { key: own.keys[0], domain: None, place, access: None };
    assert_eq!(guest.command(moved), Err(libc::EOPNOTSUPP));
    let others = Request::Delete { name: "a".into(), force: true };
    let refused = guest.caller.call(&others, &[]);
    assert!(matches!(refused, Err(CallError::Refused { errno: libc::EPERM, .. })), "{refused:?}");
    assert_eq!(write_all(&mut guest, &own), Status::Success);
}

#[test]
fn a_probe_that_is_not_in_its_page_is_refused_with_the_reason() {
    let daemon = Running::start();
    daemon.make("a");
    let machine = Machine::start(&daemon, 1);
    let mut bridge = machine.open(0, 1);
    for pages in [vec![], vec![run(2, 1)], vec![run(1, 2)]] {
        bridge.caller.call(&Request::Pages(pages), &[]).unwrap();
        let request = Request::attach("", Probe { address: 0, value: 1 });
        let refused = bridge.caller.call(&request, &[]).unwrap_err().to_string();
        assert!(refused.contains("start QEMU with all options"), "{refused}");
    }
    machine.attach_over(bridge, 0).unwrap();
}

/// The kernel of a guest closes the port of a process that dies, which its host does not notice. The next process has
/// another session.
#[test]
fn the_next_process_on_a_port_ends_the_device_of_the_one_before() {
    let daemon = Running::start();
    daemon.make("a");
    let machine = Machine::start(&daemon, 2);
    let stream = machine.connect(0);
    let first = machine.open_on(stream.try_clone().unwrap(), 0, 1);
    let mut first = machine.attach_over(first, 0).unwrap();
    prepare(&mut first);
    let mut neighbour = machine.attach(1, 1).unwrap();
    let of_neighbour = prepare(&mut neighbour);
    assert_eq!((daemon.used("a").processes, daemon.used("a").queue_pairs), (2, 4));
    drop(first);
    let mut port = Frames::new(File::from(OwnedFd::from(stream)));
    let mut message = Vec::new();
    encode(&Request::Describe { name: String::new() }, &mut message);
    let began = Instant::now();
    port.send(2, &message).unwrap();
    until("the end of the first process", || daemon.used("a").processes == 1);
    assert!(began.elapsed() < SILENCE, "its silence was noticed");
    assert_eq!(write_all(&mut neighbour, &of_neighbour), Status::Success);
}

#[test]
fn a_guest_that_dies_ends_its_processes_and_one_that_starts_again_attaches() {
    let daemon = Running::start();
    daemon.make("a");
    let machine = Machine::start(&daemon, 1);
    for session in 0..3 {
        let mut guest = machine.attach(0, session).unwrap();
        let own = prepare(&mut guest);
        assert_eq!(write_all(&mut guest, &own), Status::Success);
        // In the middle of a message.
        drop(guest);
        until("its end", || daemon.used("a") == Amounts::NONE);
    }
    let mut stream = machine.connect(0);
    stream.write_all(&[1, 0, 0, 0, 200, 0, 0, 0, 9, 9]).unwrap();
    drop(stream);
    machine.attach(0, 9).unwrap();
}

#[test]
fn the_end_of_the_daemon_s_device_ends_the_guest_s() {
    let daemon = Running::start();
    daemon.make("a");
    let machine = Machine::start(&daemon, 1);
    let mut guest = machine.attach(0, 1).unwrap();
    daemon.admin().delete("a", true).unwrap();
    until("the process's end", || guest.is_ended());
    daemon.make("a");
    machine.attach(0, 2).unwrap();
}

/// A daemon that ends a process, while a thread that was given up still has the socket.
#[test]
fn the_end_of_the_daemon_s_signal_alone_ends_the_guest_s_device() {
    let path = std::env::temp_dir().join(format!("weft-daemon-{}-half.sock", std::process::id()));
    let listener = Socket::listen(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let answer = |client: &Socket, answer: Answer, files: &[BorrowedFd<'_>]| {
            let mut message = Vec::new();
            client.receive(&mut message, false, true).unwrap();
            encode::<Result<Answer, Refusal>>(&Ok(answer), &mut message);
            client.send(&message, files, false).unwrap();
        };
        answer(&listener.accept().unwrap(), Answer::Done, &[]);
        let ([_ours, theirs], client) = (Signal::pair().unwrap(), listener.accept().unwrap());
        answer(&client, Answer::Attached, &[theirs.as_fd(); 2]);
        client
    });
    let machine = Machine::start_at(&path, 1);
    let mut guest = machine.attach(0, 1).unwrap();
    let _client = daemon.join().unwrap();
    until("the process's end", || guest.is_ended());
    std::fs::remove_file(path).unwrap();
}

/// Returns a message of an attached process, with some bytes changed.
fn mangled(rng: &mut Rng, own: &GuestObjects) -> Vec<u8> {
    let length = [1, 4080, LENGTH, u64::MAX][index(rng, 4)];
    let key = own.keys[index(rng, 2)];
    let (domain, place) = (Some(own.domain), Some((AT, length)));
    let requests = [
        Request::Pages(vec![run(rng.below(1_100), u32::from(byte(rng) % 4)); index(rng, 4)]),
        Request::Pages(vec![run(rng.below(1_000), 1)]),
        Request::Pages(vec![run(rng.below(1_000), 2)]),
        Request::Command(Command::Register(own.domain, region(length))),
        Request::Command(Command::Register(own.domain, region(LENGTH))),
        Request::Command(Command::Deregister(key)),
        Request::Command(Command::Reregister { key, domain, place, access: None }),
        Request::Command(Command::Reregister { key, domain, place: None, access: None }),
        Request::Command(Command::CloseContext(own.context)),
        Request::attach("a", Probe { address: rng.below(9_000), value: 0 }),
    ];
    let mut bytes = Vec::new();
    encode(&requests[index(rng, requests.len())], &mut bytes);
    for _ in 0..rng.below(3) {
        let at = index(rng, bytes.len());
        bytes[at] = byte(rng);
    }
    bytes
}

/// Under any bytes in a port, the relay and the daemon continue, and another guest's process sees no effect.
#[test]
fn random_frames_harm_nobody() {
    let daemon = Running::start();
    daemon.make("a");
    let machine = Machine::start(&daemon, 2);
    let mut good = machine.attach(0, 1).unwrap();
    let own = prepare(&mut good);
    for seed in 0..60 {
        let mut rng = Seed(seed).child("frames", 0).rng();
        let mut stream = machine.connect(1);
        // Before the frames the port's process attaches, in half of the cases.
        let bridge = machine.open_on(stream.try_clone().unwrap(), 1, 1);
        let mut attached = (seed % 2 == 0).then(|| machine.attach_over(bridge, 1).unwrap());
        let objects = attached.as_mut().map(prepare);
        for _ in 0..rng.below(40) {
            let body: Vec<u8> = match rng.below(4) {
                0 => (0..rng.below(80)).map(|_| byte(&mut rng)).collect(),
                _ => mangled(&mut rng, objects.as_ref().unwrap_or(&own)),
            };
            let length = if rng.below(32) == 0 { rng.below(1 << 32) } else { body.len() as u64 };
            let session = u32::from(rng.below(32) > 0);
            let length = u32::try_from(length).unwrap();
            let frame = [&session.to_le_bytes()[..], &length.to_le_bytes(), &body].concat();
            if stream.write_all(&frame).is_err() {
                break;
            }
        }
        drop((stream, attached));
        assert_eq!(write_all(&mut good, &own), Status::Success, "seed {seed}");
    }
    until("the end of the others", || daemon.used("a").processes == 1);
    machine.attach(1, 1).unwrap();
}

/// The thread that opens the device has a stack that glibc does not keep for another one (40 MiB). The other threads of
/// the process continue, so that its silence is not noticed.
#[test]
fn the_guardian_of_a_process_ends_its_device_long_after_the_thread_that_opened_it() {
    let daemon = Running::start();
    daemon.make("a");
    let machine = Machine::start(&daemon, 1);
    let stream = machine.connect(0);
    let port = File::from(OwnedFd::from(stream.try_clone().unwrap()));
    let ring = File::open("/dev/null").unwrap();
    let opener = std::thread::Builder::new().stack_size(64 << 20);
    let opener = opener.spawn(move || guardian::start(&port, ring.as_fd(), 2).unwrap()).unwrap();
    let lifeline = opener.join().unwrap();
    let _guest = machine.attach_over(machine.open_on(stream, 0, 1), 0).unwrap();
    assert_eq!(daemon.used("a").processes, 1);
    drop(lifeline);
    until("the end of its device", || daemon.used("a") == Amounts::NONE);
}

#[test]
fn sixty_four_guests_have_devices_at_once() {
    let daemon = Running::start();
    daemon.make("a");
    let machines: Vec<Machine> = (0..64).map(|_| Machine::start(&daemon, 1)).collect();
    let mut guests: Vec<_> = machines
        .iter()
        .map(|machine| {
            let mut guest = machine.attach(0, 1).unwrap();
            let own = prepare(&mut guest);
            (guest, own)
        })
        .collect();
    let used = daemon.used("a");
    assert_eq!((used.processes, used.regions, used.queue_pairs), (64, 128, 128));
    for ((machine, (guest, own)), byte) in machines.iter().zip(&mut guests).zip(1..) {
        // SAFETY: within the memory.
        unsafe { machine.page(SOURCE[0]).write_bytes(byte, 4096) };
        assert_eq!(write_all(guest, own), Status::Success);
    }
    for (machine, byte) in machines.iter().zip(1..) {
        // SAFETY: within the memory.
        let found = unsafe { machine.page(TARGET[0]).add(4095).read_volatile() };
        assert_eq!(found, byte, "each has its own");
    }
    drop(guests);
    until("their end", || daemon.used("a") == Amounts::NONE);
}
