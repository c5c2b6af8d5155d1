//! A daemon in a thread, and clients that speak to it as a library would, or as none would.
#![allow(clippy::disallowed_methods, reason = "these tests wait for a daemon in real time")]

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_rnic::{
    Access, Attributes, CompletionQueue, Context, Data, Operation, ProtectionDomain,
    QueuePairNumber, QueuePairRequest, Remote, SendRequest, Service, Sge, State, Status,
};
use weft_units::{Rng, Seed};

use super::{Daemon, ServeError, Stopper};
use crate::admin::Admin;
use crate::attach::{
    Amounts, Answer, CallError, Caller, Consumer, Page, Posted, Probe, Producer, Request, Signal,
    Socket, Told, Work, decode, encode,
};
use crate::engine::command::{Command, Reply};
use crate::engine::{Region, address_of};

/// A daemon that ends with the test.
struct Running {
    path: PathBuf,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    fn start() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-daemon-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let daemon = Daemon::open(&path).unwrap();
        let stopper = daemon.stopper();
        Self { path, stopper, thread: Some(std::thread::spawn(|| daemon.run())) }
    }

    fn admin(&self) -> Admin {
        Admin::connect(Some(&self.path)).unwrap()
    }

    fn make(&self, name: &str) {
        self.admin().create(name, None, Amounts::default()).unwrap();
    }

    fn attach(&self, name: &str) -> Guest {
        Guest::attach(Caller::connect(&self.path).unwrap(), name).unwrap()
    }

    fn used(&self, name: &str) -> Amounts {
        self.admin().show(name).unwrap().used
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.expect("the daemon lives").unwrap();
        }
    }
}

/// A client that does not keep to anything.
struct Guest {
    caller: Caller,
    page: Page,
    signal: Signal,
    work: Producer,
    told: Consumer,
}

impl Guest {
    fn attach(mut caller: Caller, name: &str) -> Result<Self, CallError> {
        let memory = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
        let value = Box::new(0x0123_4567_89ab_cdef_u64);
        let address = (&raw const *value).expose_provenance() as u64;
        let probe = Probe { address, value: *value };
        let request = Request::Attach { name: name.into(), probe };
        let (answer, descriptors) = caller.call(&request, &[memory.as_fd()])?;
        assert_eq!(answer, Answer::Attached);
        let [page, signal] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
        let (page, signal) = (Page::open(page).unwrap(), Signal::open(signal));
        let (work, told) = (Producer::new(Page::WORK), Consumer::new(Page::TOLD));
        Ok(Self { caller, page, signal, work, told })
    }

    fn command(&mut self, command: Command) -> Result<Reply, i32> {
        match self.caller.call(&Request::Command(command), &[]) {
            Ok((Answer::Reply(reply), _)) => Ok(reply),
            Err(CallError::Refused { errno, .. }) => Err(errno),
            other => panic!("{command:?} comes to {other:?}"),
        }
    }

    fn number(&mut self, command: Command) -> u32 {
        self.command(command).unwrap().number().unwrap()
    }

    /// Makes one of each.
    fn settle(&mut self) -> Settled {
        let context = Context(self.number(Command::OpenContext));
        let domain = ProtectionDomain(self.number(Command::AllocateDomain(context)));
        let cq = CompletionQueue(self.number(Command::CreateCq(context, 64)));
        let memory = Box::new([const { AtomicU8::new(0) }; 4096]);
        let address = memory.as_ptr().expose_provenance() as u64;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = Region { address, length: 4096, iova: address, access };
        let key = self.number(Command::Register(domain, region));
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
        let qp = QueuePairNumber(self.number(Command::CreateQp(request)));
        Settled { context, domain, cq, key, request, qp, memory }
    }

    /// Connects two queue pairs of its own over the loopback interface.
    fn connect(&mut self, a: QueuePairNumber, b: QueuePairNumber) {
        let describe = Request::Describe { name: "a".into() };
        let Ok((Answer::Description(found), _)) = self.caller.call(&describe, &[]) else {
            panic!("there is no description");
        };
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let row = found.addresses.iter().position(|row| row.ip == loopback).unwrap();
        let row = u32::try_from(row).unwrap();
        self.command(Command::Route(loopback, row)).unwrap();
        for (qp, peer) in [(a, b), (b, a)] {
            let to_init = Attributes {
                state: Some(State::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
                ..Attributes::default()
            };
            let to_receive = Attributes {
                state: Some(State::ReadyToReceive),
                destination: Some(address_of(loopback, peer.0)),
                dest_qp: Some(peer.0),
                path_mtu: Some(1024),
                rq_psn: Some(0),
                max_dest_rd_atomic: Some(1),
                min_rnr_timer: Some(12),
                ..Attributes::default()
            };
            let to_send = Attributes {
                state: Some(State::ReadyToSend),
                timeout: Some(14),
                retry_count: Some(7),
                rnr_retry: Some(7),
                sq_psn: Some(0),
                max_rd_atomic: Some(1),
                ..Attributes::default()
            };
            for attributes in [to_init, to_receive, to_send] {
                self.command(Command::ModifyQp(qp, attributes)).unwrap();
            }
        }
    }

    /// Writes eight bytes of its region to an address under a key.
    fn write(&mut self, own: &Settled, to: Remote) {
        let sges = [Sge { address: own.address(), length: 8, lkey: own.key }];
        let request = SendRequest::new(1, Operation::Write(to), Data::Gather(&sges));
        self.post(&Work::Send(own.qp, Posted::numbered(1, &request)));
        self.signal.give();
    }

    /// What becomes of what it posted.
    fn completed(&mut self) -> Status {
        let (mut record, mut status) = (Vec::new(), None);
        until("a completion", || {
            if self.told.pop(&self.page, &mut record).unwrap()
                && let Some(Told::Completion(_, completion)) = decode(&record)
            {
                status = Some(completion.status);
            }
            status.is_some()
        });
        status.unwrap()
    }

    /// Whether the daemon has ended this client.
    fn is_ended(&mut self) -> bool {
        let call = self.caller.call(&Request::List { after: String::new() }, &[]);
        matches!(call, Err(CallError::Gone(_)))
    }

    fn post(&mut self, work: &Work<'_>) {
        let mut record = Vec::new();
        encode(work, &mut record);
        assert!(self.work.push(&self.page, &record).unwrap());
    }
}

struct Settled {
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    key: u32,
    request: QueuePairRequest,
    qp: QueuePairNumber,
    memory: Box<[AtomicU8; 4096]>,
}

impl Settled {
    fn address(&self) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what} never came");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_client_made_goes_with_it() {
    let daemon = Running::start();
    daemon.make("a");
    let mut guest = daemon.attach("a");
    guest.settle();
    let used = daemon.used("a");
    let one = Amounts {
        processes: 1,
        domains: 1,
        regions: 1,
        completion_queues: 1,
        shared_receive_queues: 0,
        queue_pairs: 1,
    };
    assert_eq!(used, one);
    assert_eq!(daemon.admin().show("a").unwrap().processes, [std::process::id()]);
    drop(guest);
    until("its end", || daemon.used("a") == Amounts::NONE);
}

#[test]
fn commands_about_others_objects_are_refused() {
    let daemon = Running::start();
    daemon.make("a");
    daemon.make("b");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("b"));
    let (of_a, of_b) = (a.settle(), b.settle());
    let attributes = Attributes { state: Some(State::Error), ..Attributes::default() };
    let with = |change: fn(&mut QueuePairRequest, &Settled)| {
        let mut request = of_b.request;
        change(&mut request, &of_a);
        Command::CreateQp(request)
    };
    for command in [
        Command::CloseContext(of_a.context),
        Command::AllocateDomain(of_a.context),
        Command::CreateCq(of_a.context, 1),
        Command::DeallocateDomain(of_a.domain),
        Command::Deregister(of_a.key),
        Command::Reregister { key: of_a.key, domain: Some(of_b.domain), place: None, access: None },
        Command::Reregister { key: of_b.key, domain: Some(of_a.domain), place: None, access: None },
        Command::DestroyCq(of_a.cq),
        Command::ModifyQp(of_a.qp, attributes),
        Command::QueryQp(of_a.qp),
        Command::DestroyQp(of_a.qp),
        with(|request, of_a| request.domain = of_a.domain),
        with(|request, of_a| request.send_cq = of_a.cq),
        with(|request, of_a| request.receive_cq = of_a.cq),
    ] {
        assert_eq!(b.command(command), Err(libc::EINVAL), "{command:?}");
    }
    assert_eq!(a.command(Command::Deregister(of_a.key)), Ok(Reply::Done), "it was left alone");
}

#[test]
fn who_posts_to_another_s_queue_is_ended_and_nobody_else() {
    let daemon = Running::start();
    daemon.make("a");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("a"));
    let (of_a, _of_b) = (a.settle(), b.settle());
    let request = SendRequest::new(1, Operation::Send, Data::Gather(&[]));
    b.post(&Work::Send(of_a.qp, Posted::numbered(1, &request)));
    until("its end", || b.is_ended());
    assert!(!a.is_ended());
    assert_eq!(daemon.used("a").processes, 1);
}

/// Keys are numbers that a program can make up: another tenant's lead nowhere.
#[test]
fn another_s_key_is_refused_and_nothing_is_written() {
    let daemon = Running::start();
    daemon.make("a");
    daemon.make("b");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("b"));
    let (of_a, of_b) = (a.settle(), b.settle());
    of_b.memory[0].store(7, Ordering::Relaxed);
    let other = QueuePairNumber(b.number(Command::CreateQp(of_b.request)));
    b.connect(of_b.qp, other);
    // What it may do, it can.
    b.write(&of_b, Remote { address: of_b.address() + 64, rkey: of_b.key });
    assert_eq!(b.completed(), Status::Success);
    assert_eq!(of_b.memory[64].load(Ordering::Relaxed), 7);
    b.write(&of_b, Remote { address: of_a.address(), rkey: of_a.key });
    assert_eq!(b.completed(), Status::RemoteAccess);
    assert_eq!(of_a.memory[0].load(Ordering::Relaxed), 0);
    assert!(!a.is_ended() && !b.is_ended());
}

/// The program unmapped what it had registered: its device ends, and no peer is told that it was written.
#[test]
fn memory_that_is_gone_ends_who_registered_it() {
    let daemon = Running::start();
    daemon.make("a");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("a"));
    let (_of_a, of_b) = (a.settle(), b.settle());
    let other = QueuePairNumber(b.number(Command::CreateQp(of_b.request)));
    b.connect(of_b.qp, other);
    // No process has this page.
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let gone = Region { address: 4096, length: 64, iova: 4096, access };
    let rkey = b.number(Command::Register(of_b.domain, gone));
    b.write(&of_b, Remote { address: 4096, rkey });
    until("its end", || b.is_ended());
    let mut record = Vec::new();
    while b.told.pop(&b.page, &mut record).unwrap() {
        let told: Told = decode(&record).unwrap();
        let done = matches!(told, Told::Completion(_, done) if done.status == Status::Success);
        assert!(!done, "{told:?}");
    }
    assert!(!a.is_ended());
}

#[test]
fn limits_hold_for_all_processes_of_a_device_together() {
    let daemon = Running::start();
    let limits = Amounts { processes: 2, regions: 3, ..Amounts::default() };
    daemon.admin().create("a", None, limits).unwrap();
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("a"));
    let refused = Guest::attach(Caller::connect(&daemon.path).unwrap(), "a").err().unwrap();
    assert!(matches!(refused, CallError::Refused { errno: libc::EUSERS, .. }), "{refused}");
    let (_of_a, of_b) = (a.settle(), b.settle());
    let region = Region { address: 4096, length: 1, iova: 0, access: Access::NONE };
    let register = Command::Register(of_b.domain, region);
    let key = b.number(register);
    assert_eq!(b.command(register), Err(libc::ENOMEM));
    assert_eq!(b.command(Command::Deregister(key)), Ok(Reply::Done));
    assert!(b.command(register).is_ok());
}

#[test]
fn a_device_in_use_is_deleted_by_force_only() {
    let daemon = Running::start();
    daemon.make("a");
    let mut guest = daemon.attach("a");
    let refused = daemon.admin().delete("a", false).unwrap_err();
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    daemon.admin().delete("a", true).unwrap();
    until("its end", || guest.is_ended());
    assert!(daemon.admin().list().unwrap().is_empty());
}

#[test]
fn a_long_list_comes_in_parts() {
    let daemon = Running::start();
    let mut admin = daemon.admin();
    for number in 0..2_000 {
        admin.create(&format!("d{number}"), None, Amounts::default()).unwrap();
    }
    assert_eq!(admin.list().unwrap().len(), 2_000);
}

#[test]
fn a_second_daemon_is_refused_and_a_dead_one_s_place_is_taken() {
    let daemon = Running::start();
    assert!(matches!(Daemon::open(&daemon.path), Err(ServeError::InUse { .. })));
    assert!(daemon.admin().list().is_ok(), "it still serves");
    let left = std::env::temp_dir().join(format!("weft-left-{}.sock", std::process::id()));
    drop(Socket::listen(&left).unwrap());
    assert!(left.exists());
    drop(Daemon::open(&left).unwrap());
    assert!(!left.exists());
}

/// A message as a library would send it, with some of it changed.
fn mangled(rng: &mut Rng, settled: &Settled) -> Vec<u8> {
    let requests = [
        Request::List { after: "a".into() },
        Request::Command(Command::CreateQp(settled.request)),
        Request::Command(Command::ModifyQp(settled.qp, Attributes::default())),
        Request::Command(Command::CreateCq(settled.context, u32::MAX)),
        Request::Command(Command::Route([127, 0, 0, 1].into(), 77)),
        Request::Command(Command::CreateSrq {
            domain: settled.domain,
            requests: u32::MAX,
            pieces: u32::MAX,
        }),
        Request::Attach { name: "a".into(), probe: Probe { address: 0, value: 0 } },
    ];
    let mut bytes = Vec::new();
    encode(&requests[index(rng, requests.len())], &mut bytes);
    for _ in 0..rng.below(4) {
        let at = index(rng, bytes.len());
        bytes[at] = byte(rng);
    }
    if rng.below(4) == 0 {
        bytes.truncate(1 + index(rng, bytes.len()));
    }
    bytes
}

fn index(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(len as u64)).unwrap()
}

fn byte(rng: &mut Rng) -> u8 {
    u8::try_from(rng.below(256)).unwrap()
}

/// Whatever comes over the socket, the daemon goes on and other clients notice nothing.
#[test]
fn random_messages_harm_nobody() {
    let daemon = Running::start();
    daemon.make("a");
    let mut good = daemon.attach("a");
    let settled = good.settle();
    for seed in 0..60 {
        let mut rng = Seed(seed).child("messages", 0).rng();
        let mut guest = daemon.attach("a");
        let own = guest.settle();
        for _ in 0..40 {
            let bytes = if rng.below(3) == 0 {
                (0..=rng.below(64)).map(|_| byte(&mut rng)).collect()
            } else {
                mangled(&mut rng, &own)
            };
            let file = File::open("/dev/null").unwrap();
            let with = [file.as_fd()];
            let with = if rng.below(8) == 0 { &with[..] } else { &[] };
            match guest.caller.socket().send(&bytes, with, false) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "seed {seed}");
                    break;
                }
            }
            let mut answer = Vec::new();
            if !matches!(guest.caller.socket().receive(&mut answer, false), Ok(Some(_))) {
                break;
            }
        }
        let query = good.command(Command::QueryQp(settled.qp));
        assert!(matches!(query, Ok(Reply::QueuePair(State::Reset, _))), "seed {seed}: {query:?}");
    }
    until("their end", || daemon.used("a").processes == 1);
}

/// Whatever a client writes to its shared memory, the daemon goes on and other clients notice nothing.
#[test]
fn random_rings_harm_nobody() {
    let daemon = Running::start();
    daemon.make("a");
    let mut good = daemon.attach("a");
    let settled = good.settle();
    for seed in 0..120 {
        let mut rng = Seed(seed).child("rings", 0).rng();
        let mut guest = daemon.attach("a");
        let own = guest.settle();
        to_error(&mut guest, &own);
        for _ in 0..rng.below(30) {
            scribble(&mut rng, &mut guest, &own, &settled);
        }
        // Answered, or ended: nothing else.
        let _ = guest.caller.call(&Request::Command(Command::QueryQp(own.qp)), &[]);
        let query = good.command(Command::QueryQp(settled.qp));
        assert!(matches!(query, Ok(Reply::QueuePair(State::Reset, _))), "seed {seed}: {query:?}");
    }
    until("their end", || daemon.used("a").processes == 1);
}

/// In error it takes everything, and flushes it.
fn to_error(guest: &mut Guest, settled: &Settled) {
    let to_init = Attributes {
        state: Some(State::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::NONE),
        ..Attributes::default()
    };
    let to_error = Attributes { state: Some(State::Error), ..Attributes::default() };
    for attributes in [to_init, to_error] {
        guest.command(Command::ModifyQp(settled.qp, attributes)).unwrap();
    }
}

/// Does one thing to the shared memory, sensible or not.
fn scribble(rng: &mut Rng, guest: &mut Guest, own: &Settled, others: &Settled) {
    let word = |rng: &mut Rng| u32::try_from(rng.below(1 << 32)).unwrap();
    match rng.below(6) {
        0 => {
            // An index, or a flag, of either ring.
            let offset = [0, 64, 128, 192, 256, 320, 384][index(rng, 7)];
            guest.page.index(offset).store(word(rng), Ordering::Release);
        }
        1 => {
            let record: Vec<u8> = (0..rng.below(100)).map(|_| byte(rng)).collect();
            let _ = guest.work.push(&guest.page, &record);
        }
        choice => {
            let sge = Sge { address: word(rng).into(), length: word(rng), lkey: others.key };
            let pieces = vec![sge; index(rng, 40)];
            let request = SendRequest::new(1, Operation::Send, Data::Gather(&pieces));
            let qp = if choice == 2 { others.qp } else { own.qp };
            let mut record = Vec::new();
            encode(&Work::Send(qp, Posted::numbered(1, &request)), &mut record);
            if choice == 3 && !record.is_empty() {
                let at = index(rng, record.len());
                record[at] = byte(rng);
            }
            let _ = guest.work.push(&guest.page, &record);
        }
    }
}
